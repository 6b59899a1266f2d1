package bbolt

import (
	"bytes"
	"encoding/binary"
	"errors"

	berrors "go.etcd.io/bbolt/errors"
	"memlith.org/memlith"
	"memlith.org/memlith/kv"
)

// Bucket holds records and buckets, by the order of their keys.
type Bucket struct {
	FillPercent float64 // accepted, without effect

	tx     *Tx
	number uint64
	prefix []byte
}

// Tx is the bucket's transaction.
func (b *Bucket) Tx() *Tx { return b.tx }

// Writable tells whether the transaction may write.
func (b *Bucket) Writable() bool { return b.tx.writable }

func (b *Bucket) key(key []byte) []byte {
	return append(append(make([]byte, 0, len(b.prefix)+len(key)), b.prefix...), key...)
}

// Bounds of the bucket's records; the sequence is before.
func (b *Bucket) bounds() (from, to []byte) { return b.key([]byte{0}), prefixOf(b.number + 1) }

// kindOf says what a key leads to; ok: to anything.
func (b *Bucket) kindOf(key []byte) (kind byte, child uint64, ok bool, err error) {
	var head []byte
	err = b.tx.with(func(txn *kv.Txn) (err error) {
		head, _, err = txn.Head(b.tx.db.m, b.key(key), 9)
		return err
	})
	if errors.Is(err, memlith.ErrNotFound) {
		return 0, 0, false, nil
	}
	if err == nil && len(head) == 0 {
		err = ErrInvalid
	}
	if err != nil {
		return 0, 0, false, err
	}
	if head[0] == bucketValue && len(head) == 9 {
		child = binary.BigEndian.Uint64(head[1:])
	}
	return head[0], child, true, nil
}

func (b *Bucket) open(number uint64) *Bucket {
	return &Bucket{tx: b.tx, number: number, prefix: prefixOf(number)}
}

// Bucket finds a bucket in this one; nil: there is none.
func (b *Bucket) Bucket(name []byte) *Bucket {
	if len(name) == 0 || len(name) > MaxKeySize {
		return nil
	}
	kind, child, ok, err := b.kindOf(name)
	if err != nil || !ok || kind != bucketValue {
		return nil
	}
	return b.open(child)
}

// CreateBucket makes a bucket in this one.
func (b *Bucket) CreateBucket(name []byte) (*Bucket, error) { return b.create(name, false) }

// CreateBucketIfNotExists finds or makes one.
func (b *Bucket) CreateBucketIfNotExists(name []byte) (*Bucket, error) { return b.create(name, true) }

func (b *Bucket) create(name []byte, orFind bool) (*Bucket, error) {
	if err := b.tx.writing(); err != nil {
		return nil, err
	}
	if len(name) == 0 {
		return nil, ErrBucketNameRequired
	}
	if len(name) > MaxKeySize {
		return nil, ErrKeyTooLarge
	}
	kind, child, ok, err := b.kindOf(name)
	switch {
	case err != nil:
		return nil, err
	case ok && kind != bucketValue:
		return nil, ErrIncompatibleValue
	case ok && orFind:
		return b.open(child), nil
	case ok:
		return nil, ErrBucketExists
	}
	if child, err = b.tx.newNumber(); err != nil {
		return nil, err
	}
	if err := b.put(name, bucketValue, bytesOf(child)); err != nil {
		return nil, err
	}
	return b.open(child), nil
}

func (b *Bucket) put(key []byte, kind byte, value []byte) error {
	return b.tx.put(b.key(key), append(append(make([]byte, 0, 1+len(value)), kind), value...))
}

// child finds a bucket that is to be moved or removed.
func (b *Bucket) child(name []byte) (*Bucket, error) {
	if err := b.tx.writing(); err != nil {
		return nil, err
	}
	if len(name) == 0 || len(name) > MaxKeySize {
		return nil, ErrBucketNotFound
	}
	kind, number, ok, err := b.kindOf(name)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, ErrBucketNotFound
	case kind != bucketValue:
		return nil, ErrIncompatibleValue
	}
	return b.open(number), nil
}

// DeleteBucket removes a bucket, with all that is in it.
func (b *Bucket) DeleteBucket(name []byte) error {
	child, err := b.child(name)
	if err != nil {
		return err
	}
	if err := child.clear(); err != nil {
		return err
	}
	return b.tx.remove(b.key(name))
}

func (b *Bucket) clear() error {
	err := b.ForEachBucket(func(name []byte) error {
		child, err := b.child(name)
		if err != nil {
			return err
		}
		return child.clear()
	})
	if err != nil {
		return err
	}
	b.tx.changes++
	return b.tx.with(func(txn *kv.Txn) error {
		_, err := txn.RemoveRange(b.tx.db.m, b.prefix, prefixOf(b.number+1))
		return err
	})
}

// MoveBucket moves a bucket of this one into another one. Into a bucket that is in the moved one is not possible.
func (b *Bucket) MoveBucket(name []byte, to *Bucket) error {
	if err := b.tx.writing(); err != nil {
		return err
	}
	if err := to.tx.writing(); err != nil {
		return err
	}
	if to.tx != b.tx { // a database has one transaction that writes
		return berrors.ErrDifferentDB
	}
	child, err := b.child(name)
	if err != nil {
		return err
	}
	if to.number == b.number {
		return berrors.ErrSameBuckets
	}
	if within, err := child.contains(to.number); err != nil {
		return err
	} else if within {
		return ErrIncompatibleValue
	}
	kind, _, ok, err := to.kindOf(name)
	switch {
	case err != nil:
		return err
	case ok && kind == bucketValue:
		return ErrBucketExists
	case ok:
		return ErrIncompatibleValue
	}
	if err := b.tx.remove(b.key(name)); err != nil {
		return err
	}
	return to.put(name, bucketValue, bytesOf(child.number))
}

func (b *Bucket) contains(number uint64) (bool, error) {
	found := b.number == number
	err := b.ForEachBucket(func(name []byte) error {
		if child := b.Bucket(name); child != nil && !found {
			var err error
			found, err = child.contains(number)
			return err
		}
		return nil
	})
	return found, err
}

// Get returns a value, which belongs to the caller; nil: there is none, or a bucket.
func (b *Bucket) Get(key []byte) []byte {
	if len(key) == 0 || len(key) > MaxKeySize {
		return nil
	}
	value, err := b.tx.get(b.key(key))
	if err != nil || len(value) == 0 || value[0] != plainValue {
		return nil
	}
	return value[1:len(value):len(value)]
}

// Put writes a record. Key and value are copied.
func (b *Bucket) Put(key, value []byte) error {
	if err := b.tx.writing(); err != nil {
		return err
	}
	switch {
	case len(key) == 0:
		return ErrKeyRequired
	case len(key) > MaxKeySize:
		return ErrKeyTooLarge
	case len(value) > MaxValueSize:
		return ErrValueTooLarge
	}
	if kind, _, ok, err := b.kindOf(key); err != nil {
		return err
	} else if ok && kind == bucketValue {
		return ErrIncompatibleValue
	}
	return b.put(key, plainValue, value)
}

// Delete removes a record, if it is there.
func (b *Bucket) Delete(key []byte) error {
	if err := b.tx.writing(); err != nil {
		return err
	}
	if len(key) == 0 || len(key) > MaxKeySize {
		return nil
	}
	kind, _, ok, err := b.kindOf(key)
	switch {
	case err != nil || !ok:
		return err
	case kind == bucketValue:
		return ErrIncompatibleValue
	}
	return b.tx.remove(b.key(key))
}

// Sequence is the bucket's number as SetSequence or NextSequence left it.
func (b *Bucket) Sequence() uint64 {
	number, _ := b.tx.number(b.prefix)
	return number
}

// SetSequence sets it.
func (b *Bucket) SetSequence(number uint64) error {
	if err := b.tx.writing(); err != nil {
		return err
	}
	return b.tx.put(b.prefix, bytesOf(number))
}

// NextSequence adds 1 to it.
func (b *Bucket) NextSequence() (uint64, error) {
	if err := b.tx.writing(); err != nil {
		return 0, err
	}
	number, err := b.tx.number(b.prefix)
	if err != nil {
		return 0, err
	}
	return number + 1, b.SetSequence(number + 1)
}

// ForEach calls a function for each record, and with a nil value for each bucket.
func (b *Bucket) ForEach(call func(key, value []byte) error) error {
	if b.tx.txn == nil {
		return ErrTxClosed
	}
	c := b.Cursor()
	for key, value := c.First(); key != nil; key, value = c.Next() {
		if err := call(key, value); err != nil {
			return err
		}
	}
	return b.tx.failed
}

// ForEachBucket calls a function for each bucket.
func (b *Bucket) ForEachBucket(call func(name []byte) error) error {
	return b.ForEach(func(key, value []byte) error {
		if value != nil {
			return nil
		}
		return call(key)
	})
}

func (b *Bucket) childOf(key, value []byte) *Bucket {
	if value != nil {
		return nil
	}
	return b.Bucket(key)
}

// Cursor stands on a record, or between two. It never misses a record because others are removed or put.
type Cursor struct {
	bucket   *Bucket
	at       []byte // with the bucket's prefix; nil: nowhere yet
	on       bool   // on a record with that key
	isBucket bool
	scan     *kv.Scan
	backward bool
	changes  uint64 // of the transaction, when the scan began
}

// Cursor makes one, which is used by one goroutine.
func (b *Bucket) Cursor() *Cursor {
	b.tx.counted.IncCursorCount(1)
	return &Cursor{bucket: b}
}

// Bucket is that of the cursor.
func (c *Cursor) Bucket() *Bucket { return c.bucket }

// First goes to the first record or bucket. All movements return a nil key if there is none.
func (c *Cursor) First() (key, value []byte) { return c.Seek(nil) }

// Last goes to the last one.
func (c *Cursor) Last() (key, value []byte) {
	from, to := c.bucket.bounds()
	c.scan = nil
	return c.move(from, to, true)
}

// Next goes to the next one. At the end the cursor stays.
func (c *Cursor) Next() (key, value []byte) {
	if c.at == nil {
		return nil, nil
	}
	_, to := c.bucket.bounds()
	from := c.at
	if c.on {
		from = append(append([]byte(nil), from...), 0)
	}
	return c.move(from, to, false)
}

// Prev goes to the one before. At the beginning the cursor stays.
func (c *Cursor) Prev() (key, value []byte) {
	if c.at == nil {
		return nil, nil
	}
	from, _ := c.bucket.bounds()
	return c.move(from, c.at, true)
}

// Seek goes to the first one whose key is not less.
func (c *Cursor) Seek(target []byte) (key, value []byte) {
	from, to := c.bucket.bounds()
	if len(target) > MaxKeySize {
		target = append(append([]byte(nil), target[:MaxKeySize]...), 0) // the same place
	}
	if sought := c.bucket.key(target); bytes.Compare(sought, from) > 0 {
		from = sought
	}
	c.at, c.on, c.scan = from, false, nil
	return c.move(from, to, false)
}

func (c *Cursor) move(from, to []byte, backward bool) ([]byte, []byte) {
	tx := c.bucket.tx
	if tx.txn == nil {
		panic("assertion failed: tx closed")
	}
	var found, value []byte
	err := tx.with(func(txn *kv.Txn) (err error) {
		if c.scan == nil || !c.on || c.backward != backward || c.changes != tx.changes {
			c.scan, c.backward, c.changes = txn.Scan(tx.db.m, from, to, backward), backward, tx.changes
		}
		found, value, err = c.scan.Next()
		return err
	})
	if err != nil || len(value) == 0 {
		c.scan = nil
		return nil, nil
	}
	c.at, c.on, c.isBucket = found, true, value[0] == bucketValue
	key := found[len(c.bucket.prefix):len(found):len(found)]
	if c.isBucket {
		return key, nil
	}
	return key, value[1:len(value):len(value)]
}

// Delete removes the record on which the cursor stands; Next and Prev go on from its place.
func (c *Cursor) Delete() error {
	tx := c.bucket.tx
	if err := tx.writing(); err != nil || !c.on {
		return err
	}
	if c.isBucket {
		return ErrIncompatibleValue
	}
	c.on, c.scan = false, nil
	err := tx.remove(c.at)
	if errors.Is(err, memlith.ErrNotFound) {
		return nil
	}
	return err
}
