package kv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"memlith.org/memlith"
	"memlith.org/memlith/internal/child"
	"memlith.org/memlith/kv"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB) (*kv.KV, kv.Map) {
	t.Helper()
	_, records, m := openStore(t)
	return records, m
}

func openStore(t testing.TB) (*memlith.Store, *kv.KV, kv.Map) {
	t.Helper()
	store, err := memlith.Open(filepath.Join(child.Folder(t), "store"), memlith.Options{Create: true})
	check(t, err)
	records, err := kv.Open(store, "kv", kv.Options{Create: true, Window: time.Hour})
	check(t, err)
	t.Cleanup(func() {
		check(t, records.Close())
		check(t, store.Close())
	})
	m, err := records.CreateMap("map")
	check(t, err)
	return store, records, m
}

func key(i int) []byte { return []byte(fmt.Sprintf("key %06d", i)) }

func TestRecords(t *testing.T) {
	records, m := open(t)
	ctx := context.Background()
	check(t, records.Update(ctx, func(txn *kv.Txn) error {
		if err := txn.Put(m, key(1), []byte("one")); err != nil {
			return err
		}
		return txn.Put(m, key(2), nil)
	}))
	own := errors.New("changed my mind")
	err := records.Update(ctx, func(txn *kv.Txn) error {
		check(t, txn.Remove(m, key(1)))
		return own
	})
	if err != own {
		t.Fatal(err)
	}
	check(t, records.View(func(txn *kv.Txn) error {
		value, err := txn.Get(m, key(1))
		check(t, err)
		if string(value) != "one" {
			t.Fatal(value)
		}
		if value, err = txn.AppendGet(m, key(1), []byte("is ")); err != nil || string(value) != "is one" {
			t.Fatal(string(value), err)
		}
		if value, err = txn.Get(m, key(2)); err != nil || len(value) != 0 {
			t.Fatal(value, err)
		}
		if _, err = txn.Get(m, key(3)); !errors.Is(err, memlith.ErrNotFound) {
			t.Fatal(err)
		}
		if err := txn.Put(m, key(3), nil); !errors.Is(err, memlith.ErrReadOnly) {
			t.Fatal(err)
		}
		return nil
	}))
	names, err := records.Maps()
	check(t, err)
	if len(names) != 1 || names[0] != "map" {
		t.Fatal(names)
	}
	if _, err := records.Map("another"); !errors.Is(err, memlith.ErrNotFound) {
		t.Fatal(err)
	}
	if _, err := records.CreateMap("another"); err != nil {
		t.Fatal(err)
	}
	check(t, records.RemoveMap("another"))
	if info, err := records.Info(); err != nil || info.Records != 2 || info.Maps != 1 {
		t.Fatal(info, err)
	}
}

// Two handles, as of two processes: neither loses an update of the other.
func TestAStoreOfSeveralProcesses(t *testing.T) {
	program := os.Getenv("MEMLITH_COMMAND")
	if program == "" {
		t.Skip("MEMLITH_COMMAND does not name the command memlith, which is the keeper")
	}
	folder := filepath.Join(child.Folder(t), "store")
	ctx := context.Background()
	var both sync.WaitGroup
	for i := 0; i < 2; i++ {
		records, err := kv.OpenShared(folder, "kv", kv.Options{Create: true, Program: program})
		check(t, err)
		t.Cleanup(func() { check(t, records.Close()) })
		m, err := records.CreateMap("map")
		check(t, err)
		both.Add(1)
		go func() {
			defer both.Done()
			for n := 0; n < 50; n++ {
				ticket, err := records.UpdateWeak(ctx, func(txn *kv.Txn) error {
					value, err := txn.Get(m, key(1))
					if err != nil && !errors.Is(err, memlith.ErrNotFound) {
						return err
					}
					return txn.Put(m, key(1), append(value, '.'))
				})
				if err == nil {
					err = records.Wait(ticket)
				}
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	both.Wait()
	records, err := kv.OpenShared(folder, "kv", kv.Options{Program: program})
	check(t, err)
	defer func() { check(t, records.Close()) }()
	m, err := records.Map("map")
	check(t, err)
	check(t, records.View(func(txn *kv.Txn) error {
		value, err := txn.Get(m, key(1))
		if len(value) != 100 {
			t.Errorf("%d updates of 100 are there", len(value))
		}
		return err
	}))
}

func TestAnEmptyValueIsAValue(t *testing.T) {
	records, m := open(t)
	check(t, records.Update(context.Background(), func(txn *kv.Txn) error {
		check(t, txn.Put(m, key(1), nil))
		value, err := txn.Get(m, key(1))
		if value == nil || err != nil {
			t.Fatal(value, err)
		}
		head, size, err := txn.Head(m, key(1), 10)
		if head == nil || size != 0 || err != nil {
			t.Fatal(head, size, err)
		}
		if done, err := txn.PutIf(m, key(1), nil, []byte("absent")); done || err != nil {
			t.Fatal("an empty value was taken for none: ", err)
		}
		if done, err := txn.PutIf(m, key(1), value, []byte("swapped")); !done || err != nil {
			t.Fatal("what Get returned is not what PutIf compares: ", done, err)
		}
		check(t, txn.Put(m, key(1), nil))
		return txn.Range(m, nil, nil, func(_, value []byte) error {
			if value == nil {
				t.Fatal("nil in a range")
			}
			_, err := txn.PutIf(m, key(2), nil, value)
			return err
		})
	}))
	check(t, records.View(func(txn *kv.Txn) error {
		for scan, i := txn.Scan(m, nil, nil, false), 1; i <= 2; i++ {
			if name, value, err := scan.Next(); string(name) != string(key(i)) || value == nil || err != nil {
				t.Fatal(string(name), value, err)
			}
		}
		return nil
	}))
}

func TestACancelledUpdateCommitsNothing(t *testing.T) {
	records, m := open(t)
	ctx, cancel := context.WithCancel(context.Background())
	calls := 0
	put := func(txn *kv.Txn) error {
		calls++
		cancel()
		return txn.Put(m, key(1), nil)
	}
	for i := 0; i < 2; i++ { // cancelled by the function, and before
		if err := records.Update(ctx, put); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if _, err := records.UpdateWeak(ctx, put); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if info, err := records.Info(); err != nil || info.Records != 0 || info.Transactions != 0 || calls != 1 {
		t.Fatal(info, err, calls)
	}
}

func TestWeakCommitsAreWaitedFor(t *testing.T) {
	store, records, m := openStore(t)
	ticket, err := records.UpdateWeak(context.Background(), func(txn *kv.Txn) error { return txn.Put(m, key(1), nil) })
	check(t, err)
	if records.Durable() >= ticket {
		t.Fatal("durable within an hour's window")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	check(t, store.Wait(ctx, ticket))
	if records.Durable() < ticket {
		t.Fatal("waited for, and not durable")
	}
	check(t, records.Persist())
}

func TestRangesAndBatches(t *testing.T) {
	records, m := open(t)
	const count = 5000
	large := bytes.Repeat([]byte("x"), 100<<10) // more than is copied at once
	check(t, records.Update(context.Background(), func(txn *kv.Txn) error {
		var batch kv.Batch
		for i := 0; i < count; i++ {
			value := key(i)
			if i == 1234 {
				value = large
			}
			batch.Add(key(i), value)
		}
		return txn.PutBatch(m, &batch)
	}))
	check(t, records.View(func(txn *kv.Txn) error {
		for _, bounds := range [][2]int{{0, count}, {17, 4321}, {1234, 1235}, {40, 40}, {count, count + 9}} {
			next := bounds[0]
			check(t, txn.Range(m, key(bounds[0]), key(bounds[1]), func(k, v []byte) error {
				wanted := key(next)
				if next == 1234 {
					wanted = large
				}
				if !bytes.Equal(k, key(next)) || !bytes.Equal(v, wanted) {
					t.Fatalf("%q at %d", k, next)
				}
				next++
				return nil
			}))
			if end := bounds[1]; next != end && bounds[0] < count {
				t.Fatalf("%v ended at %d", bounds, next)
			}
		}
		seen := 0
		check(t, txn.Range(m, nil, nil, func(k, _ []byte) error {
			if seen++; seen == 3 {
				return kv.Stop
			}
			return txn.Range(m, k, nil, func(inner, _ []byte) error { // one within another
				if !bytes.Equal(inner, k) {
					t.Fatalf("%q in %q", inner, k)
				}
				return kv.Stop
			})
		}))
		if seen != 3 {
			t.Fatal(seen)
		}
		return nil
	}))
}

// Scans in both directions, a removed range and heads of values, against a sorted list; also of what is not committed.
func TestScansAndRemovedRanges(t *testing.T) {
	records, m := open(t)
	random := child.Seed(t)
	large := bytes.Repeat([]byte("x"), 100<<10)
	txn, err := records.Begin()
	check(t, err)
	defer func() { txn.Abort() }()
	const count = 3000
	there := map[int]bool{}
	fill := func() {
		for i := 0; i < count; i++ {
			value := key(i)
			if i%1000 == 999 {
				value = large
			}
			check(t, txn.Put(m, key(i), value))
			there[i] = true
		}
	}
	expect := func(from, to int, backward bool) {
		t.Helper()
		var lower, upper []byte
		if from >= 0 {
			lower = key(from)
		}
		if to >= 0 {
			upper = key(to)
		} else {
			to = count
		}
		scan := txn.Scan(m, lower, upper, backward)
		for i := 0; i < to-from; i++ {
			wanted := from + i
			if backward {
				wanted = to - 1 - i
			}
			if !there[wanted] {
				continue
			}
			k, v, err := scan.Next()
			check(t, err)
			if !bytes.Equal(k, key(wanted)) || (len(v) == len(large)) != (wanted%1000 == 999) {
				t.Fatalf("%q of %d bytes instead of %d", k, len(v), wanted)
			}
		}
		for i := 0; i < 2; i++ {
			if k, _, err := scan.Next(); !errors.Is(err, memlith.ErrNotFound) {
				t.Fatalf("%q behind the end: %v", k, err)
			}
		}
	}
	expectSome := func() {
		t.Helper()
		for _, backward := range []bool{false, true} {
			expect(-1, -1, backward)
			for i := 0; i < 20; i++ {
				from := random.Intn(count)
				expect(from, from+random.Intn(count-from), backward)
			}
		}
	}
	fill()
	expectSome()
	check(t, txn.Commit())
	txn, err = records.Begin()
	check(t, err)
	for i := 0; i < 20; i++ {
		from := random.Intn(count)
		to := from + random.Intn(100)
		wanted := uint64(0)
		for j := from; j < to && j < count; j++ {
			if there[j] {
				wanted++
			}
			delete(there, j)
		}
		if removed, err := txn.RemoveRange(m, key(from), key(to)); err != nil || removed != wanted {
			t.Fatal(removed, wanted, err)
		}
	}
	expectSome()
	if removed, err := txn.RemoveRange(m, nil, nil); err != nil || removed != uint64(len(there)) {
		t.Fatal(removed, err)
	}
	there = map[int]bool{}
	expectSome()
	fill()
	if head, size, err := txn.Head(m, key(999), 3); err != nil || string(head) != "xxx" || size != uint64(len(large)) {
		t.Fatal(string(head), size, err)
	}
	if head, size, err := txn.Head(m, key(1), 300); err != nil || !bytes.Equal(head, key(1)) || size != 10 {
		t.Fatal(string(head), size, err)
	}
	if _, _, err := txn.Head(m, []byte("none"), 3); !errors.Is(err, memlith.ErrNotFound) {
		t.Fatal(err)
	}
}

func TestPutIf(t *testing.T) {
	records, m := open(t)
	txn, err := records.Begin()
	check(t, err)
	defer txn.Abort()
	for _, step := range []struct {
		expected, value []byte
		done            bool
		left            []byte
	}{
		{[]byte{}, []byte("never"), false, nil},
		{nil, []byte{}, true, []byte{}},
		{nil, []byte("never"), false, []byte{}},
		{[]byte{}, []byte("1"), true, []byte("1")},
		{[]byte("2"), nil, false, []byte("1")},
		{[]byte("1"), nil, true, nil},
	} {
		done, err := txn.PutIf(m, []byte("k"), step.expected, step.value)
		if err != nil || done != step.done {
			t.Fatal(step, done, err)
		}
		left, err := txn.Get(m, []byte("k"))
		if step.left == nil && !errors.Is(err, memlith.ErrNotFound) || !bytes.Equal(left, step.left) {
			t.Fatal(step, left, err)
		}
	}
	if done, err := txn.PutIf(m, []byte("read"), []byte("x"), nil); done || err != nil {
		t.Fatal(done, err)
	}
	other, err := records.Begin()
	check(t, err)
	defer other.Abort()
	if err := other.Put(m, []byte("read"), nil); !errors.Is(err, memlith.ErrConflict) {
		t.Fatal(err)
	}
}

func TestBounds(t *testing.T) {
	records, m := open(t)
	check(t, records.Update(context.Background(), func(txn *kv.Txn) error {
		for _, name := range []string{"a", "b", "b\x00", "b\xff", "c"} {
			if err := txn.Put(m, []byte(name), nil); err != nil {
				return err
			}
		}
		return nil
	}))
	txn, err := records.Begin()
	check(t, err)
	defer txn.Abort()
	cursor, err := txn.Cursor(m)
	check(t, err)
	defer cursor.Close()
	expect := func(wanted ...string) {
		t.Helper()
		step := cursor.Next
		for _, back := range []bool{false, true} {
			var got []string
			for key, _, err := step(); !errors.Is(err, memlith.ErrNotFound); key, _, err = step() {
				check(t, err)
				if back {
					got = append([]string{string(key)}, got...)
				} else {
					got = append(got, string(key))
				}
			}
			if !reflect.DeepEqual(got, wanted) {
				t.Fatal(got, wanted)
			}
			step = cursor.Prev
		}
	}
	check(t, cursor.SetPrefix([]byte("b")))
	expect("b", "b\x00", "b\xff")
	check(t, cursor.SetBounds([]byte("b\x00"), []byte("c")))
	expect("b\x00", "b\xff")
	if n, size, err := txn.Estimate(m, []byte("b"), []byte("c")); n != 3 || size != 5 || err != nil {
		t.Fatal(n, size, err)
	}
	other, err := records.Begin()
	check(t, err)
	defer other.Abort()
	check(t, other.Put(m, []byte("a0"), nil)) // outside of the bounds
	if err := other.Put(m, []byte("bx"), nil); !errors.Is(err, memlith.ErrConflict) {
		t.Fatal(err)
	}
	check(t, cursor.SetBounds(nil, nil))
	expect("a", "b", "b\x00", "b\xff", "c")
	if n, _, err := txn.Estimate(m, nil, nil); n != 5 || err != nil {
		t.Fatal(n, err)
	}
}

func TestAppend(t *testing.T) {
	records, m := open(t)
	const many = 50_000 // more than one call into the library
	i := 0
	count, err := records.Append(m, func() ([]byte, []byte, bool) {
		i++
		return key(i), bytes.Repeat([]byte{byte(i)}, i%200), i <= many
	})
	if count != many || err != nil {
		t.Fatal(count, err)
	}
	var batch kv.Batch
	batch.Add([]byte("x"), nil)
	batch.Add([]byte("a"), nil)
	if count, err := records.AppendBatch(m, &batch); count != 0 || !errors.Is(err, memlith.ErrInvalid) {
		t.Fatal(count, err)
	}
	batch.Reset()
	if count, err := records.AppendBatch(m, &batch); count != 0 || err != nil {
		t.Fatal(count, err)
	}
	batch.Add([]byte("x"), []byte("y"))
	txn, err := records.Begin()
	check(t, err)
	check(t, txn.Put(m, key(1), nil))
	if count, err := records.AppendBatch(m, &batch); count != 0 || !errors.Is(err, memlith.ErrConflict) {
		t.Fatal(count, err)
	}
	txn.Abort()
	if count, err := records.AppendBatch(m, &batch); count != 1 || err != nil {
		t.Fatal(count, err)
	}
	check(t, records.Verify())
	check(t, records.View(func(txn *kv.Txn) error {
		seen := 0
		return txn.Range(m, key(0), key(many+1), func(k, v []byte) error {
			seen++
			if !bytes.Equal(k, key(seen)) || len(v) != seen%200 {
				t.Fatal(seen, k, v)
			}
			return nil
		})
	}))
}

func TestCursors(t *testing.T) {
	records, m := open(t)
	txn, err := records.Begin()
	check(t, err)
	defer txn.Abort()
	for i := 0; i < 10; i += 2 {
		check(t, txn.Put(m, key(i), []byte{byte(i)}))
	}
	cursor, err := txn.Cursor(m)
	check(t, err)
	defer cursor.Close()
	expect := func(wanted int) func(k, v []byte, err error) {
		return func(k, v []byte, err error) {
			t.Helper()
			if wanted < 0 {
				if !errors.Is(err, memlith.ErrNotFound) {
					t.Fatal(err)
				}
			} else if err != nil || !bytes.Equal(k, key(wanted)) || v[0] != byte(wanted) {
				t.Fatalf("%q %v %v instead of %d", k, v, err, wanted)
			}
		}
	}
	expect(0)(cursor.Next())
	expect(2)(cursor.Next())
	expect(0)(cursor.Prev())
	expect(-1)(cursor.Prev())
	expect(4)(cursor.Seek(key(3)))
	check(t, cursor.Remove())
	expect(6)(cursor.Next())
	expect(2)(cursor.Prev())
	expect(8)(cursor.Last())
	expect(-1)(cursor.Next())
	expect(0)(cursor.First())
	expect(-1)(cursor.Seek(key(9)))
}

// Increments by many goroutines: conflicts are tried again, and none is lost. For the race detector, too.
func TestGoroutines(t *testing.T) {
	records, m := open(t)
	const workers, times = 8, 60
	var all sync.WaitGroup
	for worker := 0; worker < workers; worker++ {
		worker := worker
		all.Add(1)
		go func() {
			defer all.Done()
			for i := 0; i < times; i++ {
				_, err := records.UpdateWeak(context.Background(), func(txn *kv.Txn) error {
					value, err := txn.Get(m, key(0))
					if errors.Is(err, memlith.ErrNotFound) {
						value = []byte{0, 0}
					} else if err != nil {
						return err
					}
					if value[1]++; value[1] == 0 {
						value[0]++
					}
					if err := txn.Put(m, key(1+worker), value); err != nil {
						return err
					}
					return txn.Put(m, key(0), value)
				})
				if err != nil {
					t.Error(err)
					return
				}
				err = records.View(func(txn *kv.Txn) error {
					_, err := txn.Get(m, key(1+worker))
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	all.Wait()
	check(t, records.View(func(txn *kv.Txn) error {
		value, err := txn.Get(m, key(0))
		check(t, err)
		if int(value[0])<<8|int(value[1]) != workers*times {
			t.Fatal(value)
		}
		return nil
	}))
}

// docs/guarantees.md, "Kv transaction": what a View saw is durable when it returns, also where it saw that there is
// nothing; ViewWeak does not wait.
func TestAViewIsDurable(t *testing.T) {
	records, m := open(t)
	change := func(change func(*kv.Txn) error) uint64 {
		ticket, err := records.UpdateWeak(context.Background(), change)
		check(t, err)
		return ticket
	}
	look := func(txn *kv.Txn) error {
		_, err := txn.Get(m, key(1))
		return err
	}
	put := change(func(txn *kv.Txn) error { return txn.Put(m, key(1), nil) })
	check(t, records.ViewWeak(look))
	if records.Durable() >= put {
		t.Fatal("a weak commit is durable, and nothing has asked for it")
	}
	check(t, records.View(look))
	if records.Durable() < put {
		t.Fatal("a View has returned what is not durable")
	}
	removed := change(func(txn *kv.Txn) error { return txn.Remove(m, key(1)) })
	if err := records.View(look); !errors.Is(err, memlith.ErrNotFound) || records.Durable() < removed {
		t.Fatal(err, records.Durable(), removed)
	}
	txn, err := records.BeginRead()
	check(t, err)
	put = change(func(txn *kv.Txn) error { return txn.Put(m, key(1), nil) })
	if err := look(txn); !errors.Is(err, memlith.ErrNotFound) {
		t.Fatal(err)
	}
	check(t, txn.Commit())
	if records.Durable() >= put {
		t.Fatal("a transaction that reads has waited for a commit that it did not see")
	}
	check(t, records.View(func(txn *kv.Txn) error { txn.Abort(); return nil }))
}

func TestAnUpdateEndsWithItsContext(t *testing.T) {
	records, m := open(t)
	holder, err := records.Begin()
	check(t, err)
	defer holder.Abort()
	check(t, holder.Put(m, key(1), nil))
	ctx, cancel := context.WithCancel(context.Background())
	tried := 0
	err = records.Update(ctx, func(txn *kv.Txn) error {
		if tried++; tried == 3 {
			cancel()
		}
		return txn.Put(m, key(1), nil)
	})
	if !errors.Is(err, context.Canceled) || tried < 3 {
		t.Fatal(err, tried)
	}
}

// ---- the price of a call from Go -----------------------------------------------------------------------------------

func BenchmarkGet(b *testing.B) {
	records, m := open(b)
	check(b, records.Update(context.Background(), func(txn *kv.Txn) error { return txn.Put(m, key(1), key(1)) }))
	check(b, records.View(func(txn *kv.Txn) error {
		var buffer []byte
		var err error
		b.ReportAllocs()
		b.ResetTimer()
		for i := 0; i < b.N; i++ {
			if buffer, err = txn.AppendGet(m, key(1), buffer[:0]); err != nil {
				return err
			}
		}
		return nil
	}))
}

// A call that does nothing: the crossing, and the lock of the kv store.
func BenchmarkCrossing(b *testing.B) {
	records, _ := open(b)
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		records.Durable()
	}
}

func benchmarkPuts(b *testing.B, put func(txn *kv.Txn, m kv.Map, first, count int) error) {
	records, m := open(b)
	const each = 1000
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += each {
		count := b.N - i
		if count > each {
			count = each
		}
		if _, err := records.UpdateWeak(context.Background(), func(txn *kv.Txn) error {
			return put(txn, m, i, count)
		}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPut(b *testing.B) {
	benchmarkPuts(b, func(txn *kv.Txn, m kv.Map, first, count int) error {
		for i := first; i < first+count; i++ {
			if err := txn.Put(m, key(i), key(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

func BenchmarkPutBatch(b *testing.B) {
	var batch kv.Batch
	benchmarkPuts(b, func(txn *kv.Txn, m kv.Map, first, count int) error {
		batch.Reset()
		for i := first; i < first+count; i++ {
			batch.Add(key(i), key(i))
		}
		return txn.PutBatch(m, &batch)
	})
}
