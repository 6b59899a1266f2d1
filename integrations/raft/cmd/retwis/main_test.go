package main

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The smallest form: each side has a line of transactions and one of recovery, and each did something.
func TestEverySideIsMeasured(t *testing.T) {
	place, err := os.MkdirTemp(os.Getenv("MEMLITH_TEST_DIR"), "retwis")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(place)
	*program, *folder = filepath.Join(place, "kvnode"), place
	settle = 0
	*seconds, *turns, *keys, *clients, *restarts = 0.5, 1, 200, 4, 1
	if output, err := exec.Command("go", "build", "-o", *program, "../kvnode").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	reading, writing, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	printed := os.Stdout
	os.Stdout = writing
	err = run()
	os.Stdout = printed
	writing.Close()
	if err != nil {
		t.Fatal(err)
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
	seen := map[string]bool{}
	for decoder := json.NewDecoder(reading); ; {
		var each line
		if err := decoder.Decode(&each); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
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
