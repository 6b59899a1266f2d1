package kv

import (
	"errors"
	"runtime"
	"time"

	"memlith.org/memlith"
	"memlith.org/memlith/internal/capi"
)

// Txn is a transaction. Any number of goroutines use it; its calls wait for each other. It ends with a commit, with
// Abort, or with a call that returns memlith.ErrConflict. Abort may be called at any time, and more than once. One that
// the program has forgotten is aborted when the garbage collector finds it.
type Txn struct {
	object  capi.Object
	watched bool   // by the garbage collector
	buffer  []byte // of Range
}

// Begin begins a transaction that locks what it reads and writes. A call that meets another's lock is
// memlith.ErrConflict: the transaction has ended, begin anew. Update does that by itself.
func (k *KV) Begin() (*Txn, error) { return watch(k.begin(0, 0)) }

// BeginRead begins one that only reads. Its Commit returns when what it saw is durable; CommitWeak and Abort do not
// wait.
func (k *KV) BeginRead() (*Txn, error) { return watch(k.begin(capi.KvReadOnly, 0)) }

func watch(txn *Txn, err error) (*Txn, error) {
	if err != nil {
		return nil, err
	}
	txn.watched = true
	runtime.SetFinalizer(txn, (*Txn).Abort)
	return txn, nil
}

func (k *KV) begin(flags uint32, wait time.Duration) (*Txn, error) {
	txn := &Txn{}
	err := k.call(func(kv capi.Handle) *capi.Failure {
		handle, failed := capi.KvBegin(kv, flags, uint64(wait/time.Millisecond))
		if failed == nil {
			txn.object.Open("the transaction", handle)
		}
		return failed
	})
	if err != nil {
		return nil, err
	}
	return txn, nil
}

// Commit returns when the changes, and what the transaction has read, are durable, or the changes have had no effect.
// Errors after which they did take effect, as those of a weak commit: memlith.ErrIO (the store is poisoned) and
// memlith.ErrNoSpace; see memlith/kv.h.
func (t *Txn) Commit() error {
	_, err := t.commit(capi.CommitSync)
	return err
}

// CommitWeak returns when the changes have taken effect; they are durable within the window.
func (t *Txn) CommitWeak() (uint64, error) { return t.commit(capi.CommitWeak) }

func (t *Txn) commit(durability uint32) (ticket uint64, err error) {
	err = t.end(func(txn capi.Handle) (failed *capi.Failure) {
		ticket, failed = capi.KvCommit(txn, durability)
		return failed
	})
	return ticket, err
}

// Join makes the transaction a part of one of the store, whose Commit commits it in the same frame as the other parts,
// and whose Abort aborts it.
func (t *Txn) Join(tx *memlith.Txn) error {
	return tx.Part(t, func(tx capi.Handle) *capi.Failure {
		return t.object.Alone(func(txn capi.Handle) *capi.Failure { return capi.TxAddKv(tx, txn) })
	})
}

// Abort ends the transaction without effect; of one that has ended it does nothing.
func (t *Txn) Abort() { _ = t.end(func(capi.Handle) *capi.Failure { return nil }) }

func (t *Txn) end(last func(capi.Handle) *capi.Failure) error {
	return memlith.ErrorOf(t.object.Finish(func(txn capi.Handle) (*capi.Failure, bool) {
		failed := last(txn)
		capi.KvTxnFree(txn)
		if t.watched {
			runtime.SetFinalizer(t, nil)
		}
		return failed, true
	}))
}

func (t *Txn) call(call func(capi.Handle) *capi.Failure) error {
	failed := t.object.Alone(call)
	if failed != nil && capi.Category(failed.Code) == capi.Conflict {
		t.Abort()
	}
	return memlith.ErrorOf(failed)
}

// Get returns the value of a key, which is not nil; memlith.ErrNotFound: there is none. What it tells may be a commit
// that is not durable yet; it is durable when the transaction's Commit has returned.
func (t *Txn) Get(m Map, key []byte) ([]byte, error) { return t.AppendGet(m, key, nil) }

// AppendGet appends the value to a buffer, which saves an allocation.
func (t *Txn) AppendGet(m Map, key, to []byte) (value []byte, err error) {
	value = to
	err = t.call(func(txn capi.Handle) (failed *capi.Failure) {
		value, failed = capi.KvGet(txn, uint32(m), key, to)
		return failed
	})
	return value, err
}

// Head returns at most so many of the first bytes of a value, and the size of the whole value.
func (t *Txn) Head(m Map, key []byte, most int) (head []byte, size uint64, err error) {
	err = t.call(func(txn capi.Handle) (failed *capi.Failure) {
		head, size, failed = capi.KvHead(txn, uint32(m), key, most)
		return failed
	})
	return head, size, err
}

// Put writes a record, a new one or over the old one.
func (t *Txn) Put(m Map, key, value []byte) error {
	return t.call(func(txn capi.Handle) *capi.Failure { return capi.KvPut(txn, uint32(m), key, value) })
}

// Remove removes a record; memlith.ErrNotFound: there is none.
func (t *Txn) Remove(m Map, key []byte) error {
	return t.call(func(txn capi.Handle) *capi.Failure { return capi.KvRemove(txn, uint32(m), key) })
}

// RemoveRange removes the records with from <= key < to with one call into the library, and returns their number. Nil
// bounds are none.
func (t *Txn) RemoveRange(m Map, from, to []byte) (count uint64, err error) {
	err = t.call(func(txn capi.Handle) (failed *capi.Failure) {
		count, failed = capi.KvRemoveRange(txn, uint32(m), from, to)
		return failed
	})
	return count, err
}

// PutIf compares and swaps: if the value is expected, or with a nil expected there is no such record, it becomes value,
// or with a nil value the record is removed. It tells whether. An empty value is not nil. The record was read in any
// case, and is locked.
func (t *Txn) PutIf(m Map, key, expected, value []byte) (done bool, err error) {
	err = t.call(func(txn capi.Handle) (failed *capi.Failure) {
		done, failed = capi.KvPutIf(txn, uint32(m), key, expected, value)
		return failed
	})
	return done, err
}

// Estimate returns about how many records with from <= key < to there are, and how many bytes their keys and values
// have. It looks at a few pages, however long the range is, locks nothing, and does not see what the transaction has
// written. Nil bounds are none.
func (t *Txn) Estimate(m Map, from, to []byte) (records, bytes uint64, err error) {
	err = t.call(func(txn capi.Handle) (failed *capi.Failure) {
		records, bytes, failed = capi.KvEstimate(txn, uint32(m), from, to)
		return failed
	})
	return records, bytes, err
}

// Batch holds records that one call puts: a call into the library costs about as much as a small put.
type Batch struct{ records []byte }

// Add copies a record into the batch.
func (b *Batch) Add(key, value []byte) { b.records = capi.AddRecord(b.records, key, value) }

// Reset empties the batch, which keeps its memory.
func (b *Batch) Reset() { b.records = b.records[:0] }

// Bytes is the size of the batch.
func (b *Batch) Bytes() int { return len(b.records) }

// PutBatch puts all records of the batch, in their order. After an error those before the failing one were put; the
// transaction can be aborted.
func (t *Txn) PutBatch(m Map, batch *Batch) error {
	return t.call(func(txn capi.Handle) (failed *capi.Failure) {
		if len(batch.records) > 0 {
			_, failed = capi.KvPutMany(txn, uint32(m), batch.records)
		}
		return failed
	})
}

// Stop ends Range, which returns nil then.
var Stop = errors.New("kv: stop")

const rangeBytes = 32 << 10

// Range calls a function for each record with from <= key < to, in order. Nil bounds are none. Key and value are valid
// until the function returns. The function may use the transaction; it need not see what it changes itself.
func (t *Txn) Range(m Map, from, to []byte, record func(key, value []byte) error) error {
	var buffer []byte
	if err := t.call(func(capi.Handle) *capi.Failure {
		buffer, t.buffer = t.buffer, nil // a Range within this one makes its own
		return nil
	}); err != nil {
		return err
	}
	if buffer == nil {
		buffer = make([]byte, rangeBytes)
	}
	defer func() { _ = t.call(func(capi.Handle) *capi.Failure { t.buffer = buffer; return nil }) }()
	for {
		used, needed, err := t.records(capi.KvRange, m, from, to, buffer)
		if err != nil {
			return err
		}
		if used == 0 && needed > uint64(len(buffer)) {
			buffer = make([]byte, needed)
			continue
		}
		var key, value []byte
		for rest := buffer[:used]; len(rest) > 0; {
			key, value, rest = capi.ParseRecord(rest)
			if len(rest) == 0 && needed > 0 {
				from = append(append([]byte(nil), key...), 0) // the least key behind it
			}
			if err := record(key, value); err != nil {
				if err == Stop {
					return nil
				}
				return err
			}
		}
		if needed == 0 {
			return nil
		}
	}
}

type copyRecords = func(txn capi.Handle, m uint32, from, to, buffer []byte) (used, needed uint64, failed *capi.Failure)

func (t *Txn) records(step copyRecords, m Map, from, to, buffer []byte) (used, needed uint64, err error) {
	err = t.call(func(txn capi.Handle) (failed *capi.Failure) {
		used, needed, failed = step(txn, uint32(m), from, to, buffer)
		return failed
	})
	return used, needed, err
}

// Scan reads the records of a range one by one, forward or backward, and copies many of them with one call into the
// library: few at first, for a search, and more as it goes on. It need not see what the transaction changes meanwhile.
type Scan struct {
	txn      *Txn
	m        Map
	from, to []byte
	backward bool
	room     int
	rest     []byte // records that were copied
	last     bool   // there are none behind them
}

const scanBytes = 512 // of the first copy

// Scan begins one of the records with from <= key < to. Nil bounds are none. The bounds may not be changed before the
// end of the scan.
func (t *Txn) Scan(m Map, from, to []byte, backward bool) *Scan {
	return &Scan{txn: t, m: m, from: from, to: to, backward: backward, room: scanBytes}
}

// Next returns the next record; memlith.ErrNotFound: there is none. Key and value belong to the caller, who may not
// append to the value.
func (s *Scan) Next() (key, value []byte, err error) {
	if len(s.rest) == 0 {
		if err := s.fill(); err != nil {
			return nil, nil, err
		}
	}
	key, value, s.rest = capi.ParseRecord(s.rest)
	if len(s.rest) == 0 && !s.last {
		if s.backward {
			s.to = key
		} else {
			s.from = append(append([]byte(nil), key...), 0) // the least key behind it
		}
	}
	return key, value, nil
}

func (s *Scan) fill() error {
	for !s.last {
		buffer := make([]byte, s.room)
		step := capi.KvRange
		if s.backward {
			step = capi.KvRangeBack
		}
		used, needed, err := s.txn.records(step, s.m, s.from, s.to, buffer)
		if err != nil {
			return err
		}
		if used == 0 && needed > 0 {
			s.room = int(needed)
			continue
		}
		s.rest, s.last = buffer[:used], needed == 0
		if s.room < rangeBytes {
			s.room *= 4
		} else {
			s.room = rangeBytes // after a large record
		}
		if used > 0 {
			return nil
		}
	}
	return memlith.ErrNotFound
}

// Cursor stands on a record, or on none. It sees the transaction's own writes, and ends with the transaction.
type Cursor struct {
	txn    *Txn
	handle capi.Handle
}

// Cursor opens one.
func (t *Txn) Cursor(m Map) (*Cursor, error) {
	cursor := &Cursor{txn: t}
	err := t.call(func(txn capi.Handle) (failed *capi.Failure) {
		cursor.handle, failed = capi.CursorOpen(txn, uint32(m))
		return failed
	})
	if err != nil {
		return nil, err
	}
	return cursor, nil
}

func (c *Cursor) call(call func(capi.Handle) *capi.Failure) error {
	return c.txn.call(func(capi.Handle) *capi.Failure {
		if c.handle == 0 {
			return capi.Closed("the cursor")
		}
		return call(c.handle)
	})
}

// First, Last, Next, Prev and Seek put the cursor on a record and return it; memlith.ErrNotFound: there is none. Of a
// new cursor Next is First and Prev is Last. Seek finds the first record whose key is not less.
func (c *Cursor) First() (key, value []byte, err error) { return c.move(capi.First, nil) }
func (c *Cursor) Last() (key, value []byte, err error)  { return c.move(capi.Last, nil) }
func (c *Cursor) Next() (key, value []byte, err error)  { return c.move(capi.Next, nil) }
func (c *Cursor) Prev() (key, value []byte, err error)  { return c.move(capi.Prev, nil) }
func (c *Cursor) Seek(target []byte) (key, value []byte, err error) {
	return c.move(capi.Seek, target)
}

func (c *Cursor) move(how int, target []byte) (key, value []byte, err error) {
	err = c.call(func(cursor capi.Handle) (failed *capi.Failure) {
		key, value, failed = capi.CursorMove(cursor, how, target)
		return failed
	})
	return key, value, err
}

// SetBounds leaves only the records with from <= key < to to the cursor, which stands on none then, as a new one. Nil
// bounds are none. The transaction locks no more than these records, the room between them, and the key `to`.
func (c *Cursor) SetBounds(from, to []byte) error {
	return c.call(func(cursor capi.Handle) *capi.Failure { return capi.CursorSetBounds(cursor, from, to) })
}

// SetPrefix is SetBounds of the keys that begin so.
func (c *Cursor) SetPrefix(prefix []byte) error {
	return c.call(func(cursor capi.Handle) *capi.Failure { return capi.CursorSetPrefix(cursor, prefix) })
}

// Remove removes the record on which the cursor stands; Next and Prev go on from its place.
func (c *Cursor) Remove() error { return c.call(capi.CursorRemove) }

// Close frees the cursor. After the end of the transaction, which freed it, this does nothing.
func (c *Cursor) Close() {
	_ = c.call(func(cursor capi.Handle) *capi.Failure {
		capi.CursorClose(cursor)
		c.handle = 0
		return nil
	})
}
