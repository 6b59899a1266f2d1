package wal

import (
	"bytes"
	"fmt"

	"go.etcd.io/etcd/pkg/v3/pbutil"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"

	"memlith.org/memlith/applog"
)

// Kinds of records, with the numbers of etcd's. A record is a byte with its kind, and the bytes that etcd's record has.
const (
	MetadataType int64 = iota + 1
	EntryType
	StateType
	_ // sums of etcd's files: the application log has its own
	SnapshotType
)

func kindOf(record []byte) int64 { return int64(record[0]) }

// MustUnmarshalEntry decodes an entry of raft.
func MustUnmarshalEntry(d []byte) (e raftpb.Entry) {
	pbutil.MustUnmarshal(&e, d)
	return e
}

// MustUnmarshalState decodes a hard state of raft.
func MustUnmarshalState(d []byte) (s raftpb.HardState) {
	pbutil.MustUnmarshal(&s, d)
	return s
}

func unmarshalSnapshot(d []byte) (snapshot walpb.Snapshot, err error) {
	err = snapshot.Unmarshal(d)
	return snapshot, err
}

func snapshotRecord(snapshot *walpb.Snapshot) ([]byte, error) {
	var batch batch
	if err := batch.add(SnapshotType, snapshot.Index, snapshot); err != nil {
		return nil, err
	}
	return batch.records[0], nil
}

// replay shows each record, in their order. A record is valid during the call.
func replay(log *applog.Log, visit func(number uint64, record []byte) error) error {
	info, err := log.Info()
	if err != nil {
		return err
	}
	var record []byte
	for number := info.Consumed + 1; number <= info.Newest; number++ {
		if record, err = log.GetInto(number, record); err != nil {
			return fmt.Errorf("wal: record %d: %w", number, err)
		}
		if len(record) == 0 {
			return fmt.Errorf("wal: record %d is empty", number)
		}
		switch kindOf(record) {
		case MetadataType, EntryType, StateType, SnapshotType:
		default:
			return fmt.Errorf("unexpected block type %d", kindOf(record))
		}
		if err := visit(number, record); err != nil {
			return err
		}
	}
	return nil
}

// reading is what the records say beside the entries.
type reading struct {
	start    walpb.Snapshot // the snapshot to read from
	found    bool           // its record is there
	metadata []byte
	state    raftpb.HardState // the newest
}

// add takes a record in, and returns raft's index if it is of a snapshot.
func (r *reading) add(record []byte) (index uint64, err error) {
	switch kindOf(record) {
	case StateType:
		r.state = MustUnmarshalState(record[1:])
	case MetadataType:
		if r.metadata != nil && !bytes.Equal(r.metadata, record[1:]) {
			return 0, ErrMetadataConflict
		}
		r.metadata = append([]byte(nil), record[1:]...)
	case SnapshotType:
		snapshot, err := unmarshalSnapshot(record[1:])
		if err != nil {
			return 0, err
		}
		if snapshot.Index == r.start.Index {
			if snapshot.Term != r.start.Term {
				return 0, ErrSnapshotMismatch
			}
			r.found = true
		}
		return snapshot.Index, nil
	}
	return 0, nil
}

// ---- writing -------------------------------------------------------------------------------------------------------

type message interface {
	Size() int
	MarshalTo(to []byte) (int, error)
}

const keptBytes = 1 << 20 // a larger buffer is not kept

// batch is the records of a call, one behind the other in a buffer.
type batch struct {
	buffer  []byte
	records [][]byte
	indexes []uint64 // raft's, of entries and snapshots
}

func (b *batch) begin(buffer []byte) { b.buffer = buffer[:0] }

func (b *batch) add(kind int64, index uint64, of message) error {
	record := b.room(kind, of.Size())
	if _, err := of.MarshalTo(record[1:]); err != nil {
		return err
	}
	b.records, b.indexes = append(b.records, record), append(b.indexes, index)
	return nil
}

func (b *batch) addBytes(kind int64, bytes []byte) {
	record := b.room(kind, len(bytes))
	copy(record[1:], bytes)
	b.records, b.indexes = append(b.records, record), append(b.indexes, 0)
}

// A buffer that is full stays with the records that it has, and another one is begun.
func (b *batch) room(kind int64, size int) []byte {
	from := len(b.buffer)
	if cap(b.buffer)-from < 1+size {
		b.buffer, from = make([]byte, 0, max(2*cap(b.buffer), 1+size, 4096)), 0
	}
	b.buffer = b.buffer[:from+1+size]
	record := b.buffer[from : from+1+size : from+1+size]
	record[0] = byte(kind)
	return record
}

func (b *batch) kept() []byte {
	if cap(b.buffer) > keptBytes {
		return nil
	}
	return b.buffer
}
