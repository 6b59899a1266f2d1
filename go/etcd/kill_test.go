package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	serveVariable = "MEMLITH_ETCD_SERVE" // the test's program is the server then
	writers       = 8
	firstPort     = 23790
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
	members []*exec.Cmd
	program string // a test's program; without a name this one
}

func url(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }

func (c *cluster) clientPort(member int) int { return firstPort + 2*member }

func (c *cluster) start() {
	var peers []string
	for i := range c.members {
		peers = append(peers, fmt.Sprintf("m%d=%s", i, url(c.clientPort(i)+1)))
	}
	for i := range c.members {
		client, peer := url(c.clientPort(i)), url(c.clientPort(i)+1)
		program := c.program
		if program == "" {
			program = os.Args[0]
		}
		command := exec.Command(program, "--name", fmt.Sprintf("m%d", i), "--data-dir",
			filepath.Join(c.folder, fmt.Sprintf("m%d", i)), "--listen-client-urls", client, "--advertise-client-urls",
			client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster",
			strings.Join(peers, ","), "--log-level", "error", "--snapshot-count", "500")
		command.Env = append(os.Environ(), serveVariable+"=1")
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		log, err := os.OpenFile(filepath.Join(c.folder, fmt.Sprintf("m%d.log", i)),
			os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
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
}

// kill ends all members at once, or one.
func (c *cluster) kill(only int) {
	for i, member := range c.members {
		if only < 0 || only == i {
			_ = member.Process.Kill()
		}
	}
	for i, member := range c.members {
		if only < 0 || only == i {
			_ = member.Wait()
		}
	}
}

func (c *cluster) client() *clientv3.Client {
	var ends []string
	for i := range c.members {
		ends = append(ends, url(c.clientPort(i)))
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: ends, DialTimeout: patience, Logger: zap.NewNop()})
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// acknowledged has, for each writer, the number that etcd said was put, and the one that was on its way.
type acknowledged struct {
	sync.Mutex
	put, begun [writers]int
}

func key(writer int) string { return fmt.Sprintf("writer/%d", writer) }

// write puts numbers until the context ends.
func (a *acknowledged) write(context context.Context, client *clientv3.Client, writer int) {
	for context.Err() == nil {
		a.Lock()
		next := a.put[writer] + 1
		a.begun[writer] = next
		a.Unlock()
		// Besides the number something that fills the database, and gives compactions work.
		_, err := client.Txn(context).Then(clientv3.OpPut(key(writer), strconv.Itoa(next)),
			clientv3.OpPut(fmt.Sprintf("filler/%d/%d", writer, next%100), strings.Repeat("x", next%2000))).Commit()
		if err == nil {
			a.Lock()
			a.put[writer] = next
			a.Unlock()
		} else {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// check compares what is there with what was acknowledged. What was on its way may be there.
func (a *acknowledged) check(t *testing.T, client *clientv3.Client) {
	for writer := 0; writer < writers; writer++ {
		var answer *clientv3.GetResponse
		err := errors.New("not asked")
		for end := time.Now().Add(patience); err != nil && time.Now().Before(end); {
			wait, stop := context.WithTimeout(context.Background(), 5*time.Second)
			answer, err = client.Get(wait, key(writer))
			stop()
		}
		if err != nil {
			t.Fatalf("etcd does not answer after a kill: %v", err)
		}
		found := 0
		if len(answer.Kvs) == 1 {
			found, _ = strconv.Atoi(string(answer.Kvs[0].Value))
		}
		if found < a.put[writer] || found > a.begun[writer] {
			t.Fatalf("%s is %d; %d was acknowledged, and %d begun", key(writer), found, a.put[writer], a.begun[writer])
		}
		a.put[writer], a.begun[writer] = found, found
	}
}

// maintain does what administrators do: it compacts, defragments (which copies the database into another), and reads a
// snapshot.
func maintain(context context.Context, client *clientv3.Client, endpoint string) {
	status, err := client.Status(context, endpoint)
	if err != nil {
		return
	}
	if status.Header.Revision > 100 {
		_, _ = client.Compact(context, status.Header.Revision-100)
	}
	_, _ = client.Defragment(context, endpoint)
	if snapshot, err := client.Snapshot(context); err == nil {
		snapshot.Close()
	}
}

// TestKills kills one member or all of them under load, again and again. MEMLITH_ETCD_MEMBERS, MEMLITH_ETCD_KILLS.
func TestKills(t *testing.T) {
	members, kills := number(t, "MEMLITH_ETCD_MEMBERS", 1), number(t, "MEMLITH_ETCD_KILLS", 3)
	c := &cluster{t: t, folder: t.TempDir(), members: make([]*exec.Cmd, members)}
	c.start()
	defer func() { c.kill(-1) }()
	client := c.client()
	defer client.Close()
	var a acknowledged
	a.check(t, client)
	total := 0
	for kill := 0; kill < kills; kill++ {
		life, end := context.WithCancel(context.Background())
		var busy sync.WaitGroup
		for writer := 0; writer < writers; writer++ {
			busy.Add(1)
			go func() {
				defer busy.Done()
				a.write(life, client, writer)
			}()
		}
		if kill%3 == 2 {
			busy.Add(1)
			go func() {
				defer busy.Done()
				maintain(life, client, url(c.clientPort(0)))
			}()
		}
		time.Sleep(time.Duration(300+rand.Intn(1200)) * time.Millisecond)
		only := -1
		if members > 1 && kill%2 == 1 {
			only = rand.Intn(members)
		}
		c.kill(only)
		end()
		busy.Wait()
		c.kill(-1) // those that were left go on only with all
		c.start()
		a.check(t, client)
	}
	for _, put := range a.put {
		total += put
	}
	if total == 0 {
		t.Fatal("nothing was written")
	}
	t.Logf("%d members, %d kills, %d transactions acknowledged, none lost", members, kills, total)
}
