package memlith_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"memlith.org/memlith"
	"memlith.org/memlith/applog"
	"memlith.org/memlith/internal/child"
	"memlith.org/memlith/kv"
	"memlith.org/memlith/region"
)

type everything struct {
	store   *memlith.Store
	records *kv.KV
	m       kv.Map
	log     *applog.Log
}

func openEverything(t *testing.T) everything {
	store := open(t, filepath.Join(child.Folder(t), "store"))
	records, err := kv.Open(store, "kv", kv.Options{Create: true, Window: time.Hour})
	check(t, err)
	m, err := records.CreateMap("map")
	check(t, err)
	log, err := applog.Open(store, "log", applog.Options{Create: true, Size: 8192})
	check(t, err)
	return everything{store, records, m, log}
}

func (e everything) close(t *testing.T) {
	check(t, e.log.Close())
	check(t, e.records.Close())
	check(t, e.store.Close())
}

// Each method of something that has ended returns ErrClosed, but for those that may always be called.
func allEnded(t *testing.T, object any, always string) {
	t.Helper()
	value := reflect.ValueOf(object)
	for i := 0; i < value.NumMethod(); i++ {
		method := value.Type().Method(i)
		var arguments []reflect.Value
		call := value.Method(i)
		inputs := call.Type().NumIn()
		if call.Type().IsVariadic() {
			inputs--
		}
		for at := 0; at < inputs; at++ {
			arguments = append(arguments, argument(t, call.Type().In(at)))
		}
		results := call.Call(arguments)
		if strings.Contains(" "+always+" ", " "+method.Name+" ") {
			if len(results) > 0 && method.Type.Out(len(results)-1).Name() == "error" && !results[len(results)-1].IsNil() {
				t.Errorf("%T.%s: %v", object, method.Name, results[len(results)-1])
			}
			continue
		}
		err, _ := results[len(results)-1].Interface().(error)
		if !errors.Is(err, memlith.ErrClosed) || !errors.Is(err, os.ErrClosed) || !errors.Is(err, memlith.ErrInvalid) {
			t.Errorf("%T.%s after the end: %v", object, method.Name, err)
		}
	}
}

func argument(t *testing.T, kind reflect.Type) reflect.Value {
	switch {
	case kind == reflect.TypeOf((*context.Context)(nil)).Elem():
		return reflect.ValueOf(context.Background())
	case kind.Kind() == reflect.Pointer:
		return reflect.New(kind.Elem()) // a transaction that was never begun, a batch
	case kind.Kind() == reflect.Func:
		return reflect.MakeFunc(kind, func([]reflect.Value) []reflect.Value {
			results := make([]reflect.Value, kind.NumOut())
			for i := range results {
				results[i] = reflect.Zero(kind.Out(i))
			}
			return results
		})
	}
	return reflect.Zero(kind)
}

func TestEveryCallAfterTheEndIsErrClosed(t *testing.T) {
	all := openEverything(t)
	txn, err := all.records.Begin()
	check(t, err)
	cursor, err := txn.Cursor(all.m)
	check(t, err)
	scan := txn.Scan(all.m, nil, nil, false)
	closed, err := txn.Cursor(all.m)
	check(t, err)
	closed.Close()
	closed.Close()
	allEnded(t, closed, "Close")
	check(t, txn.Commit())
	cursor.Close() // as with `defer cursor.Close()` beside `return txn.Commit()`
	allEnded(t, cursor, "Close")
	allEnded(t, txn, "Abort Scan")
	if _, _, err := scan.Next(); !errors.Is(err, memlith.ErrClosed) {
		t.Fatal(err)
	}

	for _, finish := range []func(*memlith.Txn) error{(*memlith.Txn).Commit, (*memlith.Txn).Abort} {
		tx, err := all.store.Begin()
		check(t, err)
		joined, err := all.records.Begin()
		check(t, err)
		check(t, joined.Put(all.m, []byte("key"), nil))
		cursor, err := joined.Cursor(all.m)
		check(t, err)
		check(t, joined.Join(tx))
		check(t, finish(tx))
		cursor.Close()
		allEnded(t, cursor, "Close")
		allEnded(t, joined, "Abort Scan")
		allEnded(t, tx, "Abort")
		if err := all.log.AppendIn(tx, nil); !errors.Is(err, memlith.ErrClosed) {
			t.Fatal(err)
		}
	}

	memory, err := region.Open(all.store, "region", region.Options{Create: true, Size: 4096})
	check(t, err)
	check(t, memory.Close())
	check(t, memory.Close())
	allEnded(t, memory, "Bytes Close")

	all.close(t)
	all.close(t)
	allEnded(t, memory, "Bytes Close")
	allEnded(t, all.records, "Close Durable")
	allEnded(t, all.log, "Close Durable")
	allEnded(t, all.store, "Close CloseIn Durable Newest Path")
	if _, err := kv.Open(all.store, "kv", kv.Options{}); !errors.Is(err, memlith.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := applog.Open(all.store, "log", applog.Options{}); !errors.Is(err, memlith.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := region.Open(all.store, "region", region.Options{}); !errors.Is(err, memlith.ErrClosed) {
		t.Fatal(err)
	}
}

func TestAConflictEndsATransactionAndItsCursors(t *testing.T) {
	all := openEverything(t)
	first, err := all.records.Begin()
	check(t, err)
	check(t, first.Put(all.m, []byte("key"), nil))
	second, err := all.records.Begin()
	check(t, err)
	cursor, err := second.Cursor(all.m)
	check(t, err)
	if _, _, err := cursor.First(); !errors.Is(err, memlith.ErrConflict) {
		t.Fatal(err)
	}
	cursor.Close()
	allEnded(t, cursor, "Close")
	allEnded(t, second, "Abort Scan")
	first.Abort()
	all.close(t)
}

// A transaction that the program has lost holds its locks until a collection of garbage only.
func TestForgottenTransactionsAreAborted(t *testing.T) {
	all := openEverything(t)
	func() {
		for i := 0; i < 3; i++ {
			txn, err := all.records.BeginRead()
			check(t, err)
			_, err = txn.Cursor(all.m)
			check(t, err)
		}
		txn, err := all.records.Begin()
		check(t, err)
		check(t, txn.Put(all.m, []byte("key"), []byte("forgotten")))
		tx, err := all.store.Begin()
		check(t, err)
		check(t, txn.Join(tx))
		if err := all.store.Close(); !errors.Is(err, memlith.ErrBusy) ||
			!strings.Contains(err.Error(), `the kv store "kv", the log "log", 1 transactions of the store`) {
			t.Fatal(err)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
	}()
	check(t, all.records.Update(ctx, func(txn *kv.Txn) error {
		_, err := txn.Get(all.m, []byte("key"))
		if !errors.Is(err, memlith.ErrNotFound) && !errors.Is(err, memlith.ErrConflict) {
			t.Error("a forgotten transaction was committed: ", err)
		}
		if errors.Is(err, memlith.ErrConflict) {
			return err
		}
		return txn.Put(all.m, []byte("key"), []byte("kept"))
	}))
	check(t, all.log.Close())
	for all.records.Close() != nil || all.store.Close() != nil {
		if ctx.Err() != nil {
			t.Fatal(all.records.Close(), all.store.Close())
		}
	}
}

// Closing waits for calls that contexts left behind, and calls meet no object that is gone.
func TestClosingBesideCallsOfOtherGoroutines(t *testing.T) {
	allowed := func(err error) {
		t.Helper()
		for _, each := range []error{nil, memlith.ErrClosed, memlith.ErrNotFound, memlith.ErrConflict,
			context.Canceled} {
			if errors.Is(err, each) {
				return
			}
		}
		t.Error(err)
	}
	for round := 0; round < 20; round++ {
		all := openEverything(t)
		ctx, cancel := context.WithCancel(context.Background())
		txn, err := all.records.Begin()
		check(t, err)
		var users sync.WaitGroup
		use := func(call func()) {
			users.Add(1)
			go func() {
				defer users.Done()
				for i := 0; i < 200; i++ {
					call()
				}
			}()
		}
		use(func() {
			ticket, err := all.records.UpdateWeak(ctx, func(txn *kv.Txn) error {
				return txn.Put(all.m, []byte("key"), nil)
			})
			allowed(err)
			if err == nil {
				allowed(all.store.Wait(ctx, ticket))
			}
		})
		use(func() {
			_, err := all.log.Read(ctx)
			allowed(err)
		})
		use(func() { // one transaction in several goroutines
			allowed(txn.Put(all.m, []byte("other"), nil))
		})
		use(func() {
			allowed(txn.Range(all.m, nil, nil, func(_, _ []byte) error { return nil }))
			_, err := all.store.Info()
			allowed(err)
		})
		time.Sleep(time.Millisecond)
		cancel()
		txn.Abort()
		for err := all.records.Close(); err != nil; err = all.records.Close() { // ErrBusy: Update is in a transaction
			if !errors.Is(err, memlith.ErrBusy) {
				t.Fatal(err)
			}
		}
		check(t, all.log.Close())
		check(t, all.store.Close())
		users.Wait()
	}
}

func TestRefreshShowsTheNewestCommit(t *testing.T) {
	folder := child.Folder(t)
	writer := open(t, filepath.Join(folder, "store"))
	records, err := kv.Open(writer, "kv", kv.Options{Create: true})
	check(t, err)
	m, err := records.CreateMap("map")
	check(t, err)
	if _, err := writer.Refresh(); !errors.Is(err, memlith.ErrInvalid) || errors.Is(err, memlith.ErrClosed) {
		t.Fatal(err)
	}
	follower, err := memlith.Open(filepath.Join(folder, "store"), memlith.Options{Follow: true})
	check(t, err)
	copied, err := kv.Open(follower, "kv", kv.Options{})
	check(t, err)
	shown, err := copied.Map("map")
	check(t, err)
	there := func() bool {
		err := copied.View(func(txn *kv.Txn) error { _, err := txn.Get(shown, []byte("key")); return err })
		if err != nil && !errors.Is(err, memlith.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	check(t, records.Update(context.Background(), func(txn *kv.Txn) error { return txn.Put(m, []byte("key"), nil) }))
	if there() {
		t.Fatal("the view has moved without Refresh")
	}
	reader, err := copied.BeginRead()
	check(t, err)
	if _, err := follower.Refresh(); !errors.Is(err, memlith.ErrBusy) {
		t.Fatal("a transaction reads: ", err)
	}
	reader.Abort()
	ticket, err := follower.Refresh()
	check(t, err)
	if !there() || ticket < records.Durable() {
		t.Fatal("an older commit is shown: ", ticket, records.Durable())
	}
	check(t, copied.Close())
	check(t, follower.Close())
	check(t, records.Close())
	check(t, writer.Close())
}
