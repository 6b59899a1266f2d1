// Command kvnode is one node of a replicated key-value service: hashicorp/raft on raftstore. Its state is durable in a
// kv store, so that a restart replays nothing. docs/replication.md shows how to start three of them.
//
//	PUT /k/KEY      the body is the value; answered when a majority has it on the disk
//	GET /k/KEY      the newest value (linearizable); 404: there is none
//	GET /status     this node's role, and the indexes of its log and state
//
// A node that does not lead answers 421 with the leader's HTTP address.
package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"memlith.org/memlith"
	"memlith.org/memlith/kv"
)

const (
	valueBytesMax = 1 << 20
	timeout       = 5 * time.Second
)

// A command: the size of the key, 2 bytes; the key; and the value.
func encode(key string, value []byte) []byte {
	out := binary.BigEndian.AppendUint16(nil, uint16(len(key)))
	return append(append(out, key...), value...)
}

// The same on each node: what is no command changes nothing.
var errNoCommand = errors.New("this is no command")

func decode(data []byte) (key, value []byte, err error) {
	if len(data) < 2 || len(data) < 2+int(binary.BigEndian.Uint16(data)) {
		return nil, nil, errNoCommand
	}
	end := 2 + int(binary.BigEndian.Uint16(data))
	return data[2:end], data[end:], nil
}

type node struct {
	raft  *raft.Raft
	store *storage
	http  map[raft.ServerID]string
	stale bool
}

func main() {
	folder := flag.String("dir", "", "the node's folder")
	id := flag.String("id", "", "the node's name")
	peers := flag.String("peers", "", "all nodes: NAME=RAFT-ADDRESS=HTTP-ADDRESS,...")
	stale := flag.Bool("planted-stale-reads", false, "a fault for tests: reads are answered at once, by any node")
	kind := flag.String("storage", "memlith", "to measure others: raft-wal or raft-boltdb, with a state in memory")
	quick := flag.Bool("quick", false, "short timeouts, as tests on one machine want them")
	flag.Parse()
	if err := run(*folder, raft.ServerID(*id), *peers, *kind, *stale, *quick); err != nil {
		log.Fatal(err)
	}
}

func run(folder string, id raft.ServerID, peers, kind string, stale, quick bool) error {
	n := &node{http: map[raft.ServerID]string{}, stale: stale}
	var own raft.ServerAddress
	var configuration raft.Configuration
	for _, peer := range strings.Split(peers, ",") {
		parts := strings.Split(peer, "=")
		if len(parts) != 3 {
			return fmt.Errorf("%q is not NAME=RAFT-ADDRESS=HTTP-ADDRESS", peer)
		}
		server := raft.Server{ID: raft.ServerID(parts[0]), Address: raft.ServerAddress(parts[1])}
		configuration.Servers = append(configuration.Servers, server)
		n.http[server.ID] = parts[2]
		if server.ID == id {
			own = server.Address
		}
	}
	if folder == "" || own == "" {
		return errors.New("-dir and -id are needed, and -peers has to name this node")
	}

	store, err := openStorage(kind, folder)
	if err != nil {
		return err
	}
	n.store = store
	config := raft.DefaultConfig()
	config.LocalID = id
	level := hclog.Warn
	config.NoSnapshotRestoreOnStart = store.durable
	if quick {
		config.HeartbeatTimeout, config.ElectionTimeout = 200*time.Millisecond, 200*time.Millisecond
		config.LeaderLeaseTimeout, config.CommitTimeout = 150*time.Millisecond, 5*time.Millisecond
		config.SnapshotThreshold, config.SnapshotInterval, config.TrailingLogs = 50, 100*time.Millisecond, 20
		level = hclog.Info
	}
	config.Logger = hclog.New(&hclog.LoggerOptions{Name: string(id), Level: level, Output: os.Stderr})
	transport, err := raft.NewTCPTransport(string(own), nil, 3, timeout, io.Discard)
	if err != nil {
		return err
	}
	known, err := raft.HasExistingState(store.logs, store.stable, store.snapshots)
	if err != nil {
		return err
	}
	if !known {
		err := raft.BootstrapCluster(config, store.logs, store.stable, store.snapshots, transport, configuration)
		if err != nil {
			return err
		}
	}
	n.raft, err = raft.NewRaft(config, store.fsm, store.logs, store.stable, store.snapshots, transport)
	if err != nil {
		return err
	}

	listener, err := net.Listen("tcp", n.http[id])
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/k/", n.record)
	mux.HandleFunc("/status", n.status)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: timeout}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(listener) }()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	select {
	case err = <-stopped:
	case <-signals:
		err = server.Close()
	}
	return errors.Join(err, n.raft.Shutdown().Error(), store.close())
}

func (n *node) record(out http.ResponseWriter, in *http.Request) {
	key := strings.TrimPrefix(in.URL.Path, "/k/")
	if key == "" || len(key) > kv.KeyBytesMax {
		http.Error(out, fmt.Sprintf("a key has 1 to %d bytes", kv.KeyBytesMax), http.StatusBadRequest)
		return
	}
	switch in.Method {
	case http.MethodPut:
		value, err := io.ReadAll(http.MaxBytesReader(out, in.Body, valueBytesMax))
		if err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		future := n.raft.Apply(encode(key, value), timeout)
		if n.failed(out, future.Error()) {
			return
		}
		if err, ok := future.Response().(error); ok {
			n.failed(out, err)
		}
	case http.MethodGet:
		n.get(out, key)
	default:
		http.Error(out, "PUT or GET", http.StatusMethodNotAllowed)
	}
}

// A read is linearizable: a barrier goes through the log, so that this node leads, and has applied every write that was
// answered before.
func (n *node) get(out http.ResponseWriter, key string) {
	if !n.stale && n.failed(out, n.raft.Barrier(timeout).Error()) {
		return
	}
	value, err := n.store.get([]byte(key))
	if errors.Is(err, memlith.ErrNotFound) {
		http.Error(out, "there is no such key", http.StatusNotFound)
		return
	}
	if !n.failed(out, err) {
		_, _ = out.Write(value)
	}
}

func (n *node) failed(out http.ResponseWriter, err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, raft.ErrNotLeader):
		_, leader := n.raft.LeaderWithID()
		out.Header().Set("X-Leader", n.http[leader])
		http.Error(out, "the leader is "+n.http[leader], http.StatusMisdirectedRequest)
	default:
		http.Error(out, err.Error(), http.StatusServiceUnavailable)
	}
	return true
}

func (n *node) status(out http.ResponseWriter, _ *http.Request) {
	first, err := n.store.logs.FirstIndex()
	last, err2 := n.store.logs.LastIndex()
	if err := errors.Join(err, err2); err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintf(out, "%s log %d-%d applied %d\n", n.raft.State(), first, last, n.raft.AppliedIndex())
}
