// Command bboltbench measures go.etcd.io/bbolt and integrations/bbolt in turns, in one process: durable puts by Update
// and by Batch, and View beside Update. A put is a commit of one record of a random key; both sides have made it
// durable when the call returns. It prints a line of JSON for each workload and side.
package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"sync"
	"time"

	original "go.etcd.io/bbolt"
	memlith "memlith.org/bbolt"
	"memlith.org/memlith/retwis/contest"
)

// store is what is measured of a side.
type store struct {
	io.Closer
	update, batch func(key, value []byte) error
	view          func(key []byte) error
}

type side struct {
	name string
	open func(path string) (store, error)
}

var bucketName = []byte("bench")

var sides = []side{
	{"memlith", func(path string) (store, error) {
		db, err := memlith.Open(path, 0o600, nil)
		if err != nil {
			return store{}, err
		}
		put := func(key, value []byte) func(*memlith.Tx) error {
			return func(tx *memlith.Tx) error { return tx.Bucket(bucketName).Put(key, value) }
		}
		err = db.Update(func(tx *memlith.Tx) error {
			_, err := tx.CreateBucket(bucketName)
			return err
		})
		return store{Closer: db, update: func(key, value []byte) error { return db.Update(put(key, value)) },
			batch: func(key, value []byte) error { return db.Batch(put(key, value)) },
			view: func(key []byte) error {
				// As bbolt's View, which does not wait for what it saw: this package's does.
				tx, err := db.Begin(false)
				if err != nil {
					return err
				}
				defer tx.Rollback()
				return found(tx.Bucket(bucketName).Get(key))
			}}, err
	}},
	{"bbolt", func(path string) (store, error) {
		db, err := original.Open(path, 0o600, nil)
		if err != nil {
			return store{}, err
		}
		put := func(key, value []byte) func(*original.Tx) error {
			return func(tx *original.Tx) error { return tx.Bucket(bucketName).Put(key, value) }
		}
		err = db.Update(func(tx *original.Tx) error {
			_, err := tx.CreateBucket(bucketName)
			return err
		})
		return store{Closer: db, update: func(key, value []byte) error { return db.Update(put(key, value)) },
			batch: func(key, value []byte) error { return db.Batch(put(key, value)) },
			view: func(key []byte) error {
				return db.View(func(tx *original.Tx) error { return found(tx.Bucket(bucketName).Get(key)) })
			}}, err
	}},
}

func found(value []byte) error {
	if value == nil {
		return errors.New("a record that was put is missing")
	}
	return nil
}

type workload struct {
	name             string
	clients          int // that put
	batch            bool
	readers          int  // that read meanwhile
	showsReaders     bool // prints the figures of the readers, not of the puts
	flushesPerCommit bool
}

var workloads = []workload{
	{name: "update", clients: 1, flushesPerCommit: true},
	{name: "update", clients: 16, flushesPerCommit: true},
	{name: "batch", clients: 1, batch: true},
	{name: "batch", clients: 16, batch: true},
	{name: "view-beside-update", clients: 1, readers: 1, showsReaders: true},
}

type measurement struct {
	side
	store    store
	times    []time.Duration
	took     time.Duration
	flushes  int64
	counted  bool
	writable []byte
}

func keyOf(number int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(number)) }

func (m *measurement) run(w workload) error {
	put := m.store.update
	if w.batch {
		put = m.store.batch
	}
	before, counted := flushesOf(*folder)
	times, took, err := contest.Clients(w.clients+w.readers, contest.Slice(*seconds, *turns), func(client, _ int) error {
		key := keyOf(rand.Intn(*keys))
		if client >= w.clients {
			return m.store.view(key)
		}
		return put(key, m.writable)
	})
	after, _ := flushesOf(*folder)
	if w.showsReaders {
		times = times[w.clients:]
	} else {
		times = times[:w.clients]
	}
	m.times, m.took = append(m.times, contest.Flat(times)...), m.took+took
	m.flushes, m.counted = m.flushes+after-before, counted
	return err
}

func (m *measurement) rate() float64 { return float64(len(m.times)) / m.took.Seconds() }

func (m *measurement) print(w workload, ratio float64) error {
	fields := map[string]any{
		"suite": "bbolt", "side": m.name, "workload": w.name, "clients": w.clients, "value_bytes": len(m.writable),
		"durability": "sync", "ops_per_s": m.rate(), "ratio": ratio, "samples": len(m.times),
	}
	contest.Quantiles(fields, m.times)
	if w.flushesPerCommit && m.counted {
		fields["flushes_per_commit"] = float64(m.flushes) / float64(len(m.times))
	}
	return contest.Print(fields)
}

func fill(s store, keys int, value []byte) error {
	var group sync.WaitGroup
	failures := make([]error, min(keys, 500))
	for i := range failures { // concurrent, so that Batch puts many in a commit
		group.Add(1)
		go func() {
			defer group.Done()
			for key := i; key < keys && failures[i] == nil; key += len(failures) {
				failures[i] = s.batch(keyOf(key), value)
			}
		}()
	}
	group.Wait()
	return errors.Join(failures...)
}

var (
	folder  = flag.String("dir", "", "a folder on the disk that is measured")
	seconds = flag.Float64("seconds", 5, "for each side and workload")
	turns   = flag.Int("turns", 5, "turns of each side")
	bytes   = flag.Int("value-bytes", 256, "size of a value")
	keys    = flag.Int("keys", 100_000, "records, which are put before")
)

func run() error {
	if *folder == "" || *turns < 1 || *bytes < 1 || *keys < 1 {
		return errors.New("-dir is needed; -turns, -value-bytes and -keys are at least 1")
	}
	var all []*measurement
	for _, each := range sides {
		place, err := os.MkdirTemp(*folder, each.name)
		if err != nil {
			return err
		}
		defer os.RemoveAll(place)
		opened, err := each.open(filepath.Join(place, "db"))
		if err != nil {
			return fmt.Errorf("%s: %w", each.name, err)
		}
		defer opened.Close()
		m := &measurement{side: each, store: opened, writable: make([]byte, *bytes)}
		if err := fill(opened, *keys, m.writable); err != nil {
			return fmt.Errorf("%s: %w", each.name, err)
		}
		all = append(all, m)
	}
	for _, w := range workloads {
		for _, m := range all {
			m.times, m.took, m.flushes = m.times[:0], 0, 0
		}
		err := contest.Turns(*turns, all, func(_ int, m *measurement) error {
			if err := m.run(w); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		peer := all[len(all)-1].rate()
		for _, m := range all {
			if err := m.print(w, m.rate()/peer); err != nil {
				return err
			}
		}
	}
	return nil
}

func main() { contest.Main("bboltbench", run) }
