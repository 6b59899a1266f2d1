package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"memlith.org/memlith/raftstore/internal/txn"
)

// etcdClient speaks to etcd's members in JSON. The version of a key is etcd's revision of the put. A transaction also
// puts its number into a record of the client, and needs a lower number there: sent again, because the answer was lost,
// it takes effect once, and finds the revision at which it did.
type etcdClient struct {
	txn.Sender
	id, number uint64
	known      bool // the record is there
}

// Words of etcd's interface. Numbers of 64 bits are strings in JSON, and bytes are in base64, as in Go.
type (
	etcdCompare struct {
		Key            []byte `json:"key"`
		Target         string `json:"target"`
		Result         string `json:"result"`
		Value          []byte `json:"value,omitempty"`
		ModRevision    string `json:"mod_revision,omitempty"`
		CreateRevision string `json:"create_revision,omitempty"`
	}
	etcdPut struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}
	etcdRange struct {
		Key          []byte `json:"key"`
		Serializable bool   `json:"serializable,omitempty"` // the member's own state, which may be old
	}
	etcdOperation struct {
		Put   *etcdPut   `json:"request_put,omitempty"`
		Range *etcdRange `json:"request_range,omitempty"`
	}
	etcdTxn struct {
		Compare []etcdCompare   `json:"compare"`
		Success []etcdOperation `json:"success"`
		Failure []etcdOperation `json:"failure"`
	}
	etcdAnswer struct {
		Header struct {
			Revision uint64 `json:"revision,string"`
		} `json:"header"`
		Succeeded bool `json:"succeeded"`
		Responses []struct {
			Range struct {
				Kvs []struct {
					ModRevision uint64 `json:"mod_revision,string"`
					Value       []byte `json:"value"`
				} `json:"kvs"`
			} `json:"response_range"`
		} `json:"responses"`
	}
)

func rangeOf(key string) etcdOperation {
	return etcdOperation{Range: &etcdRange{[]byte(key), *planted == "stale-reads"}}
}

func putOf(key string, value []byte) etcdOperation {
	return etcdOperation{Put: &etcdPut{[]byte(key), value}}
}

// Read reads keys as of one moment.
func (c *etcdClient) Read(ctx context.Context, keys []string) ([]txn.Value, error) {
	var asked etcdTxn
	for _, key := range keys {
		asked.Success = append(asked.Success, rangeOf(key))
	}
	answer, err := c.send(ctx, asked)
	if err != nil {
		return nil, err
	}
	if len(answer.Responses) != len(keys) {
		return nil, fmt.Errorf("%d values were answered, and %d asked for", len(answer.Responses), len(keys))
	}
	values := make([]txn.Value, len(keys))
	for i, each := range answer.Responses {
		for _, record := range each.Range.Kvs {
			values[i] = txn.Value{Version: record.ModRevision, Data: record.Value}
		}
	}
	return values, nil
}

// Commit sends a transaction. After an error it is not known whether it took effect.
func (c *etcdClient) Commit(ctx context.Context, reads []txn.Read, writes []txn.Write) (txn.Result, error) {
	record := fmt.Sprint("client", c.id)
	numbered := func(number uint64) []byte { return []byte(fmt.Sprintf("%020d", number)) }
	if !c.known {
		// Once only: a request that comes late must not take the number back.
		first := etcdTxn{
			Compare: []etcdCompare{{Key: []byte(record), Target: "CREATE", Result: "EQUAL", CreateRevision: "0"}},
			Success: []etcdOperation{putOf(record, numbered(0))},
		}
		if _, err := c.send(ctx, first); err != nil {
			return txn.Result{}, err
		}
		c.known = true
	}
	c.number++
	asked := etcdTxn{
		Compare: []etcdCompare{{Key: []byte(record), Target: "VALUE", Result: "LESS", Value: numbered(c.number)}},
		Success: []etcdOperation{putOf(record, numbered(c.number))},
		Failure: []etcdOperation{rangeOf(record)},
	}
	for _, read := range reads {
		asked.Compare = append(asked.Compare, etcdCompare{Key: []byte(read.Key), Target: "MOD", Result: "EQUAL",
			ModRevision: fmt.Sprint(read.Version)})
	}
	for _, write := range writes {
		asked.Success = append(asked.Success, putOf(write.Key, write.Value))
	}
	answer, err := c.send(ctx, asked)
	if err != nil {
		return txn.Result{}, err
	}
	if answer.Succeeded {
		return txn.Result{Status: txn.Committed, Version: answer.Header.Revision}, nil
	}
	if len(answer.Responses) != 1 || len(answer.Responses[0].Range.Kvs) != 1 {
		return txn.Result{}, fmt.Errorf("the record of client %d is not there", c.id)
	}
	if found := answer.Responses[0].Range.Kvs[0]; bytes.Equal(found.Value, numbered(c.number)) {
		return txn.Result{Status: txn.Committed, Version: found.ModRevision}, nil
	}
	return txn.Result{Status: txn.Conflict}, nil
}

func (c *etcdClient) send(ctx context.Context, asked etcdTxn) (answer etcdAnswer, err error) {
	body, err := json.Marshal(asked)
	if err != nil {
		return answer, err
	}
	text, err := c.Send(ctx, "/v3/kv/txn", body)
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(text, &answer)
}
