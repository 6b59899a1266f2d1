// Package nodes runs three kvnode processes on loopback addresses of this machine, for tests and measurements.
package nodes

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Count is the number of nodes.
const Count = 3

// Cluster is the three nodes. The folders and logs of the nodes are in its folder.
type Cluster struct {
	HTTP [Count]string // their addresses

	program, folder string
	arguments       []string
	raft            [Count]string
	process         [Count]*exec.Cmd
}

// New chooses addresses that nobody uses now. Every node gets the arguments.
func New(program, folder string, arguments ...string) (*Cluster, error) {
	c := &Cluster{program: program, folder: folder, arguments: arguments}
	for i := 0; i < Count; i++ {
		var err error
		if c.raft[i], err = freeAddress(); err != nil {
			return nil, err
		}
		if c.HTTP[i], err = freeAddress(); err != nil {
			return nil, err
		}
	}
	return c, os.MkdirAll(folder, 0o777)
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

// Start starts a node.
func (c *Cluster) Start(i int) error {
	var peers []string
	for n := 0; n < Count; n++ {
		peers = append(peers, fmt.Sprintf("n%d=%s=%s", n, c.raft[n], c.HTTP[n]))
	}
	name := fmt.Sprint("n", i)
	arguments := append([]string{"-id", name, "-dir", filepath.Join(c.folder, name), "-peers", strings.Join(peers, ",")},
		c.arguments...)
	log, err := os.OpenFile(filepath.Join(c.folder, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(c.program, arguments...)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return err
	}
	c.process[i] = command
	return nil
}

// StartAll starts all nodes.
func (c *Cluster) StartAll() error {
	for i := 0; i < Count; i++ {
		if err := c.Start(i); err != nil {
			return err
		}
	}
	return nil
}

// Kill kills a node with SIGKILL. It is an error if the node has ended by itself.
func (c *Cluster) Kill(i int) error {
	if c.process[i] == nil {
		return nil
	}
	if err := c.process[i].Process.Kill(); err != nil {
		return fmt.Errorf("node %d has ended by itself: %w; see its log in %s", i, err, c.folder)
	}
	_ = c.process[i].Wait()
	c.process[i] = nil
	return nil
}

// Logged counts lines of the nodes' logs that have the text.
func (c *Cluster) Logged(text string) (int, error) {
	count := 0
	for i := 0; i < Count; i++ {
		log, err := os.ReadFile(filepath.Join(c.folder, fmt.Sprint("n", i, ".log")))
		if err != nil {
			return 0, err
		}
		count += strings.Count(string(log), text)
	}
	return count, nil
}

// KillAll kills what runs.
func (c *Cluster) KillAll() {
	for i := range c.process {
		_ = c.Kill(i)
	}
}
