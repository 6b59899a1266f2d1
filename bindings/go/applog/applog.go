// Package applog is a log of operations in a memlith store: entries are durable before a server answers, and the read
// position can be a part of the transaction that applies them. docs/applog.md is the guide.
//
// Any number of goroutines append, write, wait and get. One at a time reads, rewinds, consumes, truncates, restarts,
// and commits transactions of the store with a part in the log.
package applog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"memlith.org/memlith"
	"memlith.org/memlith/internal/capi"
)

// WhenFull is what an append does that finds no room.
type WhenFull uint32

const (
	Block WhenFull = capi.ApplogBlock // it waits until another goroutine has consumed entries
	Fail  WhenFull = capi.ApplogFail  // it fails with memlith.ErrFull
	Grow  WhenFull = capi.ApplogGrow  // the log grows, up to MaxSize
)

// Options of a log.
type Options struct {
	Create    bool
	Exclusive bool // with Create: fail with memlith.ErrExists if it exists
	WhenFull  WhenFull
	Size      uint64 // of a new log; 0: 64 MiB
	MaxSize   uint64 // of a new log that may grow; 0: the size, or with Grow 1 TiB
	// Program is the path of the command memlith, if OpenShared has to start a keeper; "": it is looked for.
	Program string
}

func (o *Options) flags() (flags uint32) {
	if o.Create {
		flags |= capi.Create
	}
	if o.Exclusive {
		flags |= capi.Exclusive
	}
	return flags
}

// Log is an open log.
type Log struct {
	store  *memlith.Store // nil: of several processes
	object capi.Object
}

// Entry has its number, from 1 on, and content that belongs to the caller.
type Entry struct {
	Number  uint64
	Content []byte
}

// Open opens the log of that name, and checks every entry that is not consumed.
func Open(store *memlith.Store, name string, options Options) (*Log, error) {
	log := &Log{store: store}
	err := store.OpenIn(&log.object, fmt.Sprintf("the log %q", name),
		func(store capi.Handle) (capi.Handle, *capi.Failure) {
			return capi.ApplogOpen(store, name, options.flags(), uint32(options.WhenFull), options.Size, options.MaxSize)
		})
	if err != nil {
		return nil, err
	}
	return log, nil
}

// OpenShared opens the log of the memlith store in that folder, for this process and others: all of them append, write
// and read it, each from a place of its own, and what one consumes is consumed for all. Transactions have no part in
// it. docs/several-processes.md tells the rest.
func OpenShared(folder, name string, options Options) (*Log, error) {
	handle, failed := capi.ApplogOpenShared(folder, name, options.flags(), uint32(options.WhenFull), options.Size,
		options.MaxSize, options.Program)
	if failed != nil {
		return nil, memlith.ErrorOf(failed)
	}
	log := &Log{}
	log.object.Open(fmt.Sprintf("the log %q", name), handle)
	return log, nil
}

// Close makes durable what was appended, and closes the log. After an error of memlith.IsStillOpen it is open as
// before.
func (l *Log) Close() error {
	if l.store != nil {
		return l.store.CloseIn(&l.object, capi.ApplogClose)
	}
	return memlith.ErrorOf(l.object.Close(func(log capi.Handle) (*capi.Failure, bool) {
		failed := capi.ApplogClose(log)
		return failed, !capi.StillOpen(failed)
	}))
}

func (l *Log) call(call func(capi.Handle) *capi.Failure) error {
	return memlith.ErrorOf(l.object.Call(call))
}

// Append copies entries into the log in memory, and returns the number of the last. A crash keeps all of them or none.
func (l *Log) Append(entries ...[]byte) (uint64, error) { return l.append(entries, false) }

// AppendWrite appends entries and returns when they, and all before them, are durable. After an error with a number
// other than 0 they were appended, and Write tries again.
func (l *Log) AppendWrite(entries ...[]byte) (uint64, error) { return l.append(entries, true) }

func (l *Log) append(entries [][]byte, write bool) (number uint64, err error) {
	err = l.call(func(log capi.Handle) (failed *capi.Failure) {
		number, failed = capi.ApplogAppend(log, entries, write)
		return failed
	})
	return number, err
}

// Write makes durable what was appended, consumed and truncated. Goroutines share flushes.
func (l *Log) Write() error { return l.call(capi.ApplogWrite) }

// WriteWeak begins to; Wait waits for the ticket.
func (l *Log) WriteWeak() (ticket uint64, err error) {
	err = l.call(func(log capi.Handle) (failed *capi.Failure) {
		ticket, failed = capi.ApplogWriteWeak(log)
		return failed
	})
	return ticket, err
}

// Wait returns when everything up to the ticket of a WriteWeak is durable.
func (l *Log) Wait(ticket uint64) error {
	return l.call(func(log capi.Handle) *capi.Failure { return capi.ApplogWait(log, ticket) })
}

// Durable is the number of the newest durable entry; 0: none, or the log is closed.
func (l *Log) Durable() uint64 { return l.object.Number(capi.ApplogDurable) }

// A reader looks so often whether its context has ended.
const lookAgainAfter = 50 * time.Millisecond

// Read returns the next durable entry, and waits for one until the context ends.
func (l *Log) Read(ctx context.Context) (Entry, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Entry{}, err
		}
		entry, err := l.read(uint64(lookAgainAfter / time.Millisecond))
		if !errors.Is(err, memlith.ErrNotFound) {
			return entry, err
		}
	}
}

// TryRead returns the next durable entry, or memlith.ErrNotFound at once.
func (l *Log) TryRead() (Entry, error) { return l.read(0) }

func (l *Log) read(waitMs uint64) (entry Entry, err error) {
	err = l.call(func(log capi.Handle) (failed *capi.Failure) {
		entry.Number, entry.Content, failed = capi.ApplogRead(log, waitMs)
		return failed
	})
	return entry, err
}

// Rewind has reading begin with the first entry that is not consumed.
func (l *Log) Rewind() error { return l.call(capi.ApplogRewind) }

// Consume drops everything up to an entry that was read; durable a moment later, and at the latest with the next Write.
func (l *Log) Consume(number uint64) error {
	return l.call(func(log capi.Handle) *capi.Failure { return capi.ApplogConsume(log, number) })
}

// Get returns the content of a durable entry, read or not; memlith.ErrNotFound: there is none of that number.
func (l *Log) Get(number uint64) ([]byte, error) { return l.GetInto(number, make([]byte, 0, 256)) }

// GetInto returns the content in the buffer, if it is large enough.
func (l *Log) GetInto(number uint64, buffer []byte) (content []byte, err error) {
	err = l.call(func(log capi.Handle) (failed *capi.Failure) {
		content, failed = capi.ApplogGet(log, number, buffer)
		return failed
	})
	return content, err
}

// TruncateAfter drops every entry behind entry last. This, TruncateBefore and Restart take effect at once, and are
// durable at the latest with the next Write.
func (l *Log) TruncateAfter(last uint64) error {
	return l.call(func(log capi.Handle) *capi.Failure { return capi.ApplogTruncateAfter(log, last) })
}

// TruncateBefore drops every entry before entry first, read or not.
func (l *Log) TruncateBefore(first uint64) error {
	return l.call(func(log capi.Handle) *capi.Failure { return capi.ApplogTruncateBefore(log, first) })
}

// Restart drops all entries; the next one gets that number.
func (l *Log) Restart(next uint64) error {
	return l.call(func(log capi.Handle) *capi.Failure { return capi.ApplogRestart(log, next) })
}

// AppendIn has the commit of a transaction append entries, with all else that it commits or not at all.
func (l *Log) AppendIn(tx *memlith.Txn, entries ...[]byte) error {
	return l.in(tx, func(tx, log capi.Handle) *capi.Failure { return capi.TxAppend(tx, log, entries) })
}

// ConsumeIn has the commit of a transaction consume everything up to an entry that was read.
func (l *Log) ConsumeIn(tx *memlith.Txn, number uint64) error {
	return l.in(tx, func(tx, log capi.Handle) *capi.Failure { return capi.TxConsume(tx, log, number) })
}

func (l *Log) in(tx *memlith.Txn, call func(tx, log capi.Handle) *capi.Failure) error {
	return tx.Part(nil, func(tx capi.Handle) *capi.Failure {
		return l.object.Call(func(log capi.Handle) *capi.Failure { return call(tx, log) })
	})
}

// Info holds sizes, and numbers of entries.
type Info = capi.ApplogReport

// Info returns them.
func (l *Log) Info() (info Info, err error) {
	err = l.call(func(log capi.Handle) (failed *capi.Failure) {
		info, failed = capi.ApplogInfo(log)
		return failed
	})
	return info, err
}
