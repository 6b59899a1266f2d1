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

	clientv3 "go.etcd.io/etcd/client/v3"
)

const puts = 900 // of each life

// stop ends the only member as an administrator does.
func (c *cluster) stop() {
	if err := c.members[0].Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	_ = c.members[0].Wait() // etcd ends itself with the signal
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

// TestConvertedDirectory: a member of stock etcd goes on with memlith when bboltconvert has converted its database, and
// with bbolt when that was converted back. MEMLITH_ETCD_STOCK and MEMLITH_ETCD_CONVERT are the programs.
func TestConvertedDirectory(t *testing.T) {
	stock, converter := os.Getenv("MEMLITH_ETCD_STOCK"), os.Getenv("MEMLITH_ETCD_CONVERT")
	if stock == "" || converter == "" {
		t.Skip("MEMLITH_ETCD_STOCK and MEMLITH_ETCD_CONVERT are not set: `./dev soak etcd` sets them")
	}
	c := &cluster{t: t, folder: t.TempDir(), members: make([]*exec.Cmd, 1), program: stock}
	database := filepath.Join(c.folder, "m0", "member", "snap", "db")
	before, revision := "", int64(0)
	for life, program := range []string{stock, "", stock} {
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
		direction := "to-memlith"
		if program == "" {
			direction = "to-bbolt"
		}
		converted := database + ".converted"
		if out, err := exec.Command(converter, direction, database, converted).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, beside := range []string{"", ".memlith"} {
			if err := os.Remove(database + beside); err != nil && !(os.IsNotExist(err) && beside != "") {
				t.Fatal(err)
			}
		}
		if err := os.Rename(converted, database); err != nil {
			t.Fatal(err)
		}
		left, err := filepath.Glob(converted + "*")
		if err != nil || len(left) > 0 {
			t.Fatalf("left beside the converted database: %v %v", left, err)
		}
	}
}
