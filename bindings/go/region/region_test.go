package region_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"memlith.org/memlith"
	"memlith.org/memlith/applog"
	"memlith.org/memlith/internal/child"
	"memlith.org/memlith/kv"
	"memlith.org/memlith/region"
)

func TestMain(m *testing.M) {
	child.Main(m, map[string]func(string){"persists": persists, "updates": updates, "moves": moves})
}

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

const size = 64 << 10

func openRegion(t testing.TB, store *memlith.Store, name string, tracker region.Tracker) *region.Region {
	t.Helper()
	opened, err := region.Open(store, name, region.Options{Create: true, Size: size, Tracker: tracker})
	check(t, err)
	return opened
}

func open(t testing.TB, path string, tracker region.Tracker) (*memlith.Store, *region.Region) {
	t.Helper()
	store, err := memlith.Open(path, memlith.Options{Create: true})
	check(t, err)
	return store, openRegion(t, store, "r", tracker)
}

func closeAll(t testing.TB, store *memlith.Store, regions ...*region.Region) {
	t.Helper()
	for _, each := range regions {
		check(t, each.Close())
	}
	check(t, store.Close())
}

var trackers = map[string]region.Tracker{
	"auto": region.Auto, "scan": region.Scan, "explicit": region.Explicit, "fault": region.Fault,
}

// With each tracker, in a folder of its own.
func withTrackers(t *testing.T, test func(t *testing.T, path string, tracker region.Tracker)) {
	for name, tracker := range trackers {
		tracker := tracker
		t.Run(name, func(t *testing.T) { test(t, filepath.Join(child.Folder(t), "store"), tracker) })
	}
}

// Stores, and touches.
func set(t testing.TB, r *region.Region, offset int, value byte) {
	t.Helper()
	part := r.Bytes()[offset : offset+1]
	part[0] = value
	check(t, r.Touch(part))
}

func TestBytesArePersistedAndFoundAgain(t *testing.T) {
	withTrackers(t, func(t *testing.T, path string, tracker region.Tracker) {
		store, r := open(t, path, tracker)
		if len(r.Bytes()) != size || !bytes.Equal(r.Bytes(), make([]byte, size)) {
			t.Fatal("a new region is not zeros")
		}
		set(t, r, 100, 1)
		unpersisted, err := r.Unpersisted()
		check(t, err)
		if unpersisted == 0 {
			t.Fatal("nothing was stored")
		}
		check(t, r.Persist())
		set(t, r, 100, 2)
		check(t, r.Rollback())
		if r.Bytes()[100] != 1 {
			t.Fatal("a rollback left ", r.Bytes()[100])
		}
		set(t, r, 8192, 3)
		set(t, r, 40000, 4)
		check(t, r.PersistRange(r.Bytes()[8192:8193]))
		check(t, r.Rollback())
		if r.Bytes()[8192] != 3 || r.Bytes()[40000] != 0 {
			t.Fatal("a range: ", r.Bytes()[8192], r.Bytes()[40000])
		}
		set(t, r, 200, 5)
		ticket, err := r.PersistAsync()
		check(t, err)
		check(t, store.Wait(context.Background(), ticket))
		slice := r.Bytes()
		check(t, r.Grow(2*size))
		if len(r.Bytes()) != 2*size || &r.Bytes()[0] != &slice[0] {
			t.Fatal("a region that grows stays in its place")
		}
		set(t, r, 2*size-1, 6)
		check(t, r.Persist())
		set(t, r, 300, 7)
		info, err := r.Info()
		check(t, err)
		if info.Name != "r" || info.Size != 2*size || info.MaxSize < 1<<30 || info.TrackerDetail == "" {
			t.Fatalf("%+v", info)
		}
		check(t, r.Release())
		is(t, store.Close(), memlith.ErrBusy)
		closeAll(t, store, r)
		if r.Bytes() != nil {
			t.Fatal("memory of a closed region")
		}

		store, r = open(t, path, tracker)
		again, err := r.Info()
		check(t, err)
		if again.Address != info.Address {
			t.Fatal("another address")
		}
		for offset, wanted := range map[int]byte{100: 1, 200: 5, 300: 0, 8192: 3, 40000: 0, 2*size - 1: 6} {
			if found := r.Bytes()[offset]; found != wanted {
				t.Errorf("%d at %d, not %d", found, offset, wanted)
			}
		}
		check(t, r.Discard(r.Bytes()[8192:12288]))
		if r.Bytes()[8192] != 0 {
			t.Fatal("a discarded page")
		}
		closeAll(t, store, r)
	})
}

func TestErrorsOfRegions(t *testing.T) {
	path := filepath.Join(child.Folder(t), "store")
	store, r := open(t, path, region.Auto)
	_, err := region.Open(store, "none", region.Options{})
	is(t, err, memlith.ErrNotFound)
	_, err = region.Open(store, "r", region.Options{})
	is(t, err, memlith.ErrBusy)
	_, err = region.Open(store, "n", region.Options{Create: true})
	is(t, err, memlith.ErrInvalid)
	own := make([]byte, 10)
	is(t, r.Touch(own), memlith.ErrInvalid)
	is(t, r.PersistRange(own), memlith.ErrInvalid)
	is(t, r.Discard(r.Bytes()[1:2]), memlith.ErrInvalid)
	is(t, r.Grow(1), memlith.ErrInvalid)
	check(t, r.Prepare(r.Bytes()[:10]))
	txn, err := store.Begin()
	check(t, err)
	is(t, r.TouchBefore(txn, r.Bytes()[:1]), memlith.ErrUnsupported)
	is(t, r.WriteIn(txn, r.Bytes()[:1], own), memlith.ErrInvalid)
	check(t, r.Join(txn))
	is(t, r.Close(), memlith.ErrBusy)
	check(t, txn.Abort())
	check(t, r.Close())
	_, err = region.Open(store, "r", region.Options{Create: true, Exclusive: true, Size: size})
	is(t, err, memlith.ErrExists)
	check(t, store.Remove("r"))
	check(t, store.Close())
}

func TestAnUpdateIsDurableOrUndone(t *testing.T) {
	refused := errors.New("refused")
	withTrackers(t, func(t *testing.T, path string, tracker region.Tracker) {
		store, r := open(t, path, tracker)
		change := func(value byte, then func() error) func([]byte) error {
			return func(all []byte) error {
				for offset := 0; offset < len(all); offset += 5000 {
					all[offset] = value
				}
				check(t, r.Touch(all))
				return then()
			}
		}
		state := func() byte {
			for offset := 0; offset < size; offset += 5000 {
				if r.Bytes()[offset] != r.Bytes()[0] {
					t.Fatal("half of a change")
				}
			}
			return r.Bytes()[0]
		}
		fine := func() error { return nil }
		check(t, r.Update(change(1, fine)))
		is(t, r.Update(change(2, func() error {
			is(t, r.Persist(), memlith.ErrBusy)
			return refused
		})), refused)
		if state() != 1 {
			t.Fatal(state())
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_ = r.Update(change(3, func() error { panic("of the program") }))
		}()
		if state() != 1 {
			t.Fatal(state())
		}
		ticket, err := r.UpdateWeak(change(4, fine))
		check(t, err)
		check(t, store.Wait(context.Background(), ticket))
		closeAll(t, store, r)
		store, r = open(t, path, tracker)
		if state() != 4 {
			t.Fatal(state())
		}
		closeAll(t, store, r)
	})
}

func TestSeveralRegionsInOneCommit(t *testing.T) {
	path := filepath.Join(child.Folder(t), "store")
	store, one := open(t, path, region.Auto)
	two := openRegion(t, store, "two", region.Explicit)
	for value := byte(1); value <= 3; value++ {
		info, err := store.Info()
		check(t, err)
		set(t, one, 0, value)
		set(t, two, 0, value)
		if value == 1 {
			check(t, region.Persist(one, two))
		} else {
			ticket, err := region.PersistAsync(one, two, one)
			check(t, err)
			check(t, store.Wait(context.Background(), ticket))
		}
		after, err := store.Info()
		check(t, err)
		if after.Frames != info.Frames+1 {
			t.Fatal(info.Frames, " commits before, and after ", after.Frames)
		}
	}
	check(t, region.Persist())
	check(t, two.Close())
	is(t, region.Persist(one, two), memlith.ErrClosed)
	closeAll(t, store, one)
}

func TestRangesAreAnnouncedAndUndone(t *testing.T) {
	path := filepath.Join(child.Folder(t), "store")
	store, r := open(t, path, region.Explicit)
	for _, commits := range []bool{false, true} {
		txn, err := store.Begin()
		check(t, err)
		number := r.Bytes()[8:16]
		check(t, r.TouchBefore(txn, number))
		binary.LittleEndian.PutUint64(number, 7)
		check(t, r.WriteIn(txn, r.Bytes()[100:], []byte("text")))
		if commits {
			check(t, txn.Commit())
		} else {
			check(t, txn.Abort())
		}
		if (number[0] == 7) != commits || (string(r.Bytes()[100:104]) == "text") != commits {
			t.Fatal(commits, number[0], string(r.Bytes()[100:104]))
		}
	}
	closeAll(t, store, r)
	store, r = open(t, path, region.Explicit)
	if r.Bytes()[8] != 7 || string(r.Bytes()[100:104]) != "text" {
		t.Fatal("what was committed is gone")
	}
	closeAll(t, store, r)
}

func TestAReaderSeesWhatWasPersisted(t *testing.T) {
	path := filepath.Join(child.Folder(t), "store")
	store, r := open(t, path, region.Auto)
	set(t, r, 0, 1)
	check(t, r.Persist())
	follower, err := memlith.Open(path, memlith.Options{Follow: true})
	check(t, err)
	seen, err := region.Open(follower, "r", region.Options{})
	check(t, err)
	if seen.Bytes()[0] != 1 {
		t.Fatal(seen.Bytes()[0])
	}
	is(t, seen.Persist(), memlith.ErrReadOnly)
	set(t, r, 0, 2)
	check(t, r.Persist())
	if seen.Bytes()[0] != 1 {
		t.Fatal("the view has moved without Refresh")
	}
	_, err = follower.Refresh()
	check(t, err)
	if seen.Bytes()[0] != 2 {
		t.Fatal(seen.Bytes()[0])
	}
	closeAll(t, follower, seen)
	closeAll(t, store, r)
}

// A nil pointer is a panic of the program also where memlith's handler of faults stands before Go's, and goroutines,
// which store from small stacks and move between threads, store beside the collector.
func TestFaultsAreServedOrTheProgramsOwn(t *testing.T) {
	store, r := open(t, filepath.Join(child.Folder(t), "store"), region.Fault)
	var all sync.WaitGroup
	for i := 0; i < 16; i++ {
		own := r.Bytes()[i*4096 : (i+1)*4096]
		all.Add(1)
		go func() {
			defer all.Done()
			for round := 1; round <= 200; round++ {
				for at := range own {
					own[at] = byte(round)
				}
				_ = make([]byte, 10000)
				func() {
					defer func() { _ = recover() }()
					var none *[size]byte
					none[round]++
					t.Error("a nil pointer was followed")
				}()
			}
		}()
	}
	for i := 0; i < 50; i++ {
		check(t, r.Persist())
	}
	all.Wait()
	check(t, r.Persist())
	closeAll(t, store, r)
	for _, value := range persisted(t, store.Path()) {
		if value != 200 {
			t.Fatal(value)
		}
	}
}

func persisted(t *testing.T, path string) []byte {
	store, r := open(t, path, region.Auto)
	defer closeAll(t, store, r)
	return append([]byte(nil), r.Bytes()...)
}

// ---- kills ---------------------------------------------------------------------------------------------------------

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// A number in the first bytes, and in places of the whole region.
func store(all []byte, number uint64) {
	for offset := 0; offset < len(all); offset += 1000 {
		binary.LittleEndian.PutUint64(all[offset:], number)
	}
}

func stored(t *testing.T, all []byte) uint64 {
	for offset := 0; offset < len(all); offset += 1000 {
		if !bytes.Equal(all[offset:offset+8], all[:8]) {
			t.Fatalf("half of a change: %v at %d, %v before", all[offset:offset+8], offset, all[:8])
		}
	}
	return binary.LittleEndian.Uint64(all)
}

// One after the other: a number is printed when it is durable.
func persists(folder string) {
	_, r := openForChild(folder)
	for number := binary.LittleEndian.Uint64(r.Bytes()) + 1; ; number++ {
		store(r.Bytes(), number)
		must(r.Persist())
		fmt.Println(number)
	}
}

// The same in updates, of which each second one is undone.
func updates(folder string) {
	_, r := openForChild(folder)
	undone := errors.New("undone")
	for number := binary.LittleEndian.Uint64(r.Bytes()) + 1; ; number++ {
		err := r.Update(func(all []byte) error {
			store(all, number+1000000)
			return undone
		})
		if err != undone {
			must(err)
		}
		must(r.Update(func(all []byte) error {
			store(all, number)
			return nil
		}))
		fmt.Println(number)
	}
}

func openForChild(folder string) (*memlith.Store, *region.Region) {
	opened, err := memlith.Open(filepath.Join(folder, "store"), memlith.Options{Create: true})
	must(err)
	r, err := region.Open(opened, "r", region.Options{Create: true, Size: size, Tracker: trackers[os.Getenv("TRACKER")]})
	must(err)
	return opened, r
}

func lastOf(said []string) (last uint64) {
	for _, line := range said {
		if number, err := strconv.ParseUint(line, 10, 64); err == nil {
			last = number
		}
	}
	return last
}

func TestAKilledProgramLeavesWholeChanges(t *testing.T) {
	random := child.Seed(t)
	for _, role := range []string{"persists", "updates"} {
		for _, tracker := range []string{"auto", "fault"} {
			t.Setenv("TRACKER", tracker)
			folder := child.Folder(t)
			for round := 0; round < 6; round++ {
				last := lastOf(kill(t, random, role, folder))
				found := stored(t, persisted(t, filepath.Join(folder, "store")))
				if found != last && found != last+1 {
					t.Fatalf("%s, %s: %d was acknowledged, and %d is there", role, tracker, last, found)
				}
			}
		}
	}
}

func kill(t *testing.T, random *rand.Rand, role, folder string) []string {
	return child.RunAndKill(t, role, folder, 1+random.Intn(100), time.Duration(random.Intn(10))*time.Millisecond)
}

type parts struct {
	store   *memlith.Store
	r       *region.Region
	records *kv.KV
	m       kv.Map
	log     *applog.Log
}

func openParts(folder string) (all parts, err error) {
	all.store, err = memlith.Open(filepath.Join(folder, "store"), memlith.Options{Create: true})
	if err != nil {
		return all, err
	}
	if all.r, err = region.Open(all.store, "r", region.Options{Create: true, Size: size}); err != nil {
		return all, err
	}
	if all.records, err = kv.Open(all.store, "kv", kv.Options{Create: true}); err != nil {
		return all, err
	}
	if all.m, err = all.records.CreateMap("m"); err != nil {
		return all, err
	}
	all.log, err = applog.Open(all.store, "log", applog.Options{Create: true, WhenFull: applog.Grow, Size: 16 << 10})
	return all, err
}

func (all parts) close(t *testing.T) {
	check(t, all.log.Close())
	check(t, all.records.Close())
	closeAll(t, all.store, all.r)
}

// One commit for memory, a record and an entry.
func (all parts) commit(number uint64, finish func(*memlith.Txn) error) error {
	txn, err := all.store.Begin()
	if err != nil {
		return err
	}
	defer txn.Abort()
	if err := all.r.JoinUndo(txn); err != nil {
		return err
	}
	store(all.r.Bytes(), number)
	records, err := all.records.Begin()
	if err != nil {
		return err
	}
	defer records.Abort()
	if err := records.Put(all.m, []byte("number"), binary.LittleEndian.AppendUint64(nil, number)); err != nil {
		return err
	}
	if err := records.Join(txn); err != nil {
		return err
	}
	if err := all.log.AppendIn(txn, binary.LittleEndian.AppendUint64(nil, number)); err != nil {
		return err
	}
	return finish(txn)
}

// The number of the region, which the record and the newest entry have, too.
func (all parts) number(t *testing.T) uint64 {
	t.Helper()
	number := stored(t, all.r.Bytes())
	var record uint64
	err := all.records.View(func(txn *kv.Txn) error {
		value, err := txn.Get(all.m, []byte("number"))
		if err == nil {
			record = binary.LittleEndian.Uint64(value)
		}
		return err
	})
	if err != nil && !errors.Is(err, memlith.ErrNotFound) {
		t.Fatal(err)
	}
	info, err := all.log.Info()
	check(t, err)
	if record != number || info.Newest != number {
		t.Fatalf("the region has %d, the record %d, the log %d", number, record, info.Newest)
	}
	return number
}

func moves(folder string) {
	all, err := openParts(folder)
	must(err)
	for number := binary.LittleEndian.Uint64(all.r.Bytes()) + 1; ; number++ {
		must(all.commit(number+1000000, (*memlith.Txn).Abort))
		must(all.commit(number, (*memlith.Txn).Commit))
		fmt.Println(number)
	}
}

func TestOneCommitForMemoryRecordsAndEntries(t *testing.T) {
	all, err := openParts(child.Folder(t))
	check(t, err)
	check(t, all.commit(1, (*memlith.Txn).Abort))
	if all.number(t) != 0 {
		t.Fatal("an abort that undid not all")
	}
	check(t, all.commit(1, func(txn *memlith.Txn) error {
		ticket, err := txn.CommitWeak()
		check(t, err)
		return all.store.Wait(context.Background(), ticket)
	}))
	if all.number(t) != 1 {
		t.Fatal("nothing was committed")
	}
	all.close(t)

	random := child.Seed(t)
	folder := child.Folder(t)
	for round := 0; round < 8; round++ {
		last := lastOf(kill(t, random, "moves", folder))
		all, err := openParts(folder)
		check(t, err)
		if found := all.number(t); found != last && found != last+1 {
			t.Fatalf("%d was acknowledged, and %d is there", last, found)
		}
		all.close(t)
	}
}
