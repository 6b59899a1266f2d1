// Package bbolt offers buckets, cursors and transactions as go.etcd.io/bbolt has them, on a kv store of memlith. A
// commit is one write and one flush. docs/go.md says what differs.
//
// All records lie in one map. Each bucket has a number, and its records have the number, in bytes whose order is that
// of the numbers, before their keys. The value begins with a byte that says whether the rest is a value, or the number
// of a bucket. A record with the number alone holds the bucket's sequence.
package bbolt

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	berrors "go.etcd.io/bbolt/errors"
	"memlith.org/memlith"
	"memlith.org/memlith/kv"
)

// The errors of bbolt.
var (
	ErrDatabaseNotOpen    = berrors.ErrDatabaseNotOpen
	ErrInvalid            = berrors.ErrInvalid
	ErrTimeout            = berrors.ErrTimeout
	ErrMaxSizeReached     = berrors.ErrMaxSizeReached
	ErrDatabaseReadOnly   = berrors.ErrDatabaseReadOnly
	ErrTxNotWritable      = berrors.ErrTxNotWritable
	ErrTxClosed           = berrors.ErrTxClosed
	ErrBucketNotFound     = berrors.ErrBucketNotFound
	ErrBucketExists       = berrors.ErrBucketExists
	ErrBucketNameRequired = berrors.ErrBucketNameRequired
	ErrKeyRequired        = berrors.ErrKeyRequired
	ErrKeyTooLarge        = berrors.ErrKeyTooLarge
	ErrValueTooLarge      = berrors.ErrValueTooLarge
	ErrIncompatibleValue  = berrors.ErrIncompatibleValue

	// Never returned: there are no such pages, mappings or lists.
	ErrInvalidMapping     = berrors.ErrInvalidMapping
	ErrVersionMismatch    = berrors.ErrVersionMismatch
	ErrChecksum           = berrors.ErrChecksum
	ErrFreePagesNotLoaded = berrors.ErrFreePagesNotLoaded
)

// Limits and defaults.
const (
	MaxKeySize           = 1000
	MaxValueSize         = kv.ValueBytesMax - 1
	DefaultMaxBatchSize  = 1000
	DefaultMaxBatchDelay = 10 * time.Millisecond
	DefaultAllocSize     = 16 << 20
	IgnoreNoSync         = false // as on Linux
)

// FreelistType is accepted and has no effect: there is no such list.
type FreelistType string

// The types of freelists.
const (
	FreelistArrayType = FreelistType("array")
	FreelistMapType   = FreelistType("hashmap")
)

// Options of a database. Those of bbolt's pages, mappings and freelist are accepted and have no effect.
type Options struct {
	Timeout         time.Duration // to wait for another process to close the database; 0: without end
	NoGrowSync      bool
	NoFreelistSync  bool
	PreLoadFreelist bool
	FreelistType    FreelistType
	ReadOnly        bool
	MmapFlags       int
	InitialMmapSize int
	PageSize        int
	// NoSync: commits are durable within 100 ms, in their order. A crash loses the newest ones, and damages nothing.
	NoSync   bool
	OpenFile func(string, int, os.FileMode) (*os.File, error)
	Mlock    bool
	Logger   Logger // nil: DiscardLogger
	// MaxSize in bytes: a commit beyond it is refused with ErrMaxSizeReached; 0: none. As much as the transaction puts is
	// taken to be new, so a commit close to the limit is refused early.
	MaxSize int
	// NoStatistics: Stats returns zeros.
	NoStatistics bool
}

// String shows the options; nil ones are {}.
func (o *Options) String() string {
	if o == nil {
		return "{}"
	}
	return fmt.Sprintf("{Timeout: %s, NoGrowSync: %t, NoFreelistSync: %t, PreLoadFreelist: %t, FreelistType: %s, "+
		"ReadOnly: %t, MmapFlags: %x, InitialMmapSize: %d, PageSize: %d, MaxSize: %d, NoSync: %t, OpenFile: %p, "+
		"Mlock: %t, Logger: %p, NoStatistics: %t}",
		o.Timeout, o.NoGrowSync, o.NoFreelistSync, o.PreLoadFreelist, o.FreelistType, o.ReadOnly, o.MmapFlags,
		o.InitialMmapSize, o.PageSize, o.MaxSize, o.NoSync, o.OpenFile, o.Mlock, o.Logger, o.NoStatistics)
}

// DefaultOptions are those of Open without options.
var DefaultOptions = &Options{FreelistType: FreelistArrayType}

// DB is an open database.
type DB struct {
	StrictMode    bool // check everything in each commit
	NoSync        bool // as in Options
	MaxBatchSize  int
	MaxBatchDelay time.Duration
	MaxSize       int // as in Options

	// Accepted, without effect.
	NoFreelistSync, NoGrowSync, PreLoadFreelist, Mlock bool
	FreelistType                                       FreelistType
	MmapFlags, AllocSize                               int

	noStats  bool
	logger   Logger
	openFile func(string, int, os.FileMode) (*os.File, error)
	path     string
	readOnly bool
	writer   sync.Mutex   // held by the writing transaction
	using    sync.RWMutex // read-held by reading transactions; protects what follows
	opened   bool
	files    replaceable
	copied   string // the folder of a copy that is read in the place of the file; "": none
	store    *memlith.Store
	kv       *kv.KV
	m        kv.Map

	readers, reads atomic.Int64
	counted        TxStats

	batchMutex sync.Mutex
	batch      *batch
}

const (
	logMaxBytes = 16 << 30
	lockPoll    = 20 * time.Millisecond
	mapName     = "bbolt"
	kvMagic     = "memlthkv"
	bboltMagic  = "\xed\xda\x0c\xed" // in the place of it, in a file of the original bbolt
)

// Open opens the database in a file, whose log lies beside it as PATH.memlith, and makes a missing one.
func Open(path string, mode os.FileMode, options *Options) (*DB, error) {
	if options == nil {
		options = DefaultOptions
	}
	flags, openFile := os.O_RDWR|os.O_CREATE, options.OpenFile
	if options.ReadOnly {
		flags = os.O_RDONLY
	}
	if openFile == nil {
		openFile = os.OpenFile
	}
	file, err := openFile(path, flags, mode)
	if err != nil {
		return nil, err
	}
	err = inspect(file)
	db := &DB{path: file.Name(), readOnly: options.ReadOnly, NoSync: options.NoSync, MaxBatchSize: DefaultMaxBatchSize,
		MaxBatchDelay: DefaultMaxBatchDelay, NoFreelistSync: options.NoFreelistSync, NoGrowSync: options.NoGrowSync,
		PreLoadFreelist: options.PreLoadFreelist, Mlock: options.Mlock, FreelistType: options.FreelistType,
		MmapFlags: options.MmapFlags, AllocSize: DefaultAllocSize, MaxSize: options.MaxSize,
		noStats: options.NoStatistics, logger: options.Logger, openFile: openFile}
	if db.logger == nil {
		db.logger = discardLogger
	}
	if closing := file.Close(); err == nil {
		err = closing
	}
	for began := time.Now(); err == nil; time.Sleep(lockPoll) {
		if err = db.open(); err == nil {
			db.logger.Infof("opened %s", db.path)
			return db, nil
		}
		if errors.Is(err, memlith.ErrBusy) {
			if err = nil; options.Timeout > 0 && time.Since(began) >= options.Timeout {
				err = ErrTimeout
			}
		}
	}
	db.logger.Errorf("cannot open %s: %v", path, err)
	return nil, err
}

// inspect refuses a file that is not a kv store: bytes 16 to 23 have its magic number, or are zeros before its first
// checkpoint (docs/format.md).
func inspect(file *os.File) error {
	var head [24]byte
	count, _ := file.ReadAt(head[:], 0)
	magic := string(head[16:])
	if strings.HasPrefix(magic, bboltMagic) {
		return fmt.Errorf("%w: %s is of the original bbolt, and this program has memlith in its place: convert it with "+
			"bboltconvert; if another member of an etcd cluster has sent it, run all members on memlith",
			ErrInvalid, file.Name())
	}
	if count != 0 && (count != len(head) || (magic != kvMagic && magic != "\x00\x00\x00\x00\x00\x00\x00\x00")) {
		return ErrInvalid
	}
	return nil
}

func (db *DB) openStore() (*memlith.Store, error) {
	options := memlith.Options{Create: !db.readOnly, ReadOnly: db.readOnly, LogMaxBytes: logMaxBytes}
	store, err := memlith.OpenFile(db.path, options)
	if errors.Is(err, memlith.ErrCorrupt) {
		dropped, failed := dropForeignLog(db.path, db.readOnly)
		if failed != nil {
			return nil, failed
		}
		if dropped {
			store, err = memlith.OpenFile(db.path, options)
		}
	}
	if db.readOnly && errors.Is(err, memlith.ErrNotFound) {
		return db.openCopy(err)
	}
	if errors.Is(err, memlith.ErrBusy) && !db.readOnly {
		let, failed := letGo(db.path)
		if failed != nil {
			return nil, failed
		}
		if let {
			db.logger.Infof("the database that was %s before goes on without a name", db.path)
			return memlith.OpenFile(db.path, options)
		}
	}
	return store, err
}

func (db *DB) open() (err error) {
	store, err := db.openStore()
	if err != nil {
		return err
	}
	records, err := kv.Open(store, "file", kv.Options{Create: !db.readOnly})
	if err != nil {
		return errors.Join(err, store.Close(), db.removeCopy())
	}
	find := records.CreateMap
	if db.readOnly {
		find = records.Map
	}
	m, err := find(mapName)
	if err != nil {
		return errors.Join(err, records.Close(), store.Close(), db.removeCopy())
	}
	db.store, db.kv, db.m, db.opened = store, records, m, true
	db.files.note(db.path)
	return nil
}

// Close waits for all transactions, makes every commit durable and closes the database.
func (db *DB) Close() error {
	db.writer.Lock()
	defer db.writer.Unlock()
	db.using.Lock()
	defer db.using.Unlock()
	if !db.opened {
		return nil
	}
	err := db.kv.Close()
	if err != nil && memlith.IsStillOpen(err) {
		return err
	}
	db.files.forget()
	err = errors.Join(err, db.store.Close(), db.removeCopy())
	if err != nil && db.files.isReplaced() { // the file has no name, and nothing to be kept
		db.logger.Infof("closed the database that was %s before: %v", db.path, err)
		err = nil
	}
	if err != nil {
		db.logger.Errorf("closed %s: %v", db.path, err)
	}
	db.opened, db.path = false, ""
	return err
}

// Path is that of the open database.
func (db *DB) Path() string { return db.path }

// String names the database.
func (db *DB) String() string { return fmt.Sprintf("DB<%q>", db.path) }

// GoString names the database.
func (db *DB) GoString() string { return fmt.Sprintf("bolt.DB{path:%q}", db.path) }

// IsReadOnly says how the database was opened.
func (db *DB) IsReadOnly() bool { return db.readOnly }

// Logger is that of the options.
func (db *DB) Logger() Logger { return db.logger }

// Sync makes every commit durable; those with NoSync need it.
func (db *DB) Sync() error {
	db.using.RLock()
	defer db.using.RUnlock()
	if !db.opened {
		return ErrDatabaseNotOpen
	}
	return db.kv.Persist()
}

// Begin begins a transaction. Any number read, each the state of its beginning, beside one that writes.
func (db *DB) Begin(writable bool) (*Tx, error) {
	if writable {
		return db.beginWriting()
	}
	db.using.RLock()
	if !db.opened {
		db.using.RUnlock()
		return nil, ErrDatabaseNotOpen
	}
	txn, err := db.kv.BeginRead()
	if err != nil {
		db.using.RUnlock()
		return nil, err
	}
	db.reads.Add(1)
	db.readers.Add(1)
	return newTx(db, txn, false), nil
}

func (db *DB) beginWriting() (*Tx, error) {
	if db.readOnly {
		return nil, ErrDatabaseReadOnly
	}
	db.writer.Lock()
	if !db.opened { // changed under the same lock
		db.writer.Unlock()
		return nil, ErrDatabaseNotOpen
	}
	txn, err := db.kv.Begin()
	if err != nil {
		db.writer.Unlock()
		return nil, err
	}
	return newTx(db, txn, true), nil
}

// Update runs a function with a writing transaction, and commits if the function returns nil.
func (db *DB) Update(change func(*Tx) error) error {
	tx, err := db.Begin(true)
	if err != nil {
		return err
	}
	defer tx.end()
	if err := tx.manage(change); err != nil {
		return err
	}
	return tx.Commit()
}

// View runs a function with a reading transaction. What the function saw is durable when View returns. With NoSync it
// need not be, nor when a transaction that Begin began is rolled back.
func (db *DB) View(read func(*Tx) error) error {
	tx, err := db.Begin(false)
	if err != nil {
		return err
	}
	defer tx.end()
	err = tx.manage(read)
	if failed := tx.commit(!db.NoSync); failed != nil {
		return failed
	}
	return err
}

// ---- batches -------------------------------------------------------------------------------------------------------

type batch struct {
	changes []func(*Tx) error
	results []chan error
	once    sync.Once
	timer   *time.Timer
}

var errAlone = errors.New("bbolt: the change is tried alone")

// Batch is Update together with concurrent calls of Batch, in one commit. The function may run several times.
func (db *DB) Batch(change func(*Tx) error) error {
	result := make(chan error, 1)
	db.batchMutex.Lock()
	mine := db.batch
	if mine == nil {
		mine = new(batch)
		mine.timer = time.AfterFunc(db.MaxBatchDelay, func() { mine.once.Do(func() { db.runBatch(mine) }) })
		db.batch = mine
	}
	mine.changes, mine.results = append(mine.changes, change), append(mine.results, result)
	if len(mine.changes) >= db.MaxBatchSize {
		db.batch = nil
		go mine.once.Do(func() { db.runBatch(mine) })
	}
	db.batchMutex.Unlock()
	if err := <-result; err != errAlone {
		return err
	}
	return db.Update(change)
}

func (db *DB) runBatch(b *batch) {
	db.batchMutex.Lock()
	if db.batch == b {
		db.batch = nil
	}
	b.timer.Stop()
	db.batchMutex.Unlock()
	for len(b.changes) > 0 {
		failed := -1
		err := db.Update(func(tx *Tx) (err error) {
			at := 0
			defer func() {
				if recover() != nil { // the caller's own goroutine will meet it
					err = errAlone
				}
				if err != nil {
					failed = at
				}
			}()
			for ; at < len(b.changes); at++ {
				if err := b.changes[at](tx); err != nil {
					return err
				}
			}
			return nil
		})
		if failed < 0 {
			for _, each := range b.results {
				each <- err
			}
			return
		}
		b.results[failed] <- errAlone
		b.changes = append(b.changes[:failed], b.changes[failed+1:]...)
		b.results = append(b.results[:failed], b.results[failed+1:]...)
	}
}
