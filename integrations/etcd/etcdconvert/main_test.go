package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	original "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	ours "memlith.org/bbolt"

	"memlith.org/memlith/internal/child"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestMain(m *testing.M) {
	child.Main(m, map[string]func(string){"convert": func(folder string) {
		fmt.Println("begun")
		_, err := convertDirectory(filepath.Join(folder, "stock"), "", filepath.Join(folder, "memlith"), true)
		fmt.Println("ended", err)
		time.Sleep(time.Hour)
	}})
}

const (
	entriesSaved = 3000
	entriesMore  = 200 // that are not committed
)

// makeStock makes a data directory as etcd leaves one: entries of which some were replaced, snapshots, and databases.
func makeStock(t *testing.T, folder string, random *rand.Rand) {
	t.Helper()
	snap := filepath.Join(folder, "member", "snap")
	check(t, os.MkdirAll(snap, privateFolder))
	for _, name := range []string{"db", "00000000000007d0.snap.db"} {
		db, err := original.Open(filepath.Join(snap, name), 0o600, nil)
		check(t, err)
		check(t, db.Update(func(tx *original.Tx) error {
			bucket, err := tx.CreateBucket([]byte("key"))
			check(t, err)
			for i := 0; i < 2000; i++ {
				check(t, bucket.Put([]byte(fmt.Sprint("key", i)), []byte(fmt.Sprint(name, i))))
			}
			return nil
		}))
		check(t, db.Close())
	}
	check(t, os.WriteFile(filepath.Join(snap, "0000000000000002-00000000000007d0.snap"), []byte("a snapshot"), 0o600))
	check(t, os.WriteFile(filepath.Join(snap, "db.tmp.123"), []byte("left by a crash"), 0o600))
	log, err := ofStock.create(filepath.Join(folder, "member", "wal"), []byte("metadata"))
	check(t, err)
	log.(interface{ SetUnsafeNoFsync() }).SetUnsafeNoFsync()
	snapshot := uint64(0)
	for index := uint64(1); index <= entriesSaved; {
		if index > 10 && random.Intn(10) == 0 {
			index -= uint64(random.Intn(5)) // replaces some
		}
		entry := raftpb.Entry{Index: index, Term: 1 + index/1000, Data: bytes.Repeat([]byte{byte(index)}, random.Intn(900))}
		check(t, log.Save(raftpb.HardState{Term: entry.Term, Vote: 3, Commit: index - min(index, entriesMore)},
			[]raftpb.Entry{entry}))
		if index%1000 == 0 && index > snapshot {
			snapshot = index
			committed := index - entriesMore
			check(t, log.SaveSnapshot(walpb.Snapshot{Index: committed, Term: 1 + committed/1000,
				ConfState: &raftpb.ConfState{Voters: []uint64{3}}}))
		}
		index++
	}
	check(t, log.Close())
}

func same(t *testing.T, folder string, of kind, wanted content) {
	t.Helper()
	found, err := contentOf(filepath.Join(folder, "member", "wal"), of)
	check(t, err)
	if !reflect.DeepEqual(found, wanted) {
		t.Fatalf("%s: %q %v %v, %d entries; wanted %q %v %v, %d entries", folder, found.metadata, found.state,
			found.snapshots, len(found.entries), wanted.metadata, wanted.state, wanted.snapshots, len(wanted.entries))
	}
	copied, err := os.ReadFile(filepath.Join(folder, "member", "snap", "0000000000000002-00000000000007d0.snap"))
	if err != nil || string(copied) != "a snapshot" {
		t.Fatal(err, string(copied))
	}
	for _, name := range []string{"db", "00000000000007d0.snap.db"} {
		path := filepath.Join(folder, "member", "snap", name)
		var value string
		if of.name == ofStock.name {
			db, err := original.Open(path, 0o600, nil)
			check(t, err)
			check(t, db.View(func(tx *original.Tx) error {
				value = string(tx.Bucket([]byte("key")).Get([]byte("key1234")))
				return nil
			}))
			check(t, db.Close())
		} else {
			db, err := ours.Open(path, 0o600, nil)
			check(t, err)
			check(t, db.View(func(tx *ours.Tx) error {
				value = string(tx.Bucket([]byte("key")).Get([]byte("key1234")))
				return nil
			}))
			check(t, db.Close())
		}
		if value != name+"1234" {
			t.Fatalf("%s: %q", path, value)
		}
	}
	left, err := filepath.Glob(folder + unfinished + "*")
	if err != nil || len(left) > 0 {
		t.Fatal(err, left)
	}
}

func TestThereAndBack(t *testing.T) {
	folder := child.Folder(t)
	stock, memlith, back := filepath.Join(folder, "stock"), filepath.Join(folder, "memlith"), filepath.Join(folder, "back")
	makeStock(t, stock, child.Seed(t))
	wanted, err := contentOf(filepath.Join(stock, "member", "wal"), ofStock)
	check(t, err)
	if len(wanted.entries) != entriesSaved || len(wanted.snapshots) != 4 ||
		wanted.state.Commit != entriesSaved-entriesMore {
		t.Fatal(len(wanted.entries), wanted.snapshots, wanted.state)
	}
	count, err := convertDirectory(stock, "", memlith, true)
	check(t, err)
	if count != (counts{records: 4000, entries: entriesSaved}) {
		t.Fatal(count)
	}
	same(t, memlith, ofMemlith, wanted)
	check(t, os.Rename(filepath.Join(memlith, "member", "wal"), filepath.Join(folder, "wal")))
	_, err = convertDirectory(memlith, filepath.Join(folder, "wal"), back, false)
	check(t, err)
	same(t, back, ofStock, wanted)
	same(t, stock, ofStock, wanted)
}

func TestRefused(t *testing.T) {
	folder := child.Folder(t)
	stock, to := filepath.Join(folder, "stock"), filepath.Join(folder, "to")
	makeStock(t, stock, child.Seed(t))
	refused := func(what, from, wal, to string, toMemlith bool, words string) {
		t.Helper()
		if _, err := convertDirectory(from, wal, to, toMemlith); err == nil || !strings.Contains(err.Error(), words) {
			t.Fatalf("%s: %v", what, err)
		}
		left, err := filepath.Glob(filepath.Join(folder, "to*"))
		if err != nil || len(left) > 0 {
			t.Fatalf("%s left %v (%v)", what, left, err)
		}
	}
	refused("a directory that is there", stock, "", stock, true, "exists already")
	refused("the wrong way", stock, "", to, false, "")
	refused("no directory", filepath.Join(folder, "none"), "", to, true, "no such file")
	refused("a log that is not there", stock, filepath.Join(folder, "none"), to, true, "none")
	db, err := original.Open(filepath.Join(stock, "member", "snap", "db"), 0o600, nil)
	check(t, err)
	refused("an etcd that runs", stock, "", to, true, "timeout")
	check(t, db.Close())
	log := filepath.Join(stock, "member", "wal", "0000000000000000-0000000000000000.wal")
	file, err := os.ReadFile(log)
	check(t, err)
	file[bytes.Index(file, bytes.Repeat([]byte{77}, 100))] ^= 1 // of an entry
	check(t, os.WriteFile(log, file, 0o600))
	refused("a damaged log", stock, "", to, true, "crc")
}

// A conversion that is killed leaves no result, or all of it, and the source as it was.
func TestKilled(t *testing.T) {
	random := child.Seed(t)
	folder := child.Folder(t)
	stock, memlith := filepath.Join(folder, "stock"), filepath.Join(folder, "memlith")
	makeStock(t, stock, random)
	wanted, err := contentOf(filepath.Join(stock, "member", "wal"), ofStock)
	check(t, err)
	whole := 0
	for kill := 0; kill < 20; kill++ {
		child.RunAndKill(t, "convert", folder, 1, time.Duration(random.Intn(400))*time.Millisecond)
		if _, err := os.Stat(memlith); !errors.Is(err, os.ErrNotExist) {
			check(t, err)
			whole++
			same(t, memlith, ofMemlith, wanted)
		}
		check(t, os.RemoveAll(memlith))
		check(t, os.RemoveAll(memlith+unfinished))
	}
	same(t, stock, ofStock, wanted)
	t.Logf("%d of 20 conversions had ended", whole)
}
