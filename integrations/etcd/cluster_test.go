package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	serveVariable = "MEMLITH_ETCD_SERVE" // the test's program is the server then
	firstPort     = 23790
	shownBytes    = 3000 // of a member's log, if a test fails
	patience      = 60 * time.Second
)

func TestMain(m *testing.M) {
	if os.Getenv(serveVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// number reads a count from the environment.
func number(t *testing.T, name string, standard int) int {
	text := os.Getenv(name)
	if text == "" {
		return standard
	}
	value, err := strconv.Atoi(text)
	if err != nil || value < 1 {
		t.Fatalf("%s=%s: a number from 1 on is wanted", name, text)
	}
	return value
}

// cluster is some members of etcd on this machine, each a process of its own.
type cluster struct {
	t       *testing.T
	folder  string
	more    []string     // arguments of a member
	members []*exec.Cmd  // nil: the member does not run
	program string       // a test's program; without a name this one
	state   string       // of the cluster when a member starts that was not there before; "": new
	gone    map[int]bool // members that were removed
}

func newCluster(t *testing.T, members int) *cluster {
	// Few entries are kept in memory, so that a member which was away needs a snapshot.
	c := &cluster{t: t, folder: t.TempDir(), members: make([]*exec.Cmd, members), gone: map[int]bool{},
		more: []string{"--snapshot-count", "500", "--snapshot-catchup-entries", "100"}}
	t.Cleanup(func() {
		for i := range c.members {
			if log, err := os.ReadFile(c.logFile(i)); err == nil && t.Failed() {
				t.Logf("the end of the log of member %d:\n%s", i, log[max(0, len(log)-shownBytes):])
			}
		}
	})
	return c
}

func (c *cluster) directory(member int) string {
	return filepath.Join(c.folder, fmt.Sprintf("m%d", member))
}

func (c *cluster) logFile(member int) string { return c.directory(member) + ".log" }

// peers is all members with their addresses, as etcd wants them.
func (c *cluster) peers() string {
	var peers []string
	for i := range c.members {
		if !c.gone[i] {
			peers = append(peers, fmt.Sprintf("m%d=%s", i, url(c.clientPort(i)+1)))
		}
	}
	return strings.Join(peers, ",")
}

func url(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }

func (c *cluster) clientPort(member int) int { return firstPort + 2*member }

// start starts the members that do not run.
func (c *cluster) start() {
	for i := range c.members {
		if c.members[i] == nil && !c.gone[i] {
			c.startOne(i)
		}
	}
}

func (c *cluster) startOne(i int) {
	client, peer := url(c.clientPort(i)), url(c.clientPort(i)+1)
	program, state := c.program, c.state
	if program == "" {
		program = os.Args[0]
	}
	if state == "" {
		state = "new"
	}
	arguments := append([]string{"--name", fmt.Sprintf("m%d", i), "--data-dir", c.directory(i), "--listen-client-urls",
		client, "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", c.peers(), "--initial-cluster-state", state}, c.more...)
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), serveVariable+"=1")
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.OpenFile(c.logFile(i), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		c.t.Fatal(err)
	}
	log.Close()
	c.members[i] = command
}

// kill ends all members at once, or one.
func (c *cluster) kill(only int) {
	for i, member := range c.members {
		if member != nil && (only < 0 || only == i) {
			_ = member.Process.Kill()
		}
	}
	for i, member := range c.members {
		if member != nil && (only < 0 || only == i) {
			_ = member.Wait()
			c.members[i] = nil
		}
	}
}

// logged tells whether a member has logged the text.
func (c *cluster) logged(member int, text string) bool {
	log, err := os.ReadFile(c.logFile(member))
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.Contains(string(log), text)
}

func (c *cluster) client() *clientv3.Client {
	var ends []string
	for i := range c.members {
		if !c.gone[i] {
			ends = append(ends, url(c.clientPort(i)))
		}
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: ends, DialTimeout: patience, Logger: zap.NewNop()})
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}
