package agent

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/inferencecache/inferencecache/agent/blocktable"
	"github.com/inferencecache/inferencecache/agent/uplink"
)

const (
	// resolveEvery is how often the names of aggregators are looked up again.
	resolveEvery = 10 * time.Second
	// forgetAfter is how many lookups in a row an address must be missing from before its uplink
	// ends: a name server that fails for a moment must not cost a whole table.
	forgetAfter = 3
)

// uplinks is the set of uplinks, one for each address that the aggregators' names stand for. A
// headless service thus gets one to each of its pods, as they come and go.
type uplinks struct {
	names []string // host:port, as configured
	make  func(e endpoint, number int) (*uplink.Uplink, *grpc.ClientConn, error)
	// detach tells the tables that an uplink is gone.
	detach  func(number int)
	resolve func(ctx context.Context, hostport string) ([]string, error)

	mu      sync.Mutex
	links   []*link
	current atomic.Pointer[[]*uplink.Uplink] // what links are, for readers
	failing map[string]bool                  // names that could not be resolved at the last try
}

// endpoint is one address of an aggregator, with the host:port that it was found under.
type endpoint struct{ address, name string }

// link is a running uplink.
type link struct {
	*uplink.Uplink
	endpoint
	number int
	conn   *grpc.ClientConn
	missed int // lookups in a row without the address
	stop   func()
}

// all returns the uplinks there are now.
func (s *uplinks) all() []*uplink.Uplink {
	if p := s.current.Load(); p != nil {
		return *p
	}
	return nil
}

// Run resolves names and runs uplinks until ctx ends and all have ended.
func (s *uplinks) Run(ctx context.Context, report func(err error)) error {
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.NewTicker(resolveEvery)
	defer tick.Stop()
	for {
		s.update(ctx, &running, report)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// update makes the uplinks those of the addresses that names stand for now.
func (s *uplinks) update(ctx context.Context, running *sync.WaitGroup, report func(err error)) {
	want, complete := s.targets(ctx, report)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = slices.DeleteFunc(s.links, func(l *link) bool {
		if slices.ContainsFunc(want, func(e endpoint) bool { return e.address == l.address }) {
			l.missed = 0
			return false
		}
		if complete {
			l.missed++
		}
		if l.missed < forgetAfter {
			return false
		}
		l.stop()
		return true
	})
	for _, e := range want {
		if !slices.ContainsFunc(s.links, func(l *link) bool { return l.address == e.address }) {
			if err := s.add(ctx, e, running); err != nil {
				report(err)
			}
		}
	}
	s.publish()
}

// targets resolves every name; complete says that none failed.
func (s *uplinks) targets(ctx context.Context, report func(err error)) (all []endpoint, complete bool) {
	complete = true
	for _, name := range s.names {
		addresses, err := s.resolve(ctx, name)
		if ctx.Err() != nil {
			return nil, false
		}
		if err != nil {
			if complete = false; !s.failing[name] {
				report(fmt.Errorf("resolve aggregator %s: %w", name, err))
			}
		}
		s.failing[name] = err != nil
		for _, address := range addresses {
			all = append(all, endpoint{address, name})
		}
	}
	return all, complete
}

// add starts an uplink under a free number. The caller holds the lock.
func (s *uplinks) add(ctx context.Context, e endpoint, running *sync.WaitGroup) error {
	number := 0
	for slices.ContainsFunc(s.links, func(l *link) bool { return l.number == number }) {
		number++
	}
	if number >= blocktable.MaxUplinks {
		return fmt.Errorf("aggregator %s is left out: %d are served already, which is the most", e.address, blocktable.MaxUplinks)
	}
	up, conn, err := s.make(e, number)
	if err != nil {
		return fmt.Errorf("aggregator %s: %w", e.address, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	l := &link{Uplink: up, endpoint: e, number: number, conn: conn}
	l.stop = sync.OnceFunc(func() { // waits, so that the number can be used again
		cancel()
		<-ended
		s.detach(number)
	})
	s.links = append(s.links, l)
	running.Go(func() {
		defer close(ended)
		_ = up.Run(ctx) // ends with ctx alone
		_ = conn.Close()
	})
	return nil
}

func (s *uplinks) publish() {
	all := make([]*uplink.Uplink, 0, len(s.links))
	for _, l := range s.links {
		all = append(all, l.Uplink)
	}
	s.current.Store(&all)
}

// resolveHost returns host:port for each address of a host. Where a host has addresses of both
// families the IPv4 ones are used, so that no aggregator is told twice.
func resolveHost(ctx context.Context, hostport string) ([]string, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(host) != nil {
		return []string{hostport}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveEvery/2)
	defer cancel()
	for _, family := range []string{"ip4", "ip6"} {
		ips, lookupErr := net.DefaultResolver.LookupIP(ctx, family, host)
		if lookupErr != nil {
			err = lookupErr
			continue
		}
		targets := make([]string, 0, len(ips))
		for _, ip := range ips {
			targets = append(targets, net.JoinHostPort(ip.String(), port))
		}
		return targets, nil
	}
	return nil, err
}
