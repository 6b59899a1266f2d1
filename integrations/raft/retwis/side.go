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

// Replicas is a store whose processes can be killed one by one, also while its clients go on.
type Replicas interface {
	Store
	KillLeader() error
	KillAll() error
	StartAll() error // of those that do not run
	// Recover kills a replica that does not lead and starts it again, with its disk or with an empty one. It returns the
	// time from then until the replica has all that was committed before, and one transaction that was committed since.
	Recover(empty bool) (time.Duration, error)
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
	requestRecover = "recover"
	requestWatch   = "watch"
)

type request struct {
	Load    Load
	What    string
	Seed    int64
	Length  time.Duration
	Clients int
	Empty   bool // of a recovery
}

// The result of a restart or a recovery has the time only.
type answer struct {
	Result  Result
	History History
	Error   string
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

func (s *Side) ask(asked request) (told answer, err error) {
	var line []byte
	if err = json.NewEncoder(s.in).Encode(asked); err == nil {
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
	return told, err
}

// Fill writes all keys.
func (s *Side) Fill(load Load) error {
	_, err := s.ask(request{Load: load, What: requestFill})
	return err
}

// Run has the clients work for that time.
func (s *Side) Run(load Load, clients int, seed int64, length time.Duration) (Result, error) {
	told, err := s.ask(request{Load: load, What: requestRun, Seed: seed, Length: length, Clients: clients})
	return told.Result, err
}

// Watch has the clients work for that time, while replicas die and return.
func (s *Side) Watch(load Load, clients int, seed int64, length time.Duration) (History, error) {
	told, err := s.ask(request{Load: load, What: requestWatch, Seed: seed, Length: length, Clients: clients})
	return told.History, err
}

// Restart kills the processes, and returns the time from their start to the first answer.
func (s *Side) Restart() (time.Duration, error) {
	told, err := s.ask(request{What: requestRestart})
	return told.Result.Took, err
}

// Recover is Replicas.Recover.
func (s *Side) Recover(empty bool) (time.Duration, error) {
	told, err := s.ask(request{What: requestRecover, Empty: empty})
	return told.Result.Took, err
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
	one := func(asked request) (told answer, err error) {
		replicas, _ := store.(Replicas)
		if replicas == nil && (asked.What == requestRecover || asked.What == requestWatch) {
			return told, errors.New("the replicas of this store cannot be killed one by one")
		}
		if (asked.What == requestRun || asked.What == requestWatch) && of != asked.Load {
			of, zipf = asked.Load, NewZipf(asked.Load.Keys, asked.Load.Theta)
		}
		switch asked.What {
		case requestFill:
			err = asked.Load.Fill(store.Clients()[0], fillBatch)
		case requestRun:
			told.Result, err = asked.Load.Run(store.Clients()[:asked.Clients], zipf, asked.Seed, asked.Length)
		case requestWatch:
			told.History, err = asked.Load.Watch(replicas, asked.Clients, zipf, asked.Seed, asked.Length)
		case requestRestart:
			told.Result.Took, err = store.Restart()
		case requestRecover:
			told.Result.Took, err = replicas.Recover(asked.Empty)
		default:
			err = fmt.Errorf("there is no request %q", asked.What)
		}
		return told, err
	}
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		var asked request
		if err := json.Unmarshal(in.Bytes(), &asked); err != nil {
			return err
		}
		told, err := one(asked)
		if err != nil {
			told.Error = err.Error()
		}
		if err := out.Encode(told); err != nil {
			return err
		}
	}
	return in.Err()
}
