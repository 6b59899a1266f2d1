// Package memlith opens stores of memlith, a library that makes changes durable, all or none of them, with one write
// and one flush. The packages kv, applog and region offer what lies in a store: key-value stores with transactions,
// logs of operations, and memory. docs/go.md is the guide; the headers in include/memlith state the contract of each
// call.
//
// The library's calls may block in the kernel, as reads and writes of files do. Any number of goroutines may use a
// store, a kv store, a log or a transaction; the calls of a transaction wait for each other. A call on what was closed
// or has ended is ErrClosed.
package memlith

import (
	"context"
	"fmt"
	"runtime"
	"sort"
	"strings"
	"sync"
	"time"

	"memlith.org/memlith/internal/capi"
)

// Options of a store; the zero value opens an existing one for reading and writing.
type Options struct {
	Create    bool // create the store if it does not exist
	Exclusive bool // with Create: fail with ErrExists if it does
	// Show the last durable state, and change nothing on the disk.
	ReadOnly bool
	// Follow is ReadOnly, also while a process has the store open for writing: everything is as one durable commit left
	// it, and Store.Refresh moves on to the newest one. What is opened is copied to memory.
	Follow bool
	// LogBytes is the size of a new store's redo log, and LogMaxBytes what it may grow to; 0: 4 MiB and 1 GiB.
	LogBytes, LogMaxBytes uint64
	// Window is how long an asynchronous commit may wait for its flush, and WindowBytes how much may wait in the log.
	Window      time.Duration
	WindowBytes uint64
	// OpenWait is how long opening waits for another process to close the store, before it is ErrBusy.
	OpenWait time.Duration
	// MemoryMaxBytes limits the memory for changed pages of regions; 0: see memlith_store_options in memlith/store.h.
	MemoryMaxBytes uint64
}

// Store is an open store.
type Store struct {
	object capi.Object
	path   string
	lock   sync.Mutex
	users  map[*capi.Object]struct{} // kv stores, logs and regions, which the library would close with the store
	txns   int                       // transactions; not in users, which would keep a forgotten one from the collector
}

// Open opens the store in a folder or on a block device. What was acknowledged is there, whatever ended the process
// that used it before.
func Open(path string, options Options) (*Store, error) { return open(path, options, false) }

// OpenFile opens a store that is one file.
func OpenFile(path string, options Options) (*Store, error) { return open(path, options, true) }

func open(path string, options Options, oneFile bool) (*Store, error) {
	var flags uint32
	for _, each := range []struct {
		set  bool
		flag uint32
	}{{options.Create, capi.OpenCreate}, {options.Exclusive, capi.OpenExclusive}, {options.ReadOnly, capi.OpenReadOnly},
		{options.Follow, capi.OpenFollow}} {
		if each.set {
			flags |= each.flag
		}
	}
	handle, failed := capi.StoreOpen(path, capi.StoreOptions{
		Flags: flags, OneFile: oneFile, LogBytes: options.LogBytes, LogMaxBytes: options.LogMaxBytes,
		WindowMs: milliseconds(options.Window), WindowBytes: options.WindowBytes, MemoryMaxBytes: options.MemoryMaxBytes,
		OpenWaitMs: milliseconds(options.OpenWait),
	})
	if failed != nil {
		return nil, errorOf(failed)
	}
	store := &Store{path: path, users: map[*capi.Object]struct{}{}}
	store.object.Open("the store "+path, handle)
	return store, nil
}

// Rounded up, so that a short time does not become none.
func milliseconds(of time.Duration) uint64 {
	if of <= 0 {
		return 0
	}
	return uint64((of + time.Millisecond - 1) / time.Millisecond)
}

// Close writes home what was committed, and marks the store clean. It is ErrBusy while kv stores, logs, regions or
// transactions of the store are open, or a call of another goroutine does not return; after any other error the store
// is closed nevertheless.
func (s *Store) Close() error {
	return errorOf(s.object.Close(func(store capi.Handle) (*capi.Failure, bool) {
		if open := s.openNow(); len(open) > 0 {
			return busy("%s: still open: %s; close or end them first", s.path, strings.Join(open, ", ")), false
		}
		return capi.StoreClose(store), true
	}))
}

// openNow names what is open in the store.
func (s *Store) openNow() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	var open []string
	for each := range s.users {
		open = append(open, each.Name())
	}
	sort.Strings(open)
	if s.txns > 0 {
		open = append(open, fmt.Sprintf("%d transactions of the store", s.txns))
	}
	return open
}

// Path is what the store was opened with.
func (s *Store) Path() string { return s.path }

func (s *Store) call(call func(capi.Handle) *capi.Failure) error { return errorOf(s.object.Call(call)) }

// Checkpoint writes home what is durable, so that the next opening has nothing to replay. Never needed for durability.
func (s *Store) Checkpoint() error { return s.call(capi.StoreCheckpoint) }

// Refresh moves a store that was opened with Follow on to the newest durable commit, and returns its ticket. Kv stores,
// logs and regions stay open; no goroutine uses the bytes of a region meanwhile. ErrBusy: a transaction is open, or
// another goroutine is in a call. memlith_store_refresh has the other errors; after each, everything is as before.
func (s *Store) Refresh() (ticket uint64, err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	var users []*capi.Object
	for each := range s.users {
		users = append(users, each)
	}
	release, inUse := capi.Hold(users)
	if release == nil {
		return 0, errorOf(busy("%s: another goroutine uses %s: refresh when no call is under way", s.path, inUse))
	}
	defer release()
	err = errorOf(s.object.Alone(func(store capi.Handle) (failed *capi.Failure) {
		ticket, failed = capi.Refresh(store)
		return failed
	}))
	return ticket, err
}

// Durable is the newest durable ticket; 0 of a closed store.
func (s *Store) Durable() uint64 { return s.object.Number(capi.Durable) }

// Newest is a ticket of everything that was committed or appended before, in whatever structure; 0 of a closed store.
func (s *Store) Newest() uint64 { return s.object.Number(capi.Newest) }

// Wait returns when everything up to that ticket is durable, or when the context ends; it becomes durable all the same.
// It takes the tickets of kv stores, too.
func (s *Store) Wait(ctx context.Context, ticket uint64) error {
	return Await(ctx, func() error {
		return s.call(func(store capi.Handle) *capi.Failure { return capi.Wait(store, ticket) })
	})
}

// Info holds counters of a store.
type Info = capi.StoreReport

// Info returns them.
func (s *Store) Info() (info Info, err error) {
	err = s.call(func(store capi.Handle) (failed *capi.Failure) {
		info, failed = capi.StoreInfo(store)
		return failed
	})
	return info, err
}

// Regions returns the names of the store's regions: kv stores and logs are regions, too.
func (s *Store) Regions() ([]string, error) {
	var names []string
	for {
		var name string
		err := s.call(func(store capi.Handle) (failed *capi.Failure) {
			name, failed = capi.RegionAt(store, uint64(len(names)))
			return failed
		})
		if Is(err, ErrNotFound) {
			return names, nil
		} else if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
}

// Remove removes a kv store, log or region that is not open, durably.
func (s *Store) Remove(name string) error {
	return s.call(func(store capi.Handle) *capi.Failure { return capi.RegionRemove(store, name) })
}

// OpenIn is for the packages of this module: it opens a kv store, a log or a region of the store.
func (s *Store) OpenIn(object *capi.Object, name string,
	open func(store capi.Handle) (capi.Handle, *capi.Failure)) error {
	return s.call(func(store capi.Handle) *capi.Failure {
		handle, failed := open(store)
		if failed == nil {
			object.Open(name, handle)
			s.lock.Lock()
			s.users[object] = struct{}{}
			s.lock.Unlock()
		}
		return failed
	})
}

// CloseIn is for the packages of this module: it closes what OpenIn opened.
func (s *Store) CloseIn(object *capi.Object, end func(capi.Handle) *capi.Failure) error {
	return errorOf(object.Close(func(handle capi.Handle) (*capi.Failure, bool) {
		failed := end(handle)
		if capi.StillOpen(failed) {
			return failed, false
		}
		s.lock.Lock()
		delete(s.users, object)
		s.lock.Unlock()
		return failed, true
	}))
}

// Txn is a transaction of a store: one commit for transactions of kv stores (Join), entries of logs and their read
// positions (AppendIn, ConsumeIn), and memory (Join, JoinUndo, TouchBefore, WriteIn). It ends with a Commit that
// returned nil, or with Abort. One that the program has forgotten is aborted when the garbage collector finds it.
type Txn struct {
	object capi.Object
	store  *Store
	parts  []interface{ Abort() }
}

// Begin begins one.
func (s *Store) Begin() (*Txn, error) {
	txn := &Txn{store: s}
	err := s.call(func(store capi.Handle) *capi.Failure {
		handle, failed := capi.Begin(store)
		if failed == nil {
			txn.object.Open("the transaction of the store", handle)
			s.lock.Lock()
			s.txns++
			s.lock.Unlock()
		}
		return failed
	})
	if err != nil {
		return nil, err
	}
	runtime.SetFinalizer(txn, (*Txn).Abort)
	return txn, nil
}

// Commit returns when all parts are durable. After an error the transaction is open, and must be aborted.
func (t *Txn) Commit() error {
	_, err := t.commit(capi.CommitSync)
	return err
}

// CommitWeak returns when all parts have taken effect; the ticket is for Store.Wait.
func (t *Txn) CommitWeak() (uint64, error) { return t.commit(capi.CommitWeak) }

func (t *Txn) commit(mode uint32) (ticket uint64, err error) {
	err = t.finish(func(txn capi.Handle) (failed *capi.Failure, ended bool) {
		ticket, failed = capi.Commit(txn, mode)
		return failed, failed == nil
	})
	return ticket, err
}

// Abort ends the transaction without effect; of one that has ended it does nothing.
func (t *Txn) Abort() error {
	err := t.finish(func(txn capi.Handle) (*capi.Failure, bool) { return capi.Abort(txn), true })
	if Is(err, ErrClosed) {
		return nil
	}
	return err
}

// The transactions of kv stores that joined have ended with this one, and are freed.
func (t *Txn) finish(end func(capi.Handle) (failed *capi.Failure, ended bool)) error {
	return errorOf(t.object.Finish(func(txn capi.Handle) (*capi.Failure, bool) {
		failed, ended := end(txn)
		if ended {
			for _, part := range t.parts {
				part.Abort()
			}
			t.parts = nil
			runtime.SetFinalizer(t, nil)
			t.store.lock.Lock()
			t.store.txns--
			t.store.lock.Unlock()
		}
		return failed, ended
	}))
}

// Part is for the packages of this module: it makes a call with the transaction, and keeps what joined to its end.
func (t *Txn) Part(joins interface{ Abort() }, call func(txn capi.Handle) *capi.Failure) error {
	return errorOf(t.object.Alone(func(txn capi.Handle) *capi.Failure {
		failed := call(txn)
		if failed == nil && joins != nil {
			t.parts = append(t.parts, joins)
		}
		return failed
	}))
}

// Await runs a call that may block until it or the context ends. The call goes on behind the context's back.
func Await(ctx context.Context, call func() error) error {
	if ctx.Done() == nil {
		return call()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Version is that of the library.
func Version() string { return capi.Version() }
