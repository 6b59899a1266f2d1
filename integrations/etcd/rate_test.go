package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"testing"
	"time"

	"memlith.org/memlith/retwis/contest"
)

// TestRate measures durable puts of one member, and how soon it serves again after a kill. It prints a JSON object a
// line. Set MEMLITH_ETCD_SIDE to the name of what is below etcd: without it nothing is measured.
// MEMLITH_ETCD_SECONDS of each number of clients, MEMLITH_ETCD_KEYS before.
func TestRate(t *testing.T) {
	side := os.Getenv("MEMLITH_ETCD_SIDE")
	if side == "" {
		t.Skip("MEMLITH_ETCD_SIDE is not set: `./dev bench etcd` sets it")
	}
	seconds, keys := number(t, "MEMLITH_ETCD_SECONDS", 5), number(t, "MEMLITH_ETCD_KEYS", 100_000)
	c := newCluster(t, 1)
	c.more = []string{"--log-level", "error"}
	c.start()
	defer func() { c.kill(-1) }()
	client := c.client()
	defer client.Close()
	value := strings.Repeat("v", 256)
	put := func(number int) error {
		_, err := client.Put(context.Background(), fmt.Sprintf("key/%016d", number), value)
		return err
	}
	say := func(line map[string]any) {
		line["suite"], line["side"], line["durability"], line["value_bytes"] = "etcd", side, "sync", len(value)
		if err := contest.Print(line); err != nil {
			t.Fatal(err)
		}
	}
	const fillers = 64
	enough := errors.New("all keys are there")
	_, took, err := contest.Clients(fillers, time.Hour, func(client, count int) error {
		if number := count*fillers + client; number < keys {
			return put(number)
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	say(map[string]any{"workload": "fill", "clients": fillers, "ops_per_s": float64(keys) / took.Seconds()})
	for _, clients := range []int{1, 16, 64} {
		times, took, err := contest.Clients(clients, time.Duration(seconds)*time.Second, func(int, int) error {
			return put(rand.Intn(keys))
		})
		all := contest.Flat(times)
		if err != nil || len(all) == 0 {
			t.Fatalf("%d puts, %v", len(all), err)
		}
		line := map[string]any{"workload": "put", "clients": clients, "samples": len(all),
			"ops_per_s": float64(len(all)) / took.Seconds()}
		contest.Quantiles(line, all)
		say(line)
	}
	c.kill(-1)
	begin := time.Now()
	c.start()
	var a acknowledged
	a.check(t, client) // answers
	say(map[string]any{"workload": "serving after a kill", "seconds": time.Since(begin).Seconds(), "keys": keys})
}
