package main

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"

	"memlith.org/memlith"
	"memlith.org/memlith/kv"
	"memlith.org/memlith/raftstore"
)

// storage is all that raft and the service keep.
type storage struct {
	logs      raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore
	fsm       raft.FSM
	durable   bool                             // the state is there when raft starts
	get       func(key []byte) ([]byte, error) // memlith.ErrNotFound
	close     func() error
}

func openStorage(kind, folder string) (*storage, error) {
	if kind == "memlith" {
		return openMemlith(folder)
	}
	snapshots, err := raft.NewFileSnapshotStore(folder, 2, io.Discard)
	if err != nil {
		return nil, err
	}
	state := &memory{values: map[string][]byte{}}
	opened := &storage{snapshots: snapshots, fsm: state, get: state.get}
	switch kind {
	case "raft-wal":
		log, err := wal.Open(folder)
		if err != nil {
			return nil, err
		}
		opened.logs, opened.stable, opened.close = log, log, log.Close
	case "raft-boltdb":
		log, err := boltdb.NewBoltStore(filepath.Join(folder, "raft.db"))
		if err != nil {
			return nil, err
		}
		opened.logs, opened.stable, opened.close = log, log, log.Close
	default:
		return nil, fmt.Errorf("there is no storage %q", kind)
	}
	return opened, nil
}

// ---- the state in memlith ------------------------------------------------------------------------------------------

const valuesMap = "values"

type machine struct{}

func (machine) Maps() []string { return []string{valuesMap} }

func (machine) Apply(txn *kv.Txn, maps raftstore.Maps, entry *raft.Log) (any, error) {
	key, value, err := decode(entry.Data)
	if err != nil {
		return err, nil
	}
	return nil, txn.Put(maps[valuesMap], key, value)
}

func openMemlith(folder string) (*storage, error) {
	store, err := raftstore.Open(folder, machine{}, raftstore.Options{})
	if err != nil {
		return nil, err
	}
	get := func(key []byte) (value []byte, err error) {
		err = store.State.View(func(txn *kv.Txn, maps raftstore.Maps) (err error) {
			value, err = txn.Get(maps[valuesMap], key)
			return err
		})
		return value, err
	}
	return &storage{store, store, store.State.Snapshots(), store.State, true, get, store.Close}, nil
}

// ---- a state in memory ---------------------------------------------------------------------------------------------

type memory struct {
	mutex  sync.RWMutex
	values map[string][]byte
}

func (m *memory) get(key []byte) ([]byte, error) {
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	value, ok := m.values[string(key)]
	if !ok {
		return nil, memlith.ErrNotFound
	}
	return value, nil
}

func (m *memory) Apply(entry *raft.Log) any {
	key, value, err := decode(entry.Data)
	if err != nil {
		return err
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.values[string(key)] = value
	return nil
}

type copied map[string][]byte

func (m *memory) Snapshot() (raft.FSMSnapshot, error) {
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	all := make(copied, len(m.values))
	for key, value := range m.values {
		all[key] = value
	}
	return all, nil
}

func (c copied) Persist(sink raft.SnapshotSink) error {
	if err := gob.NewEncoder(sink).Encode(map[string][]byte(c)); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (copied) Release() {}

func (m *memory) Restore(source io.ReadCloser) error {
	all := map[string][]byte{}
	if err := gob.NewDecoder(source).Decode(&all); err != nil {
		return err
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.values = all
	return nil
}
