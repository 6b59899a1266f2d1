// Package memlith opens stores of memlith, a library that makes changes durable, all or none of them, with one write
// and one flush. The packages kv and applog offer what lies in a store: key-value stores with transactions, and logs of
// operations. docs/go.md is the guide; the headers in include/memlith state the contract of each call.
//
// The library's calls may block in the kernel, as reads and writes of files do. Any number of goroutines may use a
// store, a kv store or a log at a time; a transaction is used by one at a time. Opening and closing: while no other
// goroutine uses the object.
package memlith

import (
	"context"
	"sync/atomic"
	"time"

	"memlith.org/memlith/internal/capi"
)

// Options of a store; the zero value opens an existing one for reading and writing.
type Options struct {
	Create    bool // create the store if it does not exist
	Exclusive bool // with Create: fail with ErrExists if it does
	// Show the last durable state, and change nothing on the disk.
	ReadOnly bool
	// Follow is ReadOnly, also while a process has the store open for writing: regions are as one durable commit left
	// them. What is opened is copied to memory.
	Follow bool
	// LogBytes is the size of a new store's redo log, and LogMaxBytes what it may grow to; 0: 4 MiB and 1 GiB.
	LogBytes, LogMaxBytes uint64
	// Window is how long an asynchronous commit may wait for its flush, and WindowBytes how much may wait in the log.
	Window      time.Duration
	WindowBytes uint64
	// MemoryMaxBytes limits the memory for changed pages of regions; 0: no limit.
	MemoryMaxBytes uint64
}

// Store is an open store.
type Store struct {
	handle capi.Handle
	path   string
	users  atomic.Int64 // kv stores, logs and transactions, which the library would close with the store
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
	})
	if failed != nil {
		return nil, errorOf(failed)
	}
	return &Store{handle: handle, path: path}, nil
}

// Rounded up, so that a short time does not become none.
func milliseconds(of time.Duration) uint64 {
	if of <= 0 {
		return 0
	}
	return uint64((of + time.Millisecond - 1) / time.Millisecond)
}

// Close writes home what was committed, and marks the store clean. It is ErrBusy while kv stores, logs or transactions
// of the store are open, and after any other error the store is closed nevertheless.
func (s *Store) Close() error {
	if s.handle == 0 {
		return nil
	}
	if users := s.users.Load(); users > 0 {
		return busy("%s: %d kv stores, logs and transactions are open; close them first", s.path, users)
	}
	handle := s.handle
	s.handle = 0
	return errorOf(capi.StoreClose(handle))
}

// Path is what the store was opened with.
func (s *Store) Path() string { return s.path }

// Checkpoint writes home what is durable, so that the next opening has nothing to replay. Never needed for durability.
func (s *Store) Checkpoint() error { return errorOf(capi.StoreCheckpoint(s.handle)) }

// Durable is the newest durable ticket.
func (s *Store) Durable() uint64 { return capi.Durable(s.handle) }

// Newest is a ticket of everything that was committed or appended before, in whatever structure.
func (s *Store) Newest() uint64 { return capi.Newest(s.handle) }

// Wait returns when everything up to that ticket is durable, or when the context ends; it becomes durable all the same.
// It takes the tickets of kv stores, too.
func (s *Store) Wait(ctx context.Context, ticket uint64) error {
	return Await(ctx, func() error { return errorOf(capi.Wait(s.handle, ticket)) })
}

// Info holds counters of a store.
type Info = capi.StoreReport

// Info returns them.
func (s *Store) Info() (Info, error) {
	info, failed := capi.StoreInfo(s.handle)
	return info, errorOf(failed)
}

// Regions returns the names of the store's regions: kv stores and logs are regions, too.
func (s *Store) Regions() ([]string, error) {
	var names []string
	for index := uint64(0); ; index++ {
		name, failed := capi.RegionAt(s.handle, index)
		if failed != nil {
			if err := errorOf(failed); Is(err, ErrNotFound) {
				return names, nil
			} else {
				return nil, err
			}
		}
		names = append(names, name)
	}
}

// Remove removes a kv store or log that is not open, durably.
func (s *Store) Remove(name string) error { return errorOf(capi.RegionRemove(s.handle, name)) }

// Handle is for the packages of this module.
func (s *Store) Handle() capi.Handle { return s.handle }

// Use is for the packages of this module: they count what they have open.
func (s *Store) Use(count int64) { s.users.Add(count) }

// Txn is a transaction of a store: one commit for transactions of kv stores (Join), entries of logs and their read
// positions (AppendIn, ConsumeIn). It ends with a Commit that returned nil, or with Abort.
type Txn struct {
	store  *Store
	handle capi.Handle
}

// Begin begins one.
func (s *Store) Begin() (*Txn, error) {
	handle, failed := capi.Begin(s.handle)
	if failed != nil {
		return nil, errorOf(failed)
	}
	s.users.Add(1)
	return &Txn{store: s, handle: handle}, nil
}

// Commit returns when all parts are durable. After an error the transaction is open, and must be aborted.
func (t *Txn) Commit() error {
	_, err := t.commit(capi.CommitSync)
	return err
}

// CommitWeak returns when all parts have taken effect; the ticket is for Store.Wait.
func (t *Txn) CommitWeak() (uint64, error) { return t.commit(capi.CommitWeak) }

func (t *Txn) commit(mode uint32) (uint64, error) {
	ticket, failed := capi.Commit(t.handle, mode)
	if failed != nil {
		return 0, errorOf(failed)
	}
	t.ended()
	return ticket, nil
}

// Abort ends the transaction without effect; of one that has ended it does nothing.
func (t *Txn) Abort() error {
	if t.handle == 0 {
		return nil
	}
	failed := capi.Abort(t.handle)
	t.ended()
	return errorOf(failed)
}

func (t *Txn) ended() {
	t.handle = 0
	t.store.users.Add(-1)
}

// Handle is for the packages of this module.
func (t *Txn) Handle() capi.Handle { return t.handle }

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
