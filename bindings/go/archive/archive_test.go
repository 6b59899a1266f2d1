package archive_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"memlith.org/memlith"
	"memlith.org/memlith/archive"
	"memlith.org/memlith/internal/child"
	"memlith.org/memlith/kv"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t testing.TB, err, wanted error) {
	t.Helper()
	if !errors.Is(err, wanted) {
		t.Fatalf("%v instead of %v", err, wanted)
	}
}

type opened struct {
	store   *memlith.Store
	records *kv.KV
	m       kv.Map
}

func open(t testing.TB, path string, create bool) opened {
	t.Helper()
	store, err := memlith.Open(path, memlith.Options{Create: create})
	check(t, err)
	records, err := kv.Open(store, "kv", kv.Options{Create: create})
	check(t, err)
	m, err := records.CreateMap("m")
	check(t, err)
	return opened{store, records, m}
}

func (o opened) close(t testing.TB) {
	t.Helper()
	check(t, o.records.Close())
	check(t, o.store.Close())
}

// The ticket of the commit.
func (o opened) put(t testing.TB, value string) uint64 {
	t.Helper()
	check(t, o.records.Update(context.Background(), func(txn *kv.Txn) error {
		return txn.Put(o.m, []byte("k"), []byte(value))
	}))
	return o.store.Newest()
}

func found(t testing.TB, path string) string {
	t.Helper()
	o := open(t, path, false)
	defer o.close(t)
	var value []byte
	check(t, o.records.View(func(txn *kv.Txn) (err error) {
		value, err = txn.Get(o.m, []byte("k"))
		return err
	}))
	return string(value)
}

func TestEachStateIsRestoredAndFeedsAStandby(t *testing.T) {
	folder := child.Folder(t)
	path := filepath.Join(folder, "store")
	target := archive.Target{Folder: filepath.Join(folder, "target")}
	_, err := archive.Runs(target)
	is(t, err, memlith.ErrNotFound)
	_, err = archive.Open(path, target, archive.Options{})
	is(t, err, memlith.ErrNotFound)
	writer := open(t, path, true)
	first := writer.put(t, "one")
	archiver, err := archive.Open(path, target, archive.Options{Keep: archive.Never, Wait: time.Hour})
	check(t, err)
	_, err = archiver.Flush()
	check(t, err)
	standby, err := archive.OpenStandby(target, filepath.Join(folder, "standby"))
	check(t, err)
	if lsn, err := standby.Step(); err != nil || lsn < first {
		t.Fatal(lsn, err)
	}
	second := writer.put(t, "two")
	check(t, archiver.Copy())
	_, err = archiver.Step()
	check(t, err)
	progress, err := archiver.Flush()
	check(t, err)
	if progress.ArchivedLsn < second || progress.FullCopies != 2 {
		t.Fatalf("%+v", progress)
	}
	third := writer.put(t, "three")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	check(t, archiver.Run(ctx, func(err error) { t.Error(err) }))
	check(t, archiver.Close())
	check(t, archiver.Close())
	_, err = archiver.Step()
	is(t, err, memlith.ErrClosed)
	if lsn, err := standby.Step(); err != nil || lsn < third {
		t.Fatal(lsn, err)
	}
	check(t, standby.Close())
	check(t, standby.Close())
	_, err = standby.Step()
	is(t, err, memlith.ErrClosed)

	runs, err := archive.Runs(target)
	check(t, err)
	if len(runs) != 1 || runs[0].Why != "first" || runs[0].FullCopies != 2 || runs[0].EndLsn < third {
		t.Fatalf("%+v", runs)
	}
	for name, each := range map[string]struct {
		options archive.RestoreOptions
		wanted  string
	}{
		"newest": {archive.RestoreOptions{}, "three"},
		"first":  {archive.RestoreOptions{Lsn: first, Run: runs[0].Number}, "one"},
		"second": {archive.RestoreOptions{Lsn: second}, "two"},
		"now":    {archive.RestoreOptions{Time: time.Now()}, "three"},
	} {
		dest := filepath.Join(folder, name)
		each.options.Dry = true
		_, err := archive.Restore(target, dest, each.options)
		check(t, err)
		if _, err := os.Stat(dest); !errors.Is(err, os.ErrNotExist) {
			t.Fatal("a dry run has made ", dest)
		}
		each.options.Dry = false
		restored, err := archive.Restore(target, dest, each.options)
		check(t, err)
		if value := found(t, dest); value != each.wanted || restored.Lsn == 0 || restored.CutShort {
			t.Fatalf("%s: %q, %+v", name, value, restored)
		}
		_, err = archive.Restore(target, dest, each.options)
		is(t, err, memlith.ErrExists)
	}
	_, err = archive.Restore(target, filepath.Join(folder, "none"), archive.RestoreOptions{Time: time.Unix(1, 0)})
	is(t, err, memlith.ErrNotFound)
	check(t, archive.Promote(filepath.Join(folder, "standby")))
	if value := found(t, filepath.Join(folder, "standby")); value != "three" {
		t.Fatal(value)
	}

	// The same through commands.
	objects := filepath.Join(folder, "objects")
	check(t, os.Mkdir(objects, 0o777))
	commands := archive.Target{
		Put: fmt.Sprintf("cat > '%s/%%n'", objects), Get: fmt.Sprintf("cat '%s/%%n' 2>/dev/null", objects),
	}
	archiver, err = archive.Open(path, commands, archive.Options{New: true})
	check(t, err)
	check(t, archiver.Close())
	_, err = archive.Restore(commands, filepath.Join(folder, "by command"), archive.RestoreOptions{})
	check(t, err)
	if value := found(t, filepath.Join(folder, "by command")); value != "three" {
		t.Fatal(value)
	}
	writer.close(t)
}
