package retwis

import (
	"sort"
	"time"
)

// History is what clients saw while replicas died and returned.
type History struct {
	PerSecond []int // transactions that committed in each second
	Events    []Event
}

// Event is what happened to the replicas, and the longest time without a commit from then until the next event.
type Event struct {
	What    string
	At, Gap time.Duration
}

// The events, each at its part of the whole time.
var events = []struct {
	what    string
	part    float64
	happens func(Replicas) error
}{
	{"one_dies", 0.2, Replicas.KillLeader},
	{"one_returns", 0.4, Replicas.StartAll},
	{"all_die", 0.6, Replicas.KillAll},
	{"all_return", 0.7, Replicas.StartAll},
}

// Watch lets clients go on for so long, while first the leader and then all replicas die and return.
func (l Load) Watch(store Replicas, clients int, zipf *Zipf, seed int64, length time.Duration) (History, error) {
	var result Result
	ran := make(chan error, 1)
	began := time.Now()
	go func() {
		var err error
		result, err = l.Run(store.Clients()[:clients], zipf, seed, length)
		ran <- err
	}()
	var watched History
	var failed error
	for _, each := range events {
		time.Sleep(time.Until(began.Add(time.Duration(each.part * float64(length)))))
		watched.Events = append(watched.Events, Event{What: each.what, At: time.Since(began)})
		if failed = each.happens(store); failed != nil {
			break
		}
	}
	if err := <-ran; failed == nil {
		failed = err
	}
	watched.count(result.ends, length)
	return watched, failed
}

// count fills in what transactions that ended at these times amount to.
func (t *History) count(ends []time.Duration, length time.Duration) {
	sort.Slice(ends, func(i, j int) bool { return ends[i] < ends[j] })
	t.PerSecond = make([]int, (length+time.Second-1)/time.Second)
	for _, end := range ends {
		if second := int(end / time.Second); second < len(t.PerSecond) {
			t.PerSecond[second]++
		}
	}
	for i := range t.Events {
		last, until := t.Events[i].At, length
		if i+1 < len(t.Events) {
			until = t.Events[i+1].At
		}
		longer := func(end time.Duration) {
			if end-last > t.Events[i].Gap {
				t.Events[i].Gap = end - last
			}
			last = end
		}
		for _, end := range ends {
			if end > last && end < until {
				longer(end)
			}
		}
		longer(until)
	}
}
