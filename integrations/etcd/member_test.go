package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// sameEverywhere waits until all members that run have the same keys with the same history.
func (c *cluster) sameEverywhere(client *clientv3.Client) {
	c.t.Helper()
	var last error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if last = c.compare(client); last == nil {
			return
		}
	}
	c.t.Fatal(last)
}

func (c *cluster) compare(client *clientv3.Client) error {
	wait, end := context.WithTimeout(context.Background(), 5*time.Second)
	defer end()
	now, err := client.Get(wait, "no such key") // linearizable: the newest revision
	if err != nil {
		return err
	}
	var sums []uint32
	for i, member := range c.members {
		if member == nil {
			continue
		}
		sum, err := client.HashKV(wait, url(c.clientPort(i)), now.Header.Revision)
		if err != nil {
			return fmt.Errorf("member %d: %w", i, err)
		}
		sums = append(sums, sum.Hash)
		if sum.Hash != sums[0] {
			return fmt.Errorf("member %d has other keys at revision %d: %v", i, now.Header.Revision, sums)
		}
	}
	if len(sums) == 0 {
		return errors.New("no member runs")
	}
	return nil
}

func (c *cluster) putMany(client *clientv3.Client, word string, count int) {
	c.t.Helper()
	for i := 0; i < count; i++ {
		var err error
		for end := time.Now().Add(patience); ; {
			wait, stop := context.WithTimeout(context.Background(), 5*time.Second)
			_, err = client.Put(wait, fmt.Sprintf("%s/%d", word, i%700), fmt.Sprint(word, i, strings.Repeat("x", i%1000)))
			stop()
			if err == nil || time.Now().After(end) {
				break
			}
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

// TestMembers: a member that was away for long gets the state of another as a snapshot; a member is removed, and
// another takes its place; and all of them come back from a kill.
func TestMembers(t *testing.T) {
	c := newCluster(t, 3)
	c.start()
	defer func() { c.kill(-1) }()
	client := c.client()
	defer func() { client.Close() }()
	c.putMany(client, "first", 300)
	c.sameEverywhere(client)

	const installed = "applied incoming Raft snapshot"
	for round := 0; round < 2; round++ {
		c.kill(2)
		c.putMany(client, fmt.Sprint("away", round), 1500)
		c.startOne(2)
		c.sameEverywhere(client)
		c.kill(2) // and again, with what it has got
		c.startOne(2)
		c.sameEverywhere(client)
	}
	if !c.logged(2, installed) {
		t.Fatal("the member that was away got no snapshot")
	}

	// etcd changes its members when all of them have been connected for some seconds.
	try := func(change func(wait context.Context) error) {
		t.Helper()
		var err error
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			wait, stop := context.WithTimeout(context.Background(), 5*time.Second)
			err = change(wait)
			stop()
			if err == nil {
				return
			}
		}
		t.Fatal(err)
	}
	try(func(wait context.Context) error {
		list, err := client.MemberList(wait)
		for i := 0; err == nil && i < len(list.Members); i++ {
			if list.Members[i].Name == "m1" {
				_, err = client.MemberRemove(wait, list.Members[i].ID)
			}
		}
		return err
	})
	c.kill(1)
	c.gone[1] = true
	c.members = append(c.members, nil)
	try(func(wait context.Context) error {
		_, err := client.MemberAdd(wait, []string{url(c.clientPort(3) + 1)})
		return err
	})
	c.state = "existing"
	c.startOne(3)
	client.Close()
	client = c.client()
	c.putMany(client, "replaced", 600)
	c.sameEverywhere(client)
	if !c.logged(3, installed) {
		t.Fatal("the new member got no snapshot")
	}
	c.kill(-1)
	c.start()
	c.putMany(client, "afterwards", 100)
	c.sameEverywhere(client)
}

// TestRestoredSnapshot: etcdutl makes a data directory from a snapshot that a client saved, and a member has all keys
// there, also after a kill. MEMLITH_ETCD_UTL is etcdutl.
func TestRestoredSnapshot(t *testing.T) {
	utility := os.Getenv("MEMLITH_ETCD_UTL")
	if utility == "" {
		t.Skip("MEMLITH_ETCD_UTL is not set: `./dev soak etcd` sets it")
	}
	c := newCluster(t, 1)
	c.start()
	defer func() { c.kill(-1) }()
	client := c.client()
	defer client.Close()
	putKeys(t, client, "before")
	status, err := client.Status(context.Background(), url(c.clientPort(0)))
	if err != nil {
		t.Fatal(err)
	}
	before := all(t, client, status.Header.Revision)
	saved := filepath.Join(c.folder, "saved")
	stream, err := client.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(saved)
	if err == nil {
		_, err = io.Copy(file, stream)
	}
	if err = errors.Join(err, file.Close(), stream.Close()); err != nil {
		t.Fatal(err)
	}
	putKeys(t, client, "later")
	c.kill(-1)
	if err := os.RemoveAll(c.directory(0)); err != nil {
		t.Fatal(err)
	}
	for _, arguments := range [][]string{
		{"snapshot", "status", saved},
		{"snapshot", "restore", saved, "--name", "m0", "--initial-cluster", c.peers(), "--initial-advertise-peer-urls",
			url(c.clientPort(0) + 1), "--data-dir", c.directory(0)},
	} {
		if out, err := exec.Command(utility, arguments...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", arguments, err, out)
		}
	}
	for life := 0; life < 3; life++ {
		c.start()
		if all(t, client, status.Header.Revision) != before {
			t.Fatalf("life %d: the keys of revision %d are not as they were", life, status.Header.Revision)
		}
		c.putMany(client, fmt.Sprint("life", life), 700)
		c.kill(-1)
	}
}

// TestSnapshotOfStock: a member on memlith that gets the state of a stock member ends, and says what to do.
func TestSnapshotOfStock(t *testing.T) {
	stock := os.Getenv("MEMLITH_ETCD_STOCK")
	if stock == "" {
		t.Skip("MEMLITH_ETCD_STOCK is not set: `./dev soak etcd` sets it")
	}
	c := newCluster(t, 3)
	c.program = stock
	c.startOne(0)
	c.startOne(1)
	defer func() { c.kill(-1) }()
	client := c.client()
	defer client.Close()
	c.putMany(client, "key", 2000)
	c.program = ""
	c.startOne(2)
	const sentence = "run all members on memlith"
	for end := time.Now().Add(patience); !c.logged(2, sentence); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the member does not say why it cannot take the state of a stock member")
		}
	}
}
