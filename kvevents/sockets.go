package kvevents

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	zmq "github.com/pebbe/zmq4"
)

// Times of a connection. Heartbeats find a dead peer within heartbeatTimeout where TCP would take
// minutes, and tell the engine to stop queueing for us after peerTTL of silence. Keepalive does the
// same for a path that loses heartbeats to a stateful firewall.
const (
	heartbeatInterval = 5 * time.Second
	heartbeatTimeout  = 15 * time.Second
	peerTTL           = 30 * time.Second
	reconnectMin      = 100 * time.Millisecond
	reconnectMax      = 5 * time.Second // doubling from reconnectMin, with jitter
	connectTimeout    = 5 * time.Second
	keepaliveIdle     = 30 // seconds
	keepaliveInterval = 10 // seconds
	keepaliveCount    = 3
)

// socketSet is the sockets of one Subscriber, owned by the goroutine that opened them.
type socketSet struct {
	context *zmq.Context
	poller  *zmq.Poller
	ranks   []*rankSocket
	byZMQ   map[*zmq.Socket]*rankSocket
	ready   []*rankSocket
}

// rankSocket is one rank's subscription and what is known of it.
type rankSocket struct {
	endpoint Endpoint
	events   *zmq.Socket
	monitor  *zmq.Socket // brings connection changes of events

	seq           Sequence
	connected     bool
	everConnected bool

	ready      bool
	drops      uint64 // since they were last logged
	dropLogged time.Time
}

func openSockets(cfg SubscriberConfig) (*socketSet, error) {
	context, err := zmq.NewContext()
	if err != nil {
		return nil, fmt.Errorf("create ZMQ context: %w", err)
	}
	set := &socketSet{context: context, poller: zmq.NewPoller(), byZMQ: make(map[*zmq.Socket]*rankSocket)}
	for _, endpoint := range cfg.Endpoints {
		r := &rankSocket{endpoint: endpoint}
		set.ranks = append(set.ranks, r)
		if err := r.open(context, cfg); err != nil {
			return nil, errors.Join(fmt.Errorf("subscribe to %s: %w", endpoint.Events, err), set.close())
		}
		for _, socket := range []*zmq.Socket{r.events, r.monitor} {
			set.poller.Add(socket, zmq.POLLIN)
			set.byZMQ[socket] = r
		}
	}
	return set, nil
}

// open subscribes to every topic: a message of the wrong one is then seen and counted, where a filter
// in the engine would make it look as if the engine were silent.
func (r *rankSocket) open(context *zmq.Context, cfg SubscriberConfig) (err error) {
	if r.events, err = context.NewSocket(zmq.SUB); err != nil {
		return err
	}
	if err := setOptions(r.events, cfg, r.endpoint); err != nil {
		return err
	}
	address := fmt.Sprintf("inproc://monitor-%d", r.endpoint.Rank)
	if err := r.events.Monitor(address, zmq.EVENT_HANDSHAKE_SUCCEEDED|zmq.EVENT_DISCONNECTED); err != nil {
		return err
	}
	if r.monitor, err = context.NewSocket(zmq.PAIR); err != nil {
		return err
	}
	if err := r.monitor.SetLinger(0); err != nil {
		return err
	}
	if err := r.monitor.Connect(address); err != nil {
		return err
	}
	if err := r.events.SetSubscribe(""); err != nil {
		return err
	}
	return r.events.Connect(r.endpoint.Events)
}

func setOptions(s *zmq.Socket, cfg SubscriberConfig, endpoint Endpoint) error {
	return errors.Join(
		s.SetLinger(0),
		s.SetRcvhwm(cfg.ReceiveHWM),
		s.SetMaxmsgsize(cfg.MaxMessageBytes),
		s.SetHeartbeatIvl(heartbeatInterval),
		s.SetHeartbeatTimeout(heartbeatTimeout),
		s.SetHeartbeatTtl(peerTTL),
		s.SetReconnectIvl(reconnectMin),
		s.SetReconnectIvlMax(reconnectMax),
		s.SetConnectTimeout(connectTimeout),
		s.SetTcpKeepalive(1),
		s.SetTcpKeepaliveIdle(keepaliveIdle),
		s.SetTcpKeepaliveIntvl(keepaliveInterval),
		s.SetTcpKeepaliveCnt(keepaliveCount),
		// With IPv6 on, a host name may resolve to an address on which an engine bound to * for IPv4
		// does not listen.
		s.SetIpv6(isIPv6(endpoint.Events)),
	)
}

// poll waits until some rank has something, at most for timeout, and returns those that have.
func (s *socketSet) poll(timeout time.Duration) ([]*rankSocket, error) {
	polled, err := s.poller.Poll(timeout)
	if err != nil {
		return nil, err
	}
	s.ready = s.ready[:0]
	for _, p := range polled {
		if r := s.byZMQ[p.Socket]; !r.ready {
			r.ready = true
			s.ready = append(s.ready, r)
		}
	}
	for _, r := range s.ready {
		r.ready = false
	}
	return s.ready, nil
}

// close ends all connections and returns when ZMQ's threads are done.
func (s *socketSet) close() error {
	var errs []error
	for _, r := range s.ranks {
		for _, socket := range []*zmq.Socket{r.events, r.monitor} {
			if socket != nil {
				errs = append(errs, socket.Close())
			}
		}
	}
	return errors.Join(append(errs, s.context.Term())...)
}

// receive reads one message without waiting. ZMQ delivers the frames of a message together.
func (r *rankSocket) receive() (rawMessage, error) {
	var m rawMessage
	for more := true; more; m.count++ {
		frame, err := r.events.RecvBytes(zmq.DONTWAIT)
		if err != nil {
			return m, err
		}
		m.bytes += len(frame)
		if m.count < len(m.frames) {
			m.frames[m.count] = frame
		}
		if more, err = r.events.GetRcvmore(); err != nil {
			return m, err
		}
	}
	return m, nil
}

// again says that a socket had nothing to read.
func again(err error) bool { return err != nil && zmq.AsErrno(err) == zmq.Errno(syscall.EAGAIN) }
