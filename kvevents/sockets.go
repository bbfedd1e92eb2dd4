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

// reopenAfter is how long a rank may be without a connection before its sockets are opened anew. ZMQ
// connects again by itself, but gives an address up for good after a peer broke the protocol or sent a
// frame that is too large.
const reopenAfter = 10 * time.Second

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
	opened   int         // times that the two were opened

	replay   *zmq.Socket // of the request under way or the last one; nil before
	recovery recovery
	failed   error // of a socket, found by the recovery

	seq           Sequence
	connected     bool
	everConnected bool
	waiting       time.Time // since when there is no connection

	ready      bool   // has something to read, as of the last poll
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
		if err := set.open(r, cfg); err != nil {
			return nil, errors.Join(err, set.close())
		}
	}
	return set, nil
}

func (s *socketSet) open(r *rankSocket, cfg SubscriberConfig) error {
	if err := r.open(s.context, cfg); err != nil {
		return fmt.Errorf("subscribe to %s: %w", r.endpoint.Events, err)
	}
	for _, socket := range []*zmq.Socket{r.events, r.monitor} {
		s.poller.Add(socket, zmq.POLLIN)
		s.byZMQ[socket] = r
	}
	return nil
}

// reopen gives ranks that wait too long new sockets. One that still has messages to read is left alone.
func (s *socketSet) reopen(cfg SubscriberConfig, after time.Duration) error {
	for _, r := range s.ranks {
		if r.connected || r.ready || time.Since(r.waiting) < after {
			continue
		}
		for _, socket := range []*zmq.Socket{r.events, r.monitor} {
			delete(s.byZMQ, socket)
			if err := errors.Join(s.poller.RemoveBySocket(socket), socket.Close()); err != nil {
				return fmt.Errorf("close sockets of %s: %w", r.endpoint.Events, err)
			}
		}
		if err := s.open(r, cfg); err != nil {
			return err
		}
	}
	return nil
}

// open subscribes to every topic: a message of the wrong one is then seen and counted, where a filter
// in the engine would make it look as if the engine were silent.
func (r *rankSocket) open(context *zmq.Context, cfg SubscriberConfig) (err error) {
	r.opened++
	r.waiting = time.Now()
	if r.events, err = context.NewSocket(zmq.SUB); err != nil {
		return err
	}
	if err := setOptions(r.events, cfg, r.endpoint); err != nil {
		return err
	}
	address := fmt.Sprintf("inproc://monitor-%d-%d", r.endpoint.Rank, r.opened)
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
	for _, r := range s.ready {
		r.ready = false
	}
	s.ready = s.ready[:0]
	for _, p := range polled {
		if r := s.byZMQ[p.Socket]; !r.ready {
			r.ready = true
			s.ready = append(s.ready, r)
		}
	}
	return s.ready, nil
}

// close ends all connections and returns when ZMQ's threads are done.
func (s *socketSet) close() error {
	var errs []error
	for _, r := range s.ranks {
		for _, socket := range []*zmq.Socket{r.events, r.monitor, r.replay} {
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
