package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"memlith.org/memlith/raftstore/internal/txn"
)

// bolt is a durable state in a file of bbolt, to be measured beside memlith: a batch of entries is one transaction with
// a flush. As in raftstore, a snapshot is the state itself, and the state is there when raft starts. It is a raft.FSM
// and a raft.SnapshotStore.
type bolt struct {
	folder  string
	options txn.Options

	mutex    sync.RWMutex // held by readers of the database; to exchange it, by Restore
	db       *bbolt.DB
	applied  position           // FSM's goroutine only
	received *raft.SnapshotMeta // the snapshot that was received last, in receivedFile
}

type position struct{ index, term uint64 }

const (
	stateFile    = "state.db"
	receivedFile = "received.db"
	receivedID   = "received"

	metaBucket = "meta"
	appliedKey = "applied"       // index and term of the newest entry that the state has
	snapKey    = "snapshot"      // those of raft's newest snapshot, which may end behind them
	configKey  = "configuration" // its index, and the configuration
)

var (
	_ raft.BatchingFSM   = (*bolt)(nil)
	_ raft.SnapshotStore = (*bolt)(nil)
)

func openBolt(folder string, options txn.Options) (*bolt, error) {
	b := &bolt{folder: folder, options: options}
	return b, b.open()
}

func (b *bolt) open() (err error) {
	b.db, err = bbolt.Open(filepath.Join(b.folder, stateFile), 0o666,
		&bbolt.Options{FreelistType: bbolt.FreelistMapType, NoFreelistSync: true})
	if err != nil {
		return err
	}
	err = b.db.Update(func(tx *bbolt.Tx) error {
		for _, name := range append(txn.Maps(), metaBucket) {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = b.db.View(func(tx *bbolt.Tx) error {
			b.applied = positionOf(tx, appliedKey)
			return nil
		})
	}
	if err != nil {
		return errors.Join(err, b.db.Close())
	}
	return nil
}

func (b *bolt) close() error { return b.db.Close() }

type buckets struct{ tx *bbolt.Tx }

func (s buckets) Get(name string, key []byte) ([]byte, error) {
	return append([]byte(nil), s.tx.Bucket([]byte(name)).Get(key)...), nil
}

func (s buckets) Put(name string, key, value []byte) error {
	return s.tx.Bucket([]byte(name)).Put(key, value)
}

func (b *bolt) view(read func(txn.Records) error) error {
	b.mutex.RLock()
	defer b.mutex.RUnlock()
	return b.db.View(func(tx *bbolt.Tx) error { return read(buckets{tx}) })
}

// ---- applying ------------------------------------------------------------------------------------------------------

func (b *bolt) Apply(entry *raft.Log) any { return b.ApplyBatch([]*raft.Log{entry})[0] }

func (b *bolt) ApplyBatch(entries []*raft.Log) []any {
	responses := make([]any, len(entries))
	applied := b.applied
	err := b.db.Update(func(tx *bbolt.Tx) error {
		for i, entry := range entries {
			if entry.Index <= applied.index {
				continue
			}
			switch entry.Type {
			case raft.LogCommand:
				result, err := txn.Apply(buckets{tx}, entry.Index, entry.Data, b.options)
				if err != nil {
					return err
				}
				responses[i] = result
			case raft.LogConfiguration:
				if err := putConfiguration(tx, entry.Index, entry.Data); err != nil {
					return err
				}
			}
			applied = position{entry.Index, entry.Term}
		}
		return putPosition(tx, appliedKey, applied)
	})
	if err != nil {
		for i := range responses {
			responses[i] = fmt.Errorf("the state stands at entry %d: %w", b.applied.index, err)
		}
		return responses
	}
	b.applied = applied
	return responses
}

func positionOf(tx *bbolt.Tx, key string) position {
	value := tx.Bucket([]byte(metaBucket)).Get([]byte(key))
	if len(value) != 16 {
		return position{}
	}
	return position{binary.BigEndian.Uint64(value), binary.BigEndian.Uint64(value[8:])}
}

func putPosition(tx *bbolt.Tx, key string, at position) error {
	value := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, at.index), at.term)
	return tx.Bucket([]byte(metaBucket)).Put([]byte(key), value)
}

func putConfiguration(tx *bbolt.Tx, index uint64, encoded []byte) error {
	value := append(binary.BigEndian.AppendUint64(nil, index), encoded...)
	return tx.Bucket([]byte(metaBucket)).Put([]byte(configKey), value)
}

// ---- snapshots -----------------------------------------------------------------------------------------------------

// Snapshot has nothing to do: everything that was applied is durable.
func (b *bolt) Snapshot() (raft.FSMSnapshot, error) { return nothing{}, nil }

type nothing struct{}

func (nothing) Persist(sink raft.SnapshotSink) error { return sink.Close() }
func (nothing) Release()                             {}

// Restore replaces the state by one that was received.
func (b *bolt) Restore(source io.ReadCloser) error {
	defer source.Close()
	if b.received == nil {
		return errors.New("there is no snapshot that was received")
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if err := b.db.Close(); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(b.folder, receivedFile), filepath.Join(b.folder, stateFile)); err != nil {
		return err
	}
	if err := b.open(); err != nil {
		return err
	}
	meta := b.received
	b.received = nil
	return b.note(meta)
}

// note remembers raft's newest snapshot; the database is not exchanged meanwhile.
func (b *bolt) note(meta *raft.SnapshotMeta) error {
	return b.db.Update(func(tx *bbolt.Tx) error { return putPosition(tx, snapKey, position{meta.Index, meta.Term}) })
}

// List lists one snapshot, which is the state as it is now.
func (b *bolt) List() (all []*raft.SnapshotMeta, err error) {
	b.mutex.RLock()
	defer b.mutex.RUnlock()
	err = b.db.View(func(tx *bbolt.Tx) error {
		if meta := describe(tx); meta != nil {
			all = append(all, meta)
		}
		return nil
	})
	return all, err
}

func describe(tx *bbolt.Tx) *raft.SnapshotMeta {
	at, known := positionOf(tx, appliedKey), tx.Bucket([]byte(metaBucket)).Get([]byte(configKey))
	if taken := positionOf(tx, snapKey); taken.index > at.index {
		at = taken
	}
	if at.index == 0 || len(known) < 8 {
		return nil
	}
	return &raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax, ID: fmt.Sprintf("state-%d-%d", at.term, at.index), Index: at.index,
		Term: at.term, Configuration: raft.DecodeConfiguration(known[8:]),
		ConfigurationIndex: binary.BigEndian.Uint64(known), Size: tx.Size(),
	}
}

// Open opens the state as it is by now, or what was received.
func (b *bolt) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if id == receivedID {
		file, err := os.Open(filepath.Join(b.folder, receivedFile))
		return b.received, file, err
	}
	b.mutex.RLock()
	tx, err := b.db.Begin(false)
	if err != nil {
		b.mutex.RUnlock()
		return nil, nil, err
	}
	end := func() error {
		defer b.mutex.RUnlock()
		return tx.Rollback()
	}
	meta := describe(tx)
	if meta == nil {
		return nil, nil, errors.Join(errors.New("nothing was applied to the state yet"), end())
	}
	reader, writer := io.Pipe()
	go func() {
		_, err := tx.WriteTo(writer)
		writer.CloseWithError(errors.Join(err, end()))
	}()
	return meta, reader, nil
}

func (b *bolt) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &boltSink{state: b, meta: &raft.SnapshotMeta{
		Version: version, ID: receivedID, Index: index, Term: term, Configuration: configuration,
		ConfigurationIndex: configurationIndex,
	}}, nil
}

// boltSink receives a snapshot; one of the state itself has nothing to write.
type boltSink struct {
	state *bolt
	meta  *raft.SnapshotMeta
	file  *os.File
}

func (k *boltSink) ID() string { return k.meta.ID }

func (k *boltSink) Write(bytes []byte) (count int, err error) {
	if k.file == nil {
		if k.file, err = os.Create(filepath.Join(k.state.folder, receivedFile)); err != nil {
			return 0, err
		}
	}
	count, err = k.file.Write(bytes)
	k.meta.Size += int64(count)
	return count, err
}

func (k *boltSink) Close() error {
	if k.file == nil {
		k.state.mutex.RLock()
		defer k.state.mutex.RUnlock()
		return k.state.note(k.meta)
	}
	k.state.received = k.meta
	return errors.Join(k.file.Sync(), k.file.Close())
}

func (k *boltSink) Cancel() error {
	if k.file == nil {
		return nil
	}
	return errors.Join(k.file.Close(), os.Remove(k.file.Name()))
}
