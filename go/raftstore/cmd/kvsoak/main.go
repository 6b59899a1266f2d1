// Command kvsoak runs three nodes of kvnode on loopback addresses of this machine, kills them at random moments while
// clients write and read, and checks the clients' history: every operation took effect at one moment between its call
// and its answer (linearizability, by porcupine), so that nothing acknowledged was lost.
//
// With -planted-stale-reads the nodes have a fault, and the check has to find it.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"memlith.org/memlith/raftstore/internal/nodes"
)

var (
	program = flag.String("node", "", "the program kvnode")
	folder  = flag.String("work", "", "a folder for the nodes' stores, which is emptied")
	rounds  = flag.Int("rounds", 10, "how often nodes are killed")
	minutes = flag.Float64("minutes", 0, "go on for so long, whatever the rounds")
	clients = flag.Int("clients", 6, "clients at a time")
	seed    = flag.Int64("seed", time.Now().UnixNano(), "of the moments of the kills")
	stale   = flag.Bool("planted-stale-reads", false, "the nodes answer reads from what they have: must be found")
)

const (
	keys    = 5
	opTime  = 4 * time.Second
	started = 60 * time.Second // a round without any answer for so long has failed
	away    = 120              // so many answers, or twice as many, while one node is down
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kvsoak:", err)
		os.Exit(1)
	}
}

// ---- clients -------------------------------------------------------------------------------------------------------

type input struct {
	put   bool
	key   int
	value string
}

type history struct {
	mutex   sync.Mutex
	all     []porcupine.Operation
	answers atomic.Int64
	rounds  int
	began   time.Time
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

func (h *history) add(client int, in input, output string, call, end int64) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.all = append(h.all, porcupine.Operation{ClientId: client, Input: in, Output: output, Call: call, Return: end})
}

var errUnknown = errors.New("whether it took effect is not known")

type client struct {
	cluster *nodes.Cluster
	http    http.Client
	leader  string
	random  *rand.Rand
}

// once tries one node. A nil error with `again` means that nothing happened, and another node should be asked.
func (c *client) once(in input) (output string, again bool, err error) {
	address := c.leader
	if address == "" || (*stale && !in.put) {
		address = c.cluster.HTTP[c.random.Intn(nodes.Count)]
	}
	method, body := http.MethodGet, io.Reader(nil)
	if in.put {
		method, body = http.MethodPut, strings.NewReader(in.value)
	}
	request, err := http.NewRequest(method, fmt.Sprintf("http://%s/k/key%d", address, in.key), body)
	if err != nil {
		return "", false, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		c.leader = ""
		var failed *net.OpError
		if errors.As(err, &failed) && failed.Op == "dial" {
			return "", true, nil // nobody heard of it
		}
		return "", false, errUnknown
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		c.leader = ""
		return "", false, errUnknown
	case response.StatusCode == http.StatusOK:
		c.leader = address
		return string(content), false, nil
	case response.StatusCode == http.StatusNotFound:
		return "", false, nil
	case response.StatusCode == http.StatusMisdirectedRequest:
		c.leader = response.Header.Get("X-Leader")
		return "", true, nil
	}
	c.leader = ""
	return "", false, errUnknown
}

func (h *history) client(number int, c *nodes.Cluster, random *rand.Rand, stop <-chan struct{}) {
	one := &client{cluster: c, http: http.Client{Timeout: opTime}, random: random}
	for n := 0; ; n++ {
		in := input{put: random.Intn(2) == 0, key: random.Intn(keys)}
		if in.put {
			in.value = fmt.Sprintf("%d of client %d", n, number)
		}
		call := h.now()
		for {
			select {
			case <-stop:
				return
			default:
			}
			output, again, err := one.once(in)
			if again {
				time.Sleep(time.Duration(5+random.Intn(20)) * time.Millisecond)
				call = h.now()
				continue
			}
			switch {
			case err == nil:
				h.add(number, in, output, call, h.now())
				h.answers.Add(1)
			case in.put: // it may take effect at any time; a client of its own, because this one goes on
				h.add(1_000_000+number*100_000+n, in, "", call, 1<<62)
			}
			break
		}
	}
}

// ---- the check -----------------------------------------------------------------------------------------------------

// A register for each key.
var model = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, keys)
		for _, each := range all {
			key := each.Input.(input).key
			parts[key] = append(parts[key], each)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, in, out any) (bool, any) {
		if asked := in.(input); asked.put {
			return true, asked.value
		}
		return out.(string) == state.(string), state
	},
}

func run() error {
	if *program == "" || *folder == "" {
		return errors.New("-node and -work are needed")
	}
	if err := os.RemoveAll(*folder); err != nil {
		return err
	}
	fmt.Printf("seed %d\n", *seed)
	random := rand.New(rand.NewSource(*seed))
	arguments := []string{"-quick"}
	if *stale {
		arguments = append(arguments, "-planted-stale-reads")
	}
	c, err := nodes.New(*program, *folder, arguments...)
	if err != nil {
		return err
	}
	defer c.KillAll()
	if err := c.StartAll(); err != nil {
		return err
	}
	h := &history{began: time.Now()}
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := 0; i < *clients; i++ {
		i, own := i, rand.New(rand.NewSource(random.Int63()))
		all.Add(1)
		go func() {
			defer all.Done()
			h.client(i, c, own, stop)
		}()
	}
	err = killing(c, h, random)
	close(stop)
	all.Wait()
	if err != nil {
		return err
	}
	installed, err := c.Logged("Installed remote snapshot")
	if err != nil {
		return err
	}
	fmt.Printf("%d rounds, %d operations, of which %d were answered; %d times a node got the state of another\n", h.rounds,
		len(h.all), h.answers.Load(), installed)
	return judge(h)
}

// killing kills all nodes in most rounds, and one of them in the others.
func killing(c *nodes.Cluster, h *history, random *rand.Rand) error {
	end := time.Now().Add(time.Duration(*minutes * float64(time.Minute)))
	for ; h.rounds < *rounds || time.Now().Before(end); h.rounds++ {
		round := h.rounds
		if *minutes > 0 && time.Now().After(end) {
			break
		}
		if err := h.await(20 + random.Intn(200)); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		victims := random.Perm(nodes.Count)
		if random.Intn(3) == 0 {
			victims = victims[:1]
		}
		for _, victim := range victims {
			if err := c.Kill(victim); err != nil {
				return err
			}
			time.Sleep(time.Duration(random.Intn(4)) * time.Millisecond)
		}
		if len(victims) == 1 { // the others go on, so that it may need the state of one of them
			if err := h.await(away + random.Intn(away)); err != nil {
				return err
			}
		}
		for _, victim := range victims {
			if err := c.Start(victim); err != nil {
				return err
			}
		}
	}
	return h.await(20 * keys)
}

// await returns when so many more operations were answered.
func (h *history) await(answers int) error {
	wanted, began := h.answers.Load()+int64(answers), time.Now()
	for h.answers.Load() < wanted {
		if time.Since(began) > started {
			return fmt.Errorf("there are no answers; see the logs of the nodes in %s", *folder)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func judge(h *history) error {
	result, info := porcupine.CheckOperationsVerbose(model, h.all, 5*time.Minute)
	if result == porcupine.Ok && !*stale {
		fmt.Println("the history is linearizable")
		return nil
	}
	if *stale {
		if result != porcupine.Illegal {
			return fmt.Errorf("stale reads were planted, and the check says %s", result)
		}
		fmt.Println("the planted stale reads were found")
		return nil
	}
	var picture bytes.Buffer
	path := filepath.Join(*folder, "history.html")
	if err := porcupine.Visualize(model, info, &picture); err == nil {
		_ = os.WriteFile(path, picture.Bytes(), 0o666)
	}
	return fmt.Errorf("the history is %s, see %s", result, path)
}
