// Package nodes runs three processes, of kvnode or of etcd, on loopback addresses of this machine, for tests and
// measurements.
package nodes

import (
	"fmt"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Count is the number of nodes.
const Count = 3

// Cluster is the three nodes. The folders and logs of the nodes are in its folder. One goroutine at a time uses it.
type Cluster struct {
	HTTP [Count]string // their addresses

	program, folder string
	arguments       Arguments
	raft            [Count]string
	links           [Count][Count]*link // from, to; nil: a node reaches the others directly
	disks           [Count]*disk        // nil: a folder of this machine's file system
	clocks          [Count]*os.File     // nil: this machine's clock
	preload         [Count]string       // libraries; "": none
	replaced        [Count]int          // how often the disk of a node was lost
	process         [Count]*exec.Cmd
}

// The nodes' ports, from these on, at a loopback address of the cluster's own.
const (
	raftPort = 7001
	httpPort = 8001
)

// Arguments are those of node i, which keeps its files in the folder.
type Arguments func(c *Cluster, i int, folder string) []string

// Kvnode is a node of kvnode, with more arguments.
func Kvnode(more ...string) Arguments {
	return func(c *Cluster, i int, folder string) []string {
		var peers, via []string
		for n := 0; n < Count; n++ {
			peers = append(peers, fmt.Sprintf("%s=%s=%s", c.name(n), c.raft[n], c.HTTP[n]))
			if way := c.links[i][n]; way != nil {
				via = append(via, c.raft[n]+"="+way.address())
			}
		}
		return append([]string{"-id", c.name(i), "-dir", folder, "-peers", strings.Join(peers, ","), "-via",
			strings.Join(via, ",")}, more...)
	}
}

// Etcd is a member of etcd, with more arguments. Links are not for members: all of them know a member by one address.
func Etcd(more ...string) Arguments {
	return func(c *Cluster, i int, folder string) []string {
		var members []string
		for n := 0; n < Count; n++ {
			members = append(members, fmt.Sprintf("%s=http://%s", slot(n), c.raft[n]))
		}
		client, peer := "http://"+c.HTTP[i], "http://"+c.raft[i]
		return append([]string{"--name", slot(i), "--data-dir", folder, "--listen-client-urls", client,
			"--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(members, ",")}, more...)
	}
}

// New chooses addresses that no process uses now.
func New(program, folder string, arguments Arguments) (*Cluster, error) {
	c := &Cluster{program: program, folder: folder, arguments: arguments}
	host, err := freeHost()
	if err != nil {
		return nil, err
	}
	for i := 0; i < Count; i++ {
		c.raft[i], c.HTTP[i] = fmt.Sprintf("%s:%d", host, raftPort+i), fmt.Sprintf("%s:%d", host, httpPort+i)
	}
	return c, os.MkdirAll(folder, 0o777)
}

// A loopback address at which the first port is free. Connections of other programs, which begin at 127.0.0.1, do not
// take the ports of nodes that were killed and come back.
func freeHost() (host string, err error) {
	random := rand.New(rand.NewSource(time.Now().UnixNano() ^ int64(os.Getpid())))
	for tries := 0; tries < 100; tries++ {
		host = fmt.Sprintf("127.%d.%d.%d", 1+random.Intn(254), random.Intn(256), 1+random.Intn(254))
		var listener net.Listener
		if listener, err = net.Listen("tcp", fmt.Sprintf("%s:%d", host, raftPort)); err == nil {
			return host, listener.Close()
		}
	}
	return "", err
}

// Link puts a link of its own between each node and each other one, before the nodes start. Links can be cut.
func (c *Cluster) Link() (err error) {
	for from := range c.links {
		for to := range c.links[from] {
			if from == to {
				continue
			}
			if c.links[from][to], err = newLink(c.raft[to]); err != nil {
				return err
			}
		}
	}
	return nil
}

// name is a node's: a node whose disk was lost has another one since then.
func (c *Cluster) name(i int) string {
	if c.replaced[i] == 0 {
		return fmt.Sprint("n", i)
	}
	return fmt.Sprintf("n%d-%d", i, c.replaced[i])
}

// The log of a node; `slot` is also the name of its folder, or where its disk is mounted.
func slot(i int) string                 { return fmt.Sprint("n", i) }
func (c *Cluster) logOf(i int) string   { return filepath.Join(c.folder, slot(i)+".log") }
func (c *Cluster) storeOf(i int) string { return filepath.Join(c.folder, slot(i), "node") }

// Preload loads a library into a node from its next start on.
func (c *Cluster) Preload(i int, library string) { c.preload[i] = library }

// Start starts a node.
func (c *Cluster) Start(i int) error { return c.start(i) }

func (c *Cluster) start(i int, more ...string) error {
	log, err := os.OpenFile(c.logOf(i), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(c.program, append(c.arguments(c, i, c.storeOf(i)), more...)...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Env = os.Environ()
	if c.clocks[i] != nil {
		command.Env = append(command.Env, "MEMLITH_CLOCK="+c.clocks[i].Name())
	}
	if c.preload[i] != "" {
		command.Env = append(command.Env, "LD_PRELOAD="+c.preload[i])
	}
	if err := command.Start(); err != nil {
		return err
	}
	c.process[i] = command
	return nil
}

// StartAll starts all nodes that do not run.
func (c *Cluster) StartAll() error {
	for i := 0; i < Count; i++ {
		if c.process[i] != nil {
			continue
		}
		if err := c.Start(i); err != nil {
			return err
		}
	}
	return nil
}

// Restart kills all nodes and starts them. Returns when they were started.
func (c *Cluster) Restart() (began time.Time, err error) {
	for i := 0; i < Count; i++ {
		if err := c.Kill(i); err != nil {
			return began, err
		}
	}
	began = time.Now()
	return began, c.StartAll()
}

// Kill kills a node with SIGKILL. It is an error if the node has ended by itself.
func (c *Cluster) Kill(i int) error {
	if c.process[i] == nil {
		return nil
	}
	_ = c.process[i].Process.Kill()
	return c.wait(i)
}

// wait waits for a node that was sent SIGKILL.
func (c *Cluster) wait(i int) error {
	_ = c.process[i].Wait()
	status, ok := c.process[i].ProcessState.Sys().(syscall.WaitStatus)
	c.process[i] = nil
	if !ok || status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("node %d has ended by itself; see its log in %s", i, c.folder)
	}
	return nil
}

// Pause stops a node with SIGSTOP, until Continue.
func (c *Cluster) Pause(i int) error {
	return c.process[i].Process.Signal(syscall.SIGSTOP)
}

// Continue lets a paused node go on.
func (c *Cluster) Continue(i int) error {
	return c.process[i].Process.Signal(syscall.SIGCONT)
}

// Cut cuts the ways between a node and the others; with `held`, what is sent on them waits instead.
func (c *Cluster) Cut(i int, held bool) {
	c.setWays(i, map[bool]linkState{false: linkCut, true: linkHeld}[held])
}

// Heal makes them whole again; what was held arrives.
func (c *Cluster) Heal(i int) { c.setWays(i, linkUp) }

func (c *Cluster) setWays(i int, state linkState) {
	for n := 0; n < Count; n++ {
		if n != i {
			c.links[i][n].set(state)
			c.links[n][i].set(state)
		}
	}
}

// CutBetween cuts the ways between two nodes, which both reach the third.
func (c *Cluster) CutBetween(i, n int) {
	c.links[i][n].set(linkCut)
	c.links[n][i].set(linkCut)
}

// Logged counts lines of the nodes' logs that have the text.
func (c *Cluster) Logged(text string) (int, error) {
	count := 0
	for i := 0; i < Count; i++ {
		log, err := os.ReadFile(c.logOf(i))
		if err != nil {
			return 0, err
		}
		count += strings.Count(string(log), text)
	}
	return count, nil
}

// Close kills what runs.
func (c *Cluster) Close() {
	for i := range c.process {
		if c.process[i] != nil {
			_ = c.process[i].Process.Kill() // the process may wait for its disk
		}
		if c.disks[i] != nil {
			c.disks[i].end()
		}
		_ = c.Kill(i)
		if c.disks[i] != nil {
			c.disks[i].discard()
		}
		if c.clocks[i] != nil {
			_ = c.clocks[i].Close()
		}
	}
	for i := range c.links {
		for _, way := range c.links[i] {
			if way != nil {
				way.close()
			}
		}
	}
}
