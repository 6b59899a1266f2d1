package memlith_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"memlith.org/memlith"
	"memlith.org/memlith/internal/child"
	"memlith.org/memlith/kv"
	"memlith.org/memlith/region"
)

func TestCopiesChecksAndStatistics(t *testing.T) {
	folder := child.Folder(t)
	path, target := filepath.Join(folder, "store"), filepath.Join(folder, "copy")
	if _, err := memlith.Verify(path); !errors.Is(err, memlith.ErrNotFound) {
		t.Fatal(err)
	}
	store := open(t, path)
	memory, err := region.Open(store, "memory", region.Options{Create: true, Size: 1 << 16})
	check(t, err)
	records, err := kv.Open(store, "kv", kv.Options{Create: true})
	check(t, err)
	m, err := records.CreateMap("m")
	check(t, err)
	before, err := store.Stats()
	check(t, err)
	for i := range memory.Bytes() {
		memory.Bytes()[i] = byte(i)
	}
	check(t, memory.Persist())
	check(t, records.Update(context.Background(), func(txn *kv.Txn) error { return txn.Put(m, []byte("k"), nil) }))
	after, err := store.Stats()
	check(t, err)
	if after.Persists != before.Persists+1 || after.KvCommits != before.KvCommits+1 || after.PersistP50Ns == 0 ||
		after.Process != uint64(os.Getpid()) || after.Poisoned {
		t.Fatalf("%+v, %+v", before, after)
	}
	durable := store.Durable() // an idle log gets one more frame, maybe behind the copy
	copied, err := memlith.Copy(path, target)
	check(t, err)
	if copied.Bytes == 0 || copied.Ticket < durable {
		t.Fatalf("%+v", copied)
	}
	if _, err := memlith.Copy(path, target); !errors.Is(err, memlith.ErrExists) {
		t.Fatal(err)
	}
	check(t, memory.Close())
	check(t, records.Close())
	check(t, store.Close())
	for _, each := range []string{path, target} {
		report, err := memlith.Verify(each)
		check(t, err)
		if report.Regions != 2 || report.Kvs != 1 || !report.Clean || report.OneFile {
			t.Fatalf("%+v", report)
		}
		data, err := memlith.CheckData(each)
		check(t, err)
		if data.Blocks == 0 || data.BlocksDamaged != 0 || data.Damaged != nil {
			t.Fatalf("%+v", data)
		}
	}

	home := filepath.Join(path, "objects", "1")
	bytes, err := os.ReadFile(home)
	check(t, err)
	bytes[100] ^= 1
	bytes[40000] ^= 1
	check(t, os.WriteFile(home, bytes, 0o666))
	data, err := memlith.CheckData(path)
	check(t, err)
	if data.BlocksDamaged != 2 || len(data.Damaged) != 2 || !strings.Contains(data.Damaged[1], `region "memory"`) {
		t.Fatalf("%+v", data)
	}
	if _, err := memlith.Copy(path, filepath.Join(folder, "damaged")); !errors.Is(err, memlith.ErrCorrupt) {
		t.Fatal(err)
	}
}
