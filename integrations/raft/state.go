package raftstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/hashicorp/raft"

	"memlith.org/memlith"
	"memlith.org/memlith/kv"
)

// Maps are the maps of a state, by their names.
type Maps map[string]kv.Map

// Machine is what a service implements: how a committed entry changes the state.
type Machine interface {
	// Maps names the maps of the state. Names that begin with "raftstore" are taken.
	Maps() []string
	// Apply changes the state by one entry, with nothing but the transaction. What it returns is the response of raft's
	// future. An error is one of the transaction's calls: the state stands still then until it is opened again.
	Apply(txn *kv.Txn, maps Maps, entry *raft.Log) (response any, err error)
}

// Records of the map metaMap, which lies in the state's kv store, so that they commit with the state.
const (
	metaMap      = "raftstore"
	keyApplied   = "applied"       // index and term of the newest entry that the state has
	keySnapshot  = "snapshot"      // index and term of raft's newest snapshot
	keyConfig    = "configuration" // the index as of which it is known, its own index, and the configuration
	keyStateName = "state"         // in the stable map: the name of the kv store that is the state

	statePrefix = "raft-state-"
)

type position struct{ index, term uint64 }

// State is a durable raft.FSM: a kv store in which the index of the newest applied entry commits with the changes of
// the entry. After a restart raft begins behind it, so that nothing is applied twice or replayed.
//
// Commits are weak: entries are durable in the log before they are applied, and a crash takes the state back by at
// most a window, to entries that the log still has.
type State struct {
	store    *memlith.Store
	stable   *LogStore
	machine  Machine
	incoming string // the folder of snapshots that are being received

	mutex   sync.RWMutex // held by readers of the kv store; to exchange it, by Restore
	kv      *kv.KV
	name    string
	meta    kv.Map
	maps    Maps
	applied position // FSM's goroutine only

	failure  error              // sticky; FSM's goroutine only, as is the next
	received *raft.SnapshotMeta // that was opened last, for Restore
	arrived  sync.Map           // received snapshots that are files yet: ID, *raft.SnapshotMeta
}

var (
	_ raft.BatchingFSM   = (*State)(nil)
	_ raft.SnapshotStore = (*snapshots)(nil)
)

func openState(store *memlith.Store, stable *LogStore, machine Machine, incoming string) (*State, error) {
	s := &State{store: store, stable: stable, machine: machine, incoming: incoming}
	name, err := stable.Get([]byte(keyStateName))
	if errors.Is(err, ErrKeyNotFound) {
		name, err = []byte(statePrefix+"1"), nil
		if err := s.open(string(name)); err != nil {
			return nil, err
		}
		if err := stable.Set([]byte(keyStateName), name); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	} else if err == nil {
		err = s.open(string(name))
	}
	if err != nil {
		return nil, err
	}
	return s, s.removeOthers()
}

// removeOthers removes the rest of a state that was being received or had been replaced at a crash.
func (s *State) removeOthers() error {
	names, err := s.store.Regions()
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, statePrefix) && name != s.name {
			if err := s.store.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *State) open(name string) error {
	opened, err := kv.Open(s.store, name, kv.Options{Create: true})
	if err != nil {
		return err
	}
	maps, meta, err := openMaps(opened, s.machine.Maps())
	if err == nil {
		s.applied, err = readPosition(opened, meta, keyApplied)
	}
	if err != nil {
		return errors.Join(err, opened.Close())
	}
	s.kv, s.name, s.maps, s.meta = opened, name, maps, meta
	return nil
}

func openMaps(in *kv.KV, names []string) (Maps, kv.Map, error) {
	maps := Maps{}
	for _, name := range names {
		if strings.HasPrefix(name, metaMap) {
			return nil, 0, fmt.Errorf("raftstore: a map must not be called %q", name)
		}
		number, err := in.CreateMap(name)
		if err != nil {
			return nil, 0, err
		}
		maps[name] = number
	}
	meta, err := in.CreateMap(metaMap)
	return maps, meta, err
}

// Close makes the state durable.
func (s *State) Close() error { return s.kv.Close() }

// View reads the state as of one moment. Commits go on meanwhile. Nothing waits for the state's own flush: entries that
// were applied are durable in the logs of a majority.
func (s *State) View(read func(txn *kv.Txn, maps Maps) error) error {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.kv.ViewWeak(func(txn *kv.Txn) error { return read(txn, s.maps) })
}

// Applied returns the index of the newest entry that the state has, as far as is durable after Persist.
func (s *State) Applied() (uint64, error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	applied, err := readPosition(s.kv, s.meta, keyApplied)
	return applied.index, err
}

// Persist makes everything durable that was applied.
func (s *State) Persist() error {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return s.kv.Persist()
}

// ---- applying ------------------------------------------------------------------------------------------------------

// Apply is ApplyBatch of one.
func (s *State) Apply(entry *raft.Log) any { return s.ApplyBatch([]*raft.Log{entry})[0] }

// ApplyBatch applies entries in one transaction. Of entries that the state has already the response is nil.
func (s *State) ApplyBatch(entries []*raft.Log) []any {
	responses := make([]any, len(entries))
	if s.failure == nil {
		applied := s.applied
		_, s.failure = s.kv.UpdateWeak(context.Background(), func(txn *kv.Txn) error {
			applied = s.applied
			for i, entry := range entries {
				if entry.Index <= applied.index {
					continue
				}
				response, err := s.applyOne(txn, entry)
				if err != nil {
					return err
				}
				responses[i] = response
				applied = position{entry.Index, entry.Term}
			}
			return putPosition(txn, s.meta, keyApplied, applied)
		})
		if s.failure == nil {
			s.applied = applied
		}
	}
	if s.failure != nil {
		for i := range responses {
			responses[i] = fmt.Errorf("raftstore: the state stands at entry %d: %w", s.applied.index, s.failure)
		}
	}
	return responses
}

func (s *State) applyOne(txn *kv.Txn, entry *raft.Log) (any, error) {
	switch entry.Type {
	case raft.LogCommand:
		return s.machine.Apply(txn, s.maps, entry)
	case raft.LogConfiguration:
		return nil, putConfiguration(txn, s.meta, entry.Index, entry.Index, entry.Data)
	}
	return nil, nil
}

// ---- records -------------------------------------------------------------------------------------------------------

func putPosition(txn *kv.Txn, meta kv.Map, key string, at position) error {
	value := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, at.index), at.term)
	return txn.Put(meta, []byte(key), value)
}

func getPosition(txn *kv.Txn, meta kv.Map, key string) (position, error) {
	value, err := txn.Get(meta, []byte(key))
	if errors.Is(err, memlith.ErrNotFound) {
		return position{}, nil
	}
	if err == nil && len(value) != 16 {
		err = fmt.Errorf("raftstore: the record %q has %d bytes", key, len(value))
	}
	if err != nil {
		return position{}, err
	}
	return position{binary.BigEndian.Uint64(value), binary.BigEndian.Uint64(value[8:])}, nil
}

func readPosition(in *kv.KV, meta kv.Map, key string) (at position, err error) {
	err = in.ViewWeak(func(txn *kv.Txn) (err error) {
		at, err = getPosition(txn, meta, key)
		return err
	})
	return at, err
}

// The configuration that was known as of an index replaces those of earlier ones.
func putConfiguration(txn *kv.Txn, meta kv.Map, asOf, index uint64, encoded []byte) error {
	known, err := txn.Get(meta, []byte(keyConfig))
	if err == nil && len(known) >= 16 && binary.BigEndian.Uint64(known) > asOf {
		return nil
	}
	if err != nil && !errors.Is(err, memlith.ErrNotFound) {
		return err
	}
	value := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, asOf), index)
	return txn.Put(meta, []byte(keyConfig), append(value, encoded...))
}

// describe returns the metadata of the state that raft needs: nil, if nothing was applied to it yet.
func describe(txn *kv.Txn, meta kv.Map) (*raft.SnapshotMeta, error) {
	applied, err := getPosition(txn, meta, keyApplied)
	if err != nil {
		return nil, err
	}
	taken, err := getPosition(txn, meta, keySnapshot)
	if err != nil {
		return nil, err
	}
	// A snapshot may end with an entry that is none of the state's.
	at := applied
	if taken.index > at.index {
		at = taken
	}
	known, err := txn.Get(meta, []byte(keyConfig))
	if errors.Is(err, memlith.ErrNotFound) || at.index == 0 {
		return nil, nil
	}
	if err == nil && len(known) < 16 {
		err = fmt.Errorf("raftstore: the record %q has %d bytes", keyConfig, len(known))
	}
	if err != nil {
		return nil, err
	}
	return &raft.SnapshotMeta{
		Version:            raft.SnapshotVersionMax,
		ID:                 fmt.Sprintf("state-%d-%d", at.term, at.index),
		Index:              at.index,
		Term:               at.term,
		Configuration:      raft.DecodeConfiguration(known[16:]),
		ConfigurationIndex: binary.BigEndian.Uint64(known[8:]),
	}, nil
}

// ---- snapshots -----------------------------------------------------------------------------------------------------

// Snapshot makes the state durable: that is raft's snapshot of it, of which no copy is needed.
func (s *State) Snapshot() (raft.FSMSnapshot, error) {
	if s.failure != nil {
		return nil, s.failure
	}
	if err := s.kv.Persist(); err != nil {
		return nil, err
	}
	stream, err := s.openStream()
	if err != nil {
		return nil, err
	}
	return &snapshot{stream}, nil
}

type snapshot struct{ stream *stream }

// Persist writes a copy only if the sink is another store's than the state's own.
func (n *snapshot) Persist(sink raft.SnapshotSink) error {
	if own, ok := sink.(*ownSink); ok && own.state == n.stream.state {
		own.kept = true
		return sink.Close()
	}
	if err := n.stream.writeTo(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (n *snapshot) Release() { n.stream.Close() }

// Restore replaces the state by one that was received. A crash leaves the one or the other. One that arrives so late
// that the state has more by now is refused: the log may not have the entries any more that would follow it.
func (s *State) Restore(source io.ReadCloser) error {
	received := s.received
	s.received = nil
	if received != nil && received.Index < s.applied.index {
		return fmt.Errorf("raftstore: the snapshot of entry %d is older than the state, which has entry %d", received.Index,
			s.applied.index)
	}
	number := 0
	if _, err := fmt.Sscanf(s.name, statePrefix+"%d", &number); err != nil {
		return err
	}
	name := fmt.Sprintf("%s%d", statePrefix, number+1)
	if err := s.removeOthers(); err != nil {
		return err
	}
	made, err := kv.Open(s.store, name, kv.Options{Create: true})
	if err != nil {
		return err
	}
	if err = readStream(source, made); err == nil && received != nil {
		err = noteSnapshot(made, received)
	}
	if err == nil {
		err = made.Persist()
	}
	if err = errors.Join(err, made.Close()); err != nil {
		return err
	}

	s.mutex.Lock()
	defer s.mutex.Unlock()
	// The new state is durable before its name is.
	if err := s.stable.Set([]byte(keyStateName), []byte(name)); err != nil {
		return err
	}
	if err := s.kv.Close(); err != nil {
		s.failure = err
		return err
	}
	if err := s.open(name); err != nil {
		s.failure = err
		return err
	}
	s.failure = nil
	if received != nil {
		s.stable.noteInstalled(position{received.Index, received.Term})
	}
	return s.removeOthers()
}

// Raft's newest snapshot, in the kv store of its state.
func noteSnapshot(in *kv.KV, snapshot *raft.SnapshotMeta) error {
	meta, err := in.CreateMap(metaMap)
	if err != nil {
		return err
	}
	encoded := raft.EncodeConfiguration(snapshot.Configuration)
	return in.Update(context.Background(), func(txn *kv.Txn) error {
		if err := putConfiguration(txn, meta, snapshot.Index, snapshot.ConfigurationIndex, encoded); err != nil {
			return err
		}
		return putPosition(txn, meta, keySnapshot, position{snapshot.Index, snapshot.Term})
	})
}
