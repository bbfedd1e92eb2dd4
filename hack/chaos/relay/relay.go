// Package relay passes TCP connections on and spoils them on demand: it cuts, refuses and stalls them, and
// takes whole ZMQ messages out of them.
package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	dialTimeout = 2 * time.Second
	// chunk is small, so that a stalled connection fills up soon.
	chunk = 16 << 10
	// rangeAttempts bounds the search for consecutive free ports.
	rangeAttempts = 100
)

// Relay listens on one loopback port and passes what connects to it on to a target, which may change.
type Relay struct {
	listener net.Listener
	zmtp     bool
	drop     atomic.Int64 // messages still to be taken out
	dropped  atomic.Int64
	work     sync.WaitGroup

	mu      sync.Mutex
	target  string // empty: connections are refused
	refuse  bool
	stalled bool
	gate    chan struct{} // closed while data flows
	links   map[*link]struct{}
}

// link is one connection through the relay.
type link struct {
	near, far net.Conn // of who connected, and of the target
	closed    chan struct{}
	once      sync.Once
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.closed)
		_, _ = l.near.Close(), l.far.Close() // whatever they report, they are closed
	})
}

// Plain returns a relay for any protocol on a free port.
func Plain() (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open relay: %w", err)
	}
	return start(l, false), nil
}

// Range returns n relays for ZMQ on consecutive free ports.
func Range(n int) ([]*Relay, error) {
	var err error
	for range rangeAttempts {
		var listeners []net.Listener
		if listeners, err = consecutive(n); err == nil {
			relays := make([]*Relay, n)
			for i, l := range listeners {
				relays[i] = start(l, true)
			}
			return relays, nil
		}
	}
	return nil, fmt.Errorf("open %d relays on consecutive ports: %w", n, err)
}

func consecutive(n int) (listeners []net.Listener, err error) {
	defer func() {
		if err != nil {
			for _, l := range listeners {
				_ = l.Close() // only a port that was in use matters
			}
		}
	}()
	port := 0
	for range n {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return listeners, err
		}
		listeners = append(listeners, l)
		port = l.Addr().(*net.TCPAddr).Port + 1
	}
	return listeners, nil
}

func start(l net.Listener, zmtp bool) *Relay {
	open := make(chan struct{})
	close(open)
	r := &Relay{listener: l, zmtp: zmtp, gate: open, links: map[*link]struct{}{}}
	r.work.Go(r.accept)
	return r
}

// Addr returns the address that the relay listens on.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Dropped returns how many messages have been taken out.
func (r *Relay) Dropped() int64 { return r.dropped.Load() }

// Target says where connections go from now on; with an empty address they are refused.
func (r *Relay) Target(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = address
}

// Cut closes every connection.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		l.close()
	}
}

// Refuse says whether new connections are closed at once.
func (r *Relay) Refuse(refuse bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = refuse
}

// Stall says whether data stops flowing. Connections stay open, and take what fits into their buffers.
func (r *Relay) Stall(stall bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stall == r.stalled {
		return
	}
	if r.stalled = stall; stall {
		r.gate = make(chan struct{})
	} else {
		close(r.gate)
	}
}

// Drop takes the next n messages from the target out of the stream, or those of which n is left once more
// is called for. It works on relays for ZMQ alone. 0 ends it.
func (r *Relay) Drop(n int) { r.drop.Store(int64(n)) }

// Close ends everything and waits for it.
func (r *Relay) Close() error {
	err := r.listener.Close()
	r.Refuse(true)
	r.Cut()
	r.work.Wait()
	return err
}

func (r *Relay) accept() {
	for {
		near, err := r.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			r.work.Go(func() { r.pass(near) })
		}
	}
}

// pass connects to the target and copies both ways until either side ends.
func (r *Relay) pass(near net.Conn) {
	l := r.open(near)
	if l == nil {
		_ = near.Close() // refused: the peer sees that
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() { r.copy(l, l.far, l.near, false) })
	ways.Go(func() { r.copy(l, l.near, l.far, r.zmtp) })
	ways.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.links, l)
}

// open returns the link of a connection that was accepted, or nil if there is nobody to connect it to.
func (r *Relay) open(near net.Conn) *link {
	r.mu.Lock()
	target, refuse := r.target, r.refuse
	r.mu.Unlock()
	if refuse || target == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	far, err := new(net.Dialer).DialContext(ctx, "tcp", target)
	if err != nil {
		return nil
	}
	l := &link{near: near, far: far, closed: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse {
		l.close()
	}
	r.links[l] = struct{}{}
	return l
}

func (r *Relay) copy(l *link, to, from net.Conn, filtered bool) {
	defer l.close()
	var f filter
	buf := make([]byte, chunk)
	for {
		n, err := from.Read(buf)
		if n > 0 && !r.await(l) {
			return
		}
		out := buf[:n]
		if filtered {
			out = f.pass(out, r.take)
		}
		if _, werr := to.Write(out); err != nil || werr != nil {
			return
		}
	}
}

// take says whether the message that begins is to be taken out.
func (r *Relay) take() bool {
	for {
		n := r.drop.Load()
		if n <= 0 {
			return false
		}
		if r.drop.CompareAndSwap(n, n-1) {
			r.dropped.Add(1)
			return true
		}
	}
}

// await waits while the relay is stalled, and says whether the link is still open.
func (r *Relay) await(l *link) bool {
	r.mu.Lock()
	gate := r.gate
	r.mu.Unlock()
	select {
	case <-gate:
		return true
	case <-l.closed:
		return false
	}
}
