package txn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"time"
)

// LeaderHeader of an answer 421 has the leader's address.
const LeaderHeader = "X-Leader"

// Client sends reads and transactions to the nodes, one at a time. What is not answered is sent again, to another node,
// until the context ends; a transaction has a number, so that it takes effect once.
type Client struct {
	Sender
	id     uint64
	number uint64
}

// NewClient makes the client of that number, which no other client has, ever.
func NewClient(id uint64, sender Sender) *Client { return &Client{Sender: sender, id: id} }

// Read reads keys as of one moment, which lies between the call and its return.
func (c *Client) Read(ctx context.Context, keys []string) ([]Value, error) {
	request, err := EncodeKeys(keys)
	if err != nil {
		return nil, err
	}
	answer, err := c.Send(ctx, "/read", request)
	if err != nil {
		return nil, err
	}
	values, err := DecodeValues(answer)
	if err == nil && len(values) != len(keys) {
		err = fmt.Errorf("%d values were answered, and %d asked for", len(values), len(keys))
	}
	return values, err
}

// Commit sends a transaction. After an error it is not known whether it took effect.
func (c *Client) Commit(ctx context.Context, reads []Read, writes []Write) (Result, error) {
	c.number++
	request, err := (&Transaction{c.id, c.number, reads, writes}).Encode()
	if err != nil {
		return Result{}, err
	}
	answer, err := c.Send(ctx, "/transaction", request)
	if err != nil {
		return Result{}, err
	}
	return DecodeResult(answer)
}

// Sender posts requests to nodes, one at a time. What is not answered is sent again, to another node.
type Sender struct {
	Addresses []string
	HTTP      *http.Client // may be shared
	Random    *rand.Rand
	Anywhere  float64 // the part of the requests that go to a node at random, and not to the node that answered last
	Insists   bool    // what a node refused is sent again, too

	leader string // the node that answered last, or that another one named
}

// Refused is an answer that sending again would not change.
type Refused struct{ Text string }

func (r *Refused) Error() string { return "the node refused: " + r.Text }

// Send returns the answer of a node. Errors: the context ended; Refused.
func (s *Sender) Send(ctx context.Context, path string, request []byte) ([]byte, error) {
	for tries := 0; ; tries++ {
		answer, err := s.once(ctx, path, request)
		var refused *Refused
		if err == nil || (!s.Insists && errors.As(err, &refused)) {
			return answer, err
		}
		wait := time.NewTimer(time.Duration(1+s.Random.Intn(5*(1+min(tries, 4)))) * time.Millisecond)
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil, errors.Join(err, ctx.Err())
		case <-wait.C:
		}
	}
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func (s *Sender) once(ctx context.Context, path string, body []byte) ([]byte, error) {
	address := s.leader
	s.leader = ""
	if address == "" || (s.Anywhere > 0 && s.Random.Float64() < s.Anywhere) {
		address = s.Addresses[s.Random.Intn(len(s.Addresses))]
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := s.HTTP.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	switch response.StatusCode {
	case http.StatusOK:
		s.leader = address
		return answer, nil
	case http.StatusBadRequest:
		return nil, &Refused{string(bytes.TrimSpace(answer))}
	case http.StatusMisdirectedRequest:
		s.leader = response.Header.Get(LeaderHeader)
	}
	return nil, fmt.Errorf("%s: %s", response.Status, bytes.TrimSpace(answer))
}
