// Command storebench measures stores of raft's log in turns: the time of StoreLogs until the entries are durable, which
// each of these stores promises. It prints a line of JSON for each store and size of batch.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"

	"memlith.org/memlith/raftstore"
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

func (m *measurement) run(batch, bytes int, until time.Time) error {
	entries := make([]*raft.Log, batch)
	for time.Now().Before(until) {
		for i := range entries {
			entries[i] = &raft.Log{Index: m.next, Term: 1, Data: make([]byte, bytes)}
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

func (m *measurement) print(batch, bytes int) error {
	sort.Slice(m.times, func(i, j int) bool { return m.times[i] < m.times[j] })
	at := func(quantile float64) float64 {
		return float64(m.times[int(quantile*float64(len(m.times)-1))]) / 1000
	}
	total := time.Duration(0)
	for _, each := range m.times {
		total += each
	}
	line, err := json.Marshal(map[string]any{
		"suite": "replica", "side": m.name, "batch": batch, "entry_bytes": bytes, "durability": "sync",
		"p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999),
		"entries_per_s": float64(len(m.times)*batch) / total.Seconds(),
	})
	if err == nil {
		fmt.Println(string(line))
	}
	m.times = m.times[:0]
	return err
}

func run(folder string, seconds float64, turns, bytes int) (err error) {
	var all []*measurement
	for _, each := range sides {
		place, err := os.MkdirTemp(folder, each.name)
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
	slice := time.Duration(seconds * float64(time.Second) / float64(turns))
	for _, batch := range []int{1, 16, 64} {
		for turn := 0; turn < turns; turn++ {
			for i := range all { // the order of the sides changes from turn to turn
				m := all[(i+turn)%len(all)]
				if err := m.run(batch, bytes, time.Now().Add(slice)); err != nil {
					return fmt.Errorf("%s: %w", m.name, err)
				}
			}
		}
		for _, m := range all {
			if err := m.print(batch, bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

func main() {
	folder := flag.String("dir", "", "a folder on the disk that is measured")
	seconds := flag.Float64("seconds", 5, "for each store and size of batch")
	turns := flag.Int("turns", 5, "turns of each store")
	bytes := flag.Int("entry-bytes", 256, "size of an entry")
	flag.Bool("json", true, "accepted like by every benchmark; there is no other output")
	flag.Parse()
	err := errors.New("-dir is needed; -turns and -entry-bytes are at least 1")
	if *folder != "" && *turns > 0 && *bytes > 0 {
		err = run(*folder, *seconds, *turns, *bytes)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "storebench:", err)
		os.Exit(1)
	}
}
