// Package raftstore stores what hashicorp/raft needs in one memlith store: its log, term and vote, and, for services
// that keep their state in a kv store, the state and its snapshots. docs/replication.md is the guide.
package raftstore

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"

	"memlith.org/memlith"
)

// Options of a node's store.
type Options struct {
	// LogBytes is the size of a new log, which grows; 0: 64 MiB.
	LogBytes uint64
	// Memlith has options of the memlith store; Create is taken for granted.
	Memlith memlith.Options
}

// Store is all that a node keeps on its disk.
type Store struct {
	*LogStore
	State   *State // nil, if there is no machine
	memlith *memlith.Store
}

// Open opens the store of a node in a folder, and makes a missing one. Without a machine it is a raft.LogStore and a
// raft.StableStore only.
func Open(folder string, machine Machine, options Options) (*Store, error) {
	incoming := filepath.Join(folder, "incoming")
	// A state that was being received when the process ended is received again.
	if err := os.RemoveAll(incoming); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(incoming, 0o777); err != nil {
		return nil, err
	}
	options.Memlith.Create = true
	store, err := memlith.Open(filepath.Join(folder, "store"), options.Memlith)
	if err != nil {
		return nil, err
	}
	log, err := OpenLogStore(store, options.LogBytes)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	opened := &Store{LogStore: log, memlith: store}
	if machine == nil {
		return opened, nil
	}
	if opened.State, err = openState(store, log, machine, incoming); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return opened, nil
}

// Close closes everything; raft has been shut down before.
func (s *Store) Close() error {
	var err error
	if s.State != nil {
		err = s.State.Close()
	}
	return errors.Join(err, s.LogStore.Close(), s.memlith.Close())
}

// Memlith is the memlith store.
func (s *Store) Memlith() *memlith.Store { return s.memlith }

// Configure sets what raft has to know of a State: that it is there when raft starts, and need not be restored.
func Configure(config *raft.Config) { config.NoSnapshotRestoreOnStart = true }
