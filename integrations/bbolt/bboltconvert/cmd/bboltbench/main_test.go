package main

import (
	"testing"

	"memlith.org/memlith/retwis/contest"
)

// The smallest form: each workload has a line for each side, and each side did something.
func TestEveryWorkloadIsMeasured(t *testing.T) {
	*folder, *seconds, *turns, *bytes, *keys = t.TempDir(), 0.02, 1, 16, 20
	type line struct {
		Side  string  `json:"side"`
		Rate  float64 `json:"ops_per_s"`
		Ratio float64 `json:"ratio"`
		P50   float64 `json:"p50_us"`
		P999  float64 `json:"p999_us"`
	}
	lines, err := contest.Printed[line](run)
	if err != nil || len(lines) != len(workloads)*len(sides) {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	for _, each := range lines {
		if each.Rate <= 0 || each.P50 <= 0 || each.P999 < each.P50 || (each.Side == "bbolt") != (each.Ratio == 1) {
			t.Errorf("%+v", each)
		}
	}
}
