package nodes

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// echo is a server that answers with what it gets.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				_, _ = io.Copy(connection, connection)
			}()
		}
	}()
	return listener.Addr().String()
}

func dial(t *testing.T, l *link) net.Conn {
	t.Helper()
	connection, err := net.Dial("tcp", l.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection
}

// answered sends a byte, and tells what comes back within the time.
func answered(t *testing.T, connection net.Conn, sent byte, within time.Duration) error {
	t.Helper()
	if sent != 0 {
		if _, err := connection.Write([]byte{sent}); err != nil {
			return err
		}
	}
	if err := connection.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	var got [1]byte
	_, err := connection.Read(got[:])
	if err == nil && sent != 0 && got[0] != sent {
		t.Fatalf("%d came back instead of %d", got[0], sent)
	}
	return err
}

const (
	soon   = 10 * time.Second
	little = 100 * time.Millisecond
)

// A link that is cut closes its connections, and new ones; one that is held delivers later; one that is up delivers.
func TestLink(t *testing.T) {
	l, err := newLink(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	first := dial(t, l)
	if err := answered(t, first, 1, soon); err != nil {
		t.Fatal(err)
	}

	l.set(linkHeld)
	if err := answered(t, first, 2, little); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a link that was held delivered: %v", err)
	}
	l.set(linkUp)
	if err := answered(t, first, 0, soon); err != nil {
		t.Fatalf("what was held did not arrive: %v", err)
	}

	l.set(linkCut)
	if err := answered(t, first, 0, soon); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a connection outlived the cut: %v", err)
	}
	if err := answered(t, dial(t, l), 3, soon); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a link that was cut took a new connection: %v", err)
	}
	l.set(linkUp)
	if err := answered(t, dial(t, l), 4, soon); err != nil {
		t.Fatalf("a link that was healed: %v", err)
	}
}

// Nodes' ways are cut in both directions, and no others.
func TestCut(t *testing.T) {
	c := &Cluster{}
	for i := range c.raft {
		c.raft[i] = echo(t)
	}
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	expect := func(what string, cut func(from, to int) bool) {
		t.Helper()
		for from := range c.links {
			for to, way := range c.links[from] {
				if way == nil {
					continue
				}
				if open := answered(t, dial(t, way), 1, soon) == nil; open == cut(from, to) {
					t.Fatalf("%s: the way from %d to %d is open: %v", what, from, to, open)
				}
			}
		}
	}
	expect("at first", func(int, int) bool { return false })
	c.Cut(1, false)
	expect("node 1 is cut", func(from, to int) bool { return from == 1 || to == 1 })
	c.Heal(1)
	c.CutBetween(0, 2)
	expect("0 and 2 are cut", func(from, to int) bool { return from+to == 2 })
	c.Heal(0)
	expect("healed", func(int, int) bool { return false })
}
