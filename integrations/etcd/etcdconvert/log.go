package main

import (
	"errors"
	"fmt"
	"os"

	"go.uber.org/zap"

	stock "go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"

	memlith "memlith.org/memlith/etcd/wal"
)

// walLog is what the logs of both kinds have.
type walLog interface {
	ReadAll() ([]byte, raftpb.HardState, []raftpb.Entry, error)
	Save(state raftpb.HardState, entries []raftpb.Entry) error
	SaveSnapshot(snapshot walpb.Snapshot) error
	Close() error
}

type kind struct {
	name      string
	create    func(folder string, metadata []byte) (walLog, error)
	read      func(folder string, from walpb.Snapshot) (walLog, error)
	snapshots func(folder string) ([]walpb.Snapshot, error)
}

func kindOf[Log walLog](name string, create func(*zap.Logger, string, []byte) (Log, error),
	read func(*zap.Logger, string, walpb.Snapshot) (Log, error),
	snapshots func(*zap.Logger, string) ([]walpb.Snapshot, error)) kind {
	log := zap.NewNop()
	return kind{
		name,
		func(folder string, metadata []byte) (walLog, error) { return create(log, folder, metadata) },
		func(folder string, from walpb.Snapshot) (walLog, error) { return read(log, folder, from) },
		func(folder string) ([]walpb.Snapshot, error) { return snapshots(log, folder) },
	}
}

var (
	ofStock   = kindOf("stock", stock.Create, stock.OpenForRead, stock.ValidSnapshotEntries)
	ofMemlith = kindOf("memlith", memlith.Create, memlith.OpenForRead, memlith.ValidSnapshotEntries)
)

// content is what etcd would find in a log, from the oldest snapshot on from which it can be read.
type content struct {
	metadata  []byte
	state     raftpb.HardState
	snapshots []walpb.Snapshot
	entries   []raftpb.Entry
}

func contentOf(folder string, of kind) (found content, err error) {
	snapshots, err := of.snapshots(folder)
	if err != nil {
		return found, err
	}
	err = fmt.Errorf("%s: there is no snapshot from which the log can be read", folder)
	for i, snapshot := range snapshots {
		log, opened := of.read(folder, snapshot)
		if opened != nil {
			err = errors.Join(err, opened)
			continue
		}
		metadata, state, entries, failed := log.ReadAll()
		if closed := log.Close(); !errors.Is(closed, os.ErrInvalid) { // etcd's own, which was opened to be read
			failed = errors.Join(failed, closed)
		}
		if failed == nil {
			return content{metadata, state, snapshots[i:], entries}, nil
		}
		err = errors.Join(err, failed)
	}
	return found, err
}

const batchBytes = 8 << 20

func convertLog(from, to string, toMemlith bool) (entries uint64, err error) {
	source, target := ofStock, ofMemlith
	if !toMemlith {
		source, target = target, source
	}
	found, err := contentOf(from, source)
	if err != nil {
		return 0, err
	}
	log, err := target.create(to, found.metadata)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	for left := found.entries; len(left) > 0; {
		count, bytes := 0, 0
		for count < len(left) && bytes < batchBytes {
			bytes += left[count].Size()
			count++
		}
		if err := log.Save(raftpb.HardState{}, left[:count]); err != nil {
			return 0, err
		}
		left = left[count:]
	}
	for _, snapshot := range found.snapshots {
		if snapshot.Index == 0 {
			continue // a new log has it
		}
		if err := log.SaveSnapshot(snapshot); err != nil {
			return 0, err
		}
	}
	return uint64(len(found.entries)), log.Save(found.state, nil)
}
