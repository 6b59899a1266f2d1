package memlith_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"memlith.org/memlith"
	"memlith.org/memlith/applog"
	"memlith.org/memlith/internal/child"
	"memlith.org/memlith/kv"
)

func TestMain(m *testing.M) {
	child.Main(m, map[string]func(string){"server": server, "transfers": transfers})
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, path string) *memlith.Store {
	t.Helper()
	store, err := memlith.Open(path, memlith.Options{Create: true})
	check(t, err)
	return store
}

func TestAnOpeningWaitsUntilTheStoreIsClosed(t *testing.T) {
	path := filepath.Join(child.Folder(t), "store")
	store := open(t, path)
	_, err := memlith.Open(path, memlith.Options{OpenWait: time.Millisecond})
	if !errors.Is(err, memlith.ErrBusy) {
		t.Fatal(err)
	}
	opened := make(chan error)
	go func() {
		next, err := memlith.Open(path, memlith.Options{OpenWait: 10 * time.Minute})
		if err == nil {
			err = next.Close()
		}
		opened <- err
	}()
	time.Sleep(5 * time.Millisecond)
	check(t, store.Close())
	check(t, <-opened)
}

func TestErrorsHaveCategoriesAndSentences(t *testing.T) {
	path := filepath.Join(child.Folder(t), "store")
	_, err := memlith.Open(path, memlith.Options{})
	if !errors.Is(err, memlith.ErrNotFound) || !errors.Is(err, fs.ErrNotExist) || errors.Is(err, memlith.ErrBusy) {
		t.Fatal(err)
	}
	var failed *memlith.Error
	if !errors.As(err, &failed) || failed.Category() != memlith.ErrNotFound || len(failed.Error()) < 20 {
		t.Fatalf("%#v", err)
	}
	store := open(t, path)
	if _, err := memlith.Open(path, memlith.Options{Create: true, Exclusive: true}); !errors.Is(err, memlith.ErrExists) &&
		!errors.Is(err, memlith.ErrBusy) {
		t.Fatal(err)
	}
	log, err := applog.Open(store, "log", applog.Options{Create: true, Size: 8192})
	check(t, err)
	if err := store.Close(); !errors.Is(err, memlith.ErrBusy) {
		t.Fatal("a store was closed below its log: ", err)
	}
	check(t, log.Close())
	check(t, log.Close())
	names, err := store.Regions()
	check(t, err)
	if len(names) != 1 || names[0] != "log" {
		t.Fatal(names)
	}
	check(t, store.Remove("log"))
	check(t, store.Checkpoint())
	info, err := store.Info()
	check(t, err)
	if info.Regions != 0 || info.Checkpoints == 0 {
		t.Fatalf("%+v", info)
	}
	check(t, store.Close())
	check(t, store.Close())
	if memlith.ErrConflict.Error() == memlith.ErrFull.Error() {
		t.Fatal("categories have one name")
	}
}

// The library keeps the sentence of a failure for the thread of the call.
func TestSentencesBelongToTheirCalls(t *testing.T) {
	store := open(t, filepath.Join(child.Folder(t), "store"))
	var all sync.WaitGroup
	for i := 0; i < 16; i++ {
		name := fmt.Sprintf("region-%d.", i)
		all.Add(1)
		go func() {
			defer all.Done()
			for j := 0; j < 3000; j++ {
				err := store.Remove(name)
				if !errors.Is(err, memlith.ErrNotFound) || !strings.Contains(err.Error(), name) {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		}()
	}
	all.Wait()
	check(t, store.Close())
}

func TestOneCommitForAKVStoreAndALog(t *testing.T) {
	store := open(t, filepath.Join(child.Folder(t), "store"))
	log, err := applog.Open(store, "log", applog.Options{Create: true, WhenFull: applog.Fail, Size: 8192})
	check(t, err)
	records, err := kv.Open(store, "kv", kv.Options{Create: true})
	check(t, err)
	words, err := records.CreateMap("words")
	check(t, err)
	if _, err := log.AppendWrite([]byte("one"), nil, []byte("three")); err != nil {
		t.Fatal(err)
	}
	entry, err := log.Read(context.Background())
	check(t, err)
	if string(entry.Content) != "one" || entry.Number != 1 {
		t.Fatal(entry)
	}

	commit := func(finish func(*memlith.Txn) error) {
		tx, err := store.Begin()
		check(t, err)
		txn, err := records.Begin()
		check(t, err)
		check(t, txn.Put(words, []byte("one"), []byte("1")))
		check(t, txn.Join(tx))
		check(t, log.ConsumeIn(tx, 1))
		check(t, log.AppendIn(tx, []byte("four"), []byte("five")))
		check(t, finish(tx))
		txn.Abort()
	}
	state := func() (string, uint64, uint64) {
		info, err := log.Info()
		check(t, err)
		var value []byte
		err = records.View(func(txn *kv.Txn) (err error) {
			value, err = txn.Get(words, []byte("one"))
			return err
		})
		if err != nil && !errors.Is(err, memlith.ErrNotFound) {
			t.Fatal(err)
		}
		return string(value), info.Consumed, info.Newest
	}
	commit((*memlith.Txn).Abort)
	if value, consumed, newest := state(); value != "" || consumed != 0 || newest != 3 {
		t.Fatal(value, consumed, newest)
	}
	commit(func(tx *memlith.Txn) error {
		ticket, err := tx.CommitWeak()
		if err != nil {
			return err
		}
		if newest := store.Newest(); newest < ticket {
			t.Fatal(newest, ticket)
		}
		return store.Wait(context.Background(), ticket)
	})
	if value, consumed, newest := state(); value != "1" || consumed != 1 || newest != 5 {
		t.Fatal(value, consumed, newest)
	}
	check(t, log.Close())
	check(t, records.Close())
	check(t, store.Close())
}

func TestAwaitEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	hang := make(chan struct{})
	defer close(hang)
	go cancel()
	err := memlith.Await(ctx, func() error { <-hang; return nil })
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := memlith.Await(ctx, func() error { panic("called") }); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// ---- kills ---------------------------------------------------------------------------------------------------------

func openAll(folder string) (*memlith.Store, *kv.KV, kv.Map, *applog.Log, error) {
	store, err := memlith.Open(filepath.Join(folder, "store"), memlith.Options{Create: true})
	if err != nil {
		return nil, nil, 0, nil, err
	}
	records, err := kv.Open(store, "kv", kv.Options{Create: true})
	if err != nil {
		return nil, nil, 0, nil, err
	}
	state, err := records.CreateMap("state")
	if err != nil {
		return nil, nil, 0, nil, err
	}
	log, err := applog.Open(store, "log", applog.Options{Create: true, WhenFull: applog.Grow, Size: 16 << 10})
	return store, records, state, log, err
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

func number(value []byte) uint64 {
	if len(value) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(value)
}

// Several goroutines append "add one" and acknowledge it when it is durable; one applies what was appended.
func server(folder string) {
	store, records, state, log, err := openAll(folder)
	must(err)
	var printing sync.Mutex
	for i := 0; i < 3; i++ {
		go func() {
			for {
				entry, err := log.Append([]byte("add one"))
				must(err)
				must(log.Write())
				printing.Lock()
				fmt.Println(entry)
				printing.Unlock()
			}
		}()
	}
	for {
		entry, err := log.Read(context.Background())
		must(err)
		tx, err := store.Begin()
		must(err)
		txn, err := records.Begin()
		must(err)
		value, err := txn.Get(state, []byte("count"))
		if !errors.Is(err, memlith.ErrNotFound) {
			must(err)
		}
		must(txn.Put(state, []byte("count"), binary.BigEndian.AppendUint64(nil, number(value)+1)))
		must(txn.Join(tx))
		must(log.ConsumeIn(tx, entry.Number))
		_, err = tx.CommitWeak()
		must(err)
		txn.Abort()
	}
}

// Every entry that was acknowledged is in the log or counted, and the count is that of the consumed entries.
func TestAKilledServerCountsExactlyOnce(t *testing.T) {
	random := child.Seed(t)
	folder := child.Folder(t)
	for round := 0; round < 12; round++ {
		said := child.RunAndKill(t, "server", folder, 1+random.Intn(300), time.Duration(random.Intn(20))*time.Millisecond)
		newest := uint64(0)
		for _, line := range said {
			if entry, err := strconv.ParseUint(line, 10, 64); err == nil && entry > newest {
				newest = entry
			}
		}
		store, records, state, log, err := openAll(folder)
		check(t, err)
		info, err := log.Info()
		check(t, err)
		var counted uint64
		check(t, records.View(func(txn *kv.Txn) error {
			value, err := txn.Get(state, []byte("count"))
			counted = number(value)
			if errors.Is(err, memlith.ErrNotFound) {
				return nil
			}
			return err
		}))
		if counted != info.Consumed {
			t.Fatalf("round %d: %d entries were consumed, and %d counted", round, info.Consumed, counted)
		}
		if info.Newest < newest {
			t.Fatalf("round %d: entry %d was acknowledged, and the newest is %d", round, newest, info.Newest)
		}
		check(t, records.Verify())
		check(t, log.Close())
		check(t, records.Close())
		check(t, store.Close())
	}
}

const accounts = 20

func account(i int) []byte { return []byte(fmt.Sprintf("account %d", i)) }

// Goroutines move amounts between accounts; each acknowledges its commits by rising numbers.
func transfers(folder string) {
	_, records, state, _, err := openAll(folder)
	must(err)
	var printing sync.Mutex
	var all sync.WaitGroup
	for worker := 0; worker < 4; worker++ {
		worker := worker
		all.Add(1)
		go func() {
			defer all.Done()
			own := []byte(fmt.Sprintf("worker %d", worker))
			for i := 0; ; i++ {
				from, to := account(i*7%accounts), account((i*7+1+worker*3)%accounts)
				var commit uint64
				must(records.Update(context.Background(), func(txn *kv.Txn) error {
					for _, change := range []struct {
						key []byte
						by  uint64
					}{{from, ^uint64(0)}, {to, 1}, {own, 1}} {
						value, err := txn.Get(state, change.key)
						if err != nil && !errors.Is(err, memlith.ErrNotFound) {
							return err
						}
						commit = number(value) + change.by
						if err := txn.Put(state, change.key, binary.BigEndian.AppendUint64(nil, commit)); err != nil {
							return err
						}
					}
					return nil
				}))
				printing.Lock()
				fmt.Println(worker, commit)
				printing.Unlock()
			}
		}()
	}
	all.Wait()
}

func TestKilledTransfersAreWhole(t *testing.T) {
	random := child.Seed(t)
	folder := child.Folder(t)
	for round := 0; round < 8; round++ {
		said := child.RunAndKill(t, "transfers", folder, 1+random.Intn(400),
			time.Duration(random.Intn(20))*time.Millisecond)
		acknowledged := map[int]uint64{}
		for _, line := range said {
			var worker int
			var commit uint64
			if count, _ := fmt.Sscan(line, &worker, &commit); count == 2 {
				acknowledged[worker] = commit
			}
		}
		store, records, state, log, err := openAll(folder)
		check(t, err)
		sum := uint64(0)
		check(t, records.View(func(txn *kv.Txn) error {
			for worker, commit := range acknowledged {
				value, err := txn.Get(state, []byte(fmt.Sprintf("worker %d", worker)))
				check(t, err)
				if number(value) < commit {
					t.Errorf("worker %d: commit %d was acknowledged, %d is there", worker, commit, number(value))
				}
			}
			return txn.Range(state, []byte("account "), []byte("account!"), func(_, value []byte) error {
				sum += number(value)
				return nil
			})
		}))
		if sum != 0 {
			t.Fatalf("round %d: the accounts have %d in all", round, int64(sum))
		}
		check(t, log.Close())
		check(t, records.Close())
		check(t, store.Close())
	}
}
