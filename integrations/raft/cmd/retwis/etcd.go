package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"memlith.org/memlith/retwis"
)

// speaker is the program of integrations/etcd, whose client needs modules of its own. It reads a request a line, and
// answers with a line.
type speaker struct {
	place   string
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

func openEtcd() (*speaker, error) {
	place, err := os.MkdirTemp(*folder, "etcd")
	if err != nil {
		return nil, err
	}
	s := &speaker{place: place, command: exec.Command(*etcd, place, fmt.Sprint(*clients))}
	s.command.Stderr = os.Stderr
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

func (s *speaker) name() string { return "etcd" }

func (s *speaker) ask(request retwis.Request) (answer retwis.Answer, err error) {
	if err := json.NewEncoder(s.in).Encode(request); err != nil {
		return answer, err
	}
	line, err := s.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	if err == nil && answer.Error != "" {
		err = fmt.Errorf("%s", answer.Error)
	}
	return answer, err
}

func (s *speaker) fill(load retwis.Load) error {
	_, err := s.ask(retwis.Request{Load: load, What: retwis.RequestFill})
	return err
}

func (s *speaker) run(load retwis.Load, _ *retwis.Zipf, seed int64, length time.Duration) (retwis.Result, error) {
	answer, err := s.ask(retwis.Request{Load: load, What: retwis.RequestRun, Seed: seed, Length: length})
	return answer.Result, err
}

func (s *speaker) restart() (time.Duration, error) {
	answer, err := s.ask(retwis.Request{What: retwis.RequestRestart})
	return answer.Result.Took, err
}

func (s *speaker) close() {
	_ = s.in.Close()
	_ = s.command.Wait()
	os.RemoveAll(s.place)
}
