package raftstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"memlith.org/memlith"
	"memlith.org/memlith/applog"
	"memlith.org/memlith/kv"
)

// ErrKeyNotFound is what Get and GetUint64 return. Raft compares its text.
var ErrKeyNotFound = errors.New("not found")

// Names in the store.
const (
	logName    = "raft-log"
	stableName = "raft-stable" // the kv store of term and vote
	stableMap  = "stable"
)

// LogStore keeps raft's log in an application log, entry by entry under raft's indexes, and term and vote in a kv
// store of the same memlith store. It is a raft.LogStore and a raft.StableStore.
//
// StoreLogs and Set return when what they wrote is durable. DeleteRange returns before that: the redo log has its
// frame in front of those of all later calls, so that what is stored over deleted entries is never found without the
// deletion.
type LogStore struct {
	log    *applog.Log
	kv     *kv.KV
	stable kv.Map

	mutex     sync.Mutex // of calls that change the log
	installed position   // of a snapshot that became the state just now: until the log is changed behind its start
}

var (
	_ raft.LogStore          = (*LogStore)(nil)
	_ raft.StableStore       = (*LogStore)(nil)
	_ raft.MonotonicLogStore = (*LogStore)(nil)
)

// OpenLogStore opens the log in a memlith store, and makes a missing one, which has logBytes (0: 64 MiB) and grows.
func OpenLogStore(store *memlith.Store, logBytes uint64) (*LogStore, error) {
	log, err := applog.Open(store, logName, applog.Options{Create: true, WhenFull: applog.Grow, Size: logBytes})
	if err != nil {
		return nil, err
	}
	stable, err := kv.Open(store, stableName, kv.Options{Create: true})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	number, err := stable.CreateMap(stableMap)
	if err != nil {
		return nil, errors.Join(err, stable.Close(), log.Close())
	}
	return &LogStore{log: log, kv: stable, stable: number}, nil
}

// Close closes the log, but not the memlith store.
func (l *LogStore) Close() error { return errors.Join(l.kv.Close(), l.log.Close()) }

// IsMonotonic tells raft that there are no gaps in the log: after a snapshot was installed, raft deletes all of it.
func (l *LogStore) IsMonotonic() bool { return true }

func (l *LogStore) ends() (first, last uint64, err error) {
	info, err := l.log.Info()
	if err != nil || info.Newest == info.Consumed {
		return 0, 0, err
	}
	return info.Consumed + 1, info.Newest, nil
}

// FirstIndex returns the first index of the log; 0: it is empty.
func (l *LogStore) FirstIndex() (uint64, error) {
	first, _, err := l.ends()
	return first, err
}

// LastIndex returns the last index of the log; 0: it is empty.
func (l *LogStore) LastIndex() (uint64, error) {
	_, last, err := l.ends()
	return last, err
}

// GetLog reads an entry; raft.ErrLogNotFound: there is none.
func (l *LogStore) GetLog(index uint64, entry *raft.Log) error {
	content, err := l.log.Get(index)
	if errors.Is(err, memlith.ErrNotFound) {
		return raft.ErrLogNotFound
	}
	if err != nil {
		return err
	}
	return decode(index, content, entry)
}

// StoreLog is StoreLogs of one.
func (l *LogStore) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// The bytes that are handed to the log at once; one call may store more.
const appendBytesMax = 1 << 20

// StoreLogs stores entries that continue the log, with one flush for all. An empty log begins with any index, and
// entries behind a gap begin the log anew: raft leaves one only behind a snapshot that it has installed. After an error
// the log ends where it did, or where the new one begins.
func (l *LogStore) StoreLogs(entries []*raft.Log) error {
	if len(entries) == 0 {
		return nil
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.installed = position{}
	info, err := l.log.Info()
	if err != nil {
		return err
	}
	next := info.Newest + 1
	if empty := info.Newest == info.Consumed; entries[0].Index > next || (empty && entries[0].Index != next) {
		if err := l.log.Restart(entries[0].Index); err != nil {
			return err
		}
		next = entries[0].Index
	}
	for i, entry := range entries {
		if entry.Index != next+uint64(i) {
			return fmt.Errorf("raftstore: entry %d was to be stored where the log continues with %d", entry.Index,
				next+uint64(i))
		}
	}
	var batch [][]byte
	bytes := 0
	for i, entry := range entries {
		encoded := encode(entry)
		batch = append(batch, encoded)
		bytes += len(encoded)
		last := i == len(entries)-1
		if !last && bytes < appendBytesMax {
			continue
		}
		if last {
			_, err = l.log.AppendWrite(batch...)
		} else {
			_, err = l.log.Append(batch...)
		}
		if err != nil {
			return errors.Join(err, l.log.TruncateAfter(next-1))
		}
		batch, bytes = batch[:0], 0
	}
	return nil
}

// noteInstalled tells the log which snapshot became the state.
func (l *LogStore) noteInstalled(at position) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.installed = at
}

// DeleteRange deletes entries at either end of the log, both indexes included. If that is the whole log, because a
// snapshot was installed, entries that continue the snapshot stay: raft 1.7.3 deletes them, too, although this node may
// have acknowledged them, and counts on them still. A snapshot that arrives late would take them away.
func (l *LogStore) DeleteRange(least, most uint64) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	first, last, err := l.ends()
	if last == 0 {
		l.installed = position{}
	}
	if err != nil || last == 0 || most < first || least > last || least > most {
		return err
	}
	switch {
	case least <= first && most < last:
		return l.log.TruncateBefore(most + 1)
	case least <= first:
		installed := l.installed
		l.installed = position{}
		continued, err := l.continues(first, installed)
		if err != nil {
			return err
		}
		if continued {
			return l.log.TruncateBefore(installed.index + 1)
		}
		return l.log.TruncateBefore(last + 1)
	case most >= last:
		return l.log.TruncateAfter(least - 1)
	}
	return fmt.Errorf("raftstore: entries %d to %d lie within the log (%d to %d), which has no gaps", least, most, first,
		last)
}

// continues tells whether what the log has behind a snapshot's last entry continues the snapshot: if the log has this
// entry, or begins behind it. (A log begins behind entries that were committed, like those of the snapshot.)
func (l *LogStore) continues(first uint64, at position) (bool, error) {
	if at.index == 0 || first == at.index+1 {
		return at.index > 0, nil
	}
	var entry raft.Log
	err := l.GetLog(at.index, &entry)
	if errors.Is(err, raft.ErrLogNotFound) {
		return false, nil
	}
	return err == nil && entry.Term == at.term, err
}

// Set stores a value durably.
func (l *LogStore) Set(key, value []byte) error {
	return l.kv.Update(context.Background(), func(txn *kv.Txn) error { return txn.Put(l.stable, key, value) })
}

// Get returns a value; ErrKeyNotFound: there is none.
func (l *LogStore) Get(key []byte) (value []byte, err error) {
	err = l.kv.View(func(txn *kv.Txn) (err error) {
		value, err = txn.Get(l.stable, key)
		return err
	})
	if errors.Is(err, memlith.ErrNotFound) {
		return nil, ErrKeyNotFound
	}
	return value, err
}

// SetUint64 stores a number durably.
func (l *LogStore) SetUint64(key []byte, value uint64) error {
	return l.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 returns a number; ErrKeyNotFound: there is none.
func (l *LogStore) GetUint64(key []byte) (uint64, error) {
	value, err := l.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("raftstore: the value of %q has %d bytes, and is no number", key, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

// ---- entries -------------------------------------------------------------------------------------------------------

// An entry: format, type, term, time of appending (ns since 1970; 0: none), size of the extensions, these, and the
// data.
const (
	entryFormat     = 1
	entryHeadBytes  = 1 + 1 + 8 + 8 + 4
	entryTermOffset = 2
	entryTimeOffset = 10
	entryExtOffset  = 18
)

func encode(entry *raft.Log) []byte {
	out := make([]byte, entryHeadBytes, entryHeadBytes+len(entry.Extensions)+len(entry.Data))
	out[0], out[1] = entryFormat, byte(entry.Type)
	binary.LittleEndian.PutUint64(out[entryTermOffset:], entry.Term)
	if !entry.AppendedAt.IsZero() {
		binary.LittleEndian.PutUint64(out[entryTimeOffset:], uint64(entry.AppendedAt.UnixNano()))
	}
	binary.LittleEndian.PutUint32(out[entryExtOffset:], uint32(len(entry.Extensions)))
	return append(append(out, entry.Extensions...), entry.Data...)
}

func decode(index uint64, content []byte, entry *raft.Log) error {
	if len(content) < entryHeadBytes || content[0] != entryFormat {
		return fmt.Errorf("raftstore: entry %d is in a format that this version does not know", index)
	}
	extensions := uint64(binary.LittleEndian.Uint32(content[entryExtOffset:]))
	if extensions > uint64(len(content)-entryHeadBytes) {
		return fmt.Errorf("raftstore: entry %d is too short for its extensions", index)
	}
	*entry = raft.Log{
		Index: index,
		Term:  binary.LittleEndian.Uint64(content[entryTermOffset:]),
		Type:  raft.LogType(content[1]),
	}
	if nanoseconds := binary.LittleEndian.Uint64(content[entryTimeOffset:]); nanoseconds != 0 {
		entry.AppendedAt = time.Unix(0, int64(nanoseconds))
	}
	rest := content[entryHeadBytes:]
	if extensions > 0 {
		entry.Extensions = rest[:extensions:extensions]
	}
	if uint64(len(rest)) > extensions {
		entry.Data = rest[extensions:]
	}
	return nil
}
