package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"

	"memlith.org/memlith/raftstore"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestABoltFileIsTakenOver(t *testing.T) {
	base := os.Getenv("MEMLITH_TEST_DIR")
	folder, err := os.MkdirTemp(base, "migrate")
	check(t, err)
	defer os.RemoveAll(folder)
	from, to := filepath.Join(folder, "raft.db"), filepath.Join(folder, "node")
	if _, err := migrate(from, to); err == nil {
		t.Fatal("a file that is not there was migrated")
	}
	source, err := boltdb.NewBoltStore(from)
	check(t, err)
	var entries []*raft.Log
	for i := uint64(7); i < 100; i++ {
		entries = append(entries, &raft.Log{Index: i, Term: i / 10, Type: raft.LogCommand, Data: []byte{byte(i)}})
	}
	check(t, source.StoreLogs(entries))
	check(t, source.SetUint64([]byte("CurrentTerm"), 9))
	check(t, source.Set([]byte("LastVoteCand"), []byte("n2")))
	check(t, source.Close())

	count, err := migrate(from, to)
	check(t, err)
	if count != 93 {
		t.Fatal(count)
	}
	if _, err := migrate(from, to); err == nil {
		t.Fatal("a node's folder was overwritten")
	}
	target, err := raftstore.Open(to, nil, raftstore.Options{})
	check(t, err)
	defer target.Close()
	for _, entry := range entries {
		var found raft.Log
		check(t, target.GetLog(entry.Index, &found))
		if found.Term != entry.Term || found.Data[0] != entry.Data[0] || found.Type != entry.Type {
			t.Fatalf("%+v instead of %+v", found, entry)
		}
	}
	if term, err := target.GetUint64([]byte("CurrentTerm")); err != nil || term != 9 {
		t.Fatal(term, err)
	}
	if vote, err := target.Get([]byte("LastVoteCand")); err != nil || string(vote) != "n2" {
		t.Fatal(string(vote), err)
	}
}
