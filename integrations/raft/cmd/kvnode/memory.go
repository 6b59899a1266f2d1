package main

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"

	"memlith.org/memlith/raftstore/internal/txn"
)

// memory is a state in maps of Go, to be measured beside memlith: nothing of the state is durable but raft's snapshots,
// which are copies of all of it. A start reads the newest one and applies the entries behind it. It is a raft.FSM.
type memory struct {
	options txn.Options

	mutex sync.RWMutex // held by readers and to apply
	maps  map[string]map[string][]byte
}

var _ raft.BatchingFSM = (*memory)(nil)

func newMemory(options txn.Options) *memory {
	m := &memory{options: options, maps: map[string]map[string][]byte{}}
	for _, name := range txn.Maps() {
		m.maps[name] = map[string][]byte{}
	}
	return m
}

// tables are the maps as records, with the mutex held.
type tables struct{ maps map[string]map[string][]byte }

func (t tables) Get(name string, key []byte) ([]byte, error) {
	return t.maps[name][string(key)], nil
}

func (t tables) Put(name string, key, value []byte) error {
	t.maps[name][string(key)] = bytes.Clone(value)
	return nil
}

func (m *memory) view(read func(txn.Records) error) error {
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	return read(tables{m.maps})
}

func (m *memory) Apply(entry *raft.Log) any { return m.ApplyBatch([]*raft.Log{entry})[0] }

func (m *memory) ApplyBatch(entries []*raft.Log) []any {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	responses := make([]any, len(entries))
	for i, entry := range entries {
		if entry.Type != raft.LogCommand {
			continue
		}
		result, err := txn.Apply(tables{m.maps}, entry.Index, entry.Data, m.options)
		if err != nil {
			responses[i] = err
		} else {
			responses[i] = result
		}
	}
	return responses
}

// Snapshot copies the maps; values are never changed in place.
func (m *memory) Snapshot() (raft.FSMSnapshot, error) {
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	copied := map[string]map[string][]byte{}
	for name, records := range m.maps {
		copied[name] = make(map[string][]byte, len(records))
		for key, value := range records {
			copied[name][key] = value
		}
	}
	return copiedMaps(copied), nil
}

type copiedMaps map[string]map[string][]byte

func (c copiedMaps) Persist(sink raft.SnapshotSink) error {
	if err := gob.NewEncoder(sink).Encode(map[string]map[string][]byte(c)); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (copiedMaps) Release() {}

func (m *memory) Restore(source io.ReadCloser) error {
	defer source.Close()
	restored := newMemory(m.options).maps
	if err := gob.NewDecoder(source).Decode(&restored); err != nil {
		return fmt.Errorf("a snapshot cannot be read: %w", err)
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.maps = restored
	return nil
}
