// Command retwis is the side of etcd in the benchmark of that name: three members on this machine, with a client for
// each of its clients. Built with stock.mod, it is etcd as it comes.
//
// A transaction is one of etcd's: its writes, if the keys that were read have the revisions still. etcd does not
// remember the transactions of clients: one whose answer is lost and that is sent again would take effect twice, so an
// error ends the run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.uber.org/zap"

	"memlith.org/memlith/retwis"
	"memlith.org/memlith/retwis/nodes"
)

const (
	serveVariable = "MEMLITH_ETCD_SERVE" // this program is a member of etcd then
	patience      = 2 * time.Minute
)

type members struct {
	cluster *nodes.Cluster
	clients []retwis.Client
}

func (m *members) Clients() []retwis.Client { return m.clients }

// connect makes as many clients as are wanted, at the member that leads.
func (m *members) connect(wanted int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	leader := ""
	for leader == "" {
		if ctx.Err() != nil {
			return errors.New("no member of etcd leads")
		}
		for _, end := range m.cluster.HTTP {
			if m.leads(ctx, end) {
				leader = end
			}
		}
	}
	for i := 0; i < wanted; i++ {
		one, err := clientv3.New(clientv3.Config{Endpoints: []string{leader}, Logger: zap.NewNop()})
		if err != nil {
			return err
		}
		m.clients = append(m.clients, client{one})
	}
	return nil
}

func (m *members) leads(ctx context.Context, end string) bool {
	one, err := clientv3.New(clientv3.Config{Endpoints: []string{end}, Logger: zap.NewNop()})
	if err != nil {
		return false
	}
	defer one.Close()
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, err := one.Status(soon, end)
	return err == nil && status.Leader == status.Header.MemberId
}

type client struct{ *clientv3.Client }

func (c client) Read(keys []string) ([]uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var gets []clientv3.Op
	for _, key := range keys {
		gets = append(gets, clientv3.OpGet(key))
	}
	answer, err := c.Txn(ctx).Then(gets...).Commit()
	if err != nil {
		return nil, err
	}
	versions := make([]uint64, len(keys))
	for i, each := range answer.Responses {
		for _, found := range each.GetResponseRange().Kvs {
			versions[i] = uint64(found.ModRevision)
		}
	}
	return versions, nil
}

func (c client) Commit(reads []string, versions []uint64, writes []string, value []byte) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var needs []clientv3.Cmp
	for i, key := range reads {
		needs = append(needs, clientv3.Compare(clientv3.ModRevision(key), "=", int64(versions[i])))
	}
	var puts []clientv3.Op
	for _, key := range writes {
		puts = append(puts, clientv3.OpPut(key, string(value)))
	}
	answer, err := c.Txn(ctx).If(needs...).Then(puts...).Commit()
	if err != nil {
		return false, err
	}
	return answer.Succeeded, nil
}

// restart takes the time from the start of killed members to the first transaction that is answered.
func (m *members) Restart() (time.Duration, error) {
	began, err := m.cluster.Restart()
	if err != nil {
		return 0, err
	}
	one, err := clientv3.New(clientv3.Config{Endpoints: m.cluster.HTTP[:], Logger: zap.NewNop()})
	if err != nil {
		return 0, err
	}
	defer one.Close()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := one.Txn(ctx).Then(clientv3.OpPut(retwis.Key(0), "served again")).Commit()
		cancel()
		took := time.Since(began)
		if err == nil || took > patience {
			return took, err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func run(folder string, clients int) error {
	if err := os.Setenv(serveVariable, "1"); err != nil {
		return err
	}
	cluster, err := nodes.New(os.Args[0], folder, nodes.Etcd("--max-txn-ops", fmt.Sprint(retwis.OperationsMax),
		"--quota-backend-bytes", fmt.Sprint(8<<30), "--log-level", "error"))
	if err != nil {
		return err
	}
	defer cluster.Close()
	m := &members{cluster: cluster}
	if err := cluster.StartAll(); err != nil {
		return err
	}
	if err := m.connect(clients); err != nil {
		return err
	}
	return retwis.Serve(m)
}

func main() {
	if os.Getenv(serveVariable) != "" {
		etcdmain.Main(os.Args)
		return
	}
	folder := flag.String("dir", "", "a folder on the disk that is measured")
	clients := flag.Int("clients", 1, "how many")
	flag.Parse()
	if err := run(*folder, *clients); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}
