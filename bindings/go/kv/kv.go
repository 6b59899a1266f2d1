// Package kv is a key-value store in a memlith store: named, ordered maps with strictly serialisable transactions. Each
// commit chooses whether it returns when it is durable, or within a window before that. docs/kv.md is the guide.
//
// Slices that are passed are copied, and those that are returned belong to the caller, unless a method says otherwise.
package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"time"

	"memlith.org/memlith"
	"memlith.org/memlith/internal/capi"
)

// Limits of keys, values and names of maps.
const (
	KeyBytesMax   = capi.KvKeyBytesMax
	ValueBytesMax = capi.KvValueBytesMax
	NameBytesMax  = capi.KvNameBytesMax
)

// Options of a kv store.
type Options struct {
	Create    bool
	Exclusive bool // with Create: fail with memlith.ErrExists if it exists
	// MaxSize of a new kv store takes addresses only; 0: 1 TiB.
	MaxSize uint64
	// A weak commit becomes durable at most Window after it returned, or as soon as WindowBytes wait; 0: 100 ms, 16 MiB.
	Window      time.Duration
	WindowBytes uint64
	// Program is the path of the command memlith, if OpenShared has to start a keeper; "": it is looked for.
	Program string
}

// KV is an open kv store. Any number of goroutines use it.
type KV struct {
	store  *memlith.Store // nil: of several processes
	object capi.Object
}

// Map is the number of a map, valid while the kv store is open and the map is not removed.
type Map uint32

// Open opens the kv store of that name.
func Open(store *memlith.Store, name string, options Options) (*KV, error) {
	flags := createFlags(options.Create, options.Exclusive)
	window := uint64((options.Window + time.Millisecond - 1) / time.Millisecond)
	kv := &KV{store: store}
	err := store.OpenIn(&kv.object, fmt.Sprintf("the kv store %q", name),
		func(store capi.Handle) (capi.Handle, *capi.Failure) {
			return capi.KvOpen(store, name, flags, options.MaxSize, window, options.WindowBytes)
		})
	if err != nil {
		return nil, err
	}
	return kv, nil
}

// OpenShared opens the kv store of the memlith store in that folder, for this process and others: all of them read and
// write it. Reads send no message. A transaction that writes fails at its commit with memlith.ErrConflict if another
// has changed what it read; Update begins again. docs/several-processes.md tells the rest.
func OpenShared(folder, name string, options Options) (*KV, error) {
	window := uint64((options.Window + time.Millisecond - 1) / time.Millisecond)
	handle, failed := capi.KvOpenShared(folder, name, createFlags(options.Create, options.Exclusive), options.MaxSize,
		window, options.WindowBytes, options.Program)
	if failed != nil {
		return nil, memlith.ErrorOf(failed)
	}
	kv := &KV{}
	kv.object.Open(fmt.Sprintf("the kv store %q", name), handle)
	return kv, nil
}

func createFlags(create, exclusive bool) uint32 {
	var flags uint32
	if create {
		flags |= capi.Create
	}
	if exclusive {
		flags |= capi.Exclusive
	}
	return flags
}

// Close makes every commit durable and closes the kv store. After an error of memlith.IsStillOpen it is open as before:
// transactions were not ended, or there is no room for weak commits.
func (k *KV) Close() error {
	if k.store != nil {
		return k.store.CloseIn(&k.object, capi.KvClose)
	}
	return memlith.ErrorOf(k.object.Close(func(kv capi.Handle) (*capi.Failure, bool) {
		failed := capi.KvClose(kv)
		return failed, !capi.StillOpen(failed)
	}))
}

// Wait returns when the commit with that ticket, of this kv store, is durable.
func (k *KV) Wait(ticket uint64) error {
	return k.call(func(kv capi.Handle) *capi.Failure { return capi.KvWait(kv, ticket) })
}

func (k *KV) call(call func(capi.Handle) *capi.Failure) error {
	return memlith.ErrorOf(k.object.Call(call))
}

// Map finds a map.
func (k *KV) Map(name string) (Map, error) { return k.openMap(name, 0) }

// CreateMap finds a map, and creates a missing one durably.
func (k *KV) CreateMap(name string) (Map, error) { return k.openMap(name, capi.Create) }

func (k *KV) openMap(name string, flags uint32) (m Map, err error) {
	err = k.call(func(kv capi.Handle) *capi.Failure {
		number, failed := capi.KvMapOpen(kv, name, flags)
		m = Map(number)
		return failed
	})
	return m, err
}

// RemoveMap removes a map with its records, durably. memlith.ErrConflict: a transaction uses it.
func (k *KV) RemoveMap(name string) error {
	return k.call(func(kv capi.Handle) *capi.Failure { return capi.KvMapRemove(kv, name) })
}

const appendBytes = 4 << 20 // of one call into the library

// Append fills a map quickly: it puts records behind all that the map has, in the order of their keys, and returns how
// many. `next` returns false when there are no more; its bytes are copied before it is called again. Append has commits
// of its own, durable on return; an error or a crash leaves the first of the records. memlith.ErrInvalid: a key is not
// above the one before. memlith.ErrConflict: a transaction uses the map.
func (k *KV) Append(m Map, next func() (key, value []byte, more bool)) (uint64, error) {
	var batch Batch
	var count uint64
	for more := true; more; {
		batch.Reset()
		for batch.Bytes() < appendBytes {
			var key, value []byte
			if key, value, more = next(); !more {
				break
			}
			batch.Add(key, value)
		}
		put, err := k.AppendBatch(m, &batch)
		count += put
		if err != nil {
			return count, err
		}
	}
	return count, nil
}

// AppendBatch is Append of the records of a batch.
func (k *KV) AppendBatch(m Map, batch *Batch) (count uint64, err error) {
	err = k.call(func(kv capi.Handle) (failed *capi.Failure) {
		if len(batch.records) > 0 {
			count, failed = capi.KvAppendMany(kv, uint32(m), batch.records)
		}
		return failed
	})
	return count, err
}

// Maps returns the names of all maps, in order.
func (k *KV) Maps() ([]string, error) {
	var names []string
	for {
		var name string
		err := k.call(func(kv capi.Handle) (failed *capi.Failure) {
			name, failed = capi.KvMapAt(kv, uint64(len(names)))
			return failed
		})
		if errors.Is(err, memlith.ErrNotFound) {
			return names, nil
		} else if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
}

// Persist makes every commit that has returned durable.
func (k *KV) Persist() error { return k.call(capi.KvPersist) }

// Durable is the newest ticket up to which the commits of this kv store are durable; 0 of a closed kv store.
func (k *KV) Durable() uint64 { return k.object.Number(capi.KvDurable) }

// Verify checks every page; commits wait meanwhile.
func (k *KV) Verify() error { return k.call(capi.KvVerify) }

// Info holds counters of a kv store.
type Info = capi.KvReport

// Info returns them.
func (k *KV) Info() (info Info, err error) {
	err = k.call(func(kv capi.Handle) (failed *capi.Failure) {
		info, failed = capi.KvInfo(kv)
		return failed
	})
	return info, err
}

// View runs a function with a transaction that only reads: it sees the state as of its beginning, meets no conflict,
// and makes no writer wait. What the function saw is durable when View returns: if the newest commits are not durable
// yet, View waits for the flush that is under way or due. View returns what the function returned, unless that flush
// failed (memlith.ErrIO, memlith.ErrNoSpace).
func (k *KV) View(read func(*Txn) error) error { return k.view(read, capi.CommitSync) }

// ViewWeak is View without waiting: what the function saw may be lost if the machine stops at once.
func (k *KV) ViewWeak(read func(*Txn) error) error { return k.view(read, capi.CommitWeak) }

func (k *KV) view(read func(*Txn) error, durability uint32) error {
	txn, err := k.begin(capi.KvReadOnly, 0)
	if err != nil {
		return err
	}
	defer txn.Abort()
	err = read(txn)
	if _, failed := txn.commit(durability); failed != nil && !errors.Is(failed, memlith.ErrClosed) {
		return failed
	}
	return err // also where the function has ended the transaction by itself
}

// Update runs a function with a transaction, and commits it durably when the function returns nil; else it has no
// effect. After a conflict the function runs again, until the context ends. If the context ends before the commit
// begins, there is no commit.
func (k *KV) Update(ctx context.Context, change func(*Txn) error) error {
	_, err := k.update(ctx, change, capi.CommitSync)
	return err
}

// UpdateWeak is Update with a commit that is durable within the window: later weak ones are never kept without it. The
// ticket is for Wait.
func (k *KV) UpdateWeak(ctx context.Context, change func(*Txn) error) (uint64, error) {
	return k.update(ctx, change, capi.CommitWeak)
}

const (
	lockWait = 20 * time.Millisecond // for another transaction to end
	pauseMax = 50 * time.Millisecond
)

func (k *KV) update(ctx context.Context, change func(*Txn) error, durability uint32) (uint64, error) {
	for pause := 100 * time.Microsecond; ; {
		ticket, err := k.once(ctx, change, durability)
		if !errors.Is(err, memlith.ErrConflict) {
			return ticket, err
		}
		timer := time.NewTimer(time.Duration(rand.Int63n(int64(pause))) + 1)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return 0, ctx.Err()
		}
		if pause *= 2; pause > pauseMax {
			pause = pauseMax
		}
	}
}

func (k *KV) once(ctx context.Context, change func(*Txn) error, durability uint32) (uint64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	txn, err := k.begin(0, lockWait)
	if err != nil {
		return 0, err
	}
	defer txn.Abort()
	if err := change(txn); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return txn.commit(durability)
}
