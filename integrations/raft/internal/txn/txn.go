// Package txn is the transactions of kvnode: what a client sends, what is an entry of raft's log, and how it changes
// the state. Keys have versions: the index of the entry that wrote the key, 0 for a key that is not there. A client
// reads keys with their versions, and sends the versions with what it wants to write; the transaction commits if none
// of these keys was written since.
package txn

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Bounds of a transaction.
const (
	KeyBytesMax   = 1000
	ValueBytesMax = 1 << 20
	KeysMax       = 1<<16 - 1 // reads, and writes
	BodyBytesMax  = 16 << 20
)

// Read is a key that the client has read, and the version that it saw.
type Read struct {
	Key     string
	Version uint64
}

// Write is a key and its new value.
type Write struct {
	Key   string
	Value []byte
}

// Transaction is what a client sends. The numbers of a client begin with 1 and grow; one that is sent again with the
// same number takes effect once, and has the same result. Without a client (0) nothing is remembered.
type Transaction struct {
	Client, Number uint64
	Reads          []Read
	Writes         []Write
}

// Value of a key; version 0: there is none.
type Value struct {
	Version uint64
	Data    []byte
}

// Status of a transaction.
type Status byte

const (
	Committed Status = iota + 1
	Conflict         // a key that was read has another version: nothing was changed
	Old              // a later number of this client was answered: the result is forgotten
	Malformed        // nothing was changed
)

// Result of a transaction, and the version of what it wrote.
type Result struct {
	Status  Status
	Version uint64
}

var errMalformed = errors.New("this is no transaction")

// ---- bytes ---------------------------------------------------------------------------------------------------------

// Encode returns the bytes of a transaction; an error: it is beyond the bounds. Numbers are big-endian: client, number;
// count of reads (2 bytes), each the key's size (2 bytes), the key, the version; count of writes (2 bytes), each the
// key's size (2 bytes), the key, the value's size (4 bytes), the value.
func (t *Transaction) Encode() ([]byte, error) {
	if len(t.Reads) > KeysMax || len(t.Writes) > KeysMax {
		return nil, fmt.Errorf("a transaction has at most %d reads and as many writes", KeysMax)
	}
	out := binary.BigEndian.AppendUint64(nil, t.Client)
	out = binary.BigEndian.AppendUint64(out, t.Number)
	out = binary.BigEndian.AppendUint16(out, uint16(len(t.Reads)))
	for _, read := range t.Reads {
		if err := checkKey(read.Key); err != nil {
			return nil, err
		}
		out = binary.BigEndian.AppendUint64(appendKey(out, read.Key), read.Version)
	}
	out = binary.BigEndian.AppendUint16(out, uint16(len(t.Writes)))
	for _, write := range t.Writes {
		if err := checkKey(write.Key); err != nil {
			return nil, err
		}
		if len(write.Value) > ValueBytesMax {
			return nil, fmt.Errorf("a value has at most %d bytes", ValueBytesMax)
		}
		out = binary.BigEndian.AppendUint32(appendKey(out, write.Key), uint32(len(write.Value)))
		out = append(out, write.Value...)
	}
	return out, nil
}

func checkKey(key string) error {
	if key == "" || len(key) > KeyBytesMax {
		return fmt.Errorf("a key has 1 to %d bytes", KeyBytesMax)
	}
	return nil
}

func appendKey(out []byte, key string) []byte {
	return append(binary.BigEndian.AppendUint16(out, uint16(len(key))), key...)
}

// Decode is the inverse of Encode. The values are parts of the bytes.
func Decode(data []byte) (t Transaction, err error) {
	in := reader{rest: data}
	t.Client, t.Number = in.uint64(), in.uint64()
	for count := in.uint16(); count > 0 && !in.failed; count-- {
		t.Reads = append(t.Reads, Read{in.key(), in.uint64()})
	}
	for count := in.uint16(); count > 0 && !in.failed; count-- {
		t.Writes = append(t.Writes, Write{in.key(), in.value()})
	}
	if in.failed || len(in.rest) > 0 {
		return Transaction{}, errMalformed
	}
	return t, nil
}

// EncodeKeys is the request of a read.
func EncodeKeys(keys []string) ([]byte, error) {
	if len(keys) > KeysMax {
		return nil, fmt.Errorf("a read has at most %d keys", KeysMax)
	}
	out := binary.BigEndian.AppendUint16(nil, uint16(len(keys)))
	for _, key := range keys {
		if err := checkKey(key); err != nil {
			return nil, err
		}
		out = appendKey(out, key)
	}
	return out, nil
}

// DecodeKeys is the inverse of EncodeKeys.
func DecodeKeys(data []byte) (keys []string, err error) {
	in := reader{rest: data}
	for count := in.uint16(); count > 0 && !in.failed; count-- {
		keys = append(keys, in.key())
	}
	if in.failed || len(in.rest) > 0 {
		return nil, errMalformed
	}
	return keys, nil
}

// EncodeValues is the answer of a read, in the order of the keys: the version, the value's size (4 bytes), the value.
func EncodeValues(values []Value) (out []byte) {
	for _, value := range values {
		out = binary.BigEndian.AppendUint64(out, value.Version)
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(value.Data))), value.Data...)
	}
	return out
}

// DecodeValues is the inverse of EncodeValues.
func DecodeValues(data []byte) (values []Value, err error) {
	in := reader{rest: data}
	for len(in.rest) > 0 && !in.failed {
		values = append(values, Value{in.uint64(), in.value()})
	}
	if in.failed {
		return nil, errMalformed
	}
	return values, nil
}

const resultBytes = 9

// Encode of a result: the status, a byte, and the version.
func (r Result) Encode() []byte {
	return binary.BigEndian.AppendUint64([]byte{byte(r.Status)}, r.Version)
}

// DecodeResult is the inverse of Encode.
func DecodeResult(data []byte) (Result, error) {
	if len(data) != resultBytes || Status(data[0]) < Committed || Status(data[0]) > Malformed {
		return Result{}, errors.New("this is no result of a transaction")
	}
	return Result{Status(data[0]), binary.BigEndian.Uint64(data[1:])}, nil
}

// reader takes bytes from the front. After a failure everything is empty.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) take(count int) []byte {
	if r.failed || len(r.rest) < count {
		r.failed = true
		return make([]byte, 8)
	}
	taken := r.rest[:count:count]
	r.rest = r.rest[count:]
	return taken
}

func (r *reader) uint16() int    { return int(binary.BigEndian.Uint16(r.take(2))) }
func (r *reader) uint64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

func (r *reader) key() string {
	size := r.uint16()
	if size == 0 || size > KeyBytesMax {
		r.failed = true
	}
	if r.failed {
		return ""
	}
	return string(r.take(size))
}

func (r *reader) value() []byte {
	size := binary.BigEndian.Uint32(r.take(4))
	if size > ValueBytesMax {
		r.failed = true
	}
	if r.failed {
		return nil
	}
	return r.take(int(size))
}

// ---- the state -----------------------------------------------------------------------------------------------------

// The maps of a state.
const (
	Values   = "values"   // key: version and value
	Sessions = "sessions" // client: the newest number and its result
)

// Maps names them.
func Maps() []string { return []string{Values, Sessions} }

// Records is a transaction of the storage below, in which an entry is applied. Get of a missing key returns nil. Its
// errors stop the state.
type Records interface {
	Get(name string, key []byte) ([]byte, error)
	Put(name string, key, value []byte) error
}

// Options of applying; the zero value is what services want.
type Options struct {
	ForgetSessions bool // a fault for tests: an entry that is there twice takes effect twice
}

// Apply changes the state by the entry of that index. What it does depends on nothing but the entry and the state, so
// that it is the same on all nodes. The error is one of the records' calls.
func Apply(records Records, index uint64, entry []byte, options Options) (Result, error) {
	t, err := Decode(entry)
	if err != nil {
		return Result{Status: Malformed}, nil
	}
	session := binary.BigEndian.AppendUint64(nil, t.Client)
	if t.Client != 0 && !options.ForgetSessions {
		known, err := records.Get(Sessions, session)
		if err != nil {
			return Result{}, err
		}
		if known != nil {
			if len(known) != 8+resultBytes {
				return Result{}, fmt.Errorf("the record of client %d has %d bytes", t.Client, len(known))
			}
			switch newest := binary.BigEndian.Uint64(known); {
			case newest == t.Number:
				return DecodeResult(known[8:])
			case newest > t.Number:
				return Result{Status: Old}, nil
			}
		}
	}
	result, err := validate(records, t.Reads, index)
	if err != nil {
		return Result{}, err
	}
	if result.Status == Committed {
		for _, write := range t.Writes {
			value := append(binary.BigEndian.AppendUint64(nil, index), write.Value...)
			if err := records.Put(Values, []byte(write.Key), value); err != nil {
				return Result{}, err
			}
		}
	}
	if t.Client == 0 {
		return result, nil
	}
	return result, records.Put(Sessions, session, append(binary.BigEndian.AppendUint64(nil, t.Number), result.Encode()...))
}

func validate(records Records, reads []Read, index uint64) (Result, error) {
	for _, read := range reads {
		now, err := Get(records, read.Key)
		if err != nil {
			return Result{}, err
		}
		if now.Version != read.Version {
			return Result{Status: Conflict}, nil
		}
	}
	return Result{Committed, index}, nil
}

// Get returns the value of a key.
func Get(records Records, key string) (Value, error) {
	record, err := records.Get(Values, []byte(key))
	if err != nil || record == nil {
		return Value{}, err
	}
	if len(record) < 8 {
		return Value{}, fmt.Errorf("the record of the key %q has %d bytes", key, len(record))
	}
	return Value{binary.BigEndian.Uint64(record), record[8:]}, nil
}
