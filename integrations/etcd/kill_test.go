package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const writers = 8

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
	c := newCluster(t, members)
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
