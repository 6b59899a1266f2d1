package nodes

import (
	"io"
	"net"
	"sync"
)

// link is the way from one node to another: connections to its address go on to the other node, as long as they may.
type link struct {
	listener net.Listener
	target   string

	mutex sync.Mutex
	wake  *sync.Cond // when the state changes
	state linkState
	open  map[net.Conn]bool
	ended bool
}

type linkState int

const (
	linkUp   linkState = iota
	linkCut            // connections are closed, and new ones too
	linkHeld           // what is sent waits, and arrives later
)

func newLink(target string) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{listener: listener, target: target, open: map[net.Conn]bool{}}
	l.wake = sync.NewCond(&l.mutex)
	go l.accept()
	return l, nil
}

func (l *link) address() string { return l.listener.Addr().String() }

func (l *link) set(state linkState) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.state = state
	if state == linkCut {
		l.closeAll()
	}
	l.wake.Broadcast()
}

// The mutex is held.
func (l *link) closeAll() {
	for each := range l.open {
		_ = each.Close()
	}
}

func (l *link) close() {
	_ = l.listener.Close()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.ended = true
	l.closeAll()
	l.wake.Broadcast()
}

// keep makes a connection one of the link's; false: it was closed, because the link is cut.
func (l *link) keep(connection net.Conn) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.state == linkCut || l.ended {
		_ = connection.Close()
		return false
	}
	l.open[connection] = true
	return true
}

func (l *link) drop(connection net.Conn) {
	_ = connection.Close()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	delete(l.open, connection)
}

func (l *link) accept() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		if l.keep(from) {
			go l.forward(from)
		}
	}
}

func (l *link) forward(from net.Conn) {
	defer l.drop(from)
	to, err := net.Dial("tcp", l.target)
	if err != nil || !l.keep(to) {
		return
	}
	defer l.drop(to)
	done := make(chan struct{}, 2)
	pump := func(out, in net.Conn) {
		_, _ = io.Copy(gate{out, l}, in)
		done <- struct{}{}
	}
	go pump(to, from)
	go pump(from, to)
	<-done // either end of it ends both
}

// gate writes when the link is not held.
type gate struct {
	net.Conn
	link *link
}

func (g gate) Write(bytes []byte) (int, error) {
	g.link.mutex.Lock()
	for g.link.state == linkHeld && !g.link.ended {
		g.link.wake.Wait()
	}
	g.link.mutex.Unlock()
	return g.Conn.Write(bytes)
}
