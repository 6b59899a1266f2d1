// Command retwis measures the load of package retwis on three nodes of kvnode on this machine, in turns: on memlith,
// and on raft-wal with the state in bbolt. With -etcd, three members of etcd take turns, too. A transaction that writes
// is answered when a majority has it on the disk; reads are linearizable. Then all three nodes are killed, and the time
// until a transaction is answered again is taken. It prints a line of JSON for each side and measurement. Each side has
// a process of its own: this program with -side, or that of integrations/etcd.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"time"

	"memlith.org/memlith/raftstore/internal/txn"
	"memlith.org/memlith/retwis"
	"memlith.org/memlith/retwis/contest"
	"memlith.org/memlith/retwis/nodes"
)

var (
	program  = flag.String("node", "", "the program kvnode")
	etcd     = flag.String("etcd", "", "the program that is the side of etcd (integrations/etcd); none: it is left out")
	folder   = flag.String("dir", "", "a folder on the disk that is measured")
	one      = flag.String("side", "", "be the process of that side, a storage of kvnode")
	seconds  = flag.Float64("seconds", 30, "for each side and number of clients")
	turns    = flag.Int("turns", 3, "turns of each side")
	keys     = flag.Int("keys", 1_000_000, "keys that are there before")
	bytes    = flag.Int("value-bytes", 64, "size of a value")
	theta    = flag.Float64("zipf", 0.75, "of the distribution of the keys; 0: all alike")
	clients  = flag.Int("clients", 64, "clients at a time, each with one transaction at a time")
	restarts = flag.Int("restarts", 3, "how often all nodes are killed to measure the time until they serve again")
	seed     = flag.Int64("seed", 1, "of what the clients do")
)

const patience = 2 * time.Minute // for an answer

var restFor = 2 * time.Second // between turns, so that none works on behalf of the one before

// ---- the side of kvnode --------------------------------------------------------------------------------------------

type service struct {
	cluster *nodes.Cluster
	clients []retwis.Client
}

func serve(storage string) error {
	cluster, err := nodes.New(*program, *folder, nodes.Kvnode("-storage", storage))
	if err != nil {
		return err
	}
	defer cluster.Close()
	s := service{cluster: cluster}
	random := rand.New(rand.NewSource(*seed))
	for i := 0; i < *clients; i++ {
		// A client of its own for each turn's goroutine; connections are kept.
		sender := txn.Sender{Addresses: cluster.HTTP[:], HTTP: &http.Client{Transport: &http.Transport{}},
			Random: rand.New(rand.NewSource(random.Int63()))}
		s.clients = append(s.clients, &client{txn.NewClient(uint64(i+1), sender)})
	}
	if err := cluster.StartAll(); err != nil {
		return err
	}
	return retwis.Serve(s)
}

func (s service) Clients() []retwis.Client { return s.clients }

func (s service) Restart() (time.Duration, error) {
	began, err := s.cluster.Restart()
	if err != nil {
		return 0, err
	}
	committed, err := s.clients[0].Commit(nil, nil, []string{retwis.Key(0)}, []byte("served again"))
	if err == nil && !committed {
		err = errors.New("a transaction without reads had a conflict")
	}
	return time.Since(began), err
}

type client struct{ *txn.Client }

func (c *client) Read(keys []string) (versions []uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	values, err := c.Client.Read(ctx, keys)
	for _, value := range values {
		versions = append(versions, value.Version)
	}
	return versions, err
}

func (c *client) Commit(reads []string, versions []uint64, writes []string, value []byte) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var asked []txn.Read
	for i, key := range reads {
		asked = append(asked, txn.Read{Key: key, Version: versions[i]})
	}
	var changes []txn.Write
	for _, key := range writes {
		changes = append(changes, txn.Write{Key: key, Value: value})
	}
	result, err := c.Client.Commit(ctx, asked, changes)
	if err == nil && result.Status != txn.Committed && result.Status != txn.Conflict {
		err = fmt.Errorf("the status of a transaction is %d", result.Status)
	}
	return result.Status == txn.Committed, err
}

// ---- measuring -----------------------------------------------------------------------------------------------------

func run() error {
	load := retwis.Load{Keys: *keys, ValueBytes: *bytes, Theta: *theta}
	if err := load.Check(); err != nil {
		return err
	}
	if *program == "" || *folder == "" || *turns < 1 || *clients < 1 || *restarts < 0 {
		return errors.New("-node and -dir are needed; -turns and -clients are at least 1")
	}
	place, err := os.MkdirTemp(*folder, "retwis")
	if err != nil {
		return err
	}
	defer os.RemoveAll(place)
	sides, err := start(place)
	for _, each := range sides {
		defer each.Close()
	}
	if err != nil {
		return err
	}
	results, err := inTurns(sides, load)
	if err != nil {
		return err
	}
	reference := results[1].PerSecond()
	for i, each := range sides {
		line := described(each, load)
		line["clients"], line["zipf"], line["conflicts"] = *clients, *theta, results[i].Conflicts
		contest.Quantiles(line, results[i].All())
		line["tx_per_s"], line["ratio"] = results[i].PerSecond(), results[i].PerSecond()/reference
		if err := contest.Print(line); err != nil {
			return err
		}
	}
	return serveAgain(sides, load)
}

// start starts each side, in a folder of its own.
func start(place string) (sides []*retwis.Side, err error) {
	add := func(name, program string, arguments ...string) {
		if err != nil {
			return
		}
		var each *retwis.Side
		if each, err = retwis.Start(name, program, append(arguments, "-dir", filepath.Join(place, name), "-clients",
			fmt.Sprint(*clients))...); err == nil {
			sides = append(sides, each)
		}
	}
	for _, storage := range []string{"memlith", "raft-wal"} {
		add(storage, os.Args[0], "-side", storage, "-node", *program, "-seed", fmt.Sprint(*seed))
	}
	if *etcd != "" {
		add("etcd", *etcd)
	}
	return sides, err
}

func inTurns(sides []*retwis.Side, load retwis.Load) ([]retwis.Result, error) {
	for _, each := range sides {
		began := time.Now()
		if err := each.Fill(load); err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "%s: %d keys in %.1f s\n", each.Name, load.Keys, time.Since(began).Seconds())
	}
	results, numbers := make([]retwis.Result, len(sides)), make([]int, len(sides))
	for i := range numbers {
		numbers[i] = i
	}
	err := contest.Turns(*turns, numbers, func(turn, number int) error {
		time.Sleep(restFor)
		result, err := sides[number].Run(load, *seed+int64(turn**clients), contest.Slice(*seconds, *turns))
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "turn %d, %s: %.0f transactions/s\n", turn+1, sides[number].Name, result.PerSecond())
		results[number].Add(result)
		return nil
	})
	return results, err
}

// serveAgain measures the time from the start of three processes that were killed to the first answer.
func serveAgain(sides []*retwis.Side, load retwis.Load) error {
	times := make([][]float64, len(sides))
	for turn := 0; turn < *restarts; turn++ {
		for i, each := range sides {
			took, err := each.Restart()
			if err != nil {
				return err
			}
			times[i] = append(times[i], took.Seconds())
			time.Sleep(restFor)
		}
	}
	for i, each := range sides {
		if *restarts == 0 {
			break
		}
		sort.Float64s(times[i])
		line := described(each, load)
		line["suite"], line["seconds"] = "retwis-recovery", times[i][len(times[i])/2]
		line["seconds_min"], line["seconds_max"] = times[i][0], times[i][len(times[i])-1]
		if err := contest.Print(line); err != nil {
			return err
		}
	}
	return nil
}

func described(each *retwis.Side, load retwis.Load) map[string]any {
	return map[string]any{"suite": "retwis", "side": each.Name, "durability": "sync", "keys": load.Keys,
		"value_bytes": load.ValueBytes}
}

func main() {
	contest.Main("retwis", func() error {
		if *one != "" {
			return serve(*one)
		}
		return run()
	})
}
