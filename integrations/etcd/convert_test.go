package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const puts = 900 // of each life

// stop ends the only member as an administrator does.
func (c *cluster) stop() {
	if err := c.members[0].Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	_ = c.members[0].Wait() // etcd ends itself with the signal
	c.members[0] = nil
}

// putKeys changes keys, most of them more than once, so that there are revisions to be kept.
func putKeys(t *testing.T, client *clientv3.Client, word string) {
	for i := 0; i < puts; i++ {
		name := fmt.Sprintf("%s/%d", word, i%600)
		wait, end := context.WithTimeout(context.Background(), patience)
		_, err := client.Put(wait, name, fmt.Sprint(word, i, strings.Repeat("x", i)))
		end()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// all has each key with its value, and the numbers that etcd gave it.
func all(t *testing.T, client *clientv3.Client, revision int64) string {
	wait, end := context.WithTimeout(context.Background(), patience)
	defer end()
	answer, err := client.Get(wait, "", clientv3.WithPrefix(), clientv3.WithRev(revision))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, each := range answer.Kvs {
		fmt.Fprintln(&text, each)
	}
	return text.String()
}

// refuses starts the member and waits until it has ended with that text in its log.
func (c *cluster) refuses(text string) {
	c.startOne(0)
	ended := make(chan error, 1)
	go func(member *exec.Cmd) { ended <- member.Wait() }(c.members[0])
	select {
	case err := <-ended:
		c.members[0] = nil
		if err == nil || !c.logged(0, text) {
			c.t.Fatalf("%s: the data directory of the other kind was not refused: %v; see %s", c.program, err, c.logFile(0))
		}
	case <-time.After(patience):
		c.kill(-1)
		c.t.Fatal("the data directory of the other kind was not refused")
	}
}

// takeOver converts the data directory of the member that was stopped.
func takeOver(c *cluster, converter, direction string) {
	converted := c.directory(0) + ".converted"
	if out, err := exec.Command(converter, direction, c.directory(0), converted).CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	if err := os.RemoveAll(c.directory(0)); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(converted, c.directory(0)); err != nil {
		c.t.Fatal(err)
	}
}

// takeOverDatabase is the same for an etcd with its own write-ahead log: only the database is converted.
func takeOverDatabase(c *cluster, converter, direction string) {
	if direction == "to-stock" {
		direction = "to-bbolt"
	}
	database := filepath.Join(c.directory(0), "member", "snap", "db")
	converted := database + ".converted"
	if out, err := exec.Command(converter, direction, database, converted).CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	for _, beside := range []string{"", ".memlith"} {
		if err := os.Remove(database + beside); err != nil && !(os.IsNotExist(err) && beside != "") {
			c.t.Fatal(err)
		}
	}
	if err := os.Rename(converted, database); err != nil {
		c.t.Fatal(err)
	}
	left, err := filepath.Glob(converted + "*")
	if err != nil || len(left) > 0 {
		c.t.Fatalf("left beside the converted database: %v %v", left, err)
	}
}

// TestConvertedDirectory: a member of stock etcd goes on with memlith when its data directory was converted, and as
// stock etcd when that was converted back; each kind refuses the directory of the other. MEMLITH_ETCD_STOCK is the
// program of these tests with stock etcd, MEMLITH_ETCD_CONVERT is etcdconvert; for an etcd whose database alone is
// memlith's, MEMLITH_ETCD_CONVERT_DATABASE is bboltconvert.
func TestConvertedDirectory(t *testing.T) {
	stock, converter, take := os.Getenv("MEMLITH_ETCD_STOCK"), os.Getenv("MEMLITH_ETCD_CONVERT"), takeOver
	if program := os.Getenv("MEMLITH_ETCD_CONVERT_DATABASE"); converter == "" && program != "" {
		converter, take = program, takeOverDatabase
	}
	if stock == "" || converter == "" {
		t.Skip("MEMLITH_ETCD_STOCK and MEMLITH_ETCD_CONVERT are not set: `./dev soak etcd` sets them")
	}
	c := newCluster(t, 1)
	defer func() { c.kill(-1) }()
	before, revision := "", int64(0)
	for life, program := range []string{stock, "", stock} {
		if life > 0 {
			c.program = program
			c.refuses("failed to open database")
			take(c, converter, map[string]string{"": "to-memlith", stock: "to-stock"}[program])
		}
		c.program = program
		c.start()
		client := c.client()
		if life > 0 && all(t, client, revision) != before {
			t.Fatalf("life %d: the keys of revision %d are not as they were", life, revision)
		}
		putKeys(t, client, fmt.Sprint("life", life))
		status, err := client.Status(context.Background(), url(c.clientPort(0)))
		if err != nil {
			t.Fatal(err)
		}
		if revision = status.Header.Revision; revision != int64(1+puts*(life+1)) {
			t.Fatalf("life %d: revision %d", life, revision)
		}
		before = all(t, client, revision)
		client.Close()
		c.stop()
	}
}
