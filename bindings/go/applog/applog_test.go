package applog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"memlith.org/memlith"
	"memlith.org/memlith/applog"
	"memlith.org/memlith/internal/child"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, path string, whenFull applog.WhenFull) (*applog.Log, func()) {
	t.Helper()
	store, err := memlith.Open(path, memlith.Options{Create: true})
	check(t, err)
	log, err := applog.Open(store, "log", applog.Options{Create: true, WhenFull: whenFull, Size: 16 << 10})
	check(t, err)
	return log, func() {
		check(t, log.Close())
		check(t, store.Close())
	}
}

func TestEntries(t *testing.T) {
	log, closeAll := open(t, filepath.Join(child.Folder(t), "store"), applog.Fail)
	defer closeAll()
	if number, err := log.Append([]byte("one"), []byte("two")); err != nil || number != 2 {
		t.Fatal(number, err)
	}
	if _, err := log.TryRead(); !errors.Is(err, memlith.ErrNotFound) {
		t.Fatal("an entry that is not durable: ", err)
	}
	check(t, log.Write())
	if log.Durable() != 2 {
		t.Fatal(log.Durable())
	}
	for number, wanted := range []string{"one", "two"} {
		entry, err := log.TryRead()
		check(t, err)
		if entry.Number != uint64(number)+1 || string(entry.Content) != wanted {
			t.Fatal(entry)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := log.Read(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	check(t, log.Consume(1))
	check(t, log.Rewind())
	if entry, err := log.TryRead(); err != nil || entry.Number != 2 {
		t.Fatal(entry, err)
	}
	if _, err := log.Append(make([]byte, 20<<10)); !errors.Is(err, memlith.ErrFull) {
		t.Fatal(err)
	}
	if _, err := log.Append(); !errors.Is(err, memlith.ErrInvalid) {
		t.Fatal(err)
	}
}

func TestByNumber(t *testing.T) {
	path := filepath.Join(child.Folder(t), "store")
	log, closeAll := open(t, path, applog.Grow)
	large := bytes.Repeat([]byte("x"), 5000)
	var many [][]byte
	for i := 1; i <= 200; i++ {
		many = append(many, []byte(fmt.Sprint("entry ", i)))
	}
	many[99] = large
	if number, err := log.AppendWrite(many...); err != nil || number != 200 {
		t.Fatal(number, err)
	}
	for _, number := range []uint64{200, 100, 1, 57} {
		content, err := log.Get(number)
		check(t, err)
		if !bytes.Equal(content, many[number-1]) {
			t.Fatalf("entry %d: %q", number, content)
		}
	}
	check(t, log.TruncateAfter(150))
	check(t, log.TruncateBefore(50))
	for _, number := range []uint64{0, 49, 151} {
		if _, err := log.Get(number); !errors.Is(err, memlith.ErrNotFound) {
			t.Fatal(number, err)
		}
	}
	if number, err := log.AppendWrite([]byte("another")); err != nil || number != 151 {
		t.Fatal(number, err)
	}
	closeAll()
	log, closeAll = open(t, path, applog.Grow)
	if content, err := log.Get(151); err != nil || string(content) != "another" {
		t.Fatal(string(content), err)
	}
	check(t, log.Restart(1000))
	if number, err := log.AppendWrite([]byte("a thousand")); err != nil || number != 1000 {
		t.Fatal(number, err)
	}
	closeAll()
	log, closeAll = open(t, path, applog.Grow)
	defer closeAll()
	info, err := log.Info()
	check(t, err)
	if info.Consumed != 999 || info.Newest != 1000 {
		t.Fatalf("%+v", info)
	}
}

// Writers beside a reader that consumes; a full log blocks them. For the race detector, too.
func TestGoroutines(t *testing.T) {
	log, closeAll := open(t, filepath.Join(child.Folder(t), "store"), applog.Block)
	defer closeAll()
	const writers, each = 4, 150
	var all sync.WaitGroup
	for writer := 0; writer < writers; writer++ {
		writer := writer
		all.Add(1)
		go func() {
			defer all.Done()
			for i := 0; i < each; i++ {
				_, err := log.Append(bytes.Repeat([]byte{byte(writer)}, 100))
				if err == nil {
					err = log.Write()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	var seen [writers]int
	for number := uint64(1); number <= writers*each; number++ {
		entry, err := log.Read(context.Background())
		check(t, err)
		if entry.Number != number || len(entry.Content) != 100 {
			t.Fatal(entry.Number, len(entry.Content))
		}
		seen[entry.Content[0]]++
		if number%10 == 0 {
			check(t, log.Consume(number))
		}
	}
	all.Wait()
	for _, count := range seen {
		if count != each {
			t.Fatal(seen)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, batch := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			log, closeAll := open(b, filepath.Join(child.Folder(b), "store"), applog.Grow)
			defer closeAll()
			entries := make([][]byte, batch)
			for i := range entries {
				entries[i] = make([]byte, 256)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i++ {
				number, err := log.Append(entries...)
				check(b, err)
				if number > 1000 {
					check(b, log.TruncateBefore(number-500))
				}
			}
		})
	}
}

// Two handles, as of two processes: each reads what both append.
func TestALogOfSeveralProcesses(t *testing.T) {
	program := os.Getenv("MEMLITH_COMMAND")
	if program == "" {
		t.Skip("MEMLITH_COMMAND does not name the command memlith, which is the keeper")
	}
	folder := filepath.Join(child.Folder(t), "store")
	var logs [2]*applog.Log
	for i := range logs {
		log, err := applog.OpenShared(folder, "log", applog.Options{Create: true, Size: 16 << 10, Program: program})
		check(t, err)
		defer func() { check(t, log.Close()) }()
		logs[i] = log
	}
	exclusive := applog.Options{Create: true, Exclusive: true, Program: program}
	if _, err := applog.OpenShared(folder, "log", exclusive); !errors.Is(err, memlith.ErrExists) {
		t.Fatal(err)
	}
	const each = 100 // more than there is room for: appends wait for the reader
	content := bytes.Repeat([]byte("x"), 200)
	var both sync.WaitGroup
	for _, log := range logs {
		both.Add(1)
		go func(log *applog.Log) {
			defer both.Done()
			for n := 0; n < each; n++ {
				_, err := log.AppendWrite(content)
				if n%10 == 0 && err == nil {
					var ticket uint64
					if ticket, err = log.WriteWeak(); err == nil {
						err = log.Wait(ticket)
					}
				}
				if err != nil {
					t.Error(err)
				}
			}
		}(log)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for number := uint64(1); number <= 2*each; number++ {
		entry, err := logs[0].Read(ctx)
		check(t, err)
		if entry.Number != number || !bytes.Equal(entry.Content, content) {
			t.Fatal(entry.Number)
		}
		if number%5 == 0 {
			check(t, logs[0].Consume(number))
		}
	}
	both.Wait()
	if _, err := logs[1].TryRead(); !errors.Is(err, memlith.ErrNotFound) {
		t.Fatal("an entry that was consumed: ", err)
	}
	if info, err := logs[1].Info(); err != nil || info.Newest != 2*each || info.Consumed != 2*each {
		t.Fatal(info, err)
	}
}
