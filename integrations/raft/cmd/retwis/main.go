// Command retwis measures the load of package retwis on three nodes of kvnode on this machine, in turns: on memlith,
// and on raft-wal with the state in bbolt. With -etcd, three members of etcd take turns, too. A transaction that writes
// is answered when a majority has it on the disk; reads are linearizable. Then all three nodes are killed, and the time
// until a transaction is answered again is taken. It prints a line of JSON for each side and measurement. Each side has
// a process of its own: this program with -side, or that of integrations/etcd. The side `memory` keeps nothing on a
// disk, which shows the cost of durability.
//
// With -measure recovery, a replica is killed after the load and started again, with its disk or with an empty one, and
// the time until it has caught up is taken. With -measure timeline, the load goes on while first the leader and then
// all nodes die and return, and transactions are counted by second. Both are for sides of kvnode.
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
	"strconv"
	"strings"
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
	measure  = flag.String("measure", byLoad, "load, recovery or timeline")
	wanted   = flag.String("sides", "memlith,raft-wal", "storages of kvnode, such as memlith,raft-wal,raft-wal-map,memory")
	seconds  = flag.Float64("seconds", 30, "for each side and number of clients")
	turns    = flag.Int("turns", 3, "turns of each side")
	keys     = flag.Int("keys", 1_000_000, "keys that are there before")
	bytes    = flag.Int("value-bytes", 64, "size of a value")
	theta    = flag.Float64("zipf", 0.75, "of the distribution of the keys; 0: all alike")
	clients  = flag.String("clients", "64", "clients at a time, each with one transaction at a time; such as 10,60")
	restarts = flag.Int("restarts", 3, "how often nodes are killed to measure the time until they serve again")
	seed     = flag.Int64("seed", 1, "of what the clients do")
)

// The measurements.
const (
	byLoad     = "load"
	byRecovery = "recovery"
	byTimeline = "timeline"
)

const (
	patience         = 2 * time.Minute // for an answer
	recoveryPatience = 10 * time.Minute
	breath           = 2 * time.Millisecond
	memory           = "memory"   // the side of which a restart leaves nothing
	reference        = "raft-wal" // the side with the ratio 1
)

var restFor = 2 * time.Second // between turns, so that none works on behalf of the one before

// ---- the side of kvnode --------------------------------------------------------------------------------------------

type service struct {
	cluster *nodes.Cluster
	clients []retwis.Client
}

func serve(storage string) error {
	counts, err := numbers(*clients)
	if err != nil {
		return err
	}
	arguments := []string{"-storage", storage}
	if *measure == byRecovery {
		arguments = append(arguments, "-snapshots", "5s") // so that an empty replica gets a snapshot of the state
	}
	cluster, err := nodes.New(*program, *folder, nodes.Kvnode(arguments...))
	if err != nil {
		return err
	}
	defer cluster.Close()
	s := service{cluster: cluster}
	random := rand.New(rand.NewSource(*seed))
	for i := 0; i < most(counts); i++ {
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
	_, err = s.commit()
	return time.Since(began), err
}

// commit returns the index of a transaction, when that is answered.
func (s service) commit() (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	writes := []txn.Write{{Key: retwis.Key(0), Value: []byte("served again")}}
	result, err := s.clients[0].(*client).Client.Commit(ctx, nil, writes)
	if err == nil && result.Status != txn.Committed {
		err = fmt.Errorf("a transaction without reads has the status %d", result.Status)
	}
	return result.Version, err
}

func (s service) KillLeader() error {
	leader, err := s.cluster.Find("Leader", patience)
	if err == nil {
		err = s.cluster.Kill(leader)
	}
	return err
}

func (s service) KillAll() (err error) {
	for i := 0; i < nodes.Count && err == nil; i++ {
		err = s.cluster.Kill(i)
	}
	return err
}

func (s service) StartAll() error { return s.cluster.StartAll() }

func (s service) Recover(empty bool) (time.Duration, error) {
	one, err := s.cluster.Find("Follower", patience)
	if err == nil {
		err = s.cluster.Kill(one)
	}
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if empty {
		err = s.cluster.Replace(one, patience)
	} else {
		err = s.cluster.Start(one)
	}
	if err != nil {
		return 0, err
	}
	newest, err := s.commit()
	for err == nil {
		if state, ok := s.cluster.State(one); ok && state.Applied >= newest {
			return time.Since(began), nil
		}
		if time.Since(began) > recoveryPatience {
			err = fmt.Errorf("node %d did not catch up", one)
		}
		time.Sleep(breath)
	}
	return 0, err
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
	counts, err := numbers(*clients)
	if err != nil {
		return err
	}
	measures := map[string]func([]*retwis.Side, retwis.Load, []int) error{
		byLoad: transactions, byRecovery: recoveries, byTimeline: timelines}
	if *program == "" || *folder == "" || *turns < 1 || *restarts < 0 || measures[*measure] == nil {
		return errors.New("-node and -dir are needed; -turns is at least 1, and -measure is load, recovery or timeline")
	}
	if *measure != byLoad && strings.Contains(","+*wanted+",", ","+memory+",") {
		return errors.New("nodes of the side memory have nothing to return with")
	}
	place, err := os.MkdirTemp(*folder, "retwis")
	if err != nil {
		return err
	}
	defer os.RemoveAll(place)
	sides, err := start(place, most(counts))
	for _, each := range sides {
		defer each.Close()
	}
	if err != nil {
		return err
	}
	for _, each := range sides {
		began := time.Now()
		if err := each.Fill(load); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s: %d keys in %.1f s\n", each.Name, load.Keys, time.Since(began).Seconds())
	}
	return measures[*measure](sides, load, counts)
}

// numbers are those of a list with commas, each at least 1.
func numbers(list string) (all []int, err error) {
	for _, each := range strings.Split(list, ",") {
		number, err := strconv.Atoi(each)
		if err != nil || number < 1 {
			return nil, fmt.Errorf("%q is no number of clients", each)
		}
		all = append(all, number)
	}
	return all, nil
}

func most(all []int) (most int) {
	for _, each := range all {
		if each > most {
			most = each
		}
	}
	return most
}

// transactions measures the load, and then the time until killed processes serve again.
func transactions(sides []*retwis.Side, load retwis.Load, counts []int) error {
	for _, count := range counts {
		results, err := inTurns(sides, load, count)
		if err != nil {
			return err
		}
		for i, each := range sides {
			line := described(each, load)
			line["clients"], line["zipf"], line["conflicts"] = count, *theta, results[i].Conflicts
			contest.Quantiles(line, results[i].All())
			line["tx_per_s"] = results[i].PerSecond()
			for n, other := range sides {
				if other.Name == reference {
					line["ratio"] = results[i].PerSecond() / results[n].PerSecond()
				}
			}
			if err := contest.Print(line); err != nil {
				return err
			}
		}
	}
	return serveAgain(sides, load)
}

// start starts each side, in a folder of its own, for at most `most` clients.
func start(place string, most int) (sides []*retwis.Side, err error) {
	add := func(name, program string, arguments ...string) {
		if err != nil {
			return
		}
		var each *retwis.Side
		if each, err = retwis.Start(name, program, append(arguments, "-dir", filepath.Join(place, name), "-clients",
			fmt.Sprint(most))...); err == nil {
			sides = append(sides, each)
		}
	}
	for _, storage := range strings.Split(*wanted, ",") {
		add(storage, os.Args[0], "-side", storage, "-node", *program, "-seed", fmt.Sprint(*seed), "-measure", *measure)
	}
	if *etcd != "" && *measure == byLoad {
		add("etcd", *etcd)
	}
	return sides, err
}

func inTurns(sides []*retwis.Side, load retwis.Load, count int) ([]retwis.Result, error) {
	results, numbers := make([]retwis.Result, len(sides)), make([]int, len(sides))
	for i := range numbers {
		numbers[i] = i
	}
	err := contest.Turns(*turns, numbers, func(turn, number int) error {
		time.Sleep(restFor)
		result, err := sides[number].Run(load, count, *seed+int64(turn*count), contest.Slice(*seconds, *turns))
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "turn %d, %d clients, %s: %.0f transactions/s\n", turn+1, count, sides[number].Name,
			result.PerSecond())
		results[number].Add(result)
		return nil
	})
	return results, err
}

// serveAgain measures the time from the start of three processes that were killed to the first answer.
func serveAgain(sides []*retwis.Side, load retwis.Load) error {
	var lasting []*retwis.Side
	for _, each := range sides {
		if each.Name != memory {
			lasting = append(lasting, each)
		}
	}
	times, err := inRestarts(lasting, (*retwis.Side).Restart)
	for i := 0; i < len(times) && err == nil; i++ {
		line := described(lasting[i], load)
		line["suite"] = "retwis-recovery"
		ends(line, "seconds", times[i])
		err = contest.Print(line)
	}
	return err
}

// recoveries measures the time until a replica has caught up that was killed after the load.
func recoveries(sides []*retwis.Side, load retwis.Load, counts []int) error {
	if _, err := inTurns(sides, load, most(counts)); err != nil {
		return err
	}
	kept, err := inRestarts(sides, func(s *retwis.Side) (time.Duration, error) { return s.Recover(false) })
	if err != nil {
		return err
	}
	empty, err := inRestarts(sides, func(s *retwis.Side) (time.Duration, error) { return s.Recover(true) })
	for i := 0; i < len(empty) && err == nil; i++ {
		line := described(sides[i], load)
		line["suite"] = "retwis-replica"
		ends(line, "seconds", kept[i])
		ends(line, "empty_seconds", empty[i])
		err = contest.Print(line)
	}
	return err
}

// inRestarts are the sorted times in seconds of each side, in turns; none with -restarts 0.
func inRestarts(sides []*retwis.Side, restart func(*retwis.Side) (time.Duration, error)) ([][]float64, error) {
	if *restarts == 0 {
		return nil, nil
	}
	times := make([][]float64, len(sides))
	for turn := 0; turn < *restarts; turn++ {
		for i, each := range sides {
			took, err := restart(each)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(os.Stderr, "turn %d, %s: %.2f s\n", turn+1, each.Name, took.Seconds())
			times[i] = append(times[i], took.Seconds())
			time.Sleep(restFor)
		}
	}
	for _, each := range times {
		sort.Float64s(each)
	}
	return times, nil
}

// ends puts the median and the ends of sorted times into the line.
func ends(line map[string]any, name string, times []float64) {
	line[name], line[name+"_min"], line[name+"_max"] = times[len(times)/2], times[0], times[len(times)-1]
}

// timelines counts transactions by second while nodes die and return.
func timelines(sides []*retwis.Side, load retwis.Load, counts []int) error {
	for _, count := range counts {
		for _, each := range sides {
			time.Sleep(restFor)
			watched, err := each.Watch(load, count, *seed, contest.Slice(*seconds, 1))
			if err != nil {
				return err
			}
			line := described(each, load)
			line["suite"], line["clients"], line["zipf"] = "retwis-timeline", count, *theta
			line["tx_each_s"] = watched.PerSecond
			for _, event := range watched.Events {
				line[event.What+"_at_s"], line[event.What+"_gap_s"] = event.At.Seconds(), event.Gap.Seconds()
			}
			if err := contest.Print(line); err != nil {
				return err
			}
		}
	}
	return nil
}

func described(each *retwis.Side, load retwis.Load) map[string]any {
	durability := "sync"
	if each.Name == memory {
		durability = "none"
	}
	return map[string]any{"suite": "retwis", "side": each.Name, "durability": durability, "keys": load.Keys,
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
