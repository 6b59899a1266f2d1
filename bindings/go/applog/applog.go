// Package applog is a log of operations in a memlith store: entries are durable before a server answers, and the read
// position can be a part of the transaction that applies them. docs/applog.md is the guide.
//
// Any number of goroutines append, write, wait and get. One at a time reads, rewinds, consumes, truncates, restarts,
// and commits transactions of the store with a part in the log.
package applog

import (
	"context"
	"errors"
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
}

// Log is an open log.
type Log struct {
	store  *memlith.Store
	handle capi.Handle
}

// Entry has its number, from 1 on, and content that belongs to the caller.
type Entry struct {
	Number  uint64
	Content []byte
}

// Open opens the log of that name, and checks every entry that is not consumed.
func Open(store *memlith.Store, name string, options Options) (*Log, error) {
	var flags uint32
	if options.Create {
		flags |= capi.Create
	}
	if options.Exclusive {
		flags |= capi.Exclusive
	}
	handle, failed := capi.ApplogOpen(store.Handle(), name, flags, uint32(options.WhenFull), options.Size,
		options.MaxSize)
	if failed != nil {
		return nil, memlith.ErrorOf(failed)
	}
	store.Use(1)
	return &Log{store: store, handle: handle}, nil
}

// Close makes durable what was appended, and closes the log. After an error of memlith.IsStillOpen it is open as
// before.
func (l *Log) Close() error {
	if l.handle == 0 {
		return nil
	}
	err := memlith.ErrorOf(capi.ApplogClose(l.handle))
	if err == nil || !memlith.IsStillOpen(err) {
		l.handle = 0
		l.store.Use(-1)
	}
	return err
}

// Append copies entries into the log in memory, and returns the number of the last. A crash keeps all of them or none.
func (l *Log) Append(entries ...[]byte) (uint64, error) {
	number, failed := capi.ApplogAppend(l.handle, entries, false)
	return number, memlith.ErrorOf(failed)
}

// AppendWrite appends entries and returns when they, and all before them, are durable. After an error with a number
// other than 0 they were appended, and Write tries again.
func (l *Log) AppendWrite(entries ...[]byte) (uint64, error) {
	number, failed := capi.ApplogAppend(l.handle, entries, true)
	return number, memlith.ErrorOf(failed)
}

// Write makes durable what was appended, consumed and truncated. Goroutines share flushes.
func (l *Log) Write() error { return memlith.ErrorOf(capi.ApplogWrite(l.handle)) }

// WriteAsync begins to; the number is for Wait.
func (l *Log) WriteAsync() (uint64, error) {
	number, failed := capi.ApplogWriteAsync(l.handle)
	return number, memlith.ErrorOf(failed)
}

// Wait returns when that entry, and so every earlier one, is durable, or when the context ends.
func (l *Log) Wait(ctx context.Context, number uint64) error {
	return memlith.Await(ctx, func() error { return memlith.ErrorOf(capi.ApplogWait(l.handle, number)) })
}

// Durable is the number of the newest durable entry; 0: none.
func (l *Log) Durable() uint64 { return capi.ApplogDurable(l.handle) }

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

func (l *Log) read(waitMs uint64) (Entry, error) {
	number, content, failed := capi.ApplogRead(l.handle, waitMs)
	return Entry{number, content}, memlith.ErrorOf(failed)
}

// Rewind has reading begin with the first entry that is not consumed.
func (l *Log) Rewind() error { return memlith.ErrorOf(capi.ApplogRewind(l.handle)) }

// Consume drops everything up to an entry that was read; durable a moment later, and at the latest with the next Write.
func (l *Log) Consume(number uint64) error {
	return memlith.ErrorOf(capi.ApplogConsume(l.handle, number))
}

// Get returns the content of a durable entry, read or not; memlith.ErrNotFound: there is none of that number.
func (l *Log) Get(number uint64) ([]byte, error) { return l.GetInto(number, make([]byte, 0, 256)) }

// GetInto returns the content in the buffer, if it is large enough.
func (l *Log) GetInto(number uint64, buffer []byte) ([]byte, error) {
	content, failed := capi.ApplogGet(l.handle, number, buffer)
	return content, memlith.ErrorOf(failed)
}

// TruncateAfter drops every entry behind entry last. This, TruncateBefore and Restart take effect at once, and are
// durable at the latest with the next Write.
func (l *Log) TruncateAfter(last uint64) error {
	return memlith.ErrorOf(capi.ApplogTruncateAfter(l.handle, last))
}

// TruncateBefore drops every entry before entry first, read or not.
func (l *Log) TruncateBefore(first uint64) error {
	return memlith.ErrorOf(capi.ApplogTruncateBefore(l.handle, first))
}

// Restart drops all entries; the next one gets that number.
func (l *Log) Restart(next uint64) error { return memlith.ErrorOf(capi.ApplogRestart(l.handle, next)) }

// AppendIn has the commit of a transaction append entries, with all else that it commits or not at all.
func (l *Log) AppendIn(tx *memlith.Txn, entries ...[]byte) error {
	return memlith.ErrorOf(capi.TxAppend(tx.Handle(), l.handle, entries))
}

// ConsumeIn has the commit of a transaction consume everything up to an entry that was read.
func (l *Log) ConsumeIn(tx *memlith.Txn, number uint64) error {
	return memlith.ErrorOf(capi.TxConsume(tx.Handle(), l.handle, number))
}

// Info holds sizes, and numbers of entries.
type Info = capi.ApplogReport

// Info returns them.
func (l *Log) Info() (Info, error) {
	info, failed := capi.ApplogInfo(l.handle)
	return info, memlith.ErrorOf(failed)
}
