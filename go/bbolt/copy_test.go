package bbolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

func fill(t *testing.T, db *bbolt.DB, bucket string, count int) {
	t.Helper()
	err := db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			return err
		}
		inner, err := b.CreateBucketIfNotExists([]byte("inner"))
		if err != nil {
			return err
		}
		for i := 0; i < count; i++ {
			if err := inner.Put([]byte(fmt.Sprintf("%06d", i)), bytes.Repeat([]byte{byte(i)}, 100)); err != nil {
				return err
			}
		}
		return inner.SetSequence(uint64(count))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A copy has the state of its transaction, whatever is committed meanwhile, and Size bytes; Open reads it elsewhere.
func TestCopiesOfADatabaseInUse(t *testing.T) {
	for _, count := range []int{0, 3, 20000} {
		folder := t.TempDir()
		db, err := bbolt.Open(filepath.Join(folder, "db"), 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, db, "old", count)
		tx, err := db.Begin(false)
		if err != nil {
			t.Fatal(err)
		}
		size := tx.Size()
		fill(t, db, "new", count) // grows the database, not the transaction
		var bytes bytes.Buffer
		written, err := tx.WriteTo(&bytes)
		if err != nil || written != int64(bytes.Len()) || written != size || tx.Size() != size {
			t.Fatalf("%v: %d bytes, buffer %d, Size was %d and is %d", err, written, bytes.Len(), size, tx.Size())
		}
		path := filepath.Join(folder, "copy")
		if err := tx.CopyFile(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.WriteTo(&bytes); !errors.Is(err, bbolt.ErrTxClosed) {
			t.Fatalf("after the end: %v", err)
		}
		streamed := filepath.Join(folder, "streamed")
		if err := os.WriteFile(streamed, bytes.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, each := range []string{path, streamed} {
			expectCopy(t, each, count)
		}
		err = db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(path, 0o600) })
		if err == nil { // the log of the copy that was opened
			t.Fatal("a copy was written beside the log of another database")
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if left, _ := filepath.Glob(filepath.Join(folder, ".bbolt-copy-*")); len(left) > 0 {
			t.Fatalf("left behind: %v", left)
		}
	}
}

func expectCopy(t *testing.T, path string, count int) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		found := tx.Inspect()
		if len(found.Children) != 1 || found.Children[0].Name != "old" || found.Children[0].Children[0].KeyN != count {
			return fmt.Errorf("%+v instead of %d records in old/inner", found, count)
		}
		inner := tx.Bucket([]byte("old")).Bucket([]byte("inner"))
		if inner.Sequence() != uint64(count) {
			return fmt.Errorf("sequence %d", inner.Sequence())
		}
		return inner.ForEach(func(key, value []byte) error {
			var number int
			if _, err := fmt.Sscanf(string(key), "%d", &number); err != nil || len(value) != 100 || value[0] != byte(number) {
				return fmt.Errorf("%s: %x", key, value)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// The kind of an error of MoveBucket does not depend on the bucket's being there.
func TestMovingToAnotherDatabase(t *testing.T) {
	var buckets [2]*bbolt.Bucket
	for i := range buckets {
		db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		tx, err := db.Begin(true)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if buckets[i], err = tx.CreateBucket([]byte("b")); err != nil {
			t.Fatal(err)
		}
	}
	if err := buckets[0].MoveBucket([]byte("none"), buckets[1]); err != berrors.ErrDifferentDB {
		t.Fatal(err)
	}
}

// A transaction that writes copies the state before its changes.
func TestCopyInAWritingTransaction(t *testing.T) {
	folder := t.TempDir()
	db, err := bbolt.Open(filepath.Join(folder, "db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	fill(t, db, "old", 5)
	path := filepath.Join(folder, "copy")
	err = db.Update(func(tx *bbolt.Tx) error {
		if err := tx.DeleteBucket([]byte("old")); err != nil {
			return err
		}
		return tx.CopyFile(path, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	expectCopy(t, path, 5)
}

func TestCountersAndLogger(t *testing.T) {
	var lines bytes.Buffer
	logger := &bbolt.DefaultLogger{Logger: logTo(&lines)}
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, &bbolt.Options{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if db.Logger() != bbolt.Logger(logger) || !bytes.Contains(lines.Bytes(), []byte("INFO: opened ")) {
		t.Fatalf("log: %q", lines.String())
	}
	first, err := db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	if first.ID() != 2 || first.Rollback() != nil {
		t.Fatalf("the first commit has the number %d", first.ID())
	}
	before := db.Stats()
	fill(t, db, "b", 1)
	after := db.Stats()
	if since := after.Sub(&before); since.TxStats.GetWrite() != 1 || since.TxStats.GetWriteTime() <= 0 {
		t.Fatalf("%+v", since)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		tx.Cursor()
		if stats := tx.Stats(); stats.GetCursorCount() != 1 || stats.GetWrite() != 0 {
			return fmt.Errorf("%+v", stats)
		}
		if page, err := tx.Page(0); page != nil || err == nil {
			return fmt.Errorf("page %v, %v", page, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Programs compare errors with ==, so that bbolt's are returned as they are.
func TestErrorsAreNotWrapped(t *testing.T) {
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	fill(t, db, "b", 1)
	err = db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("b"))
		inner := b.Bucket([]byte("inner"))
		for _, each := range []struct{ got, want error }{
			{b.Put([]byte("inner"), nil), bbolt.ErrIncompatibleValue},
			{b.Delete([]byte("inner")), bbolt.ErrIncompatibleValue},
			{tx.MoveBucket([]byte("b"), nil, inner), bbolt.ErrIncompatibleValue},
			{b.DeleteBucket([]byte("none")), bbolt.ErrBucketNotFound},
			{b.Put(nil, nil), bbolt.ErrKeyRequired},
		} {
			if each.got != each.want {
				return fmt.Errorf("%v (%T) instead of %v", each.got, each.got, each.want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func logTo(to *bytes.Buffer) *log.Logger { return log.New(to, "", 0) }
