package txn

import (
	"context"
	"errors"
	"io"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func encoded(t *testing.T, transaction Transaction) []byte {
	t.Helper()
	bytes, err := transaction.Encode()
	check(t, err)
	return bytes
}

var example = Transaction{
	Client: 7, Number: 9,
	Reads:  []Read{{"a", 3}, {"bc", 1 << 40}},
	Writes: []Write{{"a", []byte("value")}, {"d", nil}},
}

// An encoded transaction is decoded; a part of it, and more than it, are no transaction.
func TestBytes(t *testing.T) {
	bytes := encoded(t, example)
	got, err := Decode(bytes)
	check(t, err)
	got.Writes[1].Value = nil
	if !reflect.DeepEqual(got, example) {
		t.Fatalf("%v became %v", example, got)
	}
	for size := range bytes {
		if _, err := Decode(bytes[:size]); err == nil {
			t.Fatalf("%d of %d bytes were a transaction", size, len(bytes))
		}
	}
	if _, err := Decode(append(bytes, 0)); err == nil {
		t.Fatal("a byte too many was not noticed")
	}

	keys := []string{"a", "bc", strings.Repeat("k", KeyBytesMax)}
	bytes, err = EncodeKeys(keys)
	check(t, err)
	if got, err := DecodeKeys(bytes); err != nil || !reflect.DeepEqual(got, keys) {
		t.Fatalf("%v became %v, %v", keys, got, err)
	}
	values := []Value{{0, []byte{}}, {5, []byte("five")}}
	if got, err := DecodeValues(EncodeValues(values)); err != nil || !reflect.DeepEqual(got, values) {
		t.Fatalf("%v became %v, %v", values, got, err)
	}
	for _, bad := range []Transaction{
		{Reads: []Read{{"", 1}}},
		{Writes: []Write{{strings.Repeat("k", KeyBytesMax+1), nil}}},
		{Writes: []Write{{"a", make([]byte, ValueBytesMax+1)}}},
		{Reads: make([]Read, KeysMax+1)},
	} {
		if _, err := bad.Encode(); err == nil {
			t.Fatal("a transaction beyond the bounds was encoded")
		}
	}
}

type inMemory map[string][]byte

func (m inMemory) Get(name string, key []byte) ([]byte, error) { return m[name+string(key)], nil }

func (m inMemory) Put(name string, key, value []byte) error {
	m[name+string(key)] = value
	return nil
}

// A transaction commits if the versions of what it read are still those, and takes effect once.
func TestApply(t *testing.T) {
	state := inMemory{}
	for index, each := range []struct {
		what string
		Transaction
		Result
	}{
		{}, // indexes begin with 1
		{"a key that is not there", Transaction{1, 1, []Read{{"a", 0}}, []Write{{"a", []byte("1")}}}, Result{Committed, 1}},
		{"the same again", Transaction{1, 1, []Read{{"a", 0}}, []Write{{"a", []byte("1")}}}, Result{Committed, 1}},
		{"its version", Transaction{1, 2, []Read{{"a", 1}}, []Write{{"b", []byte("2")}}}, Result{Committed, 3}},
		{"an old version", Transaction{2, 1, []Read{{"b", 3}, {"a", 0}}, []Write{{"a", []byte("3")}}}, Result{Conflict, 0}},
		{"without reads", Transaction{2, 2, nil, []Write{{"a", []byte("4")}, {"c", nil}}}, Result{Committed, 5}},
		{"an answered conflict again", Transaction{2, 1, nil, nil}, Result{Old, 0}},
		{"without an owner", Transaction{0, 0, nil, []Write{{"d", []byte("5")}}}, Result{Committed, 7}},
		{"without an owner again", Transaction{0, 0, nil, []Write{{"d", []byte("5")}}}, Result{Committed, 8}},
	} {
		if index == 0 {
			continue
		}
		got, err := Apply(state, uint64(index), encoded(t, each.Transaction), Options{})
		check(t, err)
		if got != each.Result {
			t.Fatalf("%s: %v instead of %v", each.what, got, each.Result)
		}
	}
	for key, wanted := range map[string]Value{"a": {5, []byte("4")}, "b": {3, []byte("2")}, "c": {5, []byte{}}, "x": {}} {
		if got, err := Get(state, key); err != nil || !reflect.DeepEqual(got, wanted) {
			t.Fatalf("%s is %v, %v instead of %v", key, got, err, wanted)
		}
	}
	if got, err := Apply(state, 9, []byte("no transaction"), Options{}); err != nil || got.Status != Malformed {
		t.Fatal(got, err)
	}
}

// A client asks the leader that a node names, sends what was not answered again under its number, and gives up when a
// node refuses, unless it insists.
func TestClient(t *testing.T) {
	var sent []Transaction
	failures := 2
	leader := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		body, err := io.ReadAll(in.Body)
		transaction, err2 := Decode(body)
		if err != nil || err2 != nil {
			http.Error(out, "no", http.StatusBadRequest)
			return
		}
		sent = append(sent, transaction)
		if failures > 0 {
			failures--
			http.Error(out, "later", http.StatusServiceUnavailable)
			return
		}
		_, _ = out.Write(Result{Committed, 4}.Encode())
	}))
	defer leader.Close()
	leads := strings.TrimPrefix(leader.URL, "http://")
	other := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set(LeaderHeader, leads)
		out.WriteHeader(http.StatusMisdirectedRequest)
	}))
	defer other.Close()
	sender := Sender{Addresses: []string{strings.TrimPrefix(other.URL, "http://")}, HTTP: http.DefaultClient,
		Random: rand.New(rand.NewSource(1))}
	client := NewClient(3, sender)
	for number := uint64(1); number <= 2; number++ {
		got, err := client.Commit(context.Background(), nil, []Write{{"a", []byte("b")}})
		if err != nil || got != (Result{Committed, 4}) {
			t.Fatal(got, err)
		}
	}
	if len(sent) != 4 || sent[2].Number != 1 || sent[3].Number != 2 || sent[3].Client != 3 {
		t.Fatalf("%v was sent", sent)
	}
	var refused *Refused
	if _, err := client.Read(context.Background(), []string{"a"}); !errors.As(err, &refused) {
		t.Fatal(err)
	}
	refusals := 2
	starting := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		if refusals--; refusals >= 0 {
			http.Error(out, "not yet", http.StatusBadRequest)
		}
	}))
	defer starting.Close()
	sender.Addresses, sender.Insists = []string{strings.TrimPrefix(starting.URL, "http://")}, true
	if _, err := sender.Send(context.Background(), "/", nil); err != nil || refusals != -1 {
		t.Fatal(err, refusals)
	}
}
