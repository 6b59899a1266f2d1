package main

import "sync"

// readIndex makes reads linearizable: before a read, a barrier goes through raft's log, so that this node leads, and
// has applied every transaction that was answered before. Reads that come while a barrier is on its way share the next.
//
// Raft's VerifyLeader would need no entry, but also counts answers to requests that were sent before it was called. A
// leader that stood still while others elected a new one, and then finds such an answer, would read what is old.
type readIndex struct {
	barrier func() error

	mutex   sync.Mutex
	next    *barrier // of reads that wait for a barrier that has not begun
	running bool
}

type barrier struct {
	done chan struct{}
	err  error // when it is done
}

// wait returns when a barrier that began after the call is through.
func (r *readIndex) wait() error {
	r.mutex.Lock()
	if r.next == nil {
		r.next = &barrier{done: make(chan struct{})}
	}
	own := r.next
	if !r.running {
		r.running = true
		go r.run()
	}
	r.mutex.Unlock()
	<-own.done
	return own.err
}

// run ends when no read waits.
func (r *readIndex) run() {
	for {
		r.mutex.Lock()
		now := r.next
		r.next = nil
		r.running = now != nil
		r.mutex.Unlock()
		if now == nil {
			return
		}
		now.err = r.barrier()
		close(now.done)
	}
}
