package retwis

import (
	"fmt"
	"math"
	"math/rand"
	"sync"
	"testing"
	"time"
)

// Ranks come as often as the distribution says.
func TestZipf(t *testing.T) {
	const count, draws = 1000, 2_000_000
	for _, theta := range []float64{0, 0.5, 0.75, 0.99} {
		zipf, random := NewZipf(count, theta), rand.New(rand.NewSource(1))
		var drawn [count]int
		for i := 0; i < draws; i++ {
			drawn[zipf.Rank(random.Float64())]++
		}
		sum := 0.0
		for rank := 0; rank < count; rank++ {
			sum += math.Pow(float64(rank+1), -theta)
		}
		// The method is exact for the first two ranks, and near for sums of many.
		for _, upTo := range []int{1, 2, 10, 100, 500, count} {
			wanted, got := 0.0, 0
			for rank := 0; rank < upTo; rank++ {
				wanted += math.Pow(float64(rank+1), -theta) / sum
				got += drawn[rank]
			}
			if part := float64(got) / draws; math.Abs(part-wanted) > 0.03 {
				t.Fatalf("theta %g: %g of the draws are of the first %d ranks, and should be %g", theta, part, upTo, wanted)
			}
		}
	}
}

// The kinds have the parts and sizes of the mix; keys of a transaction are different; all keys are wanted.
func TestChoose(t *testing.T) {
	const count, draws = 60, 100_000
	chooser := NewChooser(count, NewZipf(count, 0.75), rand.New(rand.NewSource(1)))
	var parts [kinds]int
	wanted := map[string]bool{}
	timelines := map[int]bool{}
	for i := 0; i < draws; i++ {
		kind, keys, reads, writes := chooser.Choose()
		parts[kind]++
		own := map[string]bool{}
		for _, key := range keys {
			own[key], wanted[key] = true, true
		}
		if kind == Timeline {
			timelines[reads] = true
		}
		if len(own) != len(keys) || reads > len(keys) || writes > len(keys) || (reads != len(keys) && writes != len(keys)) ||
			(kind != Timeline && (reads != mix[kind].reads || writes != mix[kind].writes)) {
			t.Fatalf("%s has the keys %v, %d reads and %d writes", kind, keys, reads, writes)
		}
	}
	for kind, part := range parts {
		if percent := 100 * float64(part) / draws; math.Abs(percent-float64(mix[kind].percent)) > 1 {
			t.Fatalf("%g %% are of kind %s", percent, Kind(kind))
		}
	}
	if len(wanted) != count || len(timelines) != timelineMax {
		t.Fatalf("%d of %d keys were wanted, and %d sizes of timelines", len(wanted), count, len(timelines))
	}
}

type memory struct {
	mutex    sync.Mutex
	versions map[string]uint64
	now      uint64
	writes   int
}

func (m *memory) Read(keys []string) (versions []uint64, err error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, key := range keys {
		versions = append(versions, m.versions[key])
	}
	return versions, nil
}

func (m *memory) Commit(reads []string, versions []uint64, writes []string, _ []byte) (bool, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for i, key := range reads {
		if m.versions[key] != versions[i] {
			return false, nil
		}
	}
	m.now++
	m.writes += len(writes)
	for _, key := range writes {
		m.versions[key] = m.now
	}
	return true, nil
}

// A store is filled, and what was counted is what the store has seen.
func TestRun(t *testing.T) {
	load := Load{Keys: 50, ValueBytes: 8, Theta: 0.75}
	if err := load.Check(); err != nil {
		t.Fatal(err)
	}
	store := &memory{versions: map[string]uint64{}}
	if err := load.Fill(store, 7); err != nil || len(store.versions) != 50 || store.now != 8 {
		t.Fatalf("%v: %d keys in %d transactions", err, len(store.versions), store.now)
	}
	store.now, store.writes = 0, 0
	result, err := load.Run([]Client{store, store, store, store}, NewZipf(50, 0.75), 1, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	commits, writes := 0, 0
	for kind := AddUser; kind < Timeline; kind++ {
		commits += len(result.Times[kind])
		writes += len(result.Times[kind]) * mix[kind].writes
	}
	if uint64(commits) != store.now || writes != store.writes || commits == 0 || len(result.All()) < commits {
		t.Fatalf("%d commits with %d writes were counted, and %d with %d were made", commits, writes, store.now,
			store.writes)
	}
}

// replicas is a store of which no read is answered while all of its processes are dead.
type replicas struct {
	memory
	dead   sync.Mutex // held while all are dead
	killed []string
}

func (r *replicas) Read(keys []string) ([]uint64, error) {
	r.dead.Lock()
	defer r.dead.Unlock()
	return r.memory.Read(keys)
}

func (r *replicas) Clients() []Client                   { return []Client{r, r, r} }
func (r *replicas) Restart() (time.Duration, error)     { return 0, nil }
func (r *replicas) Recover(bool) (time.Duration, error) { return 0, nil }
func (r *replicas) KillLeader() error                   { r.killed = append(r.killed, "leader"); return nil }
func (r *replicas) KillAll() error {
	r.dead.Lock()
	r.killed = append(r.killed, "all")
	return nil
}
func (r *replicas) StartAll() error {
	if r.killed[len(r.killed)-1] == "all" {
		r.dead.Unlock()
	}
	return nil
}

// First the leader and then all replicas die and return, while the clients go on.
func TestWatch(t *testing.T) {
	load := Load{Keys: 50, ValueBytes: 8, Theta: 0.75}
	store := &replicas{memory: memory{versions: map[string]uint64{}}}
	watched, err := load.Watch(store, 2, NewZipf(50, 0.75), 1, 200*time.Millisecond)
	if err != nil || len(store.killed) != 2 || store.killed[1] != "all" {
		t.Fatal(err, store.killed)
	}
	if len(watched.Events) != len(events) || len(watched.PerSecond) != 1 || watched.PerSecond[0] == 0 {
		t.Fatalf("%+v", watched)
	}
}

// The gap of an event is the longest time without a commit until the next event, or until the end.
func TestGaps(t *testing.T) {
	const s = time.Second
	watched := History{Events: []Event{{What: "a", At: 2 * s}, {What: "b", At: 5 * s}, {What: "c", At: 8 * s}}}
	watched.count([]time.Duration{s / 2, 9 * s, s, 2*s + s/4, 4 * s, 5*s + s/2}, 10*s)
	for i, wanted := range []time.Duration{4*s - (2*s + s/4), 8*s - (5*s + s/2), s} {
		if watched.Events[i].Gap != wanted {
			t.Errorf("event %d has a gap of %v instead of %v", i, watched.Events[i].Gap, wanted)
		}
	}
	if fmt.Sprint(watched.PerSecond) != "[1 1 1 0 1 1 0 0 0 1]" {
		t.Errorf("by second: %v", watched.PerSecond)
	}
}
