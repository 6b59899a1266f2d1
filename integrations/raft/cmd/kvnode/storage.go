package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"

	"memlith.org/memlith"
	"memlith.org/memlith/kv"
	"memlith.org/memlith/raftstore"
	"memlith.org/memlith/raftstore/internal/txn"
)

// storage is all that raft and the service keep. The state is there when raft starts, unless it is in memory.
type storage struct {
	logs      raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore
	fsm       raft.FSM
	inMemory  bool                                     // the state: raft restores it from its snapshot and the log
	view      func(read func(txn.Records) error) error // of the state as of one moment
	close     func() error
}

const (
	mapSuffix = "-map"   // of a storage whose state is in maps of Go
	noDisk    = "memory" // log and state: a restart has neither
)

// openStorage opens it, or makes it; redoBytes is the size of memlith's redo log at first, 0: small.
func openStorage(kind, folder string, redoBytes uint64, options txn.Options) (*storage, error) {
	if kind == "memlith" {
		return openMemlith(folder, redoBytes, options)
	}
	if kind == noDisk {
		log, state := raft.NewInmemStore(), newMemory(options)
		return &storage{log, log, raft.NewInmemSnapshotStore(), state, true, state.view, func() error { return nil }}, nil
	}
	type logStore interface {
		raft.LogStore
		raft.StableStore
		Close() error
	}
	var log logStore
	var err error
	logs, inMemory := strings.CutSuffix(kind, mapSuffix)
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, err
	}
	switch logs {
	case "raft-wal":
		log, err = wal.Open(folder)
	case "raft-boltdb":
		log, err = boltdb.NewBoltStore(filepath.Join(folder, "raft.db"))
	default:
		err = fmt.Errorf("there is no storage %q", kind)
	}
	if err != nil {
		return nil, err
	}
	if inMemory {
		state := newMemory(options)
		snapshots, err := raft.NewFileSnapshotStore(folder, 2, io.Discard)
		if err != nil {
			return nil, errors.Join(err, log.Close())
		}
		return &storage{log, log, snapshots, state, true, state.view, log.Close}, nil
	}
	state, err := openBolt(folder, options)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	closeAll := func() error { return errors.Join(state.close(), log.Close()) }
	return &storage{log, log, state, state, false, state.view, closeAll}, nil
}

// ---- the state in memlith ------------------------------------------------------------------------------------------

type machine struct{ options txn.Options }

func (machine) Maps() []string { return txn.Maps() }

func (m machine) Apply(in *kv.Txn, maps raftstore.Maps, entry *raft.Log) (any, error) {
	result, err := txn.Apply(records{in, maps}, entry.Index, entry.Data, m.options)
	return result, err
}

type records struct {
	txn  *kv.Txn
	maps raftstore.Maps
}

func (r records) Get(name string, key []byte) ([]byte, error) {
	value, err := r.txn.Get(r.maps[name], key)
	if errors.Is(err, memlith.ErrNotFound) {
		return nil, nil
	}
	return value, err
}

func (r records) Put(name string, key, value []byte) error {
	return r.txn.Put(r.maps[name], key, value)
}

func openMemlith(folder string, redoBytes uint64, options txn.Options) (*storage, error) {
	store, err := raftstore.Open(folder, machine{options},
		raftstore.Options{Memlith: memlith.Options{LogBytes: redoBytes}})
	if err != nil {
		return nil, err
	}
	view := func(read func(txn.Records) error) error {
		return store.State.View(func(in *kv.Txn, maps raftstore.Maps) error { return read(records{in, maps}) })
	}
	return &storage{store, store, store.State.Snapshots(), store.State, false, view, store.Close}, nil
}
