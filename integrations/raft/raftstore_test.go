package raftstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftbench "github.com/hashicorp/raft/bench"

	"memlith.org/memlith"
	"memlith.org/memlith/kv"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func folder(t testing.TB) string {
	base := os.Getenv("MEMLITH_TEST_DIR")
	if base != "" {
		check(t, os.MkdirAll(base, 0o777))
	}
	made, err := os.MkdirTemp(base, "raftstore")
	check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(made) })
	return made
}

func openLog(t testing.TB, path string) *Store {
	t.Helper()
	store, err := Open(path, nil, Options{LogBytes: 64 << 10})
	check(t, err)
	return store
}

func entry(index, term uint64, data string) *raft.Log {
	return &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: []byte(data)}
}

func expectLog(t *testing.T, store *Store, first, last uint64, datas ...string) {
	t.Helper()
	if found, err := store.FirstIndex(); err != nil || found != first {
		t.Fatalf("the first index is %d (%v) instead of %d", found, err, first)
	}
	if found, err := store.LastIndex(); err != nil || found != last {
		t.Fatalf("the last index is %d (%v) instead of %d", found, err, last)
	}
	for i, data := range datas {
		var found raft.Log
		check(t, store.GetLog(first+uint64(i), &found))
		if string(found.Data) != data || found.Index != first+uint64(i) {
			t.Fatalf("%+v instead of %q", found, data)
		}
	}
	for _, index := range []uint64{first - 1, last + 1} {
		if err := store.GetLog(index, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
			t.Fatalf("entry %d: %v", index, err)
		}
	}
}

func TestTheLog(t *testing.T) {
	path := folder(t)
	store := openLog(t, path)
	expectLog(t, store, 0, 0)
	full := &raft.Log{Index: 1, Term: 7, Type: raft.LogBarrier, Data: []byte("data"), Extensions: []byte("more"),
		AppendedAt: time.Unix(1700000000, 12345)}
	check(t, store.StoreLog(full))
	var found raft.Log
	check(t, store.GetLog(1, &found))
	if found.Term != 7 || found.Type != raft.LogBarrier || string(found.Data) != "data" ||
		string(found.Extensions) != "more" || !found.AppendedAt.Equal(full.AppendedAt) {
		t.Fatalf("%+v", found)
	}
	check(t, store.StoreLogs([]*raft.Log{entry(2, 7, "two"), entry(3, 7, ""), entry(4, 7, "four")}))
	for _, wrong := range []uint64{1, 3, 4} {
		if err := store.StoreLog(entry(wrong, 8, "")); err == nil {
			t.Fatalf("entry %d was stored behind entry 4", wrong)
		}
	}
	check(t, store.StoreLogs(nil))
	expectLog(t, store, 1, 4, "data", "two", "", "four")

	check(t, store.DeleteRange(3, 9))
	check(t, store.StoreLog(entry(3, 8, "another three")))
	expectLog(t, store, 1, 3, "data", "two", "another three")
	check(t, store.DeleteRange(0, 1))
	if err := store.DeleteRange(7, 6); err != nil {
		t.Fatal(err)
	}
	check(t, store.StoreLog(entry(4, 8, "4")))
	check(t, store.DeleteRange(9, 9))
	if err := store.DeleteRange(3, 3); err == nil {
		t.Fatal("a gap was made")
	}
	check(t, store.Close())
	store = openLog(t, path)
	expectLog(t, store, 2, 4, "two", "another three", "4")

	check(t, store.DeleteRange(1, 4))
	expectLog(t, store, 0, 0)
	check(t, store.StoreLogs([]*raft.Log{entry(1000, 9, "behind a snapshot"), entry(1001, 9, "")}))
	expectLog(t, store, 1000, 1001, "behind a snapshot", "")
	check(t, store.StoreLog(entry(2000, 9, "behind another")))
	expectLog(t, store, 2000, 2000, "behind another")
	check(t, store.Close())
}

// More than what is handed to the log at once, and more than it has room for at first.
func TestLargeBatches(t *testing.T) {
	store := openLog(t, folder(t))
	defer store.Close()
	var batch []*raft.Log
	var datas []string
	for i := uint64(1); i <= 300; i++ {
		datas = append(datas, fmt.Sprint(i, ":", string(bytes.Repeat([]byte("x"), int(i*97%20000)))))
		batch = append(batch, entry(i, 1, datas[i-1]))
	}
	check(t, store.StoreLogs(batch))
	expectLog(t, store, 1, 300, datas...)
}

func TestTheStableStore(t *testing.T) {
	path := folder(t)
	store := openLog(t, path)
	if _, err := store.Get([]byte("none")); err == nil || err.Error() != "not found" {
		t.Fatal(err)
	}
	if _, err := store.GetUint64([]byte("none")); err == nil || err.Error() != "not found" {
		t.Fatal(err)
	}
	check(t, store.Set([]byte("vote"), []byte("n1")))
	check(t, store.SetUint64([]byte("term"), 1<<40))
	if _, err := store.GetUint64([]byte("vote")); err == nil {
		t.Fatal("two bytes are a number")
	}
	check(t, store.Close())
	store = openLog(t, path)
	defer store.Close()
	if term, err := store.GetUint64([]byte("term")); err != nil || term != 1<<40 {
		t.Fatal(term, err)
	}
	if vote, err := store.Get([]byte("vote")); err != nil || string(vote) != "n1" {
		t.Fatal(vote, err)
	}
}

// Against raft's own store in memory, with random calls and reopening.
func TestRandomCallsAgreeWithRaftsOwnStore(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewSource(seed))
	path := folder(t)
	store, model := openLog(t, path), raft.NewInmemStore()
	next := uint64(1)
	for i := 0; i < 300; i++ {
		first, err := model.FirstIndex()
		check(t, err)
		last, err := model.LastIndex()
		check(t, err)
		switch random.Intn(6) {
		case 0, 1, 2:
			var batch []*raft.Log
			for n := random.Intn(20); n >= 0; n-- {
				batch = append(batch, entry(next, uint64(i), fmt.Sprint(i, ":", string(make([]byte, random.Intn(2000))))))
				next++
			}
			check(t, store.StoreLogs(batch))
			check(t, model.StoreLogs(batch))
		case 3, 4:
			if last == 0 {
				continue
			}
			cut := first + uint64(random.Intn(int(last-first+1)))
			from, to := first, cut
			if random.Intn(2) == 0 {
				from, to = cut, last
			}
			if from == first && to == last { // raft's own store forgets where it was
				continue
			}
			if to == last {
				next = from
			}
			check(t, store.DeleteRange(from, to))
			check(t, model.DeleteRange(from, to))
		case 5:
			check(t, store.Close())
			store = openLog(t, path)
		}
		if first, err = model.FirstIndex(); err != nil {
			t.Fatal(err)
		}
		if last, err = model.LastIndex(); err != nil {
			t.Fatal(err)
		}
		var datas []string
		for index := first; index <= last && last > 0; index++ {
			var wanted raft.Log
			check(t, model.GetLog(index, &wanted))
			datas = append(datas, string(wanted.Data))
		}
		expectLog(t, store, first, last, datas...)
	}
	check(t, store.Close())
}

// ---- a state machine that counts -----------------------------------------------------------------------------------

type counting struct{ applied atomic.Int64 }

func (*counting) Maps() []string { return []string{"counts"} }

func (c *counting) Apply(txn *kv.Txn, maps Maps, entry *raft.Log) (any, error) {
	c.applied.Add(1)
	value, err := txn.Get(maps["counts"], entry.Data)
	if err != nil && !errors.Is(err, memlith.ErrNotFound) {
		return nil, err
	}
	count := uint64(1)
	if len(value) == 8 {
		count += binary.BigEndian.Uint64(value)
	}
	return count, txn.Put(maps["counts"], entry.Data, binary.BigEndian.AppendUint64(nil, count))
}

func counts(t testing.TB, state *State) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	check(t, state.View(func(txn *kv.Txn, maps Maps) error {
		return txn.Range(maps["counts"], nil, nil, func(key, value []byte) error {
			all[string(key)] = binary.BigEndian.Uint64(value)
			return nil
		})
	}))
	return all
}

type testNode struct {
	*raft.Raft
	store     *Store
	machine   *counting
	transport *raft.InmemTransport
}

func quick(id string) *raft.Config {
	config := raft.DefaultConfig()
	config.LocalID = raft.ServerID(id)
	config.HeartbeatTimeout, config.ElectionTimeout = 500*time.Millisecond, 500*time.Millisecond
	config.LeaderLeaseTimeout, config.CommitTimeout = 400*time.Millisecond, 2*time.Millisecond
	config.TrailingLogs = 10
	config.SnapshotInterval, config.SnapshotThreshold = time.Hour, 1<<40 // the test says when
	config.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: os.Stderr})
	Configure(config)
	return config
}

func startNode(t testing.TB, path, id string, servers ...string) *testNode {
	t.Helper()
	n := &testNode{machine: &counting{}}
	var err error
	n.store, err = Open(path, n.machine, Options{LogBytes: 64 << 10})
	check(t, err)
	_, n.transport = raft.NewInmemTransport(raft.ServerAddress(id))
	snapshots := n.store.State.Snapshots()
	known, err := raft.HasExistingState(n.store, n.store, snapshots)
	check(t, err)
	if !known && len(servers) > 0 {
		var configuration raft.Configuration
		for _, server := range servers {
			configuration.Servers = append(configuration.Servers,
				raft.Server{ID: raft.ServerID(server), Address: raft.ServerAddress(server)})
		}
		check(t, raft.BootstrapCluster(quick(id), n.store, n.store, snapshots, n.transport, configuration))
	}
	n.Raft, err = raft.NewRaft(quick(id), n.store.State, n.store, n.store, snapshots, n.transport)
	check(t, err)
	return n
}

func (n *testNode) stop(t testing.TB) {
	t.Helper()
	check(t, n.Shutdown().Error())
	check(t, n.store.Close())
}

func connect(nodes ...*testNode) {
	for _, a := range nodes {
		for _, b := range nodes {
			if a != b {
				a.transport.Connect(b.transport.LocalAddr(), b.transport)
			}
		}
	}
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func (n *testNode) add(t testing.TB, word string, times int) {
	t.Helper()
	var last raft.ApplyFuture
	for i := 0; i < times; i++ {
		last = n.Apply([]byte(word), time.Minute)
	}
	check(t, last.Error())
	if err, ok := last.Response().(error); ok {
		t.Fatal(err)
	}
}

func TestARestartAppliesNothingAgain(t *testing.T) {
	path := folder(t)
	n := startNode(t, path, "a", "a")
	eventually(t, "a leads", func() bool { return n.State() == raft.Leader })
	n.add(t, "one", 20)
	check(t, n.Snapshot().Error())
	n.add(t, "one", 15)
	n.add(t, "two", 5)
	n.stop(t)

	for restart := 0; restart < 3; restart++ {
		n = startNode(t, path, "a")
		eventually(t, "a leads again", func() bool { return n.State() == raft.Leader })
		check(t, n.Barrier(time.Minute).Error())
		if again := n.machine.applied.Load(); again != 0 {
			t.Fatalf("%d entries were applied again", again)
		}
		if found := counts(t, n.store.State); found["one"] != 35+uint64(restart) || found["two"] != 5 {
			t.Fatal(found)
		}
		if first, err := n.store.FirstIndex(); err != nil || first < 2 {
			t.Fatalf("the snapshot left the log as it was: it begins with %d, %v", first, err)
		}
		n.add(t, "one", 1)
		if restart == 1 {
			check(t, n.Snapshot().Error())
		}
		n.stop(t)
	}
}

// A node that was away so long that the others have no log for it gets the state as it is, while it changes.
func TestANodeThatLacksTheLogGetsTheWholeState(t *testing.T) {
	paths := []string{folder(t), folder(t), folder(t)}
	names := []string{"a", "b", "c"}
	var nodes []*testNode
	for i, name := range names {
		nodes = append(nodes, startNode(t, paths[i], name, names...))
	}
	connect(nodes...)
	var leader *testNode
	find := func() {
		eventually(t, "one leads", func() bool {
			for _, n := range nodes {
				if n != nil && n.State() == raft.Leader {
					leader = n
					return true
				}
			}
			return false
		})
	}
	find()
	leader.add(t, "before", 10)
	away := 0
	for i, n := range nodes {
		if n != leader {
			away = i
		}
	}
	eventually(t, "all have it", func() bool { return counts(t, nodes[away].store.State)["before"] == 10 })
	nodes[away].stop(t)
	nodes[away] = nil
	for i := 0; i < 400; i++ {
		leader.add(t, fmt.Sprint("word ", i), 1)
	}
	check(t, leader.Snapshot().Error())
	first, err := leader.store.FirstIndex()
	check(t, err)
	if first < 300 {
		t.Fatalf("the log begins with %d still", first)
	}

	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if err := leader.Apply([]byte("meanwhile"), time.Minute).Error(); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	nodes[away] = startNode(t, paths[away], names[away])
	connect(nodes...)
	eventually(t, "the node has what it missed", func() bool {
		return counts(t, nodes[away].store.State)["word 399"] == 1
	})
	close(stop)
	<-done
	leader.add(t, "after", 1)
	wanted := counts(t, leader.store.State)
	eventually(t, "both are the same", func() bool {
		return fmt.Sprint(counts(t, nodes[away].store.State)) == fmt.Sprint(wanted)
	})
	if once := nodes[away].machine.applied.Load(); once >= int64(len(wanted)) {
		t.Fatalf("%d entries were applied: the state was not installed", once)
	}

	// And it is its own after a restart.
	nodes[away].stop(t)
	nodes[away] = startNode(t, paths[away], names[away])
	connect(nodes...)
	leader.add(t, "at last", 1)
	eventually(t, "the restarted node goes on", func() bool {
		return counts(t, nodes[away].store.State)["at last"] == 1
	})
	if again := nodes[away].machine.applied.Load(); again > 3 {
		t.Fatalf("%d entries were applied after the restart", again)
	}
	regions, err := nodes[away].store.Memlith().Regions()
	check(t, err)
	if len(regions) != 3 {
		t.Fatalf("the replaced state was left: %v", regions)
	}
	for _, n := range nodes {
		n.stop(t)
	}
}

// receive gives a node a snapshot of another's state, as raft does with one from a leader: also one that is late.
func receive(t *testing.T, to *Store, snapshot []byte, meta *raft.SnapshotMeta) error {
	t.Helper()
	sink, err := to.State.Snapshots().Create(meta.Version, meta.Index, meta.Term, meta.Configuration,
		meta.ConfigurationIndex, nil)
	check(t, err)
	_, err = sink.Write(snapshot)
	check(t, err)
	check(t, sink.Close())
	_, source, err := to.State.Snapshots().Open(sink.ID())
	check(t, err)
	err = to.State.Restore(source)
	check(t, source.Close())
	return err
}

// A snapshot that arrives late takes no entries away that continue it, and one that is older than the state is refused.
// After a snapshot raft deletes the log from its first entry to its last.
func TestALateSnapshotLosesNothing(t *testing.T) {
	leader, err := Open(folder(t), &counting{}, Options{})
	check(t, err)
	defer leader.Close()
	configuration := &raft.Log{Index: 1, Term: 3, Type: raft.LogConfiguration,
		Data: raft.EncodeConfiguration(raft.Configuration{})}
	words := func(from, to uint64) (all []*raft.Log) {
		for i := from; i <= to; i++ {
			all = append(all, entry(i, 3, fmt.Sprint("word ", i)))
		}
		return all
	}
	leader.State.ApplyBatch(append([]*raft.Log{configuration}, words(2, 10)...))
	meta, source, err := leader.State.Snapshots().Open("")
	check(t, err)
	snapshot, err := io.ReadAll(source)
	check(t, err)
	check(t, source.Close())
	if meta.Index != 10 || meta.Term != 3 {
		t.Fatalf("%+v", meta)
	}
	for _, each := range []struct {
		name        string
		have        []*raft.Log
		applied     int // of these
		refused     bool
		first, last uint64
	}{
		{"the log ends before the snapshot", words(5, 8), 0, false, 0, 0},
		{"the log ends with the snapshot", words(5, 10), 3, false, 0, 0},
		{"the log goes on behind the snapshot", words(5, 14), 3, false, 11, 14},
		{"the log has an entry of another term there", []*raft.Log{entry(9, 2, ""), entry(10, 2, ""), entry(11, 2, "")}, 0,
			false, 0, 0},
		{"the log begins behind the snapshot", words(11, 14), 0, false, 11, 14},
		{"the state has more", words(5, 14), 8, true, 5, 14},
	} {
		t.Run(each.name, func(t *testing.T) {
			path := folder(t)
			node, err := Open(path, &counting{}, Options{})
			check(t, err)
			check(t, node.StoreLogs(each.have))
			if each.applied > 0 {
				node.State.ApplyBatch(each.have[:each.applied])
			}
			err = receive(t, node, snapshot, meta)
			if (err != nil) != each.refused {
				t.Fatalf("refused: %v", err)
			}
			if err == nil {
				first, err := node.FirstIndex()
				check(t, err)
				last, err := node.LastIndex()
				check(t, err)
				check(t, node.DeleteRange(first, last))
				expectLog(t, node, each.first, each.last)
				if found := counts(t, node.State); found["word 10"] != 1 || found["word 11"] != 0 {
					t.Fatalf("the state is %v", found)
				}
			} else if found := counts(t, node.State); found["word 12"] != 1 {
				t.Fatalf("the state is %v", found)
			}
			check(t, node.Close())
			node, err = Open(path, &counting{}, Options{})
			check(t, err)
			expectLog(t, node, each.first, each.last)
			if each.last > 0 { // a conflict, later
				check(t, node.DeleteRange(each.first, each.last))
				expectLog(t, node, 0, 0)
			}
			check(t, node.Close())
		})
	}
}

// A copy for another snapshot store, and what is refused.
func TestAStreamIsWholeOrRefused(t *testing.T) {
	n := startNode(t, folder(t), "a", "a")
	eventually(t, "a leads", func() bool { return n.State() == raft.Leader })
	for i := 0; i < 50; i++ {
		n.add(t, fmt.Sprint("word ", i), 1)
	}
	taken, err := n.store.State.Snapshot()
	check(t, err)
	files, err := raft.NewFileSnapshotStore(folder(t), 1, io.Discard)
	check(t, err)
	sink, err := files.Create(raft.SnapshotVersionMax, 52, 2, raft.Configuration{}, 1, nil)
	check(t, err)
	check(t, taken.Persist(sink))
	taken.Release()
	_, source, err := files.Open(sink.ID())
	check(t, err)
	whole, err := io.ReadAll(source)
	check(t, err)
	check(t, source.Close())
	wanted := counts(t, n.store.State)
	n.stop(t)

	other, err := Open(folder(t), &counting{}, Options{})
	check(t, err)
	defer other.Close()
	check(t, other.State.Restore(io.NopCloser(bytes.NewReader(whole))))
	if found := counts(t, other.State); fmt.Sprint(found) != fmt.Sprint(wanted) {
		t.Fatal(found)
	}
	for length := 0; length < len(whole); length += 1 + len(whole)/40 {
		if err := other.State.Restore(io.NopCloser(bytes.NewReader(whole[:length]))); err == nil {
			t.Fatalf("%d of %d bytes were taken for a state", length, len(whole))
		}
		damaged := append([]byte(nil), whole...)
		damaged[length] ^= 1
		if err := other.State.Restore(io.NopCloser(bytes.NewReader(damaged))); err == nil {
			t.Fatalf("a stream whose byte %d is another was taken for a state", length)
		}
	}
	if found := counts(t, other.State); fmt.Sprint(found) != fmt.Sprint(wanted) {
		t.Fatal("what was refused has changed the state")
	}
}

// ---- kills ---------------------------------------------------------------------------------------------------------

const roleVariable = "MEMLITH_RAFTSTORE_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(roleVariable); path != "" {
		terms(path)
	}
	os.Exit(m.Run())
}

// As raft does: the term is stored before entries of it are, and conflicting ones are deleted first.
func terms(path string) {
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
	}
	store, err := Open(path, nil, Options{LogBytes: 64 << 10})
	must(err)
	term, err := store.GetUint64([]byte("CurrentTerm"))
	if !errors.Is(err, ErrKeyNotFound) {
		must(err)
	}
	for {
		term++
		if os.Getenv(roleVariable+"_WEAK") != "" { // a planted fault: the term is not waited for
			_, err = store.kv.UpdateWeak(context.Background(), func(txn *kv.Txn) error {
				return txn.Put(store.stable, []byte("CurrentTerm"), binary.BigEndian.AppendUint64(nil, term))
			})
			must(err)
		} else {
			must(store.SetUint64([]byte("CurrentTerm"), term))
		}
		last, err := store.LastIndex()
		must(err)
		// A vote: the term is relied on from here on, and no entry follows at once. An entry would bring a term that
		// was not waited for to the disk before it.
		fmt.Println(term, last)
		time.Sleep(time.Millisecond)
		if term%3 == 0 && last > 2 {
			must(store.DeleteRange(last-1, last))
			last -= 2
		}
		must(store.StoreLogs([]*raft.Log{entry(last+1, term, fmt.Sprint(term)), entry(last+2, term, fmt.Sprint(term))}))
		fmt.Println(term, last+2)
		if first, err := store.FirstIndex(); err == nil && last+2-first > 50 {
			must(store.DeleteRange(first, last-18))
		}
	}
}

// killTerms returns an error if what a killed process left is not what raft relies on.
func killTerms(t *testing.T, path string, later time.Duration, weak bool) error {
	program, err := os.Executable()
	check(t, err)
	command := exec.Command(program)
	command.Env = append(os.Environ(), roleVariable+"="+path)
	if weak {
		command.Env = append(command.Env, roleVariable+"_WEAK=1")
	}
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	check(t, err)
	check(t, command.Start())
	var term, last uint64
	first := true
	for {
		var t, l uint64
		if _, err := fmt.Fscanln(output, &t, &l); err != nil {
			break
		}
		term, last = t, l
		if first {
			time.AfterFunc(later, func() { _ = command.Process.Kill() })
			first = false
		}
	}
	_ = command.Wait()
	store := openLog(t, path)
	defer store.Close()
	stored, err := store.GetUint64([]byte("CurrentTerm"))
	if !errors.Is(err, ErrKeyNotFound) {
		check(t, err)
	}
	newest, err := store.LastIndex()
	check(t, err)
	if stored < term || newest+2 < last {
		return fmt.Errorf("term %d and entry %d were acknowledged; %d and %d are there", term, last, stored, newest)
	}
	if newest == 0 { // it was killed before the first entry
		return nil
	}
	var found raft.Log
	if err := store.GetLog(newest, &found); err != nil {
		return fmt.Errorf("entry %d: %w; term %d and entry %d were acknowledged", newest, err, term, last)
	}
	if found.Term > stored {
		return fmt.Errorf("entry %d is of term %d, and the stored term is %d", newest, found.Term, stored)
	}
	if string(found.Data) != fmt.Sprint(found.Term) {
		return fmt.Errorf("entry %d of term %d says %q", newest, found.Term, found.Data)
	}
	return nil
}

// docs/guarantees.md, "Raft store": terms and entries that were told are there after each kill.
func TestAKilledNodeKnowsItsTerm(t *testing.T) {
	path := folder(t)
	for round := 0; round < 30; round++ {
		check(t, killTerms(t, path, time.Duration(rand.Intn(60))*time.Millisecond, false))
	}
}

func TestATermThatWasNotWaitedForIsNoticed(t *testing.T) {
	path := folder(t)
	for round := 0; round < 50; round++ {
		if killTerms(t, path, time.Duration(rand.Intn(60))*time.Millisecond, true) != nil {
			return
		}
	}
	t.Fatal("the planted fault was not noticed in 50 kills")
}

// ---- migration, and raft's own benchmarks --------------------------------------------------------------------------

func TestALogIsMigrated(t *testing.T) {
	source := raft.NewInmemStore()
	for i := uint64(40); i < 3000; i++ {
		check(t, source.StoreLog(entry(i, i/100, fmt.Sprint(i))))
	}
	check(t, source.SetUint64([]byte("CurrentTerm"), 29))
	check(t, source.Set([]byte("LastVoteCand"), []byte("b")))
	path := folder(t)
	store := openLog(t, path)
	count, err := store.Migrate(source, source)
	check(t, err)
	if count != 2960 {
		t.Fatal(count)
	}
	if _, err := store.Migrate(source, source); err == nil {
		t.Fatal("a log was migrated onto another one")
	}
	check(t, store.Close())
	store = openLog(t, path)
	defer store.Close()
	expectLog(t, store, 40, 2999, "40", "41")
	if term, err := store.GetUint64([]byte("CurrentTerm")); err != nil || term != 29 {
		t.Fatal(term, err)
	}
	if vote, err := store.Get([]byte("LastVoteCand")); err != nil || string(vote) != "b" {
		t.Fatal(vote, err)
	}
}

func benchmark(b *testing.B, run func(*testing.B, *Store)) {
	store := openLog(b, filepath.Join(folder(b), "node"))
	defer store.Close()
	run(b, store)
}

// This benchmark's entries begin with index 0, which raft never uses.
type shifted struct{ *Store }

func (s shifted) StoreLog(entry *raft.Log) error {
	behind := *entry
	behind.Index++
	return s.Store.StoreLog(&behind)
}

func BenchmarkFirstIndex(b *testing.B) {
	benchmark(b, func(b *testing.B, s *Store) { raftbench.FirstIndex(b, s) })
}
func BenchmarkLastIndex(b *testing.B) {
	benchmark(b, func(b *testing.B, s *Store) { raftbench.LastIndex(b, s) })
}
func BenchmarkGetLog(b *testing.B) {
	benchmark(b, func(b *testing.B, s *Store) { raftbench.GetLog(b, s) })
}
func BenchmarkStoreLog(b *testing.B) {
	benchmark(b, func(b *testing.B, s *Store) { raftbench.StoreLog(b, shifted{s}) })
}
func BenchmarkStoreLogs(b *testing.B) {
	benchmark(b, func(b *testing.B, s *Store) { raftbench.StoreLogs(b, s) })
}
func BenchmarkSet(b *testing.B) {
	benchmark(b, func(b *testing.B, s *Store) { raftbench.Set(b, s) })
}
func BenchmarkGet(b *testing.B) {
	benchmark(b, func(b *testing.B, s *Store) { raftbench.Get(b, s) })
}
