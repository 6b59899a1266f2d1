package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"
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
		text, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(string(text))
	}
	// each runs so many clients until `done` says so, and returns the latencies.
	each := func(clients int, next func() (int, bool)) []time.Duration {
		var lock sync.Mutex
		var all []time.Duration
		var busy sync.WaitGroup
		for i := 0; i < clients; i++ {
			busy.Add(1)
			go func() {
				defer busy.Done()
				var own []time.Duration
				for number, more := next(); more; number, more = next() {
					begin := time.Now()
					if err := put(number); err != nil {
						t.Error(err)
						break
					}
					own = append(own, time.Since(begin))
				}
				lock.Lock()
				all = append(all, own...)
				lock.Unlock()
			}()
		}
		busy.Wait()
		sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
		return all
	}
	var lock sync.Mutex
	filled := 0
	begin := time.Now()
	each(64, func() (int, bool) {
		lock.Lock()
		defer lock.Unlock()
		filled++
		return filled - 1, filled <= keys
	})
	say(map[string]any{"workload": "fill", "clients": 64, "ops_per_s": float64(keys) / time.Since(begin).Seconds()})
	for _, clients := range []int{1, 16, 64} {
		end := time.Now().Add(time.Duration(seconds) * time.Second)
		begin := time.Now()
		took := each(clients, func() (int, bool) { return rand.Intn(keys), time.Now().Before(end) })
		if len(took) == 0 {
			t.Fatal("nothing was put")
		}
		us := func(part int) float64 { return float64(took[len(took)*part/1000].Nanoseconds()) / 1000 }
		say(map[string]any{"workload": "put", "clients": clients, "samples": len(took), "p50_us": us(500),
			"p99_us": us(990), "p999_us": us(999), "ops_per_s": float64(len(took)) / time.Since(begin).Seconds()})
	}
	c.kill(-1)
	begin = time.Now()
	c.start()
	var a acknowledged
	a.check(t, client) // answers
	say(map[string]any{"workload": "serving after a kill", "seconds": time.Since(begin).Seconds(), "keys": keys})
}
