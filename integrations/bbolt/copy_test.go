package bbolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"memlith.org/memlith"
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

// A copy has Size bytes exactly, as etcd needs for a member that was away, however the database was filled and however
// much of it lies in the log.
func TestCopiesHaveTheSizeThatWasTold(t *testing.T) {
	for name, key := range map[string]func(i int) int{
		"in order":        func(i int) int { return i },
		"backwards":       func(i int) int { return -i },
		"in random order": func(i int) int { return i * 7919 % 20011 },
	} {
		for _, count := range []int{10, 1000, 20000} {
			db, err := bbolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, &bbolt.Options{NoSync: true})
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < count; {
				err := db.Update(func(tx *bbolt.Tx) error {
					records, err := tx.CreateBucketIfNotExists([]byte("records"))
					if err != nil {
						return err
					}
					meta, err := tx.CreateBucketIfNotExists([]byte("meta"))
					for end := i + 100; i < count && i < end && err == nil; i++ {
						at := []byte(fmt.Sprintf("%020d", 1<<40+key(i)))
						err = errors.Join(records.Put(at, make([]byte, i%600)), meta.Put([]byte("newest"), at))
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			err = db.View(func(tx *bbolt.Tx) error {
				size := tx.Size()
				written, err := tx.WriteTo(io.Discard)
				if written != size {
					t.Errorf("%s, %d records: %d bytes were written, and %d told", name, count, written, size)
				}
				return err
			})
			if err := errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A program puts another database in the place of an open one, opens that, and goes on with the first one for a while,
// as etcd does with the state of another member. Or it is killed before it opens the other one.
func TestReplacedWhileOpen(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "db")
	open := func(path string) *bbolt.DB {
		t.Helper()
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	has := func(db *bbolt.DB, name string, wanted bool) {
		t.Helper()
		_ = db.View(func(tx *bbolt.Tx) error {
			if found := tx.Bucket([]byte(name)) != nil; found != wanted {
				t.Errorf("bucket %s: %v", name, found)
			}
			return nil
		})
	}
	put := func(db *bbolt.DB, name string) {
		t.Helper()
		err := db.Update(func(tx *bbolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte(name))
			for i := 0; i < 5000 && err == nil; i++ {
				err = bucket.Put([]byte(fmt.Sprint(i)), make([]byte, 500))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	first := open(path)
	put(first, "first")
	if _, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Millisecond}); err != bbolt.ErrTimeout {
		t.Fatal(err)
	}
	for round := 0; round < 3; round++ {
		other := filepath.Join(folder, "other")
		second := open(other)
		put(second, fmt.Sprint("second", round))
		if err := errors.Join(second.Close(), os.Rename(other, path), os.Remove(other+".memlith")); err != nil {
			t.Fatal(err)
		}
		writing, err := first.Begin(true)
		if err != nil {
			t.Fatal(err)
		}
		second = open(path)
		has(second, fmt.Sprint("second", round), true)
		if err := writing.Commit(); err != nil {
			t.Fatal(err)
		}
		put(first, "later")
		put(second, "more")
		has(first, "later", true)
		has(second, "later", false)
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		put(second, "still more")
		if _, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Millisecond}); err != bbolt.ErrTimeout {
			t.Fatal(err)
		}
		first = second
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	first = open(path)
	has(first, "still more", true)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	// Killed.
	complete := filepath.Join(folder, "complete")
	db := open(complete)
	put(db, "complete")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	used := filepath.Join(folder, "used")
	runAndKill(t, used, 50)
	if err := os.Rename(complete, used); err != nil {
		t.Fatal(err)
	}
	if _, err := bbolt.Open(used, 0o600, &bbolt.Options{ReadOnly: true}); err == nil {
		t.Fatal("the log of another file was read")
	}
	db = open(used)
	has(db, "complete", true)
	put(db, "more")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	// But a log that is needed stays: a file that was in use is not complete.
	runAndKill(t, complete, 50)
	runAndKill(t, filepath.Join(folder, "another"), 50)
	if err := os.Rename(complete, filepath.Join(folder, "another")); err != nil {
		t.Fatal(err)
	}
	if _, err := bbolt.Open(filepath.Join(folder, "another"), 0o600, nil); !errors.Is(err, memlith.ErrCorrupt) {
		t.Fatal(err)
	}
}

// A backup without a log is read, and not changed; bytes behind it, such as etcd's checksum, do no harm.
func TestReadingABackup(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", filepath.Join(folder, "tmp"))
	if err := os.Mkdir(os.Getenv("TMPDIR"), 0o700); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(filepath.Join(folder, "db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, db, "old", 1000)
	path := filepath.Join(folder, "backup")
	if err := db.View(func(tx *bbolt.Tx) error { return tx.CopyFile(path, 0o600) }); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before = append(before, "a checksum of 32 bytes, or others"...)
	if err := os.WriteFile(path, before, 0o400); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 2; i++ {
		db, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if db.Path() != path {
			t.Fatal(db.Path())
		}
		if _, err := db.Begin(true); !errors.Is(err, bbolt.ErrDatabaseReadOnly) {
			t.Fatal(err)
		}
		err = db.View(func(tx *bbolt.Tx) error {
			if count := tx.Bucket([]byte("old")).Bucket([]byte("inner")).Stats().KeyN; count != 1000 {
				t.Fatal(count)
			}
			return nil
		})
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Fatal("the backup was changed: ", err)
	}
	for _, pattern := range []string{"backup.*", "tmp/*"} {
		if left, _ := filepath.Glob(filepath.Join(folder, pattern)); len(left) > 0 {
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
