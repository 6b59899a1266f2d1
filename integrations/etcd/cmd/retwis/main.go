// Command retwis runs the load of package retwis on three members of etcd on this machine. It reads a request of that
// package a line on standard input, and answers with a line. Built with stock.mod, it is etcd as it comes.
//
// A transaction is one of etcd's: its writes, if the keys that were read have the revisions still. etcd does not
// remember the transactions of clients: one whose answer is lost and that is sent again would take effect twice, so an
// error ends the run.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.uber.org/zap"

	"memlith.org/memlith/retwis"
)

const (
	serveVariable = "MEMLITH_ETCD_SERVE" // this program is a member of etcd then
	count         = 3
	fillBatch     = 500
	patience      = 2 * time.Minute
)

type members struct {
	folder  string
	ends    [count]string // for clients
	peers   [count]string
	running [count]*exec.Cmd
	clients []retwis.Client
	zipf    *retwis.Zipf
	keys    int
}

// choose chooses addresses that no process uses now.
func (m *members) choose() error {
	for i := range m.ends {
		for _, address := range []*string{&m.ends[i], &m.peers[i]} {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			defer listener.Close() // all are held until all are chosen, so that they differ
			*address = "http://" + listener.Addr().String()
		}
	}
	return nil
}

func (m *members) start() error {
	var all []string
	for i := range m.peers {
		all = append(all, fmt.Sprintf("m%d=%s", i, m.peers[i]))
	}
	for i := range m.running {
		name := fmt.Sprintf("m%d", i)
		command := exec.Command(os.Args[0], "--name", name, "--data-dir", filepath.Join(m.folder, name),
			"--listen-client-urls", m.ends[i], "--advertise-client-urls", m.ends[i], "--listen-peer-urls", m.peers[i],
			"--initial-advertise-peer-urls", m.peers[i], "--initial-cluster", strings.Join(all, ","),
			"--max-txn-ops", fmt.Sprint(2*fillBatch), "--quota-backend-bytes", fmt.Sprint(8<<30), "--log-level", "error")
		command.Env = append(os.Environ(), serveVariable+"=1")
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		log, err := os.OpenFile(filepath.Join(m.folder, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		command.Stdout, command.Stderr = log, log
		err = command.Start()
		_ = log.Close()
		if err != nil {
			return err
		}
		m.running[i] = command
	}
	return nil
}

func (m *members) kill() {
	for _, each := range m.running {
		if each != nil {
			_ = each.Process.Kill()
			_ = each.Wait()
		}
	}
}

// connect makes as many clients as are wanted, at the member that leads.
func (m *members) connect(wanted int) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	leader := ""
	for leader == "" {
		if ctx.Err() != nil {
			return errors.New("no member of etcd leads")
		}
		for _, end := range m.ends {
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
func (m *members) restart() (time.Duration, error) {
	m.kill()
	began := time.Now()
	if err := m.start(); err != nil {
		return 0, err
	}
	one, err := clientv3.New(clientv3.Config{Endpoints: m.ends[:], Logger: zap.NewNop()})
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

func (m *members) answer(request retwis.Request) (result retwis.Result, err error) {
	switch request.What {
	case retwis.RequestFill:
		return result, request.Load.Fill(m.clients[0], fillBatch)
	case retwis.RequestRun:
		if m.keys != request.Load.Keys {
			m.keys, m.zipf = request.Load.Keys, retwis.NewZipf(request.Load.Keys, request.Load.Theta)
		}
		return request.Load.Run(m.clients, m.zipf, request.Seed, request.Length)
	case retwis.RequestRestart:
		result.Took, err = m.restart()
		return result, err
	}
	return result, fmt.Errorf("there is no request %q", request.What)
}

func run(folder, wanted string) error {
	clients, err := strconv.Atoi(wanted)
	if err != nil || clients < 1 {
		return errors.New("usage: retwis FOLDER CLIENTS")
	}
	m := &members{folder: folder}
	if err := m.choose(); err != nil {
		return err
	}
	defer m.kill()
	if err := m.start(); err != nil {
		return err
	}
	if err := m.connect(clients); err != nil {
		return err
	}
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		var request retwis.Request
		if err := json.Unmarshal(in.Bytes(), &request); err != nil {
			return err
		}
		var answer retwis.Answer
		if answer.Result, err = m.answer(request); err != nil {
			answer.Error = err.Error()
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
	return in.Err()
}

func main() {
	if os.Getenv(serveVariable) != "" {
		etcdmain.Main(os.Args)
		return
	}
	err := errors.New("usage: retwis FOLDER CLIENTS")
	if len(os.Args) == 3 {
		err = run(os.Args[1], os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		os.Exit(1)
	}
}
