package kv

import (
	"errors"
	"time"

	"memlith.org/memlith"
	"memlith.org/memlith/internal/capi"
)

// Txn is a transaction. One goroutine uses it at a time, whichever it is. It ends with a commit, with Abort, or with a
// call that returns memlith.ErrConflict; Abort frees it in each case, and may be called twice.
type Txn struct {
	handle capi.Handle
	kv     *KV
	buffer []byte // of Range
}

// Begin begins a transaction that locks what it reads and writes. A call that meets another's lock is
// memlith.ErrConflict: abort, and begin anew. Update does that by itself.
func (k *KV) Begin() (*Txn, error) { return k.begin(0, 0) }

// BeginRead begins one that only reads.
func (k *KV) BeginRead() (*Txn, error) { return k.begin(capi.KvReadOnly, 0) }

func (k *KV) begin(flags uint32, wait time.Duration) (*Txn, error) {
	handle, failed := capi.KvBegin(k.handle, flags, uint64(wait/time.Millisecond))
	if failed != nil {
		return nil, memlith.ErrorOf(failed)
	}
	return &Txn{handle: handle, kv: k}, nil
}

// Commit returns when the changes are durable, or have had no effect. Errors after which they did take effect, as those
// of a weak commit: memlith.ErrIO (the store is poisoned) and memlith.ErrNoSpace; see memlith/kv.h.
func (t *Txn) Commit() error {
	_, err := t.commit(capi.CommitSync)
	return err
}

// CommitWeak returns when the changes have taken effect; they are durable within the window.
func (t *Txn) CommitWeak() (uint64, error) { return t.commit(capi.CommitWeak) }

func (t *Txn) commit(durability uint32) (uint64, error) {
	ticket, failed := capi.KvCommit(t.handle, durability)
	t.Abort()
	return ticket, memlith.ErrorOf(failed)
}

// Join makes the transaction a part of one of the store, whose Commit commits it in the same frame as the other parts.
// Call Abort when that has ended.
func (t *Txn) Join(tx *memlith.Txn) error {
	return memlith.ErrorOf(capi.TxAddKv(tx.Handle(), t.handle))
}

// Abort ends the transaction without effect, if it has not ended, and frees it.
func (t *Txn) Abort() {
	if t.handle != 0 {
		capi.KvTxnFree(t.handle)
		t.handle = 0
	}
}

// Get returns the value of a key; memlith.ErrNotFound: there is none.
func (t *Txn) Get(m Map, key []byte) ([]byte, error) { return t.AppendGet(m, key, nil) }

// AppendGet appends the value to a buffer, which saves an allocation.
func (t *Txn) AppendGet(m Map, key, to []byte) ([]byte, error) {
	value, failed := capi.KvGet(t.handle, uint32(m), key, to)
	if failed != nil {
		return to, memlith.ErrorOf(failed)
	}
	return value, nil
}

// Head returns at most so many of the first bytes of a value, and the size of the whole value.
func (t *Txn) Head(m Map, key []byte, most int) ([]byte, uint64, error) {
	head, size, failed := capi.KvHead(t.handle, uint32(m), key, most)
	return head, size, memlith.ErrorOf(failed)
}

// Put writes a record, a new one or over the old one.
func (t *Txn) Put(m Map, key, value []byte) error {
	return memlith.ErrorOf(capi.KvPut(t.handle, uint32(m), key, value))
}

// Delete removes a record; memlith.ErrNotFound: there is none.
func (t *Txn) Delete(m Map, key []byte) error {
	return memlith.ErrorOf(capi.KvRemove(t.handle, uint32(m), key))
}

// DeleteRange removes the records with from <= key < to with one call into the library, and returns their number. Nil
// bounds are none.
func (t *Txn) DeleteRange(m Map, from, to []byte) (uint64, error) {
	count, failed := capi.KvRemoveRange(t.handle, uint32(m), from, to)
	return count, memlith.ErrorOf(failed)
}

// PutIf compares and swaps: if the value is expected, or with a nil expected there is no such record, it becomes value,
// or with a nil value the record is removed. It tells whether. An empty value is not nil. The record was read in any
// case, and is locked.
func (t *Txn) PutIf(m Map, key, expected, value []byte) (bool, error) {
	done, failed := capi.KvPutIf(t.handle, uint32(m), key, expected, value)
	return done, memlith.ErrorOf(failed)
}

// Estimate returns about how many records with from <= key < to there are, and how many bytes their keys and values
// have. It looks at a few pages, however long the range is, locks nothing, and does not see what the transaction has
// written. Nil bounds are none.
func (t *Txn) Estimate(m Map, from, to []byte) (records, bytes uint64, err error) {
	records, bytes, failed := capi.KvEstimate(t.handle, uint32(m), from, to)
	return records, bytes, memlith.ErrorOf(failed)
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
	if len(batch.records) == 0 {
		return nil
	}
	_, failed := capi.KvPutMany(t.handle, uint32(m), batch.records)
	return memlith.ErrorOf(failed)
}

// Stop ends Range, which returns nil then.
var Stop = errors.New("kv: stop")

const rangeBytes = 32 << 10

// Range calls a function for each record with from <= key < to, in order. Nil bounds are none. Key and value are valid
// until the function returns. The function may use the transaction; it need not see what it changes itself.
func (t *Txn) Range(m Map, from, to []byte, record func(key, value []byte) error) error {
	if t.buffer == nil {
		t.buffer = make([]byte, rangeBytes)
	}
	buffer := t.buffer
	t.buffer = nil // a Range within this one makes its own
	defer func() { t.buffer = buffer }()
	for {
		used, needed, failed := capi.KvRange(t.handle, uint32(m), from, to, buffer)
		if failed != nil {
			return memlith.ErrorOf(failed)
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
		used, needed, failed := step(s.txn.handle, uint32(s.m), s.from, s.to, buffer)
		if failed != nil {
			return memlith.ErrorOf(failed)
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
	handle capi.Handle
}

// Cursor opens one. Close it before the transaction ends, or not at all.
func (t *Txn) Cursor(m Map) (*Cursor, error) {
	handle, failed := capi.CursorOpen(t.handle, uint32(m))
	if failed != nil {
		return nil, memlith.ErrorOf(failed)
	}
	return &Cursor{handle: handle}, nil
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

func (c *Cursor) move(how int, target []byte) ([]byte, []byte, error) {
	key, value, failed := capi.CursorMove(c.handle, how, target)
	return key, value, memlith.ErrorOf(failed)
}

// SetBounds leaves only the records with from <= key < to to the cursor, which stands on none then, as a new one. Nil
// bounds are none. The transaction locks no more than these records, the room between them, and the key `to`.
func (c *Cursor) SetBounds(from, to []byte) error {
	return memlith.ErrorOf(capi.CursorSetBounds(c.handle, from, to))
}

// SetPrefix is SetBounds of the keys that begin so.
func (c *Cursor) SetPrefix(prefix []byte) error {
	return memlith.ErrorOf(capi.CursorSetPrefix(c.handle, prefix))
}

// Delete removes the record on which the cursor stands; Next and Prev go on from its place.
func (c *Cursor) Delete() error { return memlith.ErrorOf(capi.CursorRemove(c.handle)) }

// Close frees the cursor, while its transaction is open.
func (c *Cursor) Close() {
	if c.handle != 0 {
		capi.CursorClose(c.handle)
		c.handle = 0
	}
}
