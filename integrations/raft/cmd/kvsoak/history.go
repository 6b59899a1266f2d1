package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"memlith.org/memlith/raftstore/internal/txn"
	"memlith.org/memlith/retwis/nodes"
)

const (
	keys       = 4
	answerTime = 600 * time.Millisecond // of one request; then it is sent again
)

// patience is the time without any answer after which a run has failed. Planted faults may bring the nodes down.
func patience() time.Duration {
	if *planted != "" {
		return 30 * time.Second
	}
	return 180 * time.Second
}

// ---- the model -----------------------------------------------------------------------------------------------------

type cell struct {
	version uint64
	value   string
}

type seen struct {
	key int
	cell
}

type write struct {
	key   int
	value string
}

// An operation is a read of keys, or a transaction.
type operation struct {
	transaction bool
	keys        []int   // of a read
	reads       []seen  // of a transaction: with the versions that it needs
	writes      []write // of a transaction
}

type answer struct {
	values []cell // of a read
	result txn.Result
}

type state [keys]cell

var model = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(before, in, out any) (bool, any) {
		now, asked, got := before.(state), in.(operation), out.(answer)
		if !asked.transaction {
			for i, key := range asked.keys {
				if got.values[i] != now[key] {
					return false, now
				}
			}
			return true, now
		}
		valid := true
		for _, read := range asked.reads {
			valid = valid && now[read.key].version == read.version
		}
		if got.result.Status != txn.Committed {
			return !valid && got.result.Status == txn.Conflict, now
		}
		for _, write := range asked.writes {
			now[write.key] = cell{got.result.Version, write.value}
		}
		return valid, now
	},
	DescribeOperation: func(in, out any) string {
		asked, got := in.(operation), out.(answer)
		if !asked.transaction {
			return fmt.Sprintf("read %v: %v", asked.keys, got.values)
		}
		return fmt.Sprintf("reads %v, writes %v: %v", asked.reads, asked.writes, got.result)
	},
}

// ---- clients -------------------------------------------------------------------------------------------------------

type history struct {
	began    time.Time
	answers  atomic.Int64
	requests atomic.Int64

	mutex sync.Mutex
	all   []porcupine.Operation
}

func newHistory() *history { return &history{began: time.Now()} }

// RoundTrip counts what is sent.
func (h *history) RoundTrip(request *http.Request) (*http.Response, error) {
	h.requests.Add(1)
	return http.DefaultTransport.RoundTrip(request)
}

// client is one of kvnode's or of etcd's. What is not answered is sent again, until the context ends.
type client interface {
	Read(ctx context.Context, keys []string) ([]txn.Value, error)
	Commit(ctx context.Context, reads []txn.Read, writes []txn.Write) (txn.Result, error)
}

func newClient(number uint64, addresses []string, web *http.Client, random *rand.Rand) client {
	sender := txn.Sender{Addresses: addresses, HTTP: web, Random: random, Anywhere: 0.1}
	if *etcd != "" {
		sender.Insists = true // a member that has just started refuses, until it knows the version of the others
		return &etcdClient{Sender: sender, id: number}
	}
	if *planted == "stale-reads" || *planted == "wall-lease" {
		sender.Anywhere = 0.5
	}
	return txn.NewClient(number, sender)
}

// start starts the clients. What it returns ends them: after the answers of what they have sent, or at once.
func (h *history) start(c *nodes.Cluster, random *rand.Rand) (stop func(wait bool) error) {
	ending := make(chan struct{})
	sending, cancel := context.WithCancel(context.Background())
	web := &http.Client{Timeout: answerTime, Transport: h}
	var all sync.WaitGroup
	failures := make(chan error, *clients)
	for i := 0; i < *clients; i++ {
		own := rand.New(rand.NewSource(random.Int63()))
		one := newClient(uint64(i+1), c.HTTP[:], web, own)
		all.Add(1)
		go func(number int) {
			defer all.Done()
			failures <- h.run(sending, number, one, own, ending)
		}(i)
	}
	return func(wait bool) error {
		close(ending)
		if wait {
			timer := time.AfterFunc(patience(), cancel)
			defer timer.Stop()
		} else {
			cancel()
		}
		all.Wait()
		cancel()
		web.CloseIdleConnections()
		var err error
		for i := 0; i < *clients && wait; i++ {
			err = errors.Join(err, <-failures)
		}
		return err
	}
}

func name(key int) string { return fmt.Sprint("key", key) }

// run reads some keys and sends a transaction that needs the versions it knows, again and again. Versions that it
// has known for longer lead to conflicts.
func (h *history) run(ctx context.Context, number int, one client, random *rand.Rand,
	ending <-chan struct{}) error {
	var known state
	for n := 0; ; n++ {
		select {
		case <-ending:
			return nil
		default:
		}
		some := random.Perm(keys)
		if random.Intn(3) > 0 {
			if err := h.read(ctx, number, one, some[:1+random.Intn(keys)], &known); err != nil {
				return err
			}
		}
		if random.Intn(3) > 0 {
			asked := operation{transaction: true}
			for _, key := range some[:random.Intn(3)] {
				asked.reads = append(asked.reads, seen{key, known[key]})
			}
			for _, key := range some[:1+random.Intn(2)] {
				asked.writes = append(asked.writes, write{key, fmt.Sprintf("%d of client %d", n, number)})
			}
			if err := h.commit(ctx, number, one, asked); err != nil {
				return err
			}
		}
	}
}

func (h *history) read(ctx context.Context, number int, one client, some []int, known *state) error {
	var names []string
	for _, key := range some {
		names = append(names, name(key))
	}
	call := h.now()
	values, err := one.Read(ctx, names)
	if err != nil {
		return err
	}
	got := answer{}
	for i, key := range some {
		known[key] = cell{values[i].Version, string(values[i].Data)}
		got.values = append(got.values, known[key])
	}
	h.add(number, operation{keys: append([]int(nil), some...)}, got, call)
	return nil
}

func (h *history) commit(ctx context.Context, number int, one client, asked operation) error {
	var reads []txn.Read
	for _, read := range asked.reads {
		reads = append(reads, txn.Read{Key: name(read.key), Version: read.version})
	}
	var writes []txn.Write
	for _, write := range asked.writes {
		writes = append(writes, txn.Write{Key: name(write.key), Value: []byte(write.value)})
	}
	call := h.now()
	result, err := one.Commit(ctx, reads, writes)
	if err != nil {
		return err
	}
	h.add(number, asked, answer{result: result}, call)
	return nil
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

func (h *history) add(client int, in operation, out answer, call int64) {
	h.mutex.Lock()
	h.all = append(h.all, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: call, Return: h.now()})
	h.mutex.Unlock()
	h.answers.Add(1)
}

// await returns when so many more operations were answered.
func (h *history) await(answers int) error {
	wanted, began := h.answers.Load()+int64(answers), time.Now()
	for h.answers.Load() < wanted {
		if time.Since(began) > patience() {
			return fmt.Errorf("there are no answers; see the logs of the nodes in %s", *folder)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (h *history) count(all *counts) {
	all.operations += len(h.all)
	all.sentAgain += int(h.requests.Load()) - len(h.all)
	for _, each := range h.all {
		switch each.Output.(answer).result.Status {
		case txn.Committed:
			all.commits++
		case txn.Conflict:
			all.conflicts++
		}
	}
}
