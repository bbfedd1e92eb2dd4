package fakeengine

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	zmq "github.com/pebbe/zmq4"
)

// bindAttempts bounds the search for a contiguous range of free ports.
const bindAttempts = 50

// endpoint is a parsed tcp://host:port.
type endpoint struct {
	host string
	port int
}

func parseEndpoint(field, s string) (endpoint, error) {
	rest, ok := strings.CutPrefix(s, "tcp://")
	if !ok {
		return endpoint{}, fmt.Errorf("%s: %q has no tcp:// in front; want tcp://host:port", field, s)
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		return endpoint{}, fmt.Errorf("%s: %q: %w; want tcp://host:port", field, s, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || host == "" {
		return endpoint{}, fmt.Errorf("%s: %q: want a host or * and a port from 0 to 65535", field, s)
	}
	return endpoint{host, int(n)}, nil
}

// at returns the endpoint of a rank.
func (e endpoint) at(rank int) string {
	return "tcp://" + net.JoinHostPort(e.host, strconv.Itoa(e.port+rank))
}

// bindRanks opens and binds one socket for each rank, rank r on port + r, and returns the endpoint of rank
// 0 with the port it got. Port 0 means any range of free ports.
func bindRanks(ctx *zmq.Context, kind zmq.Type, base endpoint, ranks, sendHWM int) ([]*zmq.Socket, endpoint, error) {
	attempts := 1
	if base.port == 0 {
		attempts = bindAttempts
	}
	var err error
	for range attempts {
		var socks []*zmq.Socket
		var bound endpoint
		if socks, bound, err = bindRange(ctx, kind, base, ranks, sendHWM); err == nil {
			return socks, bound, nil
		}
	}
	return nil, endpoint{}, err
}

func bindRange(ctx *zmq.Context, kind zmq.Type, base endpoint, ranks, sendHWM int) (socks []*zmq.Socket, bound endpoint, err error) {
	defer func() {
		if err != nil {
			closeAll(socks)
			socks = nil
		}
	}()
	bound = base
	for rank := range ranks {
		sock, err := openSocket(ctx, kind, sendHWM)
		if err != nil {
			return socks, bound, err
		}
		socks = append(socks, sock)
		ep := base.at(0)
		if rank > 0 {
			ep = bound.at(rank)
		}
		if err := sock.Bind(ep); err != nil {
			return socks, bound, fmt.Errorf("bind %s for rank %d: %w", ep, rank, err)
		}
		if rank == 0 {
			if bound.port, err = boundPort(sock); err != nil {
				return socks, bound, err
			}
		}
	}
	return socks, bound, nil
}

// openSocket opens a socket that keeps at most sendHWM messages for a peer, and on closing gives a slow
// peer half a second to take what is left.
func openSocket(ctx *zmq.Context, kind zmq.Type, sendHWM int) (*zmq.Socket, error) {
	sock, err := ctx.NewSocket(kind)
	if err != nil {
		return nil, fmt.Errorf("open %v socket: %w", kind, err)
	}
	if err := errors.Join(sock.SetSndhwm(sendHWM), sock.SetLinger(lingerTime)); err != nil {
		closeAll([]*zmq.Socket{sock})
		return nil, fmt.Errorf("set options of %v socket: %w", kind, err)
	}
	return sock, nil
}

func boundPort(sock *zmq.Socket) (int, error) {
	last, err := sock.GetLastEndpoint()
	if err != nil {
		return 0, fmt.Errorf("read bound endpoint: %w", err)
	}
	port, err := strconv.Atoi(last[strings.LastIndexByte(last, ':')+1:])
	if err != nil {
		return 0, fmt.Errorf("read port of bound endpoint %q: %w", last, err)
	}
	return port, nil
}

// closeAll closes sockets. An error would only say that a socket is closed already.
func closeAll(socks []*zmq.Socket) {
	for _, s := range socks {
		_ = s.Close()
	}
}
