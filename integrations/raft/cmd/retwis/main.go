// Command retwis measures the load of package retwis on three nodes of kvnode on this machine, in turns: on memlith,
// and on raft-wal with the state in bbolt. With -etcd, three members of etcd take turns, too. A transaction that writes
// is answered when a majority has it on the disk; reads are linearizable. Then all three nodes are killed, and the time
// until a transaction is answered again is taken. It prints a line of JSON for each side and measurement.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"net/http"
	"os"
	"sort"
	"time"

	"memlith.org/memlith/raftstore/internal/nodes"
	"memlith.org/memlith/raftstore/internal/txn"
	"memlith.org/memlith/retwis"
)

var (
	program  = flag.String("node", "", "the program kvnode")
	etcd     = flag.String("etcd", "", "the program that speaks for etcd (integrations/etcd); none: etcd is left out")
	folder   = flag.String("dir", "", "a folder on the disk that is measured")
	seconds  = flag.Float64("seconds", 30, "for each side and number of clients")
	turns    = flag.Int("turns", 3, "turns of each side")
	keys     = flag.Int("keys", 1_000_000, "keys that are there before")
	bytes    = flag.Int("value-bytes", 64, "size of a value")
	theta    = flag.Float64("zipf", 0.75, "of the distribution of the keys; 0: all alike")
	clients  = flag.Int("clients", 64, "clients at a time, each with one transaction at a time")
	restarts = flag.Int("restarts", 3, "how often all nodes are killed to measure the time until they serve again")
	seed     = flag.Int64("seed", 1, "of what the clients do")
)

const (
	fillBatch = 500             // keys in a transaction
	patience  = 2 * time.Minute // for an answer
)

var settle = 2 * time.Second // between turns, so that none works on behalf of the one before

// A side has three processes.
type side interface {
	name() string
	fill(load retwis.Load) error
	run(load retwis.Load, zipf *retwis.Zipf, seed int64, length time.Duration) (retwis.Result, error)
	restart() (time.Duration, error) // of all, killed, until a transaction was answered
	close()
}

// ---- kvnode --------------------------------------------------------------------------------------------------------

type service struct {
	storage string
	place   string
	cluster *nodes.Cluster
	clients []retwis.Client
	random  *rand.Rand
}

func openService(storage string) (*service, error) {
	place, err := os.MkdirTemp(*folder, storage)
	if err != nil {
		return nil, err
	}
	s := &service{storage: storage, place: place, random: rand.New(rand.NewSource(*seed))}
	if s.cluster, err = nodes.New(*program, place, nodes.Kvnode("-storage", storage)); err != nil {
		return nil, err
	}
	for i := 0; i < *clients; i++ {
		// A client of its own for each turn's goroutine; connections are kept.
		sender := txn.Sender{Addresses: s.cluster.HTTP[:], HTTP: &http.Client{Transport: &http.Transport{}},
			Random: rand.New(rand.NewSource(s.random.Int63()))}
		s.clients = append(s.clients, &client{txn.NewClient(uint64(i+1), sender)})
	}
	return s, s.cluster.StartAll()
}

func (s *service) name() string { return s.storage }

func (s *service) fill(load retwis.Load) error { return load.Fill(s.clients[0], fillBatch) }

func (s *service) run(load retwis.Load, zipf *retwis.Zipf, seed int64, length time.Duration) (retwis.Result, error) {
	return load.Run(s.clients, zipf, seed, length)
}

func (s *service) restart() (time.Duration, error) {
	for i := 0; i < nodes.Count; i++ {
		if err := s.cluster.Kill(i); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	if err := s.cluster.StartAll(); err != nil {
		return 0, err
	}
	committed, err := s.clients[0].Commit(nil, nil, []string{retwis.Key(0)}, []byte("served again"))
	if err == nil && !committed {
		err = errors.New("a transaction without reads had a conflict")
	}
	return time.Since(began), err
}

func (s *service) close() {
	s.cluster.Close()
	os.RemoveAll(s.place)
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
	var sides []side
	for _, storage := range []string{"memlith", "raft-wal"} {
		opened, err := openService(storage)
		if opened != nil {
			defer opened.close()
		}
		if err != nil {
			return err
		}
		sides = append(sides, opened)
	}
	if *etcd != "" {
		opened, err := openEtcd()
		if err != nil {
			return err
		}
		defer opened.close()
		sides = append(sides, opened)
	}
	results, err := inTurns(sides, load)
	if err != nil {
		return err
	}
	reference := results[1].PerSecond()
	for i, each := range sides {
		times := results[i].Microseconds(0.5, 0.99, 0.999)
		line := described(each, load)
		line["clients"], line["zipf"], line["conflicts"] = *clients, *theta, results[i].Conflicts
		line["p50_us"], line["p99_us"], line["p999_us"] = times[0], times[1], times[2]
		line["tx_per_s"], line["ratio"] = results[i].PerSecond(), results[i].PerSecond()/reference
		if err := print(line); err != nil {
			return err
		}
	}
	return serveAgain(sides, load)
}

func inTurns(sides []side, load retwis.Load) ([]retwis.Result, error) {
	zipf := retwis.NewZipf(load.Keys, load.Theta)
	for _, each := range sides {
		began := time.Now()
		if err := each.fill(load); err != nil {
			return nil, fmt.Errorf("%s: %w", each.name(), err)
		}
		fmt.Fprintf(os.Stderr, "%s: %d keys in %.1f s\n", each.name(), load.Keys, time.Since(began).Seconds())
	}
	results := make([]retwis.Result, len(sides))
	length := time.Duration(*seconds * float64(time.Second) / float64(*turns))
	for turn := 0; turn < *turns; turn++ {
		for i := range sides { // the order changes from turn to turn
			number := (i + turn) % len(sides)
			time.Sleep(settle)
			result, err := sides[number].run(load, zipf, *seed+int64(turn**clients), length)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", sides[number].name(), err)
			}
			fmt.Fprintf(os.Stderr, "turn %d, %s: %.0f transactions/s\n", turn+1, sides[number].name(), result.PerSecond())
			results[number].Add(result)
		}
	}
	return results, nil
}

// serveAgain measures the time from the start of three processes that were killed to the first answer.
func serveAgain(sides []side, load retwis.Load) error {
	times := make([][]float64, len(sides))
	for turn := 0; turn < *restarts; turn++ {
		for i, each := range sides {
			took, err := each.restart()
			if err != nil {
				return fmt.Errorf("%s: %w", each.name(), err)
			}
			times[i] = append(times[i], took.Seconds())
			time.Sleep(settle)
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
		if err := print(line); err != nil {
			return err
		}
	}
	return nil
}

func described(each side, load retwis.Load) map[string]any {
	return map[string]any{"suite": "retwis", "side": each.name(), "durability": "sync", "keys": load.Keys,
		"value_bytes": load.ValueBytes}
}

func print(line map[string]any) error {
	text, err := json.Marshal(line)
	if err == nil {
		fmt.Println(string(text))
	}
	return err
}

func main() {
	flag.Bool("json", true, "accepted like by every benchmark; there is no other output")
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "retwis:", err)
		os.Exit(1)
	}
}
