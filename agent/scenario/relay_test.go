package scenario

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// relay passes TCP connections on. It can cut them, and let them stand still.
type relay struct {
	address string
	gate    sync.RWMutex // held for writing while everything stands still
	frozen  bool         // used by the script alone

	mu     sync.Mutex
	target string // empty while nobody listens
	open   map[net.Conn]bool
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{address: l.Addr().String(), open: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				wg.Go(func() { r.pass(in) })
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.thaw()
		r.cut()
		wg.Wait()
	})
	return r
}

func (r *relay) aim(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = target
}

func (r *relay) pass(in net.Conn) {
	defer func() { _ = in.Close() }()
	r.mu.Lock()
	target := r.target
	r.mu.Unlock()
	if target == "" {
		return
	}
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	r.mu.Lock()
	r.open[in], r.open[out] = true, true
	r.mu.Unlock()
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		wg.Go(func() {
			_, _ = io.Copy(gated{way[0], r}, way[1])
			_, _ = way[0].Close(), way[1].Close()
		})
	}
	wg.Wait()
	r.mu.Lock()
	delete(r.open, in)
	delete(r.open, out)
	r.mu.Unlock()
}

// gated writes while the relay does not stand still.
type gated struct {
	net.Conn
	r *relay
}

func (g gated) Write(p []byte) (int, error) {
	g.r.gate.RLock()
	defer g.r.gate.RUnlock()
	return g.Conn.Write(p)
}

// ReadFrom keeps io.Copy from passing the gate by.
func (g gated) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{g}, r)
}

func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.open {
		_ = c.Close()
	}
}

func (r *relay) freeze() {
	if !r.frozen {
		r.frozen = true
		r.gate.Lock()
	}
}

func (r *relay) thaw() {
	if r.frozen {
		r.frozen = false
		r.gate.Unlock()
	}
}
