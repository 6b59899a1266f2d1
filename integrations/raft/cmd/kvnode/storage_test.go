package main

import (
	"fmt"
	"io"
	"math/rand"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"memlith.org/memlith/raftstore/internal/txn"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// On the disk that MEMLITH_TEST_DIR names.
func folder(t *testing.T) string {
	t.Helper()
	place, err := os.MkdirTemp(os.Getenv("MEMLITH_TEST_DIR"), "kvnode")
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(place) })
	return place
}

const keys = 20

func contents(t *testing.T, store *storage) (all []txn.Value) {
	t.Helper()
	check(t, store.view(func(records txn.Records) error {
		for i := 0; i < keys; i++ {
			value, err := txn.Get(records, fmt.Sprint(i))
			if err != nil {
				return err
			}
			all = append(all, value)
		}
		return nil
	}))
	return all
}

// The states in memlith and in bbolt give the same answers to the same entries, and are the same after a restart, which
// applies nothing again, and on a node that gets them from another.
func TestStatesAreTheSame(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	kinds := []string{"memlith", "raft-boltdb"} // raft-wal cannot be opened again in a process
	places := []string{folder(t), folder(t)}
	stores := make([]*storage, len(kinds))
	open := func() {
		for i := range kinds {
			var err error
			stores[i], err = openStorage(kinds[i], places[i], 0, txn.Options{})
			check(t, err)
		}
	}
	open()
	configuration := raft.Configuration{Servers: []raft.Server{{ID: "a", Address: "b"}}}
	batch := []*raft.Log{{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(configuration)}}
	for index := uint64(2); index < 400; {
		for count := random.Intn(8); count > 0; count-- {
			transaction := txn.Transaction{Client: uint64(random.Intn(4)), Number: index / 2}
			for _, key := range random.Perm(keys)[:random.Intn(3)] {
				transaction.Reads = append(transaction.Reads, txn.Read{Key: fmt.Sprint(key), Version: 0})
			}
			transaction.Writes = []txn.Write{{Key: fmt.Sprint(random.Intn(keys)), Value: []byte(fmt.Sprint("v", index))}}
			entry, err := transaction.Encode()
			check(t, err)
			batch = append(batch, &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: entry})
			index++
		}
		if len(batch) == 0 {
			continue
		}
		first := stores[0].fsm.(raft.BatchingFSM).ApplyBatch(batch)
		second := stores[1].fsm.(raft.BatchingFSM).ApplyBatch(batch)
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("%v and %v", first, second)
		}
		if random.Intn(10) == 0 {
			before := contents(t, stores[0])
			for _, each := range stores {
				check(t, each.close())
			}
			open()
			for i := range kinds { // what they have by now is not applied again
				if got := stores[i].fsm.(raft.BatchingFSM).ApplyBatch(batch); got[0] != nil {
					t.Fatalf("%s applied an entry twice: %v", kinds[i], got)
				}
				if got := contents(t, stores[i]); !reflect.DeepEqual(got, before) {
					t.Fatalf("%s has %v after a restart instead of %v", kinds[i], got, before)
				}
			}
		}
		batch = nil
	}
	for i := range kinds {
		wanted := contents(t, stores[i])
		listed, err := stores[i].snapshots.List()
		check(t, err)
		if len(listed) != 1 || !reflect.DeepEqual(listed[0].Configuration, configuration) {
			t.Fatalf("%s lists %v", kinds[i], listed)
		}
		meta, source, err := stores[i].snapshots.Open(listed[0].ID)
		check(t, err)
		other, err := openStorage(kinds[i], folder(t), 0, txn.Options{})
		check(t, err)
		// One that ends with an entry that is none of the state's.
		sink, err := other.snapshots.Create(meta.Version, meta.Index+7, meta.Term, meta.Configuration, 1, nil)
		check(t, err)
		_, err = io.Copy(sink, source)
		check(t, err)
		check(t, source.Close())
		check(t, sink.Close())
		_, received, err := other.snapshots.Open(sink.ID())
		check(t, err)
		check(t, other.fsm.Restore(received))
		if got := contents(t, other); !reflect.DeepEqual(got, wanted) {
			t.Fatalf("%s: the other node has %v instead of %v", kinds[i], got, wanted)
		}
		if listed, err := other.snapshots.List(); err != nil || listed[0].Index != meta.Index+7 {
			t.Fatalf("%s lists %v, %v after a snapshot up to %d", kinds[i], listed, err, meta.Index+7)
		}
		check(t, other.close())
		check(t, stores[i].close())
	}
}

// A state in memory is restored from a snapshot and gives the same answers then.
func TestStateInMemory(t *testing.T) {
	place := folder(t)
	store, err := openStorage("raft-boltdb-map", place, 0, txn.Options{})
	check(t, err)
	entry, err := (&txn.Transaction{Client: 3, Number: 1, Writes: []txn.Write{{Key: "1", Value: []byte("one")}}}).Encode()
	check(t, err)
	log := &raft.Log{Index: 7, Term: 1, Type: raft.LogCommand, Data: entry}
	answer := store.fsm.Apply(log)
	if answer != (txn.Result{Status: txn.Committed, Version: 7}) {
		t.Fatal(answer)
	}
	snapshot, err := store.fsm.Snapshot()
	check(t, err)
	_, transport := raft.NewInmemTransport("")
	sink, err := store.snapshots.Create(1, 7, 1, raft.Configuration{}, 1, transport)
	check(t, err)
	check(t, snapshot.Persist(sink))
	wanted := contents(t, store)
	check(t, store.close())

	store, err = openStorage("raft-boltdb-map", place, 0, txn.Options{})
	check(t, err)
	_, source, err := store.snapshots.Open(sink.ID())
	check(t, err)
	check(t, store.fsm.Restore(source))
	if got := contents(t, store); !reflect.DeepEqual(got, wanted) || string(got[1].Data) != "one" {
		t.Fatalf("%v instead of %v", got, wanted)
	}
	if again := store.fsm.Apply(log); again != answer { // the client's number is known
		t.Fatal(again)
	}
	check(t, store.close())
}

// The largest transaction that is accepted fits the log and the state.
func TestLargestTransaction(t *testing.T) {
	store, err := openStorage("memlith", folder(t), 0, txn.Options{})
	check(t, err)
	var transaction txn.Transaction
	for bytes := 0; bytes+txn.ValueBytesMax < txn.BodyBytesMax; bytes += txn.ValueBytesMax {
		value := make([]byte, txn.ValueBytesMax)
		transaction.Writes = append(transaction.Writes, txn.Write{Key: fmt.Sprint("large", bytes), Value: value})
	}
	entry, err := transaction.Encode()
	check(t, err)
	if len(entry) > txn.BodyBytesMax || len(entry) < txn.BodyBytesMax*9/10 {
		t.Fatalf("the transaction has %d bytes", len(entry))
	}
	check(t, store.logs.StoreLogs([]*raft.Log{{Index: 1, Term: 1, Type: raft.LogCommand, Data: entry}}))
	var stored raft.Log
	check(t, store.logs.GetLog(1, &stored))
	if got := store.fsm.Apply(&stored); got != (txn.Result{Status: txn.Committed, Version: 1}) {
		t.Fatal(got)
	}
	check(t, store.close())
}

// A read waits for a barrier that began after it came; reads that wait share one.
func TestReadsShareBarriers(t *testing.T) {
	var begun atomic.Int64
	r := &readIndex{barrier: func() error {
		begun.Add(1)
		time.Sleep(200 * time.Millisecond)
		return nil
	}}
	var all sync.WaitGroup
	for i := 0; i < 21; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			before := begun.Load()
			if err := r.wait(); err != nil || begun.Load() == before {
				t.Errorf("a read was answered after %d barriers, %d of them before it: %v", begun.Load(), before, err)
			}
		}()
		if i == 0 { // the others come while its barrier is on its way
			for begun.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}
	all.Wait()
	if begun.Load() > 4 {
		t.Fatalf("21 reads took %d barriers", begun.Load())
	}
}
