// Package retwis is the load of Retwis, a small Twitter, as papers about replicated stores measure it: transactions
// that add users, follow, post and read timelines, on keys of which some are wanted more often than others. It knows
// nothing of the store below: a Client is implemented for each.
package retwis

import (
	"errors"
	"fmt"
	"math"
	"math/rand"
	"time"

	"memlith.org/memlith/retwis/contest"
)

// Client is a connection to a store, used by one goroutine.
type Client interface {
	// Read reads keys as of one moment, and returns their versions; 0: there is no such key.
	Read(keys []string) (versions []uint64, err error)
	// Commit writes the value to the keys `writes` if the keys `reads` still have these versions; false: one has not, and
	// nothing was written. On true it is durable.
	Commit(reads []string, versions []uint64, writes []string, value []byte) (bool, error)
}

// Load is what clients do.
type Load struct {
	Keys       int
	ValueBytes int
	Theta      float64 // of Zipf's distribution of the keys: 0, all alike, up to but not 1
}

// Kind of a transaction.
type Kind int

const (
	AddUser  Kind = iota // 5 %: 1 read, 3 writes
	Follow               // 15 %: 2 reads, 2 writes
	Post                 // 30 %: 3 reads, 5 writes
	Timeline             // 50 %: 1 to 10 reads
	kinds
)

func (k Kind) String() string { return [kinds]string{"add user", "follow", "post", "timeline"}[k] }

// The mix: what of 100 transactions is of a kind, how many keys it reads, and how many it writes, first those it read.
var mix = [kinds]struct{ percent, reads, writes int }{
	AddUser: {5, 1, 3}, Follow: {15, 2, 2}, Post: {30, 3, 5}, Timeline: {percent: 50},
}

const timelineMax = 10

// Choose returns a transaction: the keys, which are different, and how many of them, the first ones, it reads and
// writes.
func (c *Chooser) Choose() (kind Kind, keys []string, reads, writes int) {
	at := c.random.Intn(100)
	for at >= mix[kind].percent {
		at -= mix[kind].percent
		kind++
	}
	reads, writes = mix[kind].reads, mix[kind].writes
	if kind == Timeline {
		reads = 1 + c.random.Intn(timelineMax)
	}
	count := reads
	if writes > count {
		count = writes
	}
	chosen := map[int]bool{}
	for len(keys) < count {
		key := c.key()
		if !chosen[key] {
			chosen[key] = true
			keys = append(keys, Key(key))
		}
	}
	return kind, keys, reads, writes
}

// Key is the name of the key of that number.
func Key(number int) string { return fmt.Sprintf("key%012d", number) }

// ---- Zipf's distribution -------------------------------------------------------------------------------------------

// Zipf chooses the rank r, from 0 on, with a probability in proportion to 1/(r+1)^theta, theta below 1, by the method
// of Gray and others, "Quickly generating billion-record synthetic databases" (SIGMOD 1994).
type Zipf struct {
	count                     float64
	theta, alpha, zeta, slope float64
}

// NewZipf prepares a distribution of so many ranks; it may be shared.
func NewZipf(count int, theta float64) *Zipf {
	z := &Zipf{count: float64(count), theta: theta, alpha: 1 / (1 - theta)}
	for rank := 1; rank <= count; rank++ {
		z.zeta += math.Pow(float64(rank), -theta)
	}
	two := 1 + math.Pow(2, -theta)
	z.slope = (1 - math.Pow(2/z.count, 1-theta)) / (1 - two/z.zeta)
	return z
}

// Rank of a number between 0 and 1.
func (z *Zipf) Rank(uniform float64) int {
	scaled := uniform * z.zeta
	switch {
	case scaled < 1:
		return 0
	case scaled < 1+math.Pow(2, -z.theta):
		return 1
	}
	rank := int(z.count * math.Pow(z.slope*uniform-z.slope+1, z.alpha))
	if rank >= int(z.count) {
		rank = int(z.count) - 1
	}
	return rank
}

// Chooser chooses transactions, for one client.
type Chooser struct {
	random *rand.Rand
	zipf   *Zipf
	keys   int
	stride int
}

// NewChooser makes one; the distribution is of as many ranks as there are keys.
func NewChooser(keys int, zipf *Zipf, random *rand.Rand) *Chooser {
	return &Chooser{random, zipf, keys, strideOf(keys)}
}

// Keys that are wanted often lie far from each other: neighbours in rank are a stride apart, which has no divisor in
// common with the count.
func strideOf(keys int) int {
	stride := int(float64(keys)*0.618) | 1
	for common(stride, keys) != 1 {
		stride += 2
	}
	return stride
}

func common(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func (c *Chooser) key() int { return c.zipf.Rank(c.random.Float64()) * c.stride % c.keys }

// ---- running -------------------------------------------------------------------------------------------------------

// Result of running.
type Result struct {
	Times     [kinds][]time.Duration // of transactions that committed, with what they tried before
	Conflicts int
	Took      time.Duration

	began time.Time
	ends  []time.Duration // of these transactions, since the beginning
}

// Add adds what another run had.
func (r *Result) Add(other Result) {
	for kind := range r.Times {
		r.Times[kind] = append(r.Times[kind], other.Times[kind]...)
	}
	r.ends = append(r.ends, other.ends...)
	r.Conflicts += other.Conflicts
	r.Took += other.Took
}

// Check returns an error for a load that cannot be.
func (l Load) Check() error {
	if l.Keys < 2*timelineMax || l.ValueBytes < 1 || l.Theta < 0 || l.Theta >= 1 {
		return fmt.Errorf("there are at least %d keys, values have a byte, and the distribution's theta is from 0 to below 1",
			2*timelineMax)
	}
	return nil
}

// Fill writes all keys, so many in a transaction.
func (l Load) Fill(client Client, batch int) error {
	value := make([]byte, l.ValueBytes)
	var keys []string
	for number := 0; number < l.Keys; number++ {
		keys = append(keys, Key(number))
		if len(keys) < batch && number+1 < l.Keys {
			continue
		}
		committed, err := client.Commit(nil, nil, keys, value)
		if err != nil {
			return err
		}
		if !committed {
			return errors.New("a transaction without reads had a conflict")
		}
		keys = keys[:0]
	}
	return nil
}

// Run lets clients go on for so long. The first error of one of them ends that client, and is returned.
func (l Load) Run(clients []Client, zipf *Zipf, seed int64, length time.Duration) (Result, error) {
	results, choosers := make([]Result, len(clients)), make([]*Chooser, len(clients))
	for i := range clients {
		choosers[i] = NewChooser(l.Keys, zipf, rand.New(rand.NewSource(seed+int64(i))))
		results[i].began = time.Now()
	}
	_, took, err := contest.Clients(len(clients), length, func(i, _ int) error {
		return results[i].one(clients[i], choosers[i], make([]byte, l.ValueBytes))
	})
	if err != nil {
		return Result{}, err
	}
	var sum Result
	for _, each := range results {
		sum.Add(each)
	}
	sum.Took = took
	return sum, nil
}

// one transaction is tried until it commits.
func (r *Result) one(client Client, chooser *Chooser, value []byte) error {
	kind, keys, reads, writes := chooser.Choose()
	began := time.Now()
	for {
		versions, err := client.Read(keys[:reads])
		if err != nil {
			return err
		}
		committed := true
		if writes > 0 {
			chooser.random.Read(value)
			if committed, err = client.Commit(keys[:reads], versions, keys[:writes], value); err != nil {
				return err
			}
		}
		if committed {
			r.Times[kind] = append(r.Times[kind], time.Since(began))
			r.ends = append(r.ends, time.Since(r.began))
			return nil
		}
		r.Conflicts++
	}
}

// PerSecond is the rate of transactions.
func (r *Result) PerSecond() float64 { return float64(len(r.All())) / r.Took.Seconds() }

// All is the times of all transactions.
func (r *Result) All() []time.Duration { return contest.Flat(r.Times[:]) }
