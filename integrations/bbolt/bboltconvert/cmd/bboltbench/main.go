// Command bboltbench measures go.etcd.io/bbolt and integrations/bbolt in turns, in one process: durable puts by Update
// and by Batch, and View beside Update. A put is a commit of one record of a random key; both sides have made it
// durable when the call returns. It prints a line of JSON for each workload and side.
package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	original "go.etcd.io/bbolt"
	memlith "memlith.org/bbolt"
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
				return db.View(func(tx *memlith.Tx) error { return found(tx.Bucket(bucketName).Get(key)) })
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

// until calls again and again, and returns how long each call took.
func until(end time.Time, keys int, call func(key []byte) error) (times []time.Duration, err error) {
	source := rand.New(rand.NewSource(rand.Int63()))
	for err == nil && time.Now().Before(end) {
		key, began := keyOf(source.Intn(keys)), time.Now()
		err = call(key)
		times = append(times, time.Since(began))
	}
	return times, err
}

func (m *measurement) run(w workload, keys int, slice time.Duration, flushes func() (int64, bool)) error {
	put := m.store.update
	if w.batch {
		put = m.store.batch
	}
	var mutex sync.Mutex
	var failed error
	var group sync.WaitGroup
	before, counted := flushes()
	began := time.Now()
	for i := 0; i < w.clients+w.readers; i++ {
		call, shown := func(key []byte) error { return put(key, m.writable) }, !w.showsReaders
		if i >= w.clients {
			call, shown = m.store.view, w.showsReaders
		}
		group.Add(1)
		go func() {
			defer group.Done()
			times, err := until(began.Add(slice), keys, call)
			mutex.Lock()
			defer mutex.Unlock()
			if shown {
				m.times = append(m.times, times...)
			}
			failed = errors.Join(failed, err)
		}()
	}
	group.Wait()
	m.took += time.Since(began)
	after, _ := flushes()
	m.flushes, m.counted = m.flushes+after-before, counted
	return failed
}

func (m *measurement) rate() float64 { return float64(len(m.times)) / m.took.Seconds() }

func (m *measurement) print(w workload, ratio float64) error {
	sort.Slice(m.times, func(i, j int) bool { return m.times[i] < m.times[j] })
	at := func(quantile float64) float64 {
		return float64(m.times[int(quantile*float64(len(m.times)-1))]) / 1000
	}
	fields := map[string]any{
		"suite": "bbolt", "side": m.name, "workload": w.name, "clients": w.clients, "value_bytes": len(m.writable),
		"durability": "sync", "ops_per_s": m.rate(), "ratio": ratio, "p50_us": at(0.5), "p99_us": at(0.99),
		"p999_us": at(0.999), "samples": len(m.times),
	}
	if w.flushesPerCommit && m.counted {
		fields["flushes_per_commit"] = float64(m.flushes) / float64(len(m.times))
	}
	line, err := json.Marshal(fields)
	if err == nil {
		fmt.Println(string(line))
	}
	return err
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

func run(folder string, seconds float64, turns, bytes, keys int) (err error) {
	var all []*measurement
	for _, each := range sides {
		place, err := os.MkdirTemp(folder, each.name)
		if err != nil {
			return err
		}
		defer os.RemoveAll(place)
		opened, err := each.open(filepath.Join(place, "db"))
		if err != nil {
			return fmt.Errorf("%s: %w", each.name, err)
		}
		defer opened.Close()
		m := &measurement{side: each, store: opened, writable: make([]byte, bytes)}
		if err := fill(opened, keys, m.writable); err != nil {
			return fmt.Errorf("%s: %w", each.name, err)
		}
		all = append(all, m)
	}
	slice := time.Duration(seconds * float64(time.Second) / float64(turns))
	for _, w := range workloads {
		for _, m := range all {
			m.times, m.took, m.flushes = m.times[:0], 0, 0
		}
		for turn := 0; turn < turns; turn++ {
			for i := range all { // the order of the sides changes from turn to turn
				m := all[(i+turn)%len(all)]
				if err := m.run(w, keys, slice, func() (int64, bool) { return flushesOf(folder) }); err != nil {
					return fmt.Errorf("%s: %w", m.name, err)
				}
			}
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

func main() {
	folder := flag.String("dir", "", "a folder on the disk that is measured")
	seconds := flag.Float64("seconds", 5, "for each side and workload")
	turns := flag.Int("turns", 5, "turns of each side")
	bytes := flag.Int("value-bytes", 256, "size of a value")
	keys := flag.Int("keys", 100_000, "records, which are put before")
	flag.Bool("json", true, "accepted like by every benchmark; there is no other output")
	flag.Parse()
	err := errors.New("-dir is needed; -turns, -value-bytes and -keys are at least 1")
	if *folder != "" && *turns > 0 && *bytes > 0 && *keys > 0 {
		err = run(*folder, *seconds, *turns, *bytes, *keys)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bboltbench:", err)
		os.Exit(1)
	}
}
