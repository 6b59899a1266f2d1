package main

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Faults for tests, which the check of cmd/kvsoak has to find.
const (
	staleReads   = "stale-reads"   // reads are answered at once, by any node
	lostVotes    = "lost-votes"    // term and vote are not on the disk
	lostEntries  = "lost-entries"  // the newest entries of the log are not on the disk
	lostSessions = "lost-sessions" // a transaction that is sent twice takes effect twice
	wallLease    = "wall-lease"    // reads need no barrier for a while after one, by the clock that people set
)

const (
	keptInMemory = 32
	lease        = 100 * time.Millisecond // less than the time after which others elect a leader
)

// leased makes a barrier hold for a while: correct, as long as the clock goes on evenly.
func leased(barrier func() error) func() error {
	var end time.Time // of readIndex.run, which is one goroutine at a time
	return func() error {
		began := time.Now().Round(0) // without the monotonic clock
		if began.Before(end) {
			return nil
		}
		err := barrier()
		if err == nil {
			end = began.Add(lease)
		}
		return err
	}
}

// forgetful is a log that keeps its newest entries in memory, and stores older ones.
type forgetful struct {
	raft.LogStore

	mutex sync.Mutex
	newer []*raft.Log
}

func (f *forgetful) StoreLog(entry *raft.Log) error { return f.StoreLogs([]*raft.Log{entry}) }

func (f *forgetful) StoreLogs(entries []*raft.Log) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.newer = append(f.newer, entries...)
	return f.store(len(f.newer) - keptInMemory)
}

// store stores so many of the entries in memory. The mutex is held.
func (f *forgetful) store(count int) error {
	if count <= 0 {
		return nil
	}
	older := f.newer[:count]
	f.newer = append([]*raft.Log(nil), f.newer[count:]...)
	return f.LogStore.StoreLogs(older)
}

func (f *forgetful) DeleteRange(least, most uint64) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if err := f.store(len(f.newer)); err != nil {
		return err
	}
	return f.LogStore.DeleteRange(least, most)
}

func (f *forgetful) GetLog(index uint64, entry *raft.Log) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for _, each := range f.newer {
		if each.Index == index {
			*entry = *each
			return nil
		}
	}
	return f.LogStore.GetLog(index, entry)
}

func (f *forgetful) FirstIndex() (uint64, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	first, err := f.LogStore.FirstIndex()
	if err == nil && first == 0 && len(f.newer) > 0 {
		first = f.newer[0].Index
	}
	return first, err
}

func (f *forgetful) LastIndex() (uint64, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if len(f.newer) > 0 {
		return f.newer[len(f.newer)-1].Index, nil
	}
	return f.LogStore.LastIndex()
}
