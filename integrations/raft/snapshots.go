package raftstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"
)

// Snapshots returns the raft.SnapshotStore of the state. It lists one snapshot, which is the state itself as it is now;
// a snapshot that is received from a leader is a file until Restore has made it the state.
func (s *State) Snapshots() raft.SnapshotStore { return &snapshots{state: s} }

type snapshots struct {
	state *State
}

func (n *snapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if version != raft.SnapshotVersionMax {
		return nil, fmt.Errorf("raftstore: version %d of snapshots is not supported", version)
	}
	return &ownSink{state: n.state, meta: raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("%s%d-%d", receivedPrefix, term, index), Index: index, Term: term,
		Configuration: configuration, ConfigurationIndex: configurationIndex,
	}}, nil
}

const receivedPrefix = "received-"

func (n *snapshots) List() ([]*raft.SnapshotMeta, error) {
	stream, err := n.state.openStream()
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	if stream.meta == nil {
		return nil, nil
	}
	return []*raft.SnapshotMeta{stream.meta}, nil
}

// Open of the listed snapshot opens the state as it is by now, with the index that it has by now.
func (n *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if strings.HasPrefix(id, receivedPrefix) {
		return n.state.openReceived(id)
	}
	stream, err := n.state.openStream()
	if err != nil {
		return nil, nil, err
	}
	if stream.meta == nil {
		stream.Close()
		return nil, nil, errors.New("raftstore: nothing was applied to the state yet")
	}
	var counted counter
	if err := stream.writeTo(&counted); err != nil {
		stream.Close()
		return nil, nil, err
	}
	stream.meta.Size = int64(counted)
	return stream.meta, stream.reader(), nil
}

type counter int64

func (c *counter) Write(bytes []byte) (int, error) {
	*c += counter(len(bytes))
	return len(bytes), nil
}

// ---- what is received ----------------------------------------------------------------------------------------------

// ownSink is of a snapshot of the state, which has nothing to write, or receives one of another state.
type ownSink struct {
	state *State
	meta  raft.SnapshotMeta
	kept  bool // it is the state's own, which is durable
	file  *os.File
}

func (k *ownSink) ID() string { return k.meta.ID }

func (k *ownSink) Write(bytes []byte) (int, error) {
	if k.file == nil {
		file, err := os.Create(k.state.receivedPath(k.meta.ID))
		if err != nil {
			return 0, err
		}
		k.file = file
	}
	count, err := k.file.Write(bytes)
	k.meta.Size += int64(count)
	return count, err
}

func (k *ownSink) Close() error {
	if k.kept { // the caller's stream keeps the state from being replaced
		return noteSnapshot(k.state.kv, &k.meta)
	}
	if k.file == nil {
		return errors.New("raftstore: an empty snapshot")
	}
	// The file need not outlive a crash: raft asks for the snapshot again.
	err := k.file.Close()
	k.file = nil
	if err == nil {
		k.state.arrived.Store(k.meta.ID, &k.meta)
	}
	return err
}

func (k *ownSink) Cancel() error {
	if k.file == nil {
		return nil
	}
	err := errors.Join(k.file.Close(), os.Remove(k.file.Name()))
	k.file = nil
	return err
}

func (s *State) receivedPath(id string) string { return filepath.Join(s.incoming, id) }

func (s *State) openReceived(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, ok := s.arrived.Load(id)
	if !ok {
		return nil, nil, fmt.Errorf("raftstore: snapshot %s was not received", id)
	}
	file, err := os.Open(s.receivedPath(id))
	if err != nil {
		return nil, nil, err
	}
	s.received = meta.(*raft.SnapshotMeta)
	return s.received, &receivedFile{file, s, id}, nil
}

// receivedFile is removed when it was read.
type receivedFile struct {
	*os.File
	state *State
	id    string
}

func (f *receivedFile) Close() error {
	f.state.arrived.Delete(f.id)
	return errors.Join(f.File.Close(), os.Remove(f.Name()))
}
