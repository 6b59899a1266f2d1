package bbolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"memlith.org/memlith"
	"memlith.org/memlith/kv"
)

// Kinds of values, their first byte.
const (
	plainValue  = 0
	bucketValue = 1
)

const rootNumber = 1

// Records of the database itself: their first byte is less than that of every bucket's number.
var (
	lastNumberKey = []byte("\x00bucket")
	idKey         = []byte("\x00tx")
)

// prefixOf returns bytes whose order is that of the numbers, and of which none begins another.
func prefixOf(number uint64) []byte {
	var bytes [9]byte
	binary.BigEndian.PutUint64(bytes[1:], number)
	from := 1
	for from < 8 && bytes[from] == 0 {
		from++
	}
	bytes[from-1] = byte(9 - from)
	return append([]byte(nil), bytes[from-1:]...)
}

// Tx is a transaction. One that reads may be used by several goroutines at a time.
type Tx struct {
	WriteFlag int // accepted, without effect

	db       *DB
	mutex    sync.Mutex // of the calls of the kv store
	txn      *kv.Txn    // nil: ended
	writable bool
	managed  bool
	changes  uint64 // counts them
	putBytes uint64 // of keys and values
	failed   error  // of the store, in a call whose method may return no error
	root     *Bucket
	onCommit []func()
	counted  TxStats
	size     atomic.Int64 // what Size returned first
}

func newTx(db *DB, txn *kv.Txn, writable bool) *Tx {
	tx := &Tx{db: db, txn: txn, writable: writable}
	tx.root = &Bucket{tx: tx, number: rootNumber, prefix: prefixOf(rootNumber)}
	return tx
}

func (tx *Tx) manage(call func(*Tx) error) error {
	tx.managed = true
	defer func() { tx.managed = false }()
	return call(tx)
}

func (tx *Tx) end() {
	tx.mutex.Lock()
	defer tx.mutex.Unlock()
	if tx.txn == nil {
		return
	}
	tx.txn.Abort()
	tx.txn = nil
	tx.db.counted.add(&tx.counted)
	if tx.writable {
		tx.db.writer.Unlock()
	} else {
		tx.db.readers.Add(-1)
		tx.db.using.RUnlock()
	}
}

func (tx *Tx) writing() error {
	if tx.txn == nil {
		return ErrTxClosed
	}
	if !tx.writable {
		return ErrTxNotWritable
	}
	return nil
}

// with calls the kv store, as one goroutine at a time.
func (tx *Tx) with(call func(*kv.Txn) error) error {
	tx.mutex.Lock()
	defer tx.mutex.Unlock()
	if tx.txn == nil {
		return ErrTxClosed
	}
	err := call(tx.txn)
	if err != nil && !errors.Is(err, memlith.ErrNotFound) && tx.failed == nil {
		tx.failed = err
	}
	return err
}

func (tx *Tx) get(key []byte) (value []byte, err error) {
	err = tx.with(func(txn *kv.Txn) error {
		value, err = txn.Get(tx.db.m, key)
		return err
	})
	return
}

func (tx *Tx) put(key, value []byte) error {
	tx.changes++
	tx.putBytes += uint64(len(key) + len(value))
	return tx.with(func(txn *kv.Txn) error { return txn.Put(tx.db.m, key, value) })
}

func (tx *Tx) remove(key []byte) error {
	tx.changes++
	return tx.with(func(txn *kv.Txn) error { return txn.Remove(tx.db.m, key) })
}

func (tx *Tx) number(key []byte) (uint64, error) {
	value, err := tx.get(key)
	if errors.Is(err, memlith.ErrNotFound) {
		return 0, nil
	}
	if err == nil && len(value) != 8 {
		err = fmt.Errorf("bbolt: record %q has %d bytes instead of 8", key, len(value))
	}
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(value), nil
}

func bytesOf(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }

func (tx *Tx) newNumber() (uint64, error) {
	last, err := tx.number(lastNumberKey)
	if last < rootNumber {
		last = rootNumber
	}
	if err == nil {
		err = tx.put(lastNumberKey, bytesOf(last+1))
	}
	return last + 1, err
}

// Commit makes the changes durable (DB.NoSync: within 100 ms) and ends the transaction, whatever it returns. A call of
// this transaction in which the store failed, the disk or for lack of memory, fails the commit.
func (tx *Tx) Commit() error {
	if tx.managed {
		panic("assertion failed: managed tx commit not allowed")
	}
	if err := tx.writing(); err != nil {
		return err
	}
	defer tx.end()
	if tx.failed != nil {
		return tx.failed
	}
	if err := tx.checkSize(); err != nil {
		return err
	}
	began := time.Now()
	if tx.changes > 0 {
		number, err := tx.number(idKey)
		if err == nil {
			err = tx.put(idKey, bytesOf(number+1))
		}
		if err != nil {
			return err
		}
	}
	if tx.db.StrictMode {
		for err := range tx.Check() {
			panic("check fail: " + err.Error())
		}
	}
	err := tx.commit(!tx.db.NoSync)
	took := time.Since(began)
	tx.counted.IncWrite(1)
	tx.counted.IncWriteTime(took)
	tx.end()
	if err == nil {
		for _, each := range tx.onCommit {
			each()
		}
	}
	return err
}

// checkSize refuses a commit that may need more pages than MaxSize leaves. Removals alone always pass.
func (tx *Tx) checkSize() error {
	if tx.db.MaxSize <= 0 || tx.putBytes == 0 {
		return nil
	}
	info, err := tx.db.kv.Info()
	if err != nil {
		return err
	}
	needed := int(info.Pages-info.FreePages)*int(info.PageBytes) + int(tx.putBytes)
	if needed > tx.db.MaxSize {
		return ErrMaxSizeReached
	}
	return nil
}

func (tx *Tx) commit(durably bool) error {
	err := tx.with(func(txn *kv.Txn) error {
		if durably {
			return txn.Commit()
		}
		_, err := txn.CommitWeak()
		return err
	})
	if err != nil && tx.db.files.isReplaced() {
		err = nil // the file has no name, and nothing to be kept
	}
	return err
}

// Rollback ends the transaction without effect.
func (tx *Tx) Rollback() error {
	if tx.managed {
		panic("assertion failed: managed tx rollback not allowed")
	}
	if tx.txn == nil {
		return ErrTxClosed
	}
	tx.end()
	return nil
}

// DB is the transaction's database.
func (tx *Tx) DB() *DB { return tx.db }

// ID is the number of the newest commit that changed something, or of the commit that this transaction will be. A new
// database has the number 1, as with bbolt.
func (tx *Tx) ID() int {
	number, err := tx.number(idKey)
	if err != nil {
		return -1
	}
	if tx.writable {
		number++
	}
	return int(number) + 1
}

// Size is that of the database's pages, in use and free, at the first call, as bbolt counts it: the file may have grown
// ahead of them. WriteTo fills its copy up to that size.
func (tx *Tx) Size() int64 {
	if size := tx.size.Load(); size != 0 {
		return size
	}
	var size int64
	_ = tx.with(func(*kv.Txn) error {
		info, err := tx.db.kv.Info()
		size = int64(info.Pages * info.PageBytes)
		return err
	})
	if !tx.size.CompareAndSwap(0, size) {
		return tx.size.Load()
	}
	return size
}

// Stats counts the cursors and the commit of this transaction.
func (tx *Tx) Stats() TxStats { return tx.counted.load() }

// Inspect lists all buckets, with the numbers of their keys; it reads everything.
func (tx *Tx) Inspect() BucketStructure {
	found := tx.root.Inspect()
	found.Name = "root"
	return found
}

// PageInfo describes a page of bbolt.
type PageInfo struct {
	ID            int
	Type          string
	Count         int
	OverflowCount int
}

// Page returns an error: there are no pages of bbolt. `memlith inspect` shows those of the kv store.
func (tx *Tx) Page(int) (*PageInfo, error) {
	if tx.txn == nil {
		return nil, ErrTxClosed
	}
	return nil, errors.New("bbolt on memlith: the database has no pages of bbolt")
}

// Writable tells whether the transaction may write.
func (tx *Tx) Writable() bool { return tx.writable }

// OnCommit has a function called after the commit.
func (tx *Tx) OnCommit(call func()) { tx.onCommit = append(tx.onCommit, call) }

// Cursor is one over the names of the buckets.
func (tx *Tx) Cursor() *Cursor { return tx.root.Cursor() }

// Bucket finds a bucket; nil: there is none.
func (tx *Tx) Bucket(name []byte) *Bucket { return tx.root.Bucket(name) }

// CreateBucket makes one.
func (tx *Tx) CreateBucket(name []byte) (*Bucket, error) { return tx.root.CreateBucket(name) }

// CreateBucketIfNotExists finds or makes one.
func (tx *Tx) CreateBucketIfNotExists(name []byte) (*Bucket, error) {
	return tx.root.CreateBucketIfNotExists(name)
}

// DeleteBucket removes one, with all that is in it.
func (tx *Tx) DeleteBucket(name []byte) error { return tx.root.DeleteBucket(name) }

// MoveBucket moves a bucket of one into another one; nil is the root.
func (tx *Tx) MoveBucket(name []byte, from, to *Bucket) error {
	if from == nil {
		from = tx.root
	}
	if to == nil {
		to = tx.root
	}
	return from.MoveBucket(name, to)
}

// ForEach calls a function for each bucket.
func (tx *Tx) ForEach(call func(name []byte, b *Bucket) error) error {
	return tx.root.ForEachBucket(func(name []byte) error { return call(name, tx.Bucket(name)) })
}

// Check looks for damage, whatever the options: in the pages, and of records that belong to no bucket, or buckets that
// are in none or in two.
func (tx *Tx) Check(...CheckOption) <-chan error {
	found := make(chan error, 1)
	if err := tx.check(); err != nil {
		found <- err
	}
	close(found)
	return found
}

func (tx *Tx) check() error {
	if err := tx.with(func(*kv.Txn) error { return tx.db.kv.Verify() }); err != nil {
		return err
	}
	last, err := tx.number(lastNumberKey)
	if err != nil {
		return err
	}
	parents := map[uint64]bool{rootNumber: true}
	owners := map[uint64]bool{}
	return tx.with(func(txn *kv.Txn) error {
		err := txn.Range(tx.db.m, []byte{1}, nil, func(key, value []byte) error {
			bytes := int(key[0])
			if bytes > 8 || len(key) < 1+bytes {
				return fmt.Errorf("bbolt: record %q belongs to no bucket", key)
			}
			var number uint64
			for _, each := range key[1 : 1+bytes] {
				number = number<<8 | uint64(each)
			}
			owners[number] = true
			if len(key) == 1+bytes {
				return nil // the sequence
			}
			if len(value) == 0 || value[0] > bucketValue || (value[0] == bucketValue && len(value) != 9) {
				return fmt.Errorf("bbolt: record %q has a value of no kind", key)
			}
			if value[0] == bucketValue {
				child := binary.BigEndian.Uint64(value[1:])
				if parents[child] || child > last {
					return fmt.Errorf("bbolt: bucket %d, %q, is in two buckets or was never made", child, key)
				}
				parents[child] = true
			}
			return nil
		})
		for number := range owners {
			if err == nil && !parents[number] {
				err = fmt.Errorf("bbolt: bucket %d has records and is in no bucket", number)
			}
		}
		return err
	})
}
