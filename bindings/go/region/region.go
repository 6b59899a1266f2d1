// Package region is memory of a memlith store as a slice of bytes. The program changes the bytes in place, and a
// persist makes all changes durable, or none of them. docs/go.md is the guide, "Regions".
//
// The memory is not Go's. Nothing in it may point into Go's memory: store numbers and offsets. The slice, and all that
// was cut of it, ends with Close of the region, and so does the program that uses it later. Of a store that was opened
// with ReadOnly or Follow the bytes are to be read; a store to them ends the program.
//
// Any number of goroutines use a region. Goroutines that change the same bytes hold a lock, and persist before they
// release it: a persist takes the changes of all goroutines, half-done ones, too. PersistAsync with the lock, and
// Store.Wait without it, lets goroutines share flushes (docs/threads.md). The scope of a thread is not offered, because
// a goroutine moves between threads.
package region

import (
	"fmt"

	"memlith.org/memlith"
	"memlith.org/memlith/internal/capi"
)

// Tracker is how memlith finds what was stored; docs/guarantees.md, "Trackers", compares them.
type Tracker uint32

const (
	Auto     Tracker = capi.TrackerAuto     // Scan or Fault, whatever suits the size and the kernel
	Scan     Tracker = capi.TrackerScan     // asks the kernel which pages were written
	Explicit Tracker = capi.TrackerExplicit // relies on Touch, TouchBefore and WriteIn
	Fault    Tracker = capi.TrackerFault    // protects pages, and catches SIGSEGV and SIGBUS; see Prepare
)

// Options of a region.
type Options struct {
	Create    bool
	Exclusive bool // with Create: fail with memlith.ErrExists if it exists
	Tracker   Tracker
	Size      uint64 // of a new region, rounded up to 4096
	MaxSize   uint64 // addresses, which limit Grow; 0: as it is, or of a new region 4 times Size, at least 1 GiB
}

// Region is an open region.
type Region struct {
	store  *memlith.Store
	object capi.Object
}

// Open opens the region of that name at the address at which it was created. A new region is durable, and all zeros.
// memlith.ErrAddressTaken: these addresses are in use in this process. Of a store that is only read, the region lies
// wherever the process has room.
func Open(store *memlith.Store, name string, options Options) (*Region, error) {
	var flags uint32
	if options.Create {
		flags |= capi.Create
	}
	if options.Exclusive {
		flags |= capi.Exclusive
	}
	region := &Region{store: store}
	err := store.OpenIn(&region.object, fmt.Sprintf("the region %q", name),
		func(store capi.Handle) (capi.Handle, *capi.Failure) {
			if info, failed := capi.StoreInfo(store); failed != nil {
				return 0, failed
			} else if info.ReadOnly {
				flags |= capi.RegionAnywhere
			}
			return capi.RegionOpen(store, name, flags, uint32(options.Tracker), options.Size, options.MaxSize)
		})
	if err != nil {
		return nil, err
	}
	return region, nil
}

// Close drops what was not persisted, and unmaps the memory: no slice of it may be used any more. memlith.ErrBusy: the
// region takes part in a transaction of the store, or a call of another goroutine does not return; it is open as
// before.
func (r *Region) Close() error { return r.store.CloseIn(&r.object, capi.RegionClose) }

func (r *Region) call(call func(capi.Handle) *capi.Failure) error {
	return memlith.ErrorOf(r.object.Call(call))
}

// Bytes returns the memory of the region; nil of a closed region. The same slice each time, until Grow.
func (r *Region) Bytes() (bytes []byte) {
	_ = r.object.Call(func(region capi.Handle) *capi.Failure {
		bytes = capi.RegionBytes(region)
		return nil
	})
	return bytes
}

// Grow enlarges the region in place; the new bytes are zeros, and Bytes returns them, too. Slices stay valid. The new
// size is durable with the next persist.
func (r *Region) Grow(size uint64) error {
	return r.call(func(region capi.Handle) *capi.Failure { return capi.RegionGrow(region, size) })
}

// Persist makes durable what was stored to the region since the last persist, all or nothing. After memlith.ErrFull,
// ErrNoSpace and ErrNoMemory nothing was written or lost; after ErrIO, whether it took effect is unknown until the
// store is opened again.
func (r *Region) Persist() error { return r.call(one(capi.Persist)) }

// PersistAsync captures the same. It is durable within the window, in the order of the captures; Store.Wait waits for
// the ticket.
func (r *Region) PersistAsync() (ticket uint64, err error) {
	err = r.call(func(region capi.Handle) (failed *capi.Failure) {
		ticket, failed = capi.PersistAsync([]capi.Handle{region})
		return failed
	})
	return ticket, err
}

// PersistRange persists only what was stored to a part of Bytes, or to its pages; all other changes stay due.
func (r *Region) PersistRange(part []byte) error {
	return r.call(func(region capi.Handle) *capi.Failure { return capi.PersistRange(region, part) })
}

// Rollback gives the memory back what was persisted last. No other goroutine stores to the region meanwhile.
func (r *Region) Rollback() error { return r.call(one(capi.Rollback)) }

func one(call func([]capi.Handle) *capi.Failure) func(capi.Handle) *capi.Failure {
	return func(region capi.Handle) *capi.Failure { return call([]capi.Handle{region}) }
}

// Persist makes durable what was stored to several regions of one store, in one commit.
func Persist(regions ...*Region) error { return memlith.ErrorOf(all(regions, nil, capi.Persist)) }

// PersistAsync captures the same.
func PersistAsync(regions ...*Region) (ticket uint64, err error) {
	err = memlith.ErrorOf(all(regions, nil, func(handles []capi.Handle) (failed *capi.Failure) {
		ticket, failed = capi.PersistAsync(handles)
		return failed
	}))
	return ticket, err
}

// Each region is kept open until the call returns.
func all(regions []*Region, handles []capi.Handle, call func([]capi.Handle) *capi.Failure) *capi.Failure {
	if len(regions) == 0 {
		return call(handles)
	}
	return regions[0].object.Call(func(region capi.Handle) *capi.Failure {
		return all(regions[1:], append(handles, region), call)
	})
}

// Touch says that a part of Bytes was changed. Regions with the tracker Explicit need the call, behind the change; it
// has no effect on others.
func (r *Region) Touch(part []byte) error {
	return r.call(func(region capi.Handle) *capi.Failure { return capi.Touch(region, part) })
}

// Prepare says that a system call is about to write into a part of Bytes, such as a Read of a file or a connection.
// Regions with the tracker Fault need it; it has no effect on others.
func (r *Region) Prepare(part []byte) error {
	return r.call(func(region capi.Handle) *capi.Failure { return capi.Prepare(region, part) })
}

// Release gives the memory of clean pages back to the system; they are read again when they are used.
func (r *Region) Release() error { return r.call(capi.RegionRelease) }

// Discard makes whole pages of 4096 bytes zeros, and gives their memory and disk space back. Durable on return.
func (r *Region) Discard(part []byte) error {
	return r.call(func(region capi.Handle) *capi.Failure { return capi.RegionDiscard(region, part) })
}

// Unpersisted returns how many bytes were stored to since the last persist, in whole pages unless the tracker finds
// bytes. No goroutine stores to the region meanwhile.
func (r *Region) Unpersisted() (bytes uint64, err error) {
	err = r.call(func(region capi.Handle) (failed *capi.Failure) {
		bytes, failed = capi.RegionUnpersisted(region)
		return failed
	})
	return bytes, err
}

// Info describes a region: where it lies, and how its tracker works on this machine.
type Info = capi.RegionReport

// Info returns the description.
func (r *Region) Info() (info Info, err error) {
	err = r.call(func(region capi.Handle) (failed *capi.Failure) {
		info, failed = capi.RegionInfo(region)
		return failed
	})
	return info, err
}

// ---- transactions --------------------------------------------------------------------------------------------------

// Update runs a function, and makes durable what it stored to the region, all or none, before it returns. If the
// function returns an error or panics, or the change cannot be made durable, everything that it stored is undone. What
// was stored before, and not persisted, becomes durable by itself. No other goroutine stores to the region meanwhile,
// and persists and rollbacks of it are memlith.ErrBusy. With the tracker Explicit, what is not touched is neither
// committed nor undone.
func (r *Region) Update(change func(bytes []byte) error) error {
	return r.update(change, (*memlith.Txn).Commit)
}

// UpdateWeak is Update with a commit that is durable within the window; the ticket is for Store.Wait.
func (r *Region) UpdateWeak(change func(bytes []byte) error) (ticket uint64, err error) {
	err = r.update(change, func(txn *memlith.Txn) (failed error) {
		ticket, failed = txn.CommitWeak()
		return failed
	})
	return ticket, err
}

func (r *Region) update(change func([]byte) error, commit func(*memlith.Txn) error) (err error) {
	bytes := r.Bytes()
	txn, err := r.store.Begin()
	if err != nil {
		return err
	}
	defer func() {
		if failed := txn.Abort(); failed != nil { // half of the change is in memory, and is persisted no more
			err = failed
		}
	}()
	if err := r.JoinUndo(txn); err != nil {
		return err
	}
	if err := change(bytes); err != nil {
		return err
	}
	return commit(txn)
}

// Join has the commit of a transaction commit what a Persist would. An abort leaves the memory as it is: what was
// stored stays due.
func (r *Region) Join(txn *memlith.Txn) error { return r.join(txn, 0) }

// JoinUndo is Join, before the changes, of a transaction whose Abort undoes what was stored since.
func (r *Region) JoinUndo(txn *memlith.Txn) error { return r.join(txn, capi.Undo) }

func (r *Region) join(txn *memlith.Txn, flags uint32) error {
	return r.in(txn, func(txn, region capi.Handle) *capi.Failure { return capi.TxAddRegion(txn, region, flags) })
}

// TouchBefore announces that a part of Bytes is about to change, in a region with the tracker Explicit. The commit of
// the transaction has the part, and its Abort gives the part its old bytes back. Until it has ended, no other goroutine
// stores to the part.
func (r *Region) TouchBefore(txn *memlith.Txn, part []byte) error {
	return r.in(txn, func(txn, _ capi.Handle) *capi.Failure { return capi.TxTouchBefore(txn, part) })
}

// WriteIn is TouchBefore of the first bytes of a part, and then a copy of these bytes to it. memlith.ErrInvalid: the
// part is shorter.
func (r *Region) WriteIn(txn *memlith.Txn, part, bytes []byte) error {
	return r.in(txn, func(txn, _ capi.Handle) *capi.Failure {
		if len(bytes) > len(part) {
			return &capi.Failure{Code: capi.Invalid,
				Text: fmt.Sprintf("%d bytes do not fit into a part of %d", len(bytes), len(part))}
		}
		return capi.TxWrite(txn, part, bytes)
	})
}

func (r *Region) in(txn *memlith.Txn, call func(txn, region capi.Handle) *capi.Failure) error {
	return txn.Part(nil, func(txn capi.Handle) *capi.Failure {
		return r.object.Call(func(region capi.Handle) *capi.Failure { return call(txn, region) })
	})
}
