package main

import (
	"io"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// stream is raft's network, in which nodes may be reached by other addresses than their own.
type stream struct {
	net.Listener
	via map[raft.ServerAddress]string
}

func (s *stream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	if other, ok := s.via[address]; ok {
		return net.DialTimeout("tcp", other, timeout)
	}
	return net.DialTimeout("tcp", string(address), timeout)
}

func openTransport(own, via string) (raft.Transport, error) {
	others := map[raft.ServerAddress]string{}
	if via != "" {
		pairs, err := split(via, 2)
		if err != nil {
			return nil, err
		}
		for _, pair := range pairs {
			others[raft.ServerAddress(pair[0])] = pair[1]
		}
	}
	listener, err := net.Listen("tcp", own)
	if err != nil {
		return nil, err
	}
	return raft.NewNetworkTransport(&stream{listener, others}, 3, timeout, io.Discard), nil
}
