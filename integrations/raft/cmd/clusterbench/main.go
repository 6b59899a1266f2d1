// Command clusterbench measures puts of a replicated key-value service, three processes of kvnode on this machine, with
// raft's log on memlith, raft-wal and raft-boltdb in turns. A put is answered when a majority has it on the disk. The
// state is durable, too, with memlith in its store, with the others in a file of bbolt; or, with the others, it is in
// maps of Go. It prints a line of JSON for each.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"memlith.org/memlith/retwis/contest"
	"memlith.org/memlith/retwis/nodes"
)

var (
	program = flag.String("node", "", "the program kvnode")
	folder  = flag.String("dir", "", "a folder on the disk that is measured")
	seconds = flag.Float64("seconds", 5, "for each storage and number of clients")
	turns   = flag.Int("turns", 3, "turns of each storage")
	bytes   = flag.Int("value-bytes", 100, "size of a value")
	storage = flag.String("sides", "memlith,raft-wal-map,raft-boltdb-map,raft-wal,raft-boltdb", "storages of kvnode")
)

const (
	leads = time.Minute // for a leader to be found
	keys  = 10_000
)

type side struct {
	storage string
	times   map[int][]time.Duration // by clients
	took    map[int]time.Duration
}

var clients = []int{1, 16, 64}

func put(client *http.Client, address string, n int, value string) (leader string, err error) {
	url := fmt.Sprintf("http://%s/k/key%d", address, n%keys)
	request, err := http.NewRequest(http.MethodPut, url, strings.NewReader(value))
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return response.Header.Get("X-Leader"), fmt.Errorf("status %d", response.StatusCode)
	}
	return address, nil
}

func leaderOf(c *nodes.Cluster, client *http.Client) (string, error) {
	for until := time.Now().Add(leads); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		for _, address := range c.HTTP {
			if leader, err := put(client, address, 0, "first"); err == nil {
				return leader, nil
			}
		}
	}
	return "", errors.New("no node leads")
}

// One turn: a new cluster, and each number of clients for a while.
func (s *side) turn(slice time.Duration) error {
	place, err := os.MkdirTemp(*folder, s.storage)
	if err != nil {
		return err
	}
	defer os.RemoveAll(place)
	c, err := nodes.New(*program, place, nodes.Kvnode("-storage", s.storage))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.StartAll(); err != nil {
		return err
	}
	most := clients[len(clients)-1]
	client := &http.Client{Timeout: leads, Transport: &http.Transport{MaxIdleConnsPerHost: most}}
	leader, err := leaderOf(c, client)
	if err != nil {
		return err
	}
	value := strings.Repeat("v", *bytes)
	for _, count := range clients {
		times, took, err := contest.Clients(count, slice, func(i, n int) error {
			_, err := put(client, leader, i+n*count, value)
			return err
		})
		if err != nil {
			return err
		}
		s.times[count] = append(s.times[count], contest.Flat(times)...)
		s.took[count] += took
	}
	return nil
}

func (s *side) state() string {
	switch {
	case s.storage == "memlith":
		return "memlith"
	case strings.HasSuffix(s.storage, "-map"):
		return "memory"
	}
	return "bbolt"
}

func (s *side) print() error {
	for _, count := range clients {
		line := map[string]any{"suite": "replica-puts", "side": s.storage, "clients": count, "value_bytes": *bytes,
			"durability": "sync", "state": s.state(),
			"ops_per_s": float64(len(s.times[count])) / s.took[count].Seconds()}
		contest.Quantiles(line, s.times[count])
		if err := contest.Print(line); err != nil {
			return err
		}
	}
	return nil
}

func run() error {
	if *program == "" || *folder == "" || *turns < 1 || *bytes < 1 {
		return errors.New("-node and -dir are needed; -turns and -value-bytes are at least 1")
	}
	var sides []*side
	for _, storage := range strings.Split(*storage, ",") {
		sides = append(sides, &side{storage, map[int][]time.Duration{}, map[int]time.Duration{}})
	}
	err := contest.Turns(*turns, sides, func(_ int, s *side) error {
		if err := s.turn(contest.Slice(*seconds, *turns)); err != nil {
			return fmt.Errorf("%s: %w", s.storage, err)
		}
		return nil
	})
	for _, s := range sides {
		if err == nil {
			err = s.print()
		}
	}
	return err
}

func main() { contest.Main("clusterbench", run) }
