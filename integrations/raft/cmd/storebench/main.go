// Command storebench measures stores of raft's log in turns: the time of StoreLogs until the entries are durable, which
// each of these stores promises. It prints a line of JSON for each store and size of batch.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"

	"memlith.org/memlith/raftstore"
	"memlith.org/memlith/retwis/contest"
)

type side struct {
	name string
	open func(folder string) (raft.LogStore, io.Closer, error)
}

var sides = []side{
	{"memlith", func(folder string) (raft.LogStore, io.Closer, error) {
		store, err := raftstore.Open(folder, nil, raftstore.Options{})
		return store, store, err
	}},
	{"raft-wal", func(folder string) (raft.LogStore, io.Closer, error) {
		store, err := wal.Open(folder)
		return store, store, err
	}},
	{"raft-boltdb", func(folder string) (raft.LogStore, io.Closer, error) {
		store, err := boltdb.NewBoltStore(filepath.Join(folder, "raft.db"))
		return store, store, err
	}},
}

// Compaction, as raft does it.
const (
	keptEntries  = 10240
	compactAfter = 2 * keptEntries
)

type measurement struct {
	side
	store raft.LogStore
	next  uint64
	first uint64
	times []time.Duration
}

func (m *measurement) run(batch int, until time.Time) error {
	entries := make([]*raft.Log, batch)
	for time.Now().Before(until) {
		for i := range entries {
			entries[i] = &raft.Log{Index: m.next, Term: 1, Data: make([]byte, *bytes)}
			m.next++
		}
		began := time.Now()
		if err := m.store.StoreLogs(entries); err != nil {
			return err
		}
		m.times = append(m.times, time.Since(began))
		if m.next-m.first > compactAfter {
			cut := m.next - keptEntries
			if err := m.store.DeleteRange(m.first, cut-1); err != nil {
				return err
			}
			m.first = cut
		}
	}
	return nil
}

func (m *measurement) print(batch int) error {
	total := time.Duration(0)
	for _, each := range m.times {
		total += each
	}
	line := map[string]any{"suite": "replica", "side": m.name, "batch": batch, "entry_bytes": *bytes,
		"durability": "sync", "entries_per_s": float64(len(m.times)*batch) / total.Seconds()}
	contest.Quantiles(line, m.times)
	m.times = m.times[:0]
	return contest.Print(line)
}

var (
	folder  = flag.String("dir", "", "a folder on the disk that is measured")
	seconds = flag.Float64("seconds", 5, "for each store and size of batch")
	turns   = flag.Int("turns", 5, "turns of each store")
	bytes   = flag.Int("entry-bytes", 256, "size of an entry")
)

func run() (err error) {
	if *folder == "" || *turns < 1 || *bytes < 1 {
		return errors.New("-dir is needed; -turns and -entry-bytes are at least 1")
	}
	var all []*measurement
	for _, each := range sides {
		place, err := os.MkdirTemp(*folder, each.name)
		if err != nil {
			return err
		}
		defer os.RemoveAll(place)
		store, closer, err := each.open(place)
		if err != nil {
			return fmt.Errorf("%s: %w", each.name, err)
		}
		defer closer.Close()
		all = append(all, &measurement{side: each, store: store, next: 1, first: 1})
	}
	for _, batch := range []int{1, 16, 64} {
		err := contest.Turns(*turns, all, func(_ int, m *measurement) error {
			if err := m.run(batch, time.Now().Add(contest.Slice(*seconds, *turns))); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, m := range all {
			if err := m.print(batch); err != nil {
				return err
			}
		}
	}
	return nil
}

func main() { contest.Main("storebench", run) }
