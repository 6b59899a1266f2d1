package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"memlith.org/memlith/retwis/contest"
)

// The test's program is also that of each side.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-side" {
		main()
		return
	}
	os.Exit(m.Run())
}

// built is the program kvnode and a folder, for the smallest form of a measurement.
func built(t *testing.T) {
	t.Helper()
	place, err := os.MkdirTemp(os.Getenv("MEMLITH_TEST_DIR"), "retwis")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(place) })
	*program, *folder = filepath.Join(place, "kvnode"), place
	restFor = 0
	*measure, *wanted, *seconds, *turns, *keys, *clients, *restarts = byLoad, "memlith,raft-wal", 0.5, 1, 200, "4", 1
	if output, err := exec.Command("go", "build", "-o", *program, "../kvnode").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}

// Each side has a line of transactions for each number of clients, and each side with a disk has one of recovery.
func TestEverySideIsMeasured(t *testing.T) {
	built(t)
	*wanted, *clients = "memlith,raft-wal,memory", "2,4"
	type line struct {
		Suite      string  `json:"suite"`
		Side       string  `json:"side"`
		Durability string  `json:"durability"`
		Clients    int     `json:"clients"`
		Rate       float64 `json:"tx_per_s"`
		Ratio      float64 `json:"ratio"`
		P50        float64 `json:"p50_us"`
		P999       float64 `json:"p999_us"`
		Seconds    float64 `json:"seconds"`
	}
	lines, err := contest.Printed[line](run)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, each := range lines {
		seen[each.Suite+" "+each.Side]++
		if each.Suite == "retwis" && (each.Rate <= 0 || each.P50 <= 0 || each.P999 < each.P50 ||
			(each.Side == "raft-wal") != (each.Ratio == 1) || (each.Clients != 2 && each.Clients != 4)) {
			t.Errorf("%+v", each)
		}
		if (each.Durability == "none") != (each.Side == "memory") || (each.Suite == "retwis-recovery" && each.Seconds <= 0) {
			t.Errorf("%+v", each)
		}
	}
	if len(seen) != 5 || seen["retwis memory"] != 2 || seen["retwis-recovery raft-wal"] != 1 {
		t.Errorf("there are lines of %v", seen)
	}
}

// A replica recovers with its disk and with an empty one.
func TestReplicasRecover(t *testing.T) {
	built(t)
	*measure = byRecovery
	type line struct {
		Suite        string  `json:"suite"`
		Side         string  `json:"side"`
		Seconds      float64 `json:"seconds"`
		EmptySeconds float64 `json:"empty_seconds"`
	}
	lines, err := contest.Printed[line](run)
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 2 || lines[0].Side != "memlith" || lines[1].Side != "raft-wal" {
		t.Errorf("the lines are %+v", lines)
	}
	for _, each := range lines {
		if each.Suite != "retwis-replica" || each.Seconds <= 0 || each.EmptySeconds <= 0 {
			t.Errorf("%+v", each)
		}
	}
}

// Transactions are counted by second while nodes die and return.
func TestTimeline(t *testing.T) {
	built(t)
	*measure, *seconds = byTimeline, 6
	type line struct {
		Suite     string  `json:"suite"`
		Side      string  `json:"side"`
		PerSecond []int   `json:"tx_each_s"`
		AllDie    float64 `json:"all_die_gap_s"`
		AllDieAt  float64 `json:"all_die_at_s"`
		ReturnAt  float64 `json:"all_return_at_s"`
	}
	lines, err := contest.Printed[line](run)
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 2 {
		t.Errorf("the lines are %+v", lines)
	}
	for _, each := range lines {
		sum := 0
		for _, count := range each.PerSecond {
			sum += count
		}
		if each.Suite != "retwis-timeline" || len(each.PerSecond) != 6 || sum == 0 || each.AllDie <= 0 ||
			each.AllDieAt >= each.ReturnAt {
			t.Errorf("%+v", each)
		}
	}
}

// A measurement that makes no sense is refused before a node starts.
func TestRefusals(t *testing.T) {
	built(t)
	for _, each := range []struct{ measure, sides, clients, said string }{
		{"speed", "memlith", "4", "-measure is load"},
		{byLoad, "memlith", "4,0", "no number of clients"},
		{byTimeline, "memlith,memory", "4", "nothing to return with"},
	} {
		*measure, *wanted, *clients = each.measure, each.sides, each.clients
		if err := run(); err == nil || !strings.Contains(err.Error(), each.said) {
			t.Errorf("%+v: %v", each, err)
		}
	}
}
