// Command kvsoak runs three nodes of kvnode, or three members of etcd (-etcd), on loopback addresses of this machine,
// and clients that read and send transactions, while nodes are killed (SIGKILL) and stopped (SIGSTOP), the ways between
// them are cut, and their clocks jump. It checks the clients' history: every operation took effect once, at one moment
// between its call and its answer (linearizability, by porcupine), so that nothing acknowledged was lost.
//
// Each run has new stores and a history of its own. After -runs runs with faults of every kind come -rounds rounds in
// which all three nodes are killed, and then runs until the power was cut -cuts times under all three nodes: each has a
// file system on a disk of its own (-disk), which loses what was not flushed, and is slow or fails at times. With
// -planted FAULT the nodes, or the clients of etcd, have a fault, and the check has to find it. The ways between etcd's
// members are not cut, and their clocks and disks are this machine's. With -openraft the nodes are those of
// integrations/openraft, whose clocks are this machine's.
//
// kvnode was built with the tag clockjumps. Exit status 77: this machine cannot have such disks.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/anishathalye/porcupine"

	"memlith.org/memlith/retwis/nodes"
)

var (
	program = flag.String("node", "", "the program kvnode")
	etcd    = flag.String("etcd", "", "the program etcd, in the place of kvnode")
	rust    = flag.Bool("openraft", false, "the node is kvnode of integrations/openraft, which has this machine's clock")
	folder  = flag.String("work", "", "a folder for the nodes' stores, which is emptied")
	runs    = flag.Int("runs", 200, "runs with faults of every kind")
	faults  = flag.Int("faults", 4, "of each of these runs")
	rounds  = flag.Int("rounds", 500, "rounds in which all nodes are killed, after these runs")
	cuts    = flag.Int("cuts", 0, "power cuts of all nodes, after these rounds")
	disk    = flag.String("disk", "", "the program power-disk, for power cuts")
	noFlush = flag.String("no-flush", "", "the library power-no-flush, for the fault no-flush")
	minutes = flag.Float64("minutes", 0, "go on with runs for so long, and then with the rounds")
	clients = flag.Int("clients", 6, "clients at a time")
	seed    = flag.Int64("seed", time.Now().UnixNano(), "of the faults and their moments")
	planted = flag.String("planted", "", "a fault that must be found: see kvnode; of etcd's clients: stale-reads")
)

const (
	roundsOfRun     = 10
	faultsOnDisks   = 10 // of a run on lossy disks
	skipped         = 77
	checkTime       = 2 * time.Minute
	progress        = 50 // runs, after which it says how far it is
	progressOnDisks = 5
)

var errIllegal = errors.New("the history is not linearizable")

func main() {
	flag.Parse()
	err := run()
	var ended *exec.ExitError
	if errors.As(err, &ended) { // of this program, in a namespace of its own
		os.Exit(ended.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kvsoak:", err)
	}
	if errors.Is(err, nodes.ErrUnable) {
		os.Exit(skipped)
	}
	if err != nil {
		os.Exit(1)
	}
}

const insideVariable = "MEMLITH_KVSOAK_INSIDE"

// runInside runs this program in a mount namespace of its own, so that a killed run leaves no mounts behind.
func runInside() error {
	if err := nodes.CanHaveDisks(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	command := exec.Command(self, os.Args[1:]...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.Env = append(os.Environ(), insideVariable+"=1")
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	return command.Run()
}

type counts struct {
	runs, rounds, operations, commits, conflicts, sentAgain, installed int
	clockJumps                                                         int

	// On lossy disks.
	cutOfAll, cutOfTwo, cutOfOne int // power cuts
	cutInStart                   int // of these, while the nodes started
	slow, failed, replaced       int // disks
}

func run() error {
	if (*program == "") == (*etcd == "") || *folder == "" {
		return errors.New("-node or -etcd, and -work are needed")
	}
	if *disk != "" && os.Getenv(insideVariable) == "" {
		return runInside()
	}
	if *etcd != "" && (*disk != "" || *rust) {
		return errors.New("-disk and -openraft are for kvnode")
	}
	if *disk == "" && (*cuts > 0 || *planted == plantedNoFlush) {
		return errors.New("power cuts take -disk")
	}
	fmt.Printf("seed %d\n", *seed)
	random := rand.New(rand.NewSource(*seed))
	var all counts
	if *planted != "" {
		return findPlanted(&all, random)
	}
	end := time.Now().Add(time.Duration(*minutes * float64(time.Minute)))
	for i := 0; i < *runs || time.Now().Before(end); i++ {
		if err := once(&all, random, plan{*faults, faultsOf(), false}); err != nil {
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
		if err := once(&all, random, plan{min(left, roundsOfRun), []fault{allKilled}, false}); err != nil {
			return err
		}
	}
	if all.runs > 0 {
		all.print("rounds of all three killed")
	}
	all = counts{}
	for all.cutOfAll < *cuts {
		if err := once(&all, random, plan{faultsOnDisks, faultsOnDisksOf(), true}); err != nil {
			return err
		}
		if all.runs%progressOnDisks == 0 || all.cutOfAll >= *cuts {
			all.print("faults on lossy disks")
		}
	}
	return nil
}

// plan of a run.
type plan struct {
	faults int
	kinds  []fault
	disks  bool // lossy ones
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func (c *counts) print(what string) {
	fmt.Printf("%d runs with %d %s: %d operations, %d commits, %d conflicts, %d requests sent again, %d times a node got "+
		"the state of another, %d jumps of clocks; every history is linearizable\n", c.runs, c.rounds, what, c.operations,
		c.commits, c.conflicts, c.sentAgain, c.installed, c.clockJumps)
	if c.cutOfAll > 0 {
		fmt.Printf("  power cuts: %d of all three nodes, %d of two, %d of one; %d of these while nodes started; %d times "+
			"disks were slow; %d disks failed, and %d of these nodes were replaced\n", c.cutOfAll, c.cutOfTwo, c.cutOfOne,
			c.cutInStart, c.slow, c.failed, c.replaced)
	}
}

// A node whose memlith does not flush; the other planted faults are kvnode's own.
const plantedNoFlush = "no-flush"

// The faults that bring a planted one to light.
var revealing = map[string][]fault{
	"stale-reads":   {onePaused, oneCut, oneKilled},
	"lost-votes":    {twoReturn},
	"lost-entries":  {allKilled},
	"lost-sessions": {allKilled, onePaused, oneHeld},
	"wall-lease":    {jumpedAndCut},
	plantedNoFlush:  {awayAndPowerOfAll},
}

var revealingEtcds = map[string][]fault{"stale-reads": {onePaused, oneKilled}}

func faultsOf() []fault {
	if *etcd != "" {
		return faultsOfEtcd
	}
	if *rust {
		return faultsOfOpenraft
	}
	return append([]fault{clocksJump}, faultsOfOpenraft...)
}

func faultsOnDisksOf() []fault {
	if *rust {
		return faultsWithDisks
	}
	return append([]fault{clocksJump}, faultsWithDisks...)
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
		err := once(all, random, plan{*faults, kinds, *planted == plantedNoFlush})
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

// installedText is what a node logs when it has got the state of another.
func installedText() string {
	if *etcd != "" {
		return "applied incoming Raft snapshot"
	}
	return "Installed remote snapshot"
}

// once is a run: new stores, so many faults of these kinds, one history, which is checked.
func once(all *counts, random *rand.Rand, p plan) error {
	if err := os.RemoveAll(*folder); err != nil {
		return err
	}
	c, err := begin(random, p)
	if c != nil {
		defer c.Close()
	}
	if err != nil {
		return err
	}
	h := newHistory()
	stop := h.start(c, random)
	w := &weather{c, h, random, all}
	err = h.await(5)
	if *planted == plantedNoFlush && err == nil {
		err = w.restartWithoutFlushes(w.anyNode())
	}
	for i := 0; i < p.faults && err == nil; i++ {
		if random.Intn(4) == 0 { // nodes may be starting, or electing a leader
			time.Sleep(time.Duration(random.Intn(400_000)) * time.Microsecond)
		} else if err = h.await(random.Intn(40)); err != nil {
			break
		} else {
			time.Sleep(time.Duration(random.Intn(20_000)) * time.Microsecond)
		}
		kind := p.kinds[random.Intn(len(p.kinds))]
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
	all.rounds += p.faults
	all.installed += installed
	h.count(all)
	return h.judge()
}

// begin starts new nodes, whose logs are short, so that a node that was away needs the state of another. They are
// closed also after an error.
func begin(random *rand.Rand, p plan) (*nodes.Cluster, error) {
	if *etcd != "" {
		c, err := nodes.New(*etcd, *folder, nodes.Etcd("--snapshot-count", "40", "--snapshot-catchup-entries", "20",
			"--heartbeat-interval", "50", "--election-timeout", "300"))
		if err != nil {
			return nil, err
		}
		return c, c.StartAll()
	}
	arguments := []string{"-quick"}
	if *planted != "" && *planted != plantedNoFlush {
		arguments = append(arguments, "-planted", *planted)
	}
	if p.disks { // a term takes two flushes of a disk that may be slow
		arguments = append(arguments, "-election", "1500ms")
	}
	c, err := nodes.New(*program, *folder, nodes.Kvnode(arguments...))
	if err != nil {
		return nil, err
	}
	if err := c.Link(); err != nil {
		return c, err
	}
	if p.disks {
		if err := c.Disks(*disk); err != nil {
			return c, err
		}
	}
	if *rust {
		return c, c.StartAll()
	}
	if err := c.Clocks(); err != nil {
		return c, err
	}
	for i := 0; i < nodes.Count; i++ {
		if err := c.SetClock(i, anyJump(random)); err != nil {
			return c, err
		}
	}
	return c, c.StartAll()
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
