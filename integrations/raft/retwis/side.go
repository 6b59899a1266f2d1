package retwis

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Store is three processes of a store, and clients.
type Store interface {
	Clients() []Client
	Restart() (time.Duration, error) // of all, killed, until a transaction was answered
}

// A Side is a process that runs a store, whose client may need modules of its own. It reads a request a line of JSON,
// and answers with a line.
type Side struct {
	Name    string
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

const (
	requestFill    = "fill"
	requestRun     = "run"
	requestRestart = "restart"
)

type request struct {
	Load   Load
	What   string
	Seed   int64
	Length time.Duration
}

// The result of a restart has the time only.
type answer struct {
	Result Result
	Error  string
}

const fillBatch = 500 // keys in a transaction

// OperationsMax is as many reads and writes as a transaction may have.
const OperationsMax = 2 * fillBatch

// Start starts a side.
func Start(name, program string, arguments ...string) (*Side, error) {
	s := &Side{Name: name, command: exec.Command(program, arguments...)}
	s.command.Stderr = os.Stderr
	var err error
	if s.in, err = s.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewReader(out)
	return s, s.command.Start()
}

func (s *Side) ask(asked request) (Result, error) {
	var told answer
	line, err := []byte(nil), json.NewEncoder(s.in).Encode(asked)
	if err == nil {
		line, err = s.out.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(line, &told)
	}
	if err == nil && told.Error != "" {
		err = errors.New(told.Error)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", s.Name, err)
	}
	return told.Result, err
}

// Fill writes all keys.
func (s *Side) Fill(load Load) error {
	_, err := s.ask(request{Load: load, What: requestFill})
	return err
}

// Run lets the clients go on for so long.
func (s *Side) Run(load Load, seed int64, length time.Duration) (Result, error) {
	return s.ask(request{Load: load, What: requestRun, Seed: seed, Length: length})
}

// Restart kills the processes, and returns the time from their start to the first answer.
func (s *Side) Restart() (time.Duration, error) {
	result, err := s.ask(request{What: requestRestart})
	return result.Took, err
}

// Close ends the side.
func (s *Side) Close() {
	_ = s.in.Close()
	_ = s.command.Wait()
}

// Serve answers the requests that come to the process of a side, until there are no more.
func Serve(store Store) error {
	var zipf *Zipf
	var of Load
	one := func(asked request) (result Result, err error) {
		switch asked.What {
		case requestFill:
			return result, asked.Load.Fill(store.Clients()[0], fillBatch)
		case requestRun:
			if of != asked.Load {
				of, zipf = asked.Load, NewZipf(asked.Load.Keys, asked.Load.Theta)
			}
			return asked.Load.Run(store.Clients(), zipf, asked.Seed, asked.Length)
		case requestRestart:
			result.Took, err = store.Restart()
			return result, err
		}
		return result, fmt.Errorf("there is no request %q", asked.What)
	}
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		var asked request
		if err := json.Unmarshal(in.Bytes(), &asked); err != nil {
			return err
		}
		var told answer
		var err error
		if told.Result, err = one(asked); err != nil {
			told.Error = err.Error()
		}
		if err := out.Encode(told); err != nil {
			return err
		}
	}
	return in.Err()
}
