// Command kvnode is one node of a replicated key-value service with transactions: hashicorp/raft on raftstore. Its
// state is durable in a kv store, so that a restart replays nothing. docs/replication.md shows how to start three.
//
//	POST /transaction  a transaction of package txn; answered when a majority has it on the disk and it was validated
//	POST /read         the newest values of keys, as of one moment (linearizable)
//	PUT /k/KEY         a transaction that writes one key: the body is the value
//	GET /k/KEY         the newest value (linearizable); 404: there is none
//	GET /status        this node's role, and the indexes of its log and state
//	PUT /servers/NAME  adds a node with a vote, which was started with -join: the body is its raft address
//	DELETE /servers/NAME  removes a node
//
// A node that does not lead answers 421 with the leader's HTTP address. After 503 it is not known whether a transaction
// took effect: the client sends it again with the same number.
package main

import (
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

	"memlith.org/memlith/raftstore/internal/txn"
)

const (
	timeout         = 5 * time.Second
	addressBytesMax = 1000
	redoBytes       = 64 << 20 // made at first, so that the log need not grow under load; raft-wal makes as much
)

type node struct {
	raft  *raft.Raft
	store *storage
	reads *readIndex
	http  map[raft.ServerAddress]string
}

type settings struct {
	folder, peers, via string
	id                 raft.ServerID
	storage            string
	planted            string
	join, quick        bool
	election           time.Duration
	snapshots          time.Duration
}

func main() {
	var s settings
	flag.StringVar(&s.folder, "dir", "", "the node's folder")
	flag.StringVar((*string)(&s.id), "id", "", "the node's name")
	flag.StringVar(&s.peers, "peers", "", "all nodes: NAME=RAFT-ADDRESS=HTTP-ADDRESS,...")
	flag.StringVar(&s.via, "via", "", "other addresses to reach nodes by: RAFT-ADDRESS=ADDRESS,...")
	flag.StringVar(&s.storage, "storage", "memlith",
		"to measure others: raft-wal or raft-boltdb, with a state in bbolt, or -map behind the name: in memory; memory: "+
			"log and state, so that nothing survives")
	flag.StringVar(&s.planted, "planted", "", "a fault for tests: see planted.go")
	flag.BoolVar(&s.join, "join", false, "a new node waits until the others add it, and does not found a group")
	flag.DurationVar(&s.election, "election", 0, "the time without a leader after which nodes elect one; 0: raft's (1s)")
	flag.DurationVar(&s.snapshots, "snapshots", 0, "the time between snapshots; 0: raft's (120s)")
	flag.BoolVar(&s.quick, "quick", false, "short timeouts and logs, as tests on one machine want them")
	flag.Parse()
	if err := run(s); err != nil {
		log.Fatal(err)
	}
}

// split splits "A=B,..." and "A=B=C,..."
func split(list string, parts int) (all [][]string, err error) {
	for _, each := range strings.Split(list, ",") {
		fields := strings.Split(each, "=")
		if len(fields) != parts {
			return nil, fmt.Errorf("%q has not %d parts with = between them", each, parts)
		}
		all = append(all, fields)
	}
	return all, nil
}

func run(s settings) error {
	n := &node{http: map[raft.ServerAddress]string{}}
	var own raft.ServerAddress
	var configuration raft.Configuration
	peers, err := split(s.peers, 3)
	if err != nil {
		return err
	}
	for _, peer := range peers {
		server := raft.Server{ID: raft.ServerID(peer[0]), Address: raft.ServerAddress(peer[1])}
		configuration.Servers = append(configuration.Servers, server)
		n.http[server.Address] = peer[2]
		if server.ID == s.id {
			own = server.Address
		}
	}
	if s.folder == "" || own == "" {
		return errors.New("-dir and -id are needed, and -peers has to name this node")
	}

	redo := uint64(redoBytes)
	if s.quick {
		redo = 0
	}
	n.store, err = openStorage(s.storage, s.folder, redo, txn.Options{ForgetSessions: s.planted == lostSessions})
	if err != nil {
		return err
	}
	if s.planted == lostVotes {
		n.store.stable = raft.NewInmemStore()
	}
	if s.planted == lostEntries {
		n.store.logs = &forgetful{LogStore: n.store.logs}
	}
	transport, err := openTransport(string(own), s.via)
	if err != nil {
		return err
	}
	if err := n.start(s, configuration, transport); err != nil {
		return err
	}
	return n.serve(n.http[own])
}

func (n *node) start(s settings, configuration raft.Configuration, transport raft.Transport) error {
	config := raft.DefaultConfig()
	config.LocalID = s.id
	level := hclog.Warn
	config.NoSnapshotRestoreOnStart = !n.store.inMemory
	// In raft 1.7.3 a node in a pre-vote that gets a snapshot remains a candidate, and remembers the snapshot's sender as
	// its leader. If the leader ends then, this node refuses all others, and the group has no leader any more.
	config.PreVoteDisabled = true
	// Entries that wait for the log are stored together.
	config.BatchApplyCh, config.MaxAppendEntries = true, 256
	if s.quick {
		config.HeartbeatTimeout, config.ElectionTimeout = 200*time.Millisecond, 600*time.Millisecond
		config.LeaderLeaseTimeout, config.CommitTimeout = 150*time.Millisecond, 5*time.Millisecond
		config.SnapshotThreshold, config.SnapshotInterval, config.TrailingLogs = 50, 100*time.Millisecond, 20
		level = hclog.Info
	}
	if s.election > 0 {
		config.HeartbeatTimeout, config.ElectionTimeout, config.LeaderLeaseTimeout = s.election, s.election, s.election/2
	}
	if s.snapshots > 0 {
		config.SnapshotInterval = s.snapshots
	}
	config.Logger = hclog.New(&hclog.LoggerOptions{Name: string(s.id), Level: level, Output: os.Stderr})
	known, err := raft.HasExistingState(n.store.logs, n.store.stable, n.store.snapshots)
	if err != nil {
		return err
	}
	if !known && !s.join {
		err := raft.BootstrapCluster(config, n.store.logs, n.store.stable, n.store.snapshots, transport, configuration)
		if err != nil {
			return err
		}
	}
	n.raft, err = raft.NewRaft(config, n.store.fsm, n.store.logs, n.store.stable, n.store.snapshots, transport)
	n.reads = &readIndex{barrier: func() error { return n.raft.Barrier(timeout).Error() }}
	switch s.planted {
	case staleReads:
		n.reads.barrier = func() error { return nil }
	case wallLease:
		n.reads.barrier = leased(n.reads.barrier)
	}
	return err
}

func (n *node) serve(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/transaction", n.transaction)
	mux.HandleFunc("/read", n.read)
	mux.HandleFunc("/k/", n.record)
	mux.HandleFunc("/status", n.status)
	mux.HandleFunc("/servers/", n.servers)
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
	return errors.Join(err, n.raft.Shutdown().Error(), n.store.close())
}

// ---- requests ------------------------------------------------------------------------------------------------------

// body reads the body of a request, which is a POST.
func body(out http.ResponseWriter, in *http.Request) ([]byte, bool) {
	if in.Method != http.MethodPost {
		http.Error(out, "POST", http.StatusMethodNotAllowed)
		return nil, false
	}
	content, err := io.ReadAll(http.MaxBytesReader(out, in.Body, txn.BodyBytesMax))
	if err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return nil, false
	}
	return content, true
}

func (n *node) transaction(out http.ResponseWriter, in *http.Request) {
	content, ok := body(out, in)
	if !ok {
		return
	}
	if _, err := txn.Decode(content); err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	if result, ok := n.commit(out, content); ok {
		_, _ = out.Write(result.Encode())
	}
}

// commit returns when a majority has the entry on the disk, and it was applied here. If that failed, it was answered.
func (n *node) commit(out http.ResponseWriter, entry []byte) (txn.Result, bool) {
	future := n.raft.Apply(entry, timeout)
	if n.failed(out, future.Error()) {
		return txn.Result{}, false
	}
	switch response := future.Response().(type) {
	case txn.Result:
		return response, true
	case error:
		n.failed(out, response)
	default: // of an entry that the state had already
		n.failed(out, errors.New("the result is not known"))
	}
	return txn.Result{}, false
}

func (n *node) read(out http.ResponseWriter, in *http.Request) {
	content, ok := body(out, in)
	if !ok {
		return
	}
	keys, err := txn.DecodeKeys(content)
	if err != nil {
		http.Error(out, err.Error(), http.StatusBadRequest)
		return
	}
	if values, ok := n.values(out, keys); ok {
		_, _ = out.Write(txn.EncodeValues(values))
	}
}

// values reads keys of one state, which has all that was answered before the call. If that failed, it was answered.
func (n *node) values(out http.ResponseWriter, keys []string) ([]txn.Value, bool) {
	if n.failed(out, n.reads.wait()) {
		return nil, false
	}
	values := make([]txn.Value, len(keys))
	err := n.store.view(func(records txn.Records) (err error) {
		for i, key := range keys {
			if values[i], err = txn.Get(records, key); err != nil {
				return err
			}
		}
		return nil
	})
	return values, !n.failed(out, err)
}

func (n *node) record(out http.ResponseWriter, in *http.Request) {
	key := strings.TrimPrefix(in.URL.Path, "/k/")
	if key == "" || len(key) > txn.KeyBytesMax {
		http.Error(out, fmt.Sprintf("a key has 1 to %d bytes", txn.KeyBytesMax), http.StatusBadRequest)
		return
	}
	switch in.Method {
	case http.MethodPut:
		value, err := io.ReadAll(http.MaxBytesReader(out, in.Body, txn.ValueBytesMax))
		if err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		entry, err := (&txn.Transaction{Writes: []txn.Write{{Key: key, Value: value}}}).Encode()
		if err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		n.commit(out, entry)
	case http.MethodGet:
		values, ok := n.values(out, []string{key})
		if ok && values[0].Version == 0 {
			http.Error(out, "there is no such key", http.StatusNotFound)
		} else if ok {
			_, _ = out.Write(values[0].Data)
		}
	default:
		http.Error(out, "PUT or GET", http.StatusMethodNotAllowed)
	}
}

// servers changes the group. It answers when a majority of the new one has the change on the disk.
func (n *node) servers(out http.ResponseWriter, in *http.Request) {
	name := raft.ServerID(strings.TrimPrefix(in.URL.Path, "/servers/"))
	if name == "" {
		http.Error(out, "a node has a name", http.StatusBadRequest)
		return
	}
	switch in.Method {
	case http.MethodPut:
		address, err := io.ReadAll(http.MaxBytesReader(out, in.Body, addressBytesMax))
		if err == nil {
			_, _, err = net.SplitHostPort(string(address))
		}
		if err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		n.failed(out, n.raft.AddVoter(name, raft.ServerAddress(address), 0, timeout).Error())
	case http.MethodDelete:
		n.failed(out, n.raft.RemoveServer(name, 0, timeout).Error())
	default:
		http.Error(out, "PUT or DELETE", http.StatusMethodNotAllowed)
	}
}

// failed answers an error, if there is one.
func (n *node) failed(out http.ResponseWriter, err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, raft.ErrNotLeader):
		leader, _ := n.raft.LeaderWithID()
		out.Header().Set(txn.LeaderHeader, n.http[leader])
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
