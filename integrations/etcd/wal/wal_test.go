package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	etcdwal "go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"

	"memlith.org/memlith"
	"memlith.org/memlith/internal/child"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var confState = raftpb.ConfState{Voters: []uint64{7}}

func snapshotOf(index, term uint64) walpb.Snapshot {
	return walpb.Snapshot{Index: index, Term: term, ConfState: &confState}
}

func create(t testing.TB, metadata string) (*WAL, string) {
	t.Helper()
	folder := filepath.Join(child.Folder(t), "wal")
	w, err := Create(nil, folder, []byte(metadata))
	check(t, err)
	return w, folder
}

// ---- beside etcd's own ---------------------------------------------------------------------------------------------

// member is what raft knows, in order to save what raft would save.
type member struct {
	random   *rand.Rand
	terms    []uint64 // of the entries, by index; entry 0 is there from the beginning
	state    raftpb.HardState
	snapshot uint64 // the newest
}

func (m *member) last() uint64 { return uint64(len(m.terms) - 1) }

// next returns what is to be saved: entries, of which some may replace others, a hard state, or a snapshot.
func (m *member) next(bytes int) (state raftpb.HardState, entries []raftpb.Entry, snapshot *walpb.Snapshot) {
	switch what := m.random.Intn(20); {
	case what < 2: // another term, and a vote
		m.state.Term++
		m.state.Vote = uint64(1 + m.random.Intn(3))
		return m.state, nil, nil
	case what < 5: // more is committed
		m.state.Commit += uint64(m.random.Int63n(int64(m.last()-m.state.Commit) + 1))
		return m.state, nil, nil
	case what < 7 && m.state.Commit > m.snapshot:
		m.snapshot += 1 + uint64(m.random.Int63n(int64(m.state.Commit-m.snapshot)))
		made := snapshotOf(m.snapshot, m.terms[m.snapshot])
		return raftpb.HardState{}, nil, &made
	case what < 8 && m.random.Intn(3) == 0: // the state of another member takes the place of the log
		m.state.Term++
		m.terms = m.terms[:min(m.last(), m.state.Commit+uint64(m.random.Intn(3)))+1]
		for m.last() < m.state.Commit+1 || m.random.Intn(20) > 0 {
			m.terms = append(m.terms, m.state.Term)
		}
		m.snapshot = m.last()
		m.terms[m.snapshot] = m.state.Term
		m.state.Commit = m.snapshot
		made := snapshotOf(m.snapshot, m.state.Term)
		return m.state, nil, &made
	}
	from := m.last() + 1
	if m.random.Intn(4) == 0 { // entries that are not committed are replaced
		from = m.state.Commit + 1 + uint64(m.random.Int63n(int64(m.last()-m.state.Commit)+1))
		m.state.Term++
	}
	m.terms = m.terms[:from]
	for count := 1 + m.random.Intn(8); count > 0; count-- {
		index := m.last() + 1
		m.terms = append(m.terms, m.state.Term)
		entries = append(entries, entryOf(index, m.state.Term, m.random.Intn(bytes)))
	}
	return m.state, entries, nil
}

func entryOf(index, term uint64, bytes int) raftpb.Entry {
	text := fmt.Sprintf("entry %d of term %d ", index, term)
	return raftpb.Entry{Index: index, Term: term, Data: []byte(text + strings.Repeat("x", bytes))}
}

// both are the two logs, to which the same is done.
type both struct {
	t            *testing.T
	ours         *WAL
	theirs       *etcdwal.WAL
	folder, twin string
}

func (b *both) save(state raftpb.HardState, entries []raftpb.Entry, snapshot *walpb.Snapshot) {
	b.t.Helper()
	if snapshot != nil {
		check(b.t, b.ours.SaveSnapshot(*snapshot))
		check(b.t, b.theirs.SaveSnapshot(*snapshot))
	}
	check(b.t, b.ours.Save(state, entries))
	check(b.t, b.theirs.Save(state, entries))
}

// reopen opens both logs at a snapshot of which ours still has the records, and compares what they return.
func (b *both) reopen(random *rand.Rand, inPlace bool) {
	t := b.t
	t.Helper()
	if !inPlace {
		check(t, b.ours.Close())
	} else {
		check(t, b.ours.Sync())
	}
	check(t, b.theirs.Close())
	snapshots, err := ValidSnapshotEntries(nil, b.folder)
	check(t, err)
	theirs, err := etcdwal.ValidSnapshotEntries(zap.NewNop(), b.twin)
	check(t, err)
	if len(snapshots) == 0 || len(theirs) < len(snapshots) ||
		!reflect.DeepEqual(snapshots, theirs[len(theirs)-len(snapshots):]) {
		t.Fatalf("the snapshots are %v, and etcd's log has %v", snapshots, theirs)
	}
	b.readFrom(snapshots[len(snapshots)-1-random.Intn(min(len(snapshots), snapshotsKept))], snapshots[len(snapshots)-1],
		inPlace)
}

// readFrom opens both logs at a snapshot, or at the newest if entries behind the first one never came, because the
// state of another member did.
func (b *both) readFrom(from, newest walpb.Snapshot, inPlace bool) {
	t := b.t
	t.Helper()
	state, err := Verify(nil, b.folder, from)
	check(t, err)
	if inPlace {
		b.ours, err = b.ours.Reopen(zap.NewNop(), from)
	} else {
		b.ours, err = Open(zap.NewNop(), b.folder, from)
	}
	check(t, err)
	b.theirs, err = etcdwal.Open(zap.NewNop(), b.twin, from)
	check(t, err)
	b.theirs.SetUnsafeNoFsync()
	ourMetadata, ourState, ourEntries, ourErr := b.ours.ReadAll()
	metadata, theirState, entries, err := b.theirs.ReadAll()
	if errors.Is(ourErr, ErrSliceOutOfRange) && errors.Is(err, etcdwal.ErrSliceOutOfRange) && from.Index < newest.Index {
		check(t, b.ours.Close())
		check(t, b.theirs.Close())
		b.readFrom(newest, newest, false)
		return
	}
	if ourErr != nil || err != nil {
		t.Fatalf("from %v: %v; etcd's: %v", from, ourErr, err)
	}
	if !bytes.Equal(ourMetadata, metadata) || !reflect.DeepEqual(ourState, theirState) || *state != theirState {
		t.Fatalf("from %v: %q %v %v instead of %q %v", from, ourMetadata, ourState, *state, metadata, theirState)
	}
	if len(ourEntries) != len(entries) {
		t.Fatalf("from %v: %d entries instead of %d", from, len(ourEntries), len(entries))
	}
	for i := range entries {
		if !reflect.DeepEqual(ourEntries[i], entries[i]) {
			t.Fatalf("from %v, entry %d: %.80v instead of %.80v", from, i, ourEntries[i], entries[i])
		}
	}
}

// Saved entries are read as from etcd's own log: after entries were replaced, after snapshots, after the state of
// another member, and after older records were released.
func TestBesideEtcds(t *testing.T) {
	random := child.Seed(t)
	for run, bytes := range []int{100, 40_000} {
		w, folder := create(t, "metadata")
		twin := filepath.Join(child.Folder(t), "twin")
		theirs, err := etcdwal.Create(zap.NewNop(), twin, []byte("metadata"))
		check(t, err)
		theirs.SetUnsafeNoFsync()
		b := &both{t: t, ours: w, theirs: theirs, folder: folder, twin: twin}
		m := &member{random: random, terms: []uint64{0}, state: raftpb.HardState{Term: 1}}
		b.save(m.state, nil, nil)
		for step := 0; step < 300*(1+run); step++ {
			if run == 1 { // also those that are not waited for
				b.ours.SetUnsafeNoFsync()
			}
			state, entries, snapshot := m.next(bytes)
			b.save(state, entries, snapshot)
			if snapshot != nil {
				check(t, b.ours.ReleaseLockTo(snapshot.Index))
			}
			if random.Intn(30) == 0 {
				b.reopen(random, random.Intn(3) == 0)
			}
		}
		b.reopen(random, false)
		check(t, b.ours.Close())
		check(t, b.theirs.Close())
	}
}

// ---- the folder ----------------------------------------------------------------------------------------------------

func TestFolder(t *testing.T) {
	w, folder := create(t, "metadata")
	if !Exist(folder) || Exist(filepath.Dir(folder)) {
		t.Fatal("a log exists where it is, and nowhere else")
	}
	if _, err := Create(nil, folder, nil); !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	if _, err := Open(nil, folder, walpb.Snapshot{}); !errors.Is(err, memlith.ErrBusy) {
		t.Fatalf("opened twice: %v", err)
	}
	if _, _, _, err := w.ReadAll(); !errors.Is(err, ErrDecoderNotFound) {
		t.Fatal(err)
	}
	check(t, w.Save(raftpb.HardState{Term: 1, Vote: 7}, []raftpb.Entry{entryOf(1, 1, 0)}))
	// Beside the process that writes.
	reader, err := OpenForRead(nil, folder, walpb.Snapshot{})
	check(t, err)
	metadata, state, entries, err := reader.ReadAll()
	if err != nil || string(metadata) != "metadata" || state.Vote != 7 || len(entries) != 1 {
		t.Fatal(err, metadata, state, entries)
	}
	if err := reader.Save(raftpb.HardState{Term: 2}, nil); !errors.Is(err, memlith.ErrReadOnly) {
		t.Fatal(err)
	}
	check(t, reader.Close())
	check(t, w.Close())
	check(t, w.Close())
	if err := w.Save(state, entries); !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
	if !Repair(nil, folder) {
		t.Fatal("there was nothing to repair")
	}
	for _, wrong := range []struct {
		snapshot walpb.Snapshot
		err      error
	}{{walpb.Snapshot{Term: 1}, ErrSnapshotMismatch}, {walpb.Snapshot{Index: 3, Term: 1}, ErrSnapshotNotFound}} {
		w, err := Open(nil, folder, wrong.snapshot)
		check(t, err)
		if err := w.Save(state, nil); err == nil {
			t.Fatal("a log that was not read takes records")
		}
		if _, _, _, err := w.ReadAll(); !errors.Is(err, wrong.err) {
			t.Fatalf("%v: %v", wrong.snapshot, err)
		}
		check(t, w.Close())
		if _, err := Verify(nil, folder, wrong.snapshot); !errors.Is(err, wrong.err) {
			t.Fatalf("%v: %v", wrong.snapshot, err)
		}
	}

	// A crash left a folder that was being made.
	other := filepath.Join(filepath.Dir(folder), "other")
	check(t, os.MkdirAll(filepath.Join(other+temporary, storeName), 0o700))
	if _, err := Open(nil, other, walpb.Snapshot{}); !errors.Is(err, ErrFileNotFound) {
		t.Fatal(err)
	}
	w, err = Create(nil, other, nil)
	check(t, err)
	check(t, w.Close())
	if _, err := os.Stat(other + temporary); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if info, err := os.Stat(other); err != nil || info.Mode().Perm() != 0o700 {
		t.Fatal(err, info)
	}
}

// An etcd that is not built with this package refuses the log, and does not begin an empty one; and we refuse etcd's.
func TestTheOtherKind(t *testing.T) {
	w, folder := create(t, "metadata")
	check(t, w.Close())
	if !etcdwal.Exist(folder) {
		t.Fatal("etcd would begin a new log beside ours")
	}
	before, err := os.ReadFile(filepath.Join(folder, guardName))
	check(t, err)
	snapshots, err := etcdwal.ValidSnapshotEntries(zap.NewNop(), folder)
	if err != nil || len(snapshots) != 0 {
		t.Fatal(err, snapshots)
	}
	theirs, err := etcdwal.Open(zap.NewNop(), folder, walpb.Snapshot{})
	check(t, err)
	if _, _, _, err = theirs.ReadAll(); err == nil || !strings.Contains(err.Error(), "unexpected block type 77") {
		t.Fatal(err)
	}
	check(t, theirs.Close())
	after, err := os.ReadFile(filepath.Join(folder, guardName))
	if err != nil || !bytes.Equal(before, after) {
		t.Fatal("etcd changed the log: ", err)
	}

	twin := filepath.Join(filepath.Dir(folder), "twin")
	theirs, err = etcdwal.Create(zap.NewNop(), twin, nil)
	check(t, err)
	check(t, theirs.Close())
	if !Exist(twin) {
		t.Fatal("we would begin a new log beside etcd's")
	}
	if _, err := Create(nil, twin, nil); !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	if _, err := ValidSnapshotEntries(nil, twin); err == nil || !strings.Contains(err.Error(), "etcdconvert") {
		t.Fatal(err)
	}
	if Repair(nil, twin) {
		t.Fatal("etcd's log was repaired")
	}
}

// A record that was damaged is an error, and no shorter log.
func TestDamage(t *testing.T) {
	w, folder := create(t, "metadata")
	for index := uint64(1); index <= 20; index++ {
		check(t, w.Save(raftpb.HardState{Term: 1, Commit: index}, []raftpb.Entry{entryOf(index, 1, 100)}))
	}
	check(t, w.Close())
	found := 0
	check(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if at := bytes.Index(file, []byte("entry 10 of term 1")); at >= 0 {
			found++
			file[at] ^= 1
			return os.WriteFile(path, file, 0o600)
		}
		return nil
	}))
	if found == 0 {
		t.Fatal("the entry is in no file")
	}
	if _, err := Open(nil, folder, walpb.Snapshot{}); !errors.Is(err, memlith.ErrCorrupt) {
		t.Fatalf("damage was not noticed: %v", err)
	}
	if Repair(nil, folder) {
		t.Fatal("damage was repaired")
	}
}

// ---- what is kept --------------------------------------------------------------------------------------------------

// Snapshots and releases keep the log short; metadata and hard state stay.
func TestRelease(t *testing.T) {
	w, folder := create(t, "metadata")
	check(t, w.Save(raftpb.HardState{Term: 9, Vote: 3, Commit: 1}, []raftpb.Entry{entryOf(1, 9, 0)}))
	last := uint64(1)
	for round := 0; round < 40; round++ {
		for i := 0; i < 50; i++ {
			last++
			check(t, w.Save(raftpb.HardState{}, []raftpb.Entry{entryOf(last, 9, 5000)}))
		}
		// The hard state is not saved again: the newest is the first.
		if round > 0 {
			check(t, w.SaveSnapshot(snapshotOf(last-10, 9)))
			check(t, w.ReleaseLockTo(last-10))
		}
	}
	info, err := w.log.Info()
	check(t, err)
	if kept := info.Newest - info.Consumed; kept > 8*50 {
		t.Fatalf("%d records are left, of which %d are needed", kept, snapshotsKept*50)
	}
	if used := info.Size - info.Room; used > 3<<20 {
		t.Fatalf("%d bytes are left", used)
	}
	check(t, w.Close())
	w, err = Open(nil, folder, walpb.Snapshot{Index: last - 10, Term: 9})
	check(t, err)
	metadata, state, entries, err := w.ReadAll()
	if err != nil || string(metadata) != "metadata" || state != (raftpb.HardState{Term: 9, Vote: 3, Commit: 1}) ||
		len(entries) != 10 || entries[9].Index != last {
		t.Fatal(err, string(metadata), state, len(entries))
	}
	check(t, w.Close())
}

// Entries that are larger than a batch that is handed to the log at once.
func TestLargeEntries(t *testing.T) {
	w, folder := create(t, "")
	var wanted []raftpb.Entry
	for index := uint64(1); index <= 12; index++ {
		wanted = append(wanted, entryOf(index, 1, int(index)*700_000))
	}
	check(t, w.Save(raftpb.HardState{Term: 1, Commit: 3}, wanted))
	check(t, w.Close())
	w, err := Open(nil, folder, walpb.Snapshot{})
	check(t, err)
	metadata, state, entries, err := w.ReadAll()
	if err != nil || len(metadata) != 0 || state.Commit != 3 || !reflect.DeepEqual(entries, wanted) {
		t.Fatal(err, len(metadata), state, len(entries))
	}
	check(t, w.Close())
}

// ---- kills ---------------------------------------------------------------------------------------------------------

// Each step saves entries of its own term, over some of those before, and a hard state of that term.
const (
	stepBack      = 5 // so many entries are replaced at most
	stepsSnapshot = 40
)

func write(folder string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	path := filepath.Join(folder, "wal")
	if !Exist(path) {
		w, err := Create(nil, path, []byte("metadata"))
		fail(err)
		fail(w.Close())
	}
	snapshots, err := ValidSnapshotEntries(nil, path)
	fail(err)
	newest := snapshots[len(snapshots)-1]
	w, err := Open(nil, path, newest)
	fail(err)
	_, state, entries, err := w.ReadAll()
	fail(err)
	last := newest.Index + uint64(len(entries))
	for step := state.Term + 1; ; step++ {
		random := rand.New(rand.NewSource(int64(step)))
		state.Commit = max(state.Commit, last-min(last, stepBack))
		if step%3 == 0 {
			fail(w.Save(state, nil)) // not waited for
		}
		from := last + 1 - min(uint64(random.Intn(stepBack)), last-state.Commit)
		last += uint64(random.Intn(6))
		entries = entries[:0]
		for index := from; index <= last; index++ {
			bytes := random.Intn(300)
			if step%50 == 49 {
				bytes = 400_000 // several pieces
			}
			entries = append(entries, entryOf(index, step, bytes))
		}
		fmt.Println("begin", step, from, last)
		state.Term, state.Vote = step, step%3
		fail(w.Save(state, entries))
		fmt.Println("done", step, from, last)
		if step%stepsSnapshot == 0 && state.Commit > newest.Index {
			newest = snapshotOf(state.Commit, 1)
			fail(w.SaveSnapshot(newest))
			fail(w.ReleaseLockTo(newest.Index))
			fmt.Println("snapshot", step, newest.Index, 0)
		}
	}
}

func TestMain(m *testing.M) { child.Main(m, map[string]func(string){"write": write}) }

// kills is how many; MEMLITH_KILLS.
func kills() int {
	if count, err := strconv.Atoi(os.Getenv("MEMLITH_KILLS")); err == nil {
		return count
	}
	return 15
}

// saved is what a writer has said: the terms of the entries, by index, the newest term, and the newest snapshot.
type saved struct {
	terms          []uint64
	term, snapshot uint64
}

// add is a step of which so many entries are there.
func (s *saved) add(step, from, to uint64) {
	if to >= from {
		s.terms = s.terms[:from]
	}
	for index := from; index <= to; index++ {
		s.terms = append(s.terms, step)
	}
}

// A writer is killed at any moment. What Save returned for is there; what was being saved is there in its order, as far
// as it is; and no entry that was replaced comes back.
func TestKilled(t *testing.T) {
	random := child.Seed(t)
	folder := child.Folder(t)
	path := filepath.Join(folder, "wal")
	known := saved{terms: []uint64{0}}
	for kill := 0; kill < kills(); kill++ {
		var begun, from, to uint64
		for _, line := range child.RunAndKill(t, "write", folder, 1+random.Intn(400),
			time.Duration(random.Intn(3000))*time.Microsecond) {
			var word string
			var step, low, high uint64
			if _, err := fmt.Sscan(line, &word, &step, &low, &high); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			switch word {
			case "begin":
				begun, from, to = step, low, high
			case "done":
				known.add(step, low, high)
				known.term, begun = step, 0
			case "snapshot":
				known.snapshot = low
			}
		}
		snapshots, err := ValidSnapshotEntries(nil, path)
		check(t, err)
		newest := snapshots[len(snapshots)-1]
		w, err := Open(nil, path, newest)
		check(t, err)
		metadata, state, entries, err := w.ReadAll()
		check(t, err)
		check(t, w.Close())
		if string(metadata) != "metadata" || newest.Index < known.snapshot {
			t.Fatalf("kill %d: metadata %q; snapshot %d, and %d was saved", kill, metadata, newest.Index, known.snapshot)
		}
		known.snapshot = newest.Index
		switch {
		case begun != 0 && state.Term == begun:
			known.add(begun, from, to)
			known.term = begun
		case state.Term != known.term:
			t.Fatalf("kill %d: the term is %d; %d was saved, and %d begun", kill, state.Term, known.term, begun)
		case begun != 0 && len(entries) > 0 && entries[len(entries)-1].Term == begun:
			known.add(begun, from, min(to, entries[len(entries)-1].Index)) // a piece of the step
		}
		if state.Vote != state.Term%3 {
			t.Fatalf("kill %d: the vote of term %d is %d", kill, state.Term, state.Vote)
		}
		last := newest.Index + uint64(len(entries))
		if last+1 != uint64(len(known.terms)) || state.Commit > last {
			t.Fatalf("kill %d: entries up to %d instead of %d; %d is committed", kill, last, len(known.terms)-1, state.Commit)
		}
		for i, entry := range entries {
			index := newest.Index + 1 + uint64(i)
			text := fmt.Sprintf("entry %d of term %d ", index, known.terms[index])
			if entry.Index != index || entry.Term != known.terms[index] || !strings.HasPrefix(string(entry.Data), text) {
				t.Fatalf("kill %d: %.80v instead of %s", kill, entry, text)
			}
		}
	}
	if known.term == 0 {
		t.Fatal("nothing was saved")
	}
	t.Logf("%d steps, %d entries, a snapshot of %d", known.term, len(known.terms)-1, known.snapshot)
}
