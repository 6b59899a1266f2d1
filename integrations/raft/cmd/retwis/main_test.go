package main

import (
	"os"
	"os/exec"
	"path/filepath"
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

// The smallest form: each side has a line of transactions and one of recovery, and each did something.
func TestEverySideIsMeasured(t *testing.T) {
	place, err := os.MkdirTemp(os.Getenv("MEMLITH_TEST_DIR"), "retwis")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(place)
	*program, *folder = filepath.Join(place, "kvnode"), place
	restFor = 0
	*seconds, *turns, *keys, *clients, *restarts = 0.5, 1, 200, 4, 1
	if output, err := exec.Command("go", "build", "-o", *program, "../kvnode").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	type line struct {
		Suite   string  `json:"suite"`
		Side    string  `json:"side"`
		Rate    float64 `json:"tx_per_s"`
		Ratio   float64 `json:"ratio"`
		P50     float64 `json:"p50_us"`
		P999    float64 `json:"p999_us"`
		Seconds float64 `json:"seconds"`
	}
	lines, err := contest.Printed[line](run)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, each := range lines {
		seen[each.Suite+" "+each.Side] = true
		if each.Suite == "retwis" && (each.Rate <= 0 || each.P50 <= 0 || each.P999 < each.P50 ||
			(each.Side == "raft-wal") != (each.Ratio == 1)) {
			t.Errorf("%+v", each)
		}
		if each.Suite == "retwis-recovery" && each.Seconds <= 0 {
			t.Errorf("%+v", each)
		}
	}
	if len(seen) != 4 || !seen["retwis memlith"] || !seen["retwis-recovery raft-wal"] {
		t.Errorf("there are lines of %v", seen)
	}
}
