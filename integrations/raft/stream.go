package raftstore

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/hashicorp/raft"

	"memlith.org/memlith/kv"
)

// A stream has all maps of a state: streamMagic; of each map its name, and its records; an empty name; and the checksum
// of everything before it. Strings have their size before them, 4 bytes. Behind the records of a map stands the size
// noMore.
const (
	streamMagic = "MLRAFT1\n"
	noMore      = ^uint32(0)
	putBytes    = 1 << 20 // of records that are put in one transaction
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// stream is the state as of one moment. It keeps the state from being replaced until it is closed.
type stream struct {
	state *State
	txn   *kv.Txn
	names []string
	maps  Maps // of all names
	meta  *raft.SnapshotMeta
}

func (s *State) openStream() (*stream, error) {
	s.mutex.RLock()
	opened := &stream{state: s, maps: Maps{}}
	err := opened.open()
	if err != nil {
		opened.Close()
		return nil, err
	}
	return opened, nil
}

func (t *stream) open() (err error) {
	if t.names, err = t.state.kv.Maps(); err != nil {
		return err
	}
	for _, name := range t.names {
		if t.maps[name], err = t.state.kv.Map(name); err != nil {
			return err
		}
	}
	if t.txn, err = t.state.kv.BeginRead(); err != nil {
		return err
	}
	t.meta, err = describe(t.txn, t.state.meta)
	return err
}

// Close lets the state be replaced.
func (t *stream) Close() {
	if t.txn != nil {
		t.txn.Abort()
	}
	if t.state != nil {
		t.state.mutex.RUnlock()
		t.state = nil
	}
}

func (t *stream) writeTo(target io.Writer) error {
	sum := crc32.New(castagnoli)
	out := bufio.NewWriterSize(io.MultiWriter(target, sum), 64<<10)
	put := func(bytes []byte) error {
		var size [4]byte
		binary.LittleEndian.PutUint32(size[:], uint32(len(bytes)))
		if _, err := out.Write(size[:]); err != nil {
			return err
		}
		_, err := out.Write(bytes)
		return err
	}
	if _, err := out.WriteString(streamMagic); err != nil {
		return err
	}
	for _, name := range t.names {
		if err := put([]byte(name)); err != nil {
			return err
		}
		err := t.txn.Range(t.maps[name], nil, nil, func(key, value []byte) error {
			if err := put(key); err != nil {
				return err
			}
			return put(value)
		})
		if err != nil {
			return err
		}
		if err := binary.Write(out, binary.LittleEndian, noMore); err != nil {
			return err
		}
	}
	if err := put(nil); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return binary.Write(target, binary.LittleEndian, sum.Sum32())
}

// reader writes the stream as it is read.
func (t *stream) reader() io.ReadCloser {
	reader, writer := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = writer.CloseWithError(t.writeTo(writer))
	}()
	return &streamReader{reader, t, done}
}

type streamReader struct {
	*io.PipeReader
	stream *stream
	done   chan struct{}
}

func (r *streamReader) Close() error {
	err := r.PipeReader.Close()
	<-r.done // it uses the transaction
	r.stream.Close()
	return err
}

// ---- reading -------------------------------------------------------------------------------------------------------

type streamSource struct {
	in  *bufio.Reader
	sum uint32
}

func (r *streamSource) bytes(count uint32) ([]byte, error) {
	bytes := make([]byte, count)
	_, err := io.ReadFull(r.in, bytes)
	r.sum = crc32.Update(r.sum, castagnoli, bytes)
	return bytes, err
}

func (r *streamSource) size(most uint32) (uint32, error) {
	bytes, err := r.bytes(4)
	if err != nil {
		return 0, err
	}
	size := binary.LittleEndian.Uint32(bytes)
	if size > most && size != noMore {
		return 0, errors.New("raftstore: the snapshot is damaged")
	}
	return size, nil
}

// readStream fills an empty kv store. What it writes is durable when the store is persisted.
func readStream(source io.Reader, target *kv.KV) error {
	in := &streamSource{in: bufio.NewReaderSize(source, 64<<10)}
	magic, err := in.bytes(uint32(len(streamMagic)))
	if err != nil {
		return err
	}
	if string(magic) != streamMagic {
		return errors.New("raftstore: this is no snapshot of a state")
	}
	for {
		size, err := in.size(kv.NameBytesMax)
		if err != nil {
			return err
		}
		if size == 0 {
			break
		}
		name, err := in.bytes(size)
		if err != nil {
			return err
		}
		number, err := target.CreateMap(string(name))
		if err != nil {
			return err
		}
		if err := readMap(in, target, number); err != nil {
			return fmt.Errorf("map %q: %w", name, err)
		}
	}
	expected := in.sum
	found, err := in.bytes(4)
	if err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(found) != expected {
		return errors.New("raftstore: the snapshot is damaged: its checksum is another")
	}
	return nil
}

func readMap(in *streamSource, target *kv.KV, number kv.Map) error {
	var batch kv.Batch
	put := func() error {
		_, err := target.UpdateWeak(context.Background(), func(txn *kv.Txn) error { return txn.PutBatch(number, &batch) })
		batch.Reset()
		return err
	}
	for {
		size, err := in.size(kv.KeyBytesMax)
		if err != nil {
			return err
		}
		if size == noMore {
			return put()
		}
		key, err := in.bytes(size)
		if err != nil {
			return err
		}
		if size, err = in.size(kv.ValueBytesMax); err != nil {
			return err
		}
		if size == noMore {
			return errors.New("raftstore: the snapshot is damaged")
		}
		value, err := in.bytes(size)
		if err != nil {
			return err
		}
		batch.Add(key, value)
		if batch.Bytes() >= putBytes {
			if err := put(); err != nil {
				return err
			}
		}
	}
}
