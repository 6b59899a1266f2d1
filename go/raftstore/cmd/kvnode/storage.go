package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"

	"memlith.org/memlith"
	"memlith.org/memlith/kv"
	"memlith.org/memlith/raftstore"
	"memlith.org/memlith/raftstore/internal/txn"
)

// storage is all that raft and the service keep. The state is there when raft starts.
type storage struct {
	logs      raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore
	fsm       raft.FSM
	view      func(read func(txn.Records) error) error // of the state as of one moment
	close     func() error
}

func openStorage(kind, folder string, options txn.Options) (*storage, error) {
	if kind == "memlith" {
		return openMemlith(folder, options)
	}
	type logStore interface {
		raft.LogStore
		raft.StableStore
		Close() error
	}
	state, err := openBolt(folder, options)
	if err != nil {
		return nil, err
	}
	var log logStore
	switch kind {
	case "raft-wal":
		log, err = wal.Open(folder)
	case "raft-boltdb":
		log, err = boltdb.NewBoltStore(filepath.Join(folder, "raft.db"))
	default:
		err = fmt.Errorf("there is no storage %q", kind)
	}
	if err != nil {
		return nil, errors.Join(err, state.close())
	}
	closeAll := func() error { return errors.Join(state.close(), log.Close()) }
	return &storage{log, log, state, state, state.view, closeAll}, nil
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

func openMemlith(folder string, options txn.Options) (*storage, error) {
	store, err := raftstore.Open(folder, machine{options}, raftstore.Options{})
	if err != nil {
		return nil, err
	}
	view := func(read func(txn.Records) error) error {
		return store.State.View(func(in *kv.Txn, maps raftstore.Maps) error { return read(records{in, maps}) })
	}
	return &storage{store, store, store.State.Snapshots(), store.State, view, store.Close}, nil
}
