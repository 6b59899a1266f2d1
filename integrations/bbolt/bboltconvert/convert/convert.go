// Package convert copies a database of go.etcd.io/bbolt to one of integrations/bbolt, or back: all buckets, records and
// sequences. The program that uses the database must be stopped. The source keeps its records.
package convert

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	original "go.etcd.io/bbolt"
	memlith "memlith.org/bbolt"
)

const (
	timeout = time.Second // for a program that is just closing its database
	logName = ".memlith"  // of the log beside a database of memlith
)

// Database returns the number of records. The result appears under its name when it is complete and durable; after an
// error there is none.
func Database(from, to string, toMemlith bool) (count uint64, err error) {
	info, err := os.Stat(from)
	if err != nil {
		return 0, err
	}
	if info.Size() == 0 {
		return 0, fmt.Errorf("%s is empty", from)
	}
	unfinished := to + ".converting"
	for _, each := range []string{to, to + logName, unfinished, unfinished + logName} {
		if _, err := os.Lstat(each); !errors.Is(err, os.ErrNotExist) {
			return 0, errors.Join(err, fmt.Errorf("%s exists already", each))
		}
	}
	defer func() {
		for _, each := range []string{unfinished, unfinished + logName} {
			if gone := os.Remove(each); gone != nil && !errors.Is(gone, os.ErrNotExist) {
				err = errors.Join(err, gone)
			}
		}
	}()
	if toMemlith {
		count, err = toOurs(from, unfinished, info.Mode().Perm())
	} else {
		count, err = toOriginal(from, unfinished, info.Mode().Perm())
	}
	if err != nil {
		return 0, err
	}
	if err := os.Rename(unfinished, to); err != nil {
		return 0, err
	}
	return count, syncFolder(filepath.Dir(to))
}

func syncFolder(name string) error {
	folder, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

func toOurs(from, to string, mode os.FileMode) (count uint64, err error) {
	source, err := original.Open(from, mode, &original.Options{ReadOnly: true, Timeout: timeout})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", from, err)
	}
	defer source.Close()
	db, err := memlith.Open(to, mode, &memlith.Options{NoSync: true}) // Close makes it durable
	if err != nil {
		return 0, err
	}
	var open *memlith.Tx
	t := &target[*memlith.Bucket]{begin: func() (*memlith.Bucket, func() error, error) {
		if open, err = db.Begin(true); err != nil {
			return nil, nil, err
		}
		return open.Cursor().Bucket(), open.Commit, nil
	}}
	err = source.View(func(tx *original.Tx) error { return run(tx.Cursor().Bucket(), t) })
	if open != nil {
		_ = open.Rollback() // ErrTxClosed after its commit
	}
	return t.count, errors.Join(err, db.Close())
}

func toOriginal(from, to string, mode os.FileMode) (count uint64, err error) {
	source, err := memlith.Open(from, mode, &memlith.Options{Timeout: timeout}) // not only to read: after a crash, too
	if err != nil {
		return 0, fmt.Errorf("%s: %w", from, err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	db, err := original.Open(to, mode, &original.Options{NoSync: true})
	if err != nil {
		return 0, err
	}
	var open *original.Tx
	t := &target[*original.Bucket]{begin: func() (*original.Bucket, func() error, error) {
		if open, err = db.Begin(true); err != nil {
			return nil, nil, err
		}
		return open.Cursor().Bucket(), open.Commit, nil
	}}
	err = source.View(func(tx *memlith.Tx) error { return run(tx.Cursor().Bucket(), t) })
	if open != nil {
		_ = open.Rollback()
	}
	if err == nil {
		err = db.Sync()
	}
	return t.count, errors.Join(err, db.Close())
}

func run[From bucket[From], To bucket[To]](from From, t *target[To]) error {
	if err := t.next(); err != nil {
		return err
	}
	if err := copyBucket(from, t, nil); err != nil {
		return err
	}
	return t.commit()
}
