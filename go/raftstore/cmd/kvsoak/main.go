// Command kvsoak runs three nodes of kvnode, or three members of etcd (-etcd), on loopback addresses of this machine,
// and clients that read and send transactions, while nodes are killed (SIGKILL) and stopped (SIGSTOP), and the ways
// between them are cut. It checks the clients' history: every operation took effect once, at one moment between its
// call and its answer (linearizability, by porcupine), so that nothing acknowledged was lost.
//
// Each run has new stores and a history of its own. After -runs runs with faults of every kind come -rounds rounds in
// which all three nodes are killed. With -planted FAULT the nodes, or the clients of etcd, have a fault, and the check
// has to find it. The ways between etcd's members are not cut.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"time"

	"github.com/anishathalye/porcupine"

	"memlith.org/memlith/raftstore/internal/nodes"
)

var (
	program = flag.String("node", "", "the program kvnode")
	etcd    = flag.String("etcd", "", "the program etcd, in the place of kvnode")
	folder  = flag.String("work", "", "a folder for the nodes' stores, which is emptied")
	runs    = flag.Int("runs", 200, "runs with faults of every kind")
	faults  = flag.Int("faults", 4, "of each of these runs")
	rounds  = flag.Int("rounds", 500, "rounds in which all nodes are killed, after these runs")
	minutes = flag.Float64("minutes", 0, "go on with runs for so long, and then with the rounds")
	clients = flag.Int("clients", 6, "clients at a time")
	seed    = flag.Int64("seed", time.Now().UnixNano(), "of the faults and their moments")
	planted = flag.String("planted", "", "a fault that must be found: see kvnode; of etcd's clients: stale-reads")
)

const (
	roundsOfRun = 10
	checkTime   = 2 * time.Minute
	progress    = 50 // runs, after which it says how far it is
)

var errIllegal = errors.New("the history is not linearizable")

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kvsoak:", err)
		os.Exit(1)
	}
}

type counts struct{ runs, rounds, operations, commits, conflicts, sentAgain, installed int }

func run() error {
	if (*program == "") == (*etcd == "") || *folder == "" {
		return errors.New("-node or -etcd, and -work are needed")
	}
	fmt.Printf("seed %d\n", *seed)
	random := rand.New(rand.NewSource(*seed))
	var all counts
	if *planted != "" {
		return findPlanted(&all, random)
	}
	end := time.Now().Add(time.Duration(*minutes * float64(time.Minute)))
	for i := 0; i < *runs || time.Now().Before(end); i++ {
		if err := once(&all, random, *faults, faultsOf()); err != nil {
			return err
		}
		if all.runs%progress == 0 {
			all.print("faults")
		}
	}
	if all.runs%progress != 0 {
		all.print("faults")
	}
	all = counts{}
	for left := *rounds; left > 0; left -= roundsOfRun {
		if err := once(&all, random, min(left, roundsOfRun), []fault{allKilled}); err != nil {
			return err
		}
	}
	if all.runs > 0 {
		all.print("rounds of all three killed")
	}
	return nil
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func (c *counts) print(what string) {
	fmt.Printf("%d runs with %d %s: %d operations, %d commits, %d conflicts, %d requests sent again, %d times a node got "+
		"the state of another; every history is linearizable\n", c.runs, c.rounds, what, c.operations, c.commits,
		c.conflicts, c.sentAgain, c.installed)
}

// The faults that bring a planted one to light.
var revealing = map[string][]fault{
	"stale-reads":   {onePaused, oneCut, oneKilled},
	"lost-votes":    {twoReturn},
	"lost-entries":  {allKilled},
	"lost-sessions": {allKilled, onePaused, oneHeld},
}

var revealingEtcds = map[string][]fault{"stale-reads": {onePaused, oneKilled}}

func faultsOf() []fault {
	if *etcd != "" {
		return faultsOfEtcd
	}
	return everyFault
}

// findPlanted tries runs until the check finds the fault.
func findPlanted(all *counts, random *rand.Rand) error {
	kinds, ok := revealing[*planted]
	if *etcd != "" {
		kinds, ok = revealingEtcds[*planted]
	}
	if !ok {
		return fmt.Errorf("there is no fault %q", *planted)
	}
	for i := 1; i <= *runs; i++ {
		err := once(all, random, *faults, kinds)
		if errors.Is(err, errIllegal) {
			fmt.Printf("%s: found in run %d\n", *planted, i)
			return nil
		}
		if err != nil { // a fault may also bring the nodes down, which shows nothing of the check
			fmt.Println(err)
		}
	}
	return fmt.Errorf("%s were planted, and the check found nothing", *planted)
}

// newCluster has the nodes' logs short, so that a node that was away needs the state of another.
func newCluster() (*nodes.Cluster, error) {
	if *etcd != "" {
		return nodes.New(*etcd, *folder, nodes.Etcd("--snapshot-count", "40", "--snapshot-catchup-entries", "20",
			"--heartbeat-interval", "50", "--election-timeout", "300"))
	}
	arguments := []string{"-quick"}
	if *planted != "" {
		arguments = append(arguments, "-planted", *planted)
	}
	c, err := nodes.New(*program, *folder, nodes.Kvnode(arguments...))
	if err != nil {
		return nil, err
	}
	return c, c.Link()
}

// installedText is what a node logs when it has got the state of another.
func installedText() string {
	if *etcd != "" {
		return "applied incoming Raft snapshot"
	}
	return "Installed remote snapshot"
}

// once is a run: new stores, so many faults of these kinds, one history, which is checked.
func once(all *counts, random *rand.Rand, faults int, kinds []fault) error {
	if err := os.RemoveAll(*folder); err != nil {
		return err
	}
	c, err := newCluster()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.StartAll(); err != nil {
		return err
	}
	h := newHistory()
	stop := h.start(c, random)
	w := &weather{c, h, random}
	err = h.await(5)
	for i := 0; i < faults && err == nil; i++ {
		if random.Intn(4) == 0 { // nodes may be starting, or electing a leader
			time.Sleep(time.Duration(random.Intn(400_000)) * time.Microsecond)
		} else if err = h.await(random.Intn(40)); err != nil {
			break
		} else {
			time.Sleep(time.Duration(random.Intn(20_000)) * time.Microsecond)
		}
		kind := kinds[random.Intn(len(kinds))]
		if err = kind(w); err != nil {
			err = fmt.Errorf("run %d, fault %d: %w", all.runs, i, err)
		}
	}
	if err == nil {
		err = h.await(2 * *clients)
	}
	if err = errors.Join(err, stop(err == nil)); err != nil {
		return err
	}
	installed, err := c.Logged(installedText())
	if err != nil {
		return err
	}
	all.runs++
	all.rounds += faults
	all.installed += installed
	h.count(all)
	return h.judge()
}

func (h *history) judge() error {
	result, info := porcupine.CheckOperationsVerbose(model, h.all, checkTime)
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("the check of %d operations was not done after %s", len(h.all), checkTime)
	}
	var picture bytes.Buffer
	path := filepath.Join(*folder, "history.html")
	if err := porcupine.Visualize(model, info, &picture); err == nil {
		_ = os.WriteFile(path, picture.Bytes(), 0o666)
	}
	return fmt.Errorf("%w, see %s", errIllegal, path)
}
