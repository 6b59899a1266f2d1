package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// filled puts keys of 1 KiB until the quota raises its alarm, and returns how many there were room for.
func filled(t *testing.T, client *clientv3.Client) int {
	for i := 0; ; i++ {
		wait, end := context.WithTimeout(context.Background(), patience)
		_, err := client.Put(wait, fmt.Sprintf("key/%06d", i), strings.Repeat("x", 1024))
		end()
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return i
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// usedUp fills a member up to its quota, and lets it recover as etcd's manual says. It returns how many keys it held.
func usedUp(t *testing.T, program string) int {
	c := newCluster(t, 1)
	c.program = program
	c.more = append(c.more, "--quota-backend-bytes", fmt.Sprint(12<<20))
	c.start()
	defer func() { c.kill(-1) }()
	client := c.client()
	defer client.Close()
	count := filled(t, client)
	wait, end := context.WithTimeout(context.Background(), patience)
	defer end()
	removed, err := client.Delete(wait, "key/", clientv3.WithPrefix())
	if err != nil || removed.Deleted != int64(count) {
		t.Fatalf("%v: %d of %d keys were removed", err, removed.Deleted, count)
	}
	if _, err := client.Compact(wait, removed.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	full := c.status(wait, client)
	for ; full.DbSizeInUse > full.DbSize/2; full = c.status(wait, client) { // the backend counts when it commits
		time.Sleep(100 * time.Millisecond)
	}
	if _, err := client.Defragment(wait, url(c.clientPort(0))); err != nil {
		t.Fatal(err)
	}
	if after := c.status(wait, client); after.DbSize > full.DbSize/4 {
		t.Fatalf("defragmented: %d bytes of %d are left, %d in use", after.DbSize, full.DbSize, after.DbSizeInUse)
	}
	if _, err := client.AlarmDisarm(wait, &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	if again := filled(t, client); again < count*9/10 {
		t.Fatalf("after the alarm there was room for %d keys, before for %d", again, count)
	}
	return count
}

func (c *cluster) status(wait context.Context, client *clientv3.Client) *clientv3.StatusResponse {
	status, err := client.Status(wait, url(c.clientPort(0)))
	if err != nil {
		c.t.Fatal(err)
	}
	return status
}

// TestQuota: the quota counts pages as stock etcd does, and a member that was full recovers. MEMLITH_ETCD_STOCK is the
// program to compare with.
func TestQuota(t *testing.T) {
	ours := usedUp(t, "")
	stock := os.Getenv("MEMLITH_ETCD_STOCK")
	if stock == "" {
		t.Skipf("%d keys; MEMLITH_ETCD_STOCK is not set: `./dev soak etcd` sets it", ours)
	}
	theirs := usedUp(t, stock)
	t.Logf("%d keys, stock etcd %d", ours, theirs)
	if ours < theirs*6/10 { // pages of keys that only rise are half to two thirds full
		t.Errorf("%d keys reach the quota, %d of stock etcd's", ours, theirs)
	}
}
