// Package contest is what the benchmarks in Go share: sides that take turns, clients, quantiles, and lines of JSON.
package contest

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sort"
	"sync"
	"time"
)

// Main is that of a benchmark: the flags of the command line, and what it does.
func Main(name string, run func() error) {
	flag.Bool("json", true, "accepted like by every benchmark; there is no other output")
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Turns lets each side work once in each turn; the order changes from turn to turn.
func Turns[Side any](turns int, sides []Side, work func(turn int, side Side) error) error {
	for turn := 0; turn < turns; turn++ {
		for i := range sides {
			if err := work(turn, sides[(i+turn)%len(sides)]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Slice is the time of a turn.
func Slice(seconds float64, turns int) time.Duration {
	return time.Duration(seconds * float64(time.Second) / float64(turns))
}

// Clients lets clients call for so long, each one call at a time; the calls of a client count from 0. It returns how
// long each call of each client took, and all of them together. A client ends with its first error.
func Clients(count int, length time.Duration, call func(client, number int) error) (times [][]time.Duration,
	took time.Duration, err error) {
	times = make([][]time.Duration, count)
	failed := make([]error, count)
	began := time.Now()
	var all sync.WaitGroup
	for i := 0; i < count; i++ {
		i := i
		all.Add(1)
		go func() {
			defer all.Done()
			for number := 0; failed[i] == nil && time.Since(began) < length; number++ {
				start := time.Now()
				failed[i] = call(i, number)
				times[i] = append(times[i], time.Since(start))
			}
		}()
	}
	all.Wait()
	return times, time.Since(began), errors.Join(failed...)
}

// Flat is all times of the clients.
func Flat(times [][]time.Duration) (all []time.Duration) {
	for _, each := range times {
		all = append(all, each...)
	}
	return all
}

// Quantiles puts the quantiles of the times into the line, 0 if there are none; the times are sorted then.
func Quantiles(line map[string]any, times []time.Duration) {
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	for name, quantile := range map[string]float64{"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999} {
		if line[name] = 0.0; len(times) == 0 {
			continue
		}
		line[name] = float64(times[int(quantile*float64(len(times)-1))]) / 1000
	}
}

// Print prints a line of JSON.
func Print(line map[string]any) error {
	text, err := json.Marshal(line)
	if err == nil {
		fmt.Println(string(text))
	}
	return err
}

// Printed is the lines that a benchmark prints, for its test.
func Printed[Line any](run func() error) (lines []Line, err error) {
	reading, writing, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	printed := os.Stdout
	os.Stdout = writing
	err = run()
	os.Stdout = printed
	writing.Close()
	for decoder := json.NewDecoder(reading); err == nil; {
		var line Line
		if err = decoder.Decode(&line); err == nil {
			lines = append(lines, line)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return lines, err
}
