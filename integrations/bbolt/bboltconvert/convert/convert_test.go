package convert

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	original "go.etcd.io/bbolt"
	oerrors "go.etcd.io/bbolt/errors"
	memlith "memlith.org/bbolt"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listing has a line for each bucket, with its sequence, and for each record.
func listing[B bucket[B]](b B, path string, to *bytes.Buffer) error {
	fmt.Fprintf(to, "%s: %d\n", path, b.Sequence())
	return b.ForEach(func(key, value []byte) error {
		if value == nil {
			return listing(b.Bucket(key), fmt.Sprintf("%s/%q", path, key), to)
		}
		fmt.Fprintf(to, "%s %q %q\n", path, key, value)
		return nil
	})
}

func listingOfOriginal(t *testing.T, path string) string {
	t.Helper()
	db, err := original.Open(path, 0o600, &original.Options{ReadOnly: true})
	check(t, err)
	defer db.Close()
	var lines bytes.Buffer
	check(t, db.View(func(tx *original.Tx) error {
		for err := range tx.Check() {
			return err
		}
		return listing(tx.Cursor().Bucket(), "", &lines)
	}))
	return lines.String()
}

func makeOriginal(t *testing.T, path string, longest int) {
	t.Helper()
	db, err := original.Open(path, 0o640, &original.Options{NoSync: true})
	check(t, err)
	check(t, db.Update(func(tx *original.Tx) error {
		outer, err := tx.CreateBucket([]byte("outer\x00\xff"))
		check(t, err)
		check(t, outer.SetSequence(1<<63+5))
		check(t, outer.Put([]byte("empty"), nil))
		check(t, outer.Put(bytes.Repeat([]byte{'k'}, longest), []byte("v")))
		_, err = outer.CreateBucket([]byte("nothing in it"))
		check(t, err)
		inner, err := outer.CreateBucket([]byte("inner"))
		check(t, err)
		check(t, inner.SetSequence(7))
		for i := 0; i < 90; i++ { // more than one commit
			check(t, inner.Put([]byte(fmt.Sprintf("%03d", i)), bytes.Repeat([]byte{byte(i)}, 500_000)))
		}
		check(t, outer.Put([]byte("zz"), []byte("behind inner")))
		_, err = tx.CreateBucket([]byte("second"))
		return err
	}))
	check(t, db.Close())
}

func TestThereAndBack(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	makeOriginal(t, at("a"), 1000)
	before := listingOfOriginal(t, at("a"))
	count, err := Database(at("a"), at("b"), true)
	if err != nil || count != 93 {
		t.Fatalf("%d records: %v", count, err)
	}
	if _, err := os.Stat(at("b.memlith")); err == nil {
		t.Fatal("the result has a log before it is opened")
	}
	db, err := memlith.Open(at("b"), 0o600, nil)
	check(t, err)
	var lines bytes.Buffer
	check(t, db.View(func(tx *memlith.Tx) error {
		for err := range tx.Check() {
			return err
		}
		return listing(tx.Cursor().Bucket(), "", &lines)
	}))
	if lines.String() != before {
		t.Fatal("the database of memlith has other records")
	}
	if _, err := Database(at("b"), at("c"), false); !errors.Is(err, oerrors.ErrTimeout) {
		t.Fatalf("of a database in use: %v", err)
	}
	check(t, db.Close())
	_, err = Database(at("b"), at("c"), false)
	check(t, err)
	if listingOfOriginal(t, at("c")) != before {
		t.Fatal("the records are others after the way back")
	}
	info, err := os.Stat(at("c"))
	check(t, err)
	if info.Mode().Perm() != 0o640 {
		t.Fatalf("mode %v", info.Mode())
	}
}

func TestWhatCannotBeConvertedLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	makeOriginal(t, at("a"), 1001)
	if _, err := Database(at("a"), at("b"), true); !errors.Is(err, oerrors.ErrKeyTooLarge) {
		t.Fatalf("a long key: %v", err)
	}
	if _, err := Database(at("none"), at("b"), true); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("no file: %v", err)
	}
	if _, err := Database(at("a"), at("b"), false); !errors.Is(err, oerrors.ErrInvalid) {
		t.Fatalf("the wrong kind: %v", err)
	}
	if _, err := Database(at("a"), at("a"), true); err == nil {
		t.Fatal("a file was written over")
	}
	if left, _ := filepath.Glob(at("*")); len(left) != 1 {
		t.Fatalf("left behind: %v", left)
	}
}
