// Package wal is etcd's write-ahead log of raft, in an application log of memlith. It has the interface of
// go.etcd.io/etcd/server/v3/storage/wal, and integrations/etcd/build.py puts its files in the place of etcd's.
//
// A record is an entry of the application log. Records have the kinds of etcd's, and lie in the order in which they
// were saved: an entry of raft that replaces another one is a later record, as in etcd's own log. Save appends its
// records in one piece and returns when they are durable, where etcd's does; a crash leaves a prefix of the records.
package wal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"memlith.org/memlith"
	"memlith.org/memlith/applog"
)

// Errors, which have the names of etcd's.
var (
	ErrMetadataConflict = errors.New("wal: conflicting metadata found")
	ErrFileNotFound     = errors.New("wal: file not found")
	ErrSnapshotMismatch = errors.New("wal: snapshot mismatch")
	ErrSnapshotNotFound = errors.New("wal: snapshot not found")
	ErrSliceOutOfRange  = errors.New("wal: slice bounds out of range")
	ErrDecoderNotFound  = errors.New("wal: decoder not found")
)

const (
	logName        = "wal"
	logBytes       = 64 << 20
	memoryMaxBytes = 64 << 20 // above it, ReleaseLockTo brings records to their file and gives their memory back
	appendBytesMax = 1 << 20  // what Save hands to the log at once
	slowWrite      = time.Second
)

// WAL is an open log. What Open and OpenForRead return has to be read with ReadAll, and is then ready for Save.
type WAL struct {
	lg    *zap.Logger
	dir   string
	store *memlith.Store
	log   *applog.Log // nil: it is closed

	start        walpb.Snapshot // ReadAll returns the entries behind it
	unread       bool           // ReadAll was not called yet
	readOnly     bool
	unsafeNoSync bool

	cutting sync.Mutex // taken behind mu or alone: of removing records, beside which others are appended

	mu       sync.Mutex // of what follows, and of appending records
	metadata []byte
	state    raftpb.HardState
	content  content
	buffer   []byte // for the records of a call
}

// Create makes a log, durably, with metadata that ReadAll returns. The folder appears with all of it or not at all.
// os.ErrExist: there is a log, also one of etcd's own.
func Create(lg *zap.Logger, dirpath string, metadata []byte) (*WAL, error) {
	if lg == nil {
		lg = zap.NewNop()
	}
	snapshot, err := snapshotRecord(&walpb.Snapshot{})
	if err != nil {
		return nil, err
	}
	records := [][]byte{append([]byte{byte(MetadataType)}, metadata...), snapshot}
	err = createFolder(lg, dirpath, func(log *applog.Log) error {
		_, err := log.AppendWrite(records...)
		return err
	})
	if err != nil {
		return nil, err
	}
	w, err := Open(lg, dirpath, walpb.Snapshot{})
	if err != nil {
		return nil, err
	}
	if _, _, _, err := w.ReadAll(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// Open opens a log for reading from a snapshot on, and then for writing. One process at a time has it open so.
func Open(lg *zap.Logger, dirpath string, snap walpb.Snapshot) (*WAL, error) {
	return open(lg, dirpath, snap, memlith.Options{MemoryMaxBytes: memoryMaxBytes})
}

// OpenForRead opens a log for reading from a snapshot on, also while a process has it open for writing: what was
// durable at this call is read then.
func OpenForRead(lg *zap.Logger, dirpath string, snap walpb.Snapshot) (*WAL, error) {
	return open(lg, dirpath, snap, memlith.Options{Follow: true})
}

func open(lg *zap.Logger, dirpath string, snap walpb.Snapshot, options memlith.Options) (*WAL, error) {
	if lg == nil {
		lg = zap.NewNop()
	}
	store, log, err := openFolder(dirpath, options)
	if err != nil {
		return nil, err
	}
	return &WAL{lg: lg, dir: dirpath, store: store, log: log, start: snap, unread: true, readOnly: options.Follow}, nil
}

// Reopen makes durable what was saved, and returns the log as Open does. This handle is closed then.
func (w *WAL) Reopen(lg *zap.Logger, snap walpb.Snapshot) (*WAL, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.log == nil {
		return nil, os.ErrClosed
	}
	w.cutting.Lock()
	defer w.cutting.Unlock()
	if err := w.log.Write(); err != nil {
		return nil, err
	}
	opened := &WAL{lg: lg, dir: w.dir, store: w.store, log: w.log, start: snap, unread: true,
		unsafeNoSync: w.unsafeNoSync}
	w.store, w.log, w.unread = nil, nil, false
	return opened, nil
}

// SetUnsafeNoFsync has no call wait for the disk: records are durable, in their order, a moment later.
func (w *WAL) SetUnsafeNoFsync() { w.unsafeNoSync = true }

// ReadAll returns the metadata, the newest hard state, and the entries behind the snapshot of Open; the newest of those
// that have one index. Errors: ErrSnapshotNotFound, with all else: the snapshot was not saved, or its record was
// released. ErrSnapshotMismatch: it was saved with another term. ErrSliceOutOfRange, with the entries before: one is
// missing. ErrDecoderNotFound: the log was read already.
func (w *WAL) ReadAll() (metadata []byte, state raftpb.HardState, ents []raftpb.Entry, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.unread {
		return nil, state, nil, ErrDecoderNotFound
	}
	reading := reading{start: w.start}
	content := content{}
	err = replay(w.log, func(number uint64, record []byte) error {
		index, err := reading.add(record)
		if err != nil {
			return err
		}
		if kindOf(record) == EntryType {
			entry := MustUnmarshalEntry(record[1:])
			if index = entry.Index; index > w.start.Index {
				at := index - w.start.Index - 1
				if at > uint64(len(ents)) {
					return fmt.Errorf("%w, snapshot[Index: %d, Term: %d], current entry[Index: %d, Term: %d], len(ents): %d",
						ErrSliceOutOfRange, w.start.Index, w.start.Term, entry.Index, entry.Term, len(ents))
				}
				ents = append(ents[:at], entry)
			}
		}
		content.note(number, kindOf(record), index, len(record))
		return nil
	})
	switch {
	case errors.Is(err, ErrSliceOutOfRange):
		return nil, reading.state, ents, err
	case err != nil:
		return nil, raftpb.HardState{}, nil, err
	case !reading.found:
		err = ErrSnapshotNotFound
	}
	w.unread, w.start = false, walpb.Snapshot{}
	w.metadata, w.state, w.content = reading.metadata, reading.state, content
	return reading.metadata, reading.state, ents, err
}

// Save saves entries and the hard state. It returns when they, and all before them, are durable, if raft wants that: if
// there are entries, or the term or the vote changed. A commit index alone is durable with the next call that waits.
func (w *WAL) Save(st raftpb.HardState, ents []raftpb.Entry) error {
	if raft.IsEmptyHardState(st) && len(ents) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var batch batch
	batch.begin(w.buffer)
	for i := range ents {
		if err := batch.add(EntryType, ents[i].Index, &ents[i]); err != nil {
			return err
		}
	}
	if !raft.IsEmptyHardState(st) {
		if err := batch.add(StateType, 0, &st); err != nil {
			return err
		}
	}
	if err := w.append(&batch, raft.MustSync(st, w.state, len(ents))); err != nil {
		return err
	}
	if !raft.IsEmptyHardState(st) {
		w.state = st
	}
	return nil
}

// SaveSnapshot saves that there is a snapshot, durably.
func (w *WAL) SaveSnapshot(e walpb.Snapshot) error {
	if err := walpb.ValidateSnapshotForWrite(&e); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var batch batch
	batch.begin(w.buffer)
	if err := batch.add(SnapshotType, e.Index, &e); err != nil {
		return err
	}
	return w.append(&batch, true)
}

// append appends the records. With `sync`, they are durable then. After an error the log ends where it did. The mutex
// is held.
func (w *WAL) append(batch *batch, sync bool) error {
	if w.log == nil {
		return os.ErrClosed
	}
	if w.unread {
		return errors.New("wal: the log has to be read before records are saved")
	}
	w.buffer = batch.kept()
	before := w.content.newest
	began := time.Now()
	records := batch.records
	for len(records) > 0 {
		count, bytes := 0, 0
		for count < len(records) && (count == 0 || bytes+len(records[count]) <= appendBytesMax) {
			bytes += len(records[count])
			count++
		}
		wait := sync && !w.unsafeNoSync && count == len(records)
		var err error
		if wait {
			_, err = w.log.AppendWrite(records[:count]...)
		} else {
			_, err = w.log.Append(records[:count]...)
		}
		if err != nil {
			w.cutting.Lock()
			defer w.cutting.Unlock()
			return errors.Join(err, w.log.TruncateAfter(before))
		}
		walWriteBytes.Add(float64(bytes))
		records = records[count:]
	}
	for i, record := range batch.records {
		w.content.note(before+1+uint64(i), kindOf(record), batch.indexes[i], len(record))
	}
	if !sync {
		return nil
	}
	if w.unsafeNoSync {
		_, err := w.log.WriteWeak()
		return err
	}
	w.observe(began)
	return nil
}

func (w *WAL) observe(began time.Time) {
	took := time.Since(began)
	walFsyncSec.Observe(took.Seconds())
	if took > slowWrite {
		w.lg.Warn("slow write of the write-ahead log", zap.Duration("took", took),
			zap.Duration("expected-duration", slowWrite))
	}
}

// Sync makes durable what was saved.
func (w *WAL) Sync() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.log == nil:
		return os.ErrClosed
	case w.readOnly:
		return nil
	case w.unsafeNoSync:
		_, err := w.log.WriteWeak()
		return err
	}
	began := time.Now()
	err := w.log.Write()
	if err == nil {
		w.observe(began)
	}
	return err
}

// ReleaseLockTo tells that a snapshot has everything up to the index. Records that are needed neither from that
// snapshot on, nor from a few older ones, are removed: content.releasable.
func (w *WAL) ReleaseLockTo(index uint64) error {
	w.mu.Lock()
	first, err := w.keepHeads(index)
	log := w.log
	if first == 0 || err != nil {
		w.mu.Unlock()
		return err
	}
	// Removing records may bring others to their file, which saves do not wait for.
	w.cutting.Lock()
	w.mu.Unlock()
	err = log.TruncateBefore(first)
	w.cutting.Unlock()
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.content.drop(first)
	return nil
}

// keepHeads returns the first record that stays, 0: all do. The newest metadata and hard state are saved again if they
// lie before it: the frames of these records come first. The mutex is held.
func (w *WAL) keepHeads(index uint64) (first uint64, err error) {
	if w.log == nil {
		return 0, os.ErrClosed
	}
	if first = w.content.releasable(index); first == 0 {
		return 0, nil
	}
	var batch batch
	batch.begin(w.buffer)
	if w.content.metadata < first {
		batch.addBytes(MetadataType, w.metadata)
	}
	if w.content.state != 0 && w.content.state < first {
		if err := batch.add(StateType, 0, &w.state); err != nil {
			return 0, err
		}
	}
	return first, w.append(&batch, false)
}

// Close makes durable what was saved, and closes the log. After an error of memlith.IsStillOpen it is open as before.
func (w *WAL) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.log == nil {
		return nil
	}
	w.cutting.Lock()
	defer w.cutting.Unlock()
	err := w.log.Close()
	if err != nil && memlith.IsStillOpen(err) {
		return err
	}
	err = errors.Join(err, w.store.Close())
	w.log, w.store, w.unread = nil, nil, false
	return err
}

// ---- the whole log -------------------------------------------------------------------------------------------------

// ValidSnapshotEntries returns the snapshots of a log that are not newer than its newest commit index.
func ValidSnapshotEntries(lg *zap.Logger, walDir string) (snaps []walpb.Snapshot, err error) {
	var state raftpb.HardState
	err = readFolder(lg, walDir, func(_ uint64, record []byte) error {
		switch kindOf(record) {
		case SnapshotType:
			snapshot, err := unmarshalSnapshot(record[1:])
			snaps = append(snaps, snapshot)
			return err
		case StateType:
			state = MustUnmarshalState(record[1:])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	valid := 0
	for _, snapshot := range snaps {
		if snapshot.Index <= state.Commit {
			snaps[valid] = snapshot
			valid++
		}
	}
	return snaps[:valid:valid], nil
}

// Verify reads a log, checks it, and returns its newest hard state. Errors: as of ReadAll.
func Verify(lg *zap.Logger, walDir string, snap walpb.Snapshot) (*raftpb.HardState, error) {
	reading := reading{start: snap}
	err := readFolder(lg, walDir, func(_ uint64, record []byte) error {
		_, err := reading.add(record)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !reading.found {
		return nil, ErrSnapshotNotFound
	}
	return &reading.state, nil
}

// Repair tells whether a log can be read. There is nothing to repair: opening a store of memlith ends with the newest
// record that is whole.
func Repair(lg *zap.Logger, dirpath string) bool {
	err := readFolder(lg, dirpath, func(uint64, []byte) error { return nil })
	if err != nil && lg != nil {
		lg.Warn("failed to repair", zap.String("path", dirpath), zap.Error(err))
	}
	return err == nil
}

func readFolder(lg *zap.Logger, dirpath string, visit func(number uint64, record []byte) error) error {
	w, err := OpenForRead(lg, dirpath, walpb.Snapshot{})
	if err != nil {
		return err
	}
	return errors.Join(replay(w.log, visit), w.Close())
}

func syncFolder(name string) error {
	folder, err := fileutil.OpenDir(filepath.Clean(name))
	if err != nil {
		return err
	}
	return errors.Join(fileutil.Fsync(folder), folder.Close())
}
