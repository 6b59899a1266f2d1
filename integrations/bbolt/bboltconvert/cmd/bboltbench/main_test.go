package main

import (
	"encoding/json"
	"io"
	"os"
	"testing"
)

// The smallest form: each workload has a line for each side, and each side did something.
func TestEveryWorkloadIsMeasured(t *testing.T) {
	reading, writing, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	printed := os.Stdout
	os.Stdout = writing
	err = run(t.TempDir(), 0.02, 1, 16, 20)
	os.Stdout = printed
	writing.Close()
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for decoder := json.NewDecoder(reading); ; lines++ {
		var line struct {
			Side  string  `json:"side"`
			Rate  float64 `json:"ops_per_s"`
			Ratio float64 `json:"ratio"`
			P50   float64 `json:"p50_us"`
			P999  float64 `json:"p999_us"`
		}
		if err := decoder.Decode(&line); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if line.Rate <= 0 || line.P50 <= 0 || line.P999 < line.P50 || (line.Side == "bbolt") != (line.Ratio == 1) {
			t.Errorf("line %d: %+v", lines, line)
		}
	}
	if lines != len(workloads)*len(sides) {
		t.Errorf("%d lines", lines)
	}
}
