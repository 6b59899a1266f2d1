package bbolt_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

const (
	childVariable = "MEMLITH_BBOLT_CHILD"
	viewVariable  = "MEMLITH_BBOLT_VIEW"
	watchVariable = "MEMLITH_BBOLT_WATCH" // tests/go/bbolt_power_test.py sets this one, and the next
	tellVariable  = "MEMLITH_BBOLT_TELL"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childVariable); path != "" {
		commitForEver(path)
	}
	if path := os.Getenv(viewVariable); path != "" {
		viewAndDie(path)
	}
	if path := os.Getenv(watchVariable); path != "" {
		watchForEver(path)
	}
	if path := os.Getenv(tellVariable); path != "" {
		tell(path)
	}
	os.Exit(m.Run())
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expect(t testing.TB, err, wanted error) {
	t.Helper()
	if !errors.Is(err, wanted) {
		t.Fatalf("%v instead of %v", err, wanted)
	}
}

func open(t testing.TB, path string) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Minute})
	check(t, err)
	t.Cleanup(func() { check(t, db.Close()) })
	return db
}

// ---- against maps --------------------------------------------------------------------------------------------------

type model struct {
	values   map[string]string
	buckets  map[string]*model
	sequence uint64
}

func newModel() *model { return &model{values: map[string]string{}, buckets: map[string]*model{}} }

func (m *model) copied() *model {
	other := newModel()
	other.sequence = m.sequence
	for key, value := range m.values {
		other.values[key] = value
	}
	for key, each := range m.buckets {
		other.buckets[key] = each.copied()
	}
	return other
}

func (m *model) keys() []string {
	var all []string
	for key := range m.values {
		all = append(all, key)
	}
	for key := range m.buckets {
		all = append(all, key)
	}
	sort.Strings(all)
	return all
}

func compare(t *testing.T, b *bolt.Bucket, m *model) {
	t.Helper()
	keys := m.keys()
	c := b.Cursor()
	at := 0
	expectAt := func(key, value []byte) {
		t.Helper()
		if at < 0 || at >= len(keys) {
			if key != nil {
				t.Fatalf("%q beyond the end", key)
			}
			return
		}
		wanted, plain := m.values[keys[at]]
		if string(key) != keys[at] || string(value) != wanted || (value != nil) != plain {
			t.Fatalf("%q %q instead of %q %q", key, value, keys[at], wanted)
		}
	}
	for key, value := c.First(); at <= len(keys); key, value = c.Next() {
		expectAt(key, value)
		at++
	}
	at = len(keys) - 1
	for key, value := c.Last(); at >= -1; key, value = c.Prev() {
		expectAt(key, value)
		at--
	}
	if len(keys) > 0 {
		at = rand.Intn(len(keys))
		expectAt(c.Seek([]byte(keys[at])))
		at++
		expectAt(c.Seek(append([]byte(keys[at-1]), 0)))
	}
	if b.Sequence() != m.sequence {
		t.Fatalf("sequence %d instead of %d", b.Sequence(), m.sequence)
	}
	for key, each := range m.buckets {
		compare(t, b.Bucket([]byte(key)), each)
	}
}

func step(t *testing.T, random *rand.Rand, b *bolt.Bucket, m *model, depth int) {
	key := []byte{byte(random.Intn(256)), byte(random.Intn(3) * 127), 0xff}[:1+random.Intn(3)]
	_, isValue := m.values[string(key)]
	inner, isBucket := m.buckets[string(key)]
	switch choice := random.Intn(20); {
	case isBucket && depth < 4 && choice < 15:
		step(t, random, b.Bucket(key), inner, depth+1)
	case choice < 9:
		value := bytes.Repeat([]byte{byte(choice)}, random.Intn(3)*random.Intn(3000))
		if err := b.Put(key, value); isBucket {
			expect(t, err, bolt.ErrIncompatibleValue)
		} else {
			check(t, err)
			m.values[string(key)] = string(value)
		}
	case choice < 12:
		if err := b.Delete(key); isBucket {
			expect(t, err, bolt.ErrIncompatibleValue)
		} else {
			check(t, err)
			delete(m.values, string(key))
		}
	case choice < 15:
		made, err := b.CreateBucket(key)
		switch {
		case isBucket:
			expect(t, err, bolt.ErrBucketExists)
		case isValue:
			expect(t, err, bolt.ErrIncompatibleValue)
		default:
			check(t, err)
			m.buckets[string(key)] = newModel()
			step(t, random, made, m.buckets[string(key)], depth+1)
		}
	case choice < 16:
		err := b.DeleteBucket(key)
		switch {
		case isBucket:
			check(t, err)
			delete(m.buckets, string(key))
		case isValue:
			expect(t, err, bolt.ErrIncompatibleValue)
		default:
			expect(t, err, bolt.ErrBucketNotFound)
		}
	case choice < 17:
		var err error
		m.sequence++
		if number, failed := b.NextSequence(); failed != nil || number != m.sequence {
			err = fmt.Errorf("%d %v", number, failed)
		}
		check(t, err)
	default: // a cursor that removes some of what it meets
		c := b.Cursor()
		keys := m.keys()
		at := sort.SearchStrings(keys, string(key))
		for k, v := c.Seek(key); k != nil && at < len(keys); k, v = c.Next() {
			if string(k) != keys[at] {
				t.Fatalf("%q instead of %q", k, keys[at])
			}
			if v != nil && random.Intn(4) == 0 {
				check(t, c.Delete())
				delete(m.values, keys[at])
			}
			at++
		}
		if at < len(keys) {
			t.Fatalf("%q was not met", keys[at])
		}
	}
}

func TestAgainstMaps(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Log("seed", seed)
	random := rand.New(rand.NewSource(seed))
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
	check(t, err)
	var name = []byte("top")
	committed := newModel()
	check(t, db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket(name)
		return err
	}))
	for round := 0; round < 60; round++ {
		reader, err := db.Begin(false)
		check(t, err)
		changed := committed.copied()
		tx, err := db.Begin(true)
		check(t, err)
		for i := 0; i < 60; i++ {
			step(t, random, tx.Bucket(name), changed, 0)
		}
		compare(t, tx.Bucket(name), changed)
		compare(t, reader.Bucket(name), committed) // the state of its beginning
		if random.Intn(4) == 0 {
			check(t, tx.Rollback())
		} else {
			check(t, tx.Commit())
			compare(t, reader.Bucket(name), committed)
			committed = changed
		}
		check(t, reader.Rollback())
		if random.Intn(10) == 0 {
			check(t, db.Close())
			db, err = bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
			check(t, err)
		}
		check(t, db.View(func(tx *bolt.Tx) error {
			compare(t, tx.Bucket(name), committed)
			return <-tx.Check()
		}))
	}
	for _, most := range []int64{0, 1000} {
		compacted := open(t, filepath.Join(t.TempDir(), "compacted"))
		compacted.NoSync = true
		check(t, bolt.Compact(compacted, db, most))
		check(t, compacted.View(func(tx *bolt.Tx) error {
			compare(t, tx.Bucket(name), committed)
			return <-tx.Check()
		}))
	}
	check(t, db.Close())
}

// ---- rules ---------------------------------------------------------------------------------------------------------

func panics(t *testing.T, call func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	call()
}

func TestMaxSizeAndNoStatistics(t *testing.T) {
	const limit = 1 << 20
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{MaxSize: limit, NoStatistics: true})
	check(t, err)
	defer db.Close()
	put := func(key byte, bytes int) error {
		return db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			check(t, err)
			return b.Put([]byte{key}, make([]byte, bytes))
		})
	}
	check(t, put(1, limit/2))
	expect(t, put(2, limit), bolt.ErrMaxSizeReached)
	check(t, db.View(func(tx *bolt.Tx) error { // nothing of it
		if b := tx.Bucket([]byte("b")); b.Get([]byte{2}) != nil || len(b.Get([]byte{1})) != limit/2 {
			t.Fatal("a refused commit changed something")
		}
		return nil
	}))
	key := byte(3)
	for err = nil; err == nil && key < 255; key++ {
		err = put(key, limit/64)
	}
	expect(t, err, bolt.ErrMaxSizeReached)
	if added := int(key) - 4; added > 32 || added < 16 { // each an entry of limit/64 beside half of the limit
		t.Fatalf("%d more entries found room", added)
	}
	check(t, db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte("b")).Delete([]byte{1}) })) // removals pass
	check(t, put(4, limit/64))
	if stats := db.Stats(); stats != (bolt.Stats{}) {
		t.Fatalf("%+v", stats)
	}
}

func TestRulesOfTransactions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db := open(t, path)
	_, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: 50 * time.Millisecond})
	expect(t, err, bolt.ErrTimeout)
	check(t, db.Update(func(tx *bolt.Tx) error {
		panics(t, func() { _ = tx.Commit() })
		panics(t, func() { _ = tx.Rollback() })
		a, err := tx.CreateBucket([]byte("a"))
		check(t, err)
		expect(t, a.Put(nil, nil), bolt.ErrKeyRequired)
		expect(t, a.Put(make([]byte, bolt.MaxKeySize+1), nil), bolt.ErrKeyTooLarge)
		check(t, a.Put(make([]byte, bolt.MaxKeySize), nil))
		if value := a.Get(make([]byte, bolt.MaxKeySize)); value == nil || len(value) != 0 {
			t.Fatal("an empty value is none")
		}
		expect(t, a.Put([]byte("large"), make([]byte, bolt.MaxValueSize+1)), bolt.ErrValueTooLarge)
		b, err := a.CreateBucket([]byte("b"))
		check(t, err)
		check(t, b.Put([]byte("k"), []byte("v")))
		expect(t, a.MoveBucket([]byte("b"), b), bolt.ErrIncompatibleValue)
		c, err := tx.CreateBucket([]byte("c"))
		check(t, err)
		check(t, a.MoveBucket([]byte("b"), c))
		check(t, tx.MoveBucket([]byte("b"), c, nil))
		check(t, tx.MoveBucket([]byte("b"), nil, c))
		if value := c.Bucket([]byte("b")).Get([]byte("k")); string(value) != "v" {
			t.Fatalf("%q", value)
		}
		return <-tx.Check()
	}))
	own := errors.New("own")
	expect(t, db.Update(func(tx *bolt.Tx) error {
		check(t, tx.DeleteBucket([]byte("a")))
		return own
	}), own)
	panics(t, func() {
		_ = db.Update(func(tx *bolt.Tx) error {
			check(t, tx.DeleteBucket([]byte("a")))
			panic("own")
		})
	})
	check(t, db.View(func(tx *bolt.Tx) error {
		a := tx.Bucket([]byte("a"))
		if a == nil {
			t.Fatal("removed by a transaction without effect")
		}
		expect(t, a.Put([]byte("k"), nil), bolt.ErrTxNotWritable)
		expect(t, tx.DeleteBucket([]byte("a")), bolt.ErrTxNotWritable)
		panics(t, func() { _ = tx.Rollback() })
		return nil
	}))
	tx, err := db.Begin(true)
	check(t, err)
	check(t, tx.Commit())
	expect(t, tx.Commit(), bolt.ErrTxClosed)
	expect(t, tx.Rollback(), bolt.ErrTxClosed)
	check(t, db.Close())
	_, err = db.Begin(false)
	expect(t, err, bolt.ErrDatabaseNotOpen)
	_, err = db.Begin(true)
	expect(t, err, bolt.ErrDatabaseNotOpen)
	readOnly, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	check(t, err)
	_, err = readOnly.Begin(true)
	expect(t, err, bolt.ErrDatabaseReadOnly)
	check(t, readOnly.View(func(tx *bolt.Tx) error { return <-tx.Check() }))
	check(t, readOnly.Close())
	other := filepath.Join(t.TempDir(), "other")
	check(t, os.WriteFile(other, []byte("this is no database, but a text"), 0o600))
	_, err = bolt.Open(other, 0o600, nil)
	expect(t, err, bolt.ErrInvalid)
	check(t, os.WriteFile(other, append(make([]byte, 16), "\xed\xda\x0c\xed0123456789"...), 0o600))
	_, err = bolt.Open(other, 0o600, nil)
	expect(t, err, bolt.ErrInvalid)
	if !strings.Contains(err.Error(), "bboltconvert") {
		t.Errorf("a file of bbolt: %v", err)
	}
}

// Readers in many goroutines, one transaction read by several, and batches of which some fail.
func TestBesideEachOther(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "db"))
	db.NoSync = true
	name := []byte("sum")
	check(t, db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket(name)
		return err
	}))
	const writers, puts = 8, 25
	own := errors.New("own")
	var writing, reading sync.WaitGroup
	done := make(chan struct{})
	for i := 0; i < writers; i++ {
		writing.Add(1)
		go func(i int) {
			defer writing.Done()
			for j := 0; j < puts; j++ {
				wanted := error(nil)
				if j%10 == 9 {
					wanted = own
				}
				err := db.Batch(func(tx *bolt.Tx) error {
					b := tx.Bucket(name)
					if _, err := b.NextSequence(); err != nil {
						return err
					}
					return errors.Join(b.Put([]byte{byte(i), byte(j)}, nil), wanted)
				})
				if !errors.Is(err, wanted) {
					t.Error(err)
				}
			}
		}(i)
	}
	for i := 0; i < 3; i++ {
		reading.Add(1)
		go func() {
			defer reading.Done()
			for {
				select {
				case <-done:
					return
				default:
				}
				err := db.View(func(tx *bolt.Tx) error {
					var parts sync.WaitGroup
					for p := 0; p < 2; p++ {
						parts.Add(1)
						go func() {
							defer parts.Done()
							b := tx.Bucket(name)
							if stats := b.Stats(); uint64(stats.KeyN) != b.Sequence() {
								t.Errorf("%d keys, %d put", stats.KeyN, b.Sequence())
							}
						}()
					}
					parts.Wait()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	writing.Wait()
	close(done)
	reading.Wait()
	check(t, db.View(func(tx *bolt.Tx) error {
		if keys := tx.Bucket(name).Stats().KeyN; keys != writers*(puts-puts/10) {
			t.Fatal(keys)
		}
		return nil
	}))
	if stats := db.Stats(); stats.OpenTxN != 0 || stats.TxN == 0 || stats.TxStats.Write == 0 {
		t.Fatalf("%+v", stats)
	}
}

// ---- kills ---------------------------------------------------------------------------------------------------------

const perCommit = 5

// Each commit makes a bucket with some records, removes an older bucket, and is told of when it is durable.
func commitForEver(path string) {
	db, err := bolt.Open(path, 0o600, nil)
	for err == nil {
		var number uint64
		err = db.Update(func(tx *bolt.Tx) error {
			all, err := tx.CreateBucketIfNotExists([]byte("all"))
			if err != nil {
				return err
			}
			if number, err = all.NextSequence(); err != nil {
				return err
			}
			name := binary.BigEndian.AppendUint64(nil, number)
			b, err := all.CreateBucket(name)
			for i := 0; i < perCommit && err == nil; i++ {
				err = b.Put([]byte{byte(i)}, name)
			}
			if err == nil && number > 3 {
				err = all.DeleteBucket(binary.BigEndian.AppendUint64(nil, number-3))
			}
			return err
		})
		if err == nil {
			fmt.Println(number)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// runAndKill has a process commit to the database, kills it when it has told of so many commits, and returns the number
// of the last of which it told.
func runAndKill(t *testing.T, path string, commits int) (last uint64) {
	t.Helper()
	program, err := os.Executable()
	check(t, err)
	command := exec.Command(program)
	command.Env, command.Stderr = append(os.Environ(), childVariable+"="+path), os.Stderr
	output, err := command.StdoutPipe()
	check(t, err)
	check(t, command.Start())
	for scanner := bufio.NewScanner(output); scanner.Scan(); commits-- {
		if _, err := fmt.Sscan(scanner.Text(), &last); err != nil {
			break // cut by the kill
		}
		if commits == 1 {
			time.AfterFunc(time.Duration(rand.Intn(5000))*time.Microsecond, func() { _ = command.Process.Kill() })
		}
	}
	if err := command.Wait(); err == nil || command.ProcessState.ExitCode() != -1 {
		t.Fatal("the writer ended by itself: ", err)
	}
	return last
}

func TestKills(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	for round := 0; round < 8; round++ {
		last := runAndKill(t, path, 1+rand.Intn(30))
		db, err := bolt.Open(path, 0o600, nil)
		check(t, err)
		check(t, db.View(func(tx *bolt.Tx) error {
			all := tx.Bucket([]byte("all"))
			if all.Sequence() < last || all.Sequence() > last+1 {
				t.Fatalf("%d is there, %d was acknowledged", all.Sequence(), last)
			}
			wanted := all.Sequence()
			if wanted > 3 {
				wanted = 3
			}
			if stats := all.Stats(); stats.KeyN != int(wanted)*(1+perCommit) {
				t.Fatalf("%+v at %d", stats, all.Sequence())
			}
			return <-tx.Check()
		}))
		check(t, db.Close())
	}
}

// viewAndDie commits without a wait, tells what a View saw, and ends as by a kill when View has returned.
func viewAndDie(path string) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
	if err == nil {
		err = db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("seen"))
			if err == nil {
				_, err = b.NextSequence()
			}
			return err
		})
	}
	if err == nil {
		db.NoSync = false
		err = db.View(func(tx *bolt.Tx) error {
			fmt.Println(tx.Bucket([]byte("seen")).Sequence())
			return nil
		})
	}
	if err == nil {
		err = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// ---- power cuts: tests/go/bbolt_power_test.py ----------------------------------------------------------------------

func countUp(tx *bolt.Tx) error {
	b, err := tx.CreateBucketIfNotExists([]byte("seen"))
	if err == nil {
		_, err = b.NextSequence()
	}
	return err
}

// watchForEver commits, and tells what Views beside the commits saw, each when it has returned.
func watchForEver(path string) {
	db, err := bolt.Open(path, 0o600, nil)
	if err == nil {
		err = db.Update(countUp)
	}
	failed := make(chan error)
	for i := 0; i < 3 && err == nil; i++ {
		go func() {
			var last uint64
			for {
				var seen uint64
				err := db.View(func(tx *bolt.Tx) error {
					seen = tx.Bucket([]byte("seen")).Sequence()
					return nil
				})
				if err != nil {
					failed <- err
				}
				if seen > last {
					fmt.Println(seen)
				}
				last = seen
			}
		}()
	}
	go func() {
		for {
			if err := db.Update(countUp); err != nil {
				failed <- err
			}
		}
	}()
	if err == nil {
		err = <-failed
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// tell says what is there.
func tell(path string) {
	db, err := bolt.Open(path, 0o600, nil)
	if err == nil {
		err = db.View(func(tx *bolt.Tx) error {
			if b := tx.Bucket([]byte("seen")); b != nil {
				fmt.Println(b.Sequence())
			} else {
				fmt.Println(0)
			}
			return <-tx.Check()
		})
	}
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// docs/guarantees.md, "bbolt": what a View saw is there after a kill, also a commit that had not been waited for.
func TestAViewIsDurable(t *testing.T) {
	program, err := os.Executable()
	check(t, err)
	path := filepath.Join(t.TempDir(), "db")
	for round := uint64(1); round <= 30; round++ {
		command := exec.Command(program)
		command.Env, command.Stderr = append(os.Environ(), viewVariable+"="+path), os.Stderr
		output, _ := command.Output()
		if told := string(bytes.TrimSpace(output)); told != fmt.Sprint(round) {
			t.Fatalf("round %d: the View saw %q", round, told)
		}
	}
}
