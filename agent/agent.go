// Package agent is the node agent: it follows the KV-cache events of the engines on its node and
// keeps every aggregator told of what they hold.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/inferencecache/inferencecache/agent/blocktable"
	"github.com/inferencecache/inferencecache/agent/config"
	"github.com/inferencecache/inferencecache/agent/uplink"
	"github.com/inferencecache/inferencecache/tlsconfig"
)

// Options configure an agent.
type Options struct {
	Engines []config.Engine
	// Discovery finds further engines; nil if there are none but Engines.
	Discovery Discovery
	// Aggregators are the host:port of every aggregator to keep told. A host that has several
	// addresses stands for as many aggregators.
	Aggregators []string
	// TLS encrypts connections to aggregators; nil leaves them in the clear. TLSServerName is the name
	// that their certificates must be for; empty means the host of each address.
	TLS           *tlsconfig.Source
	TLSServerName string
	// HTTPAddress serves /healthz, /readyz and /metrics.
	HTTPAddress string
	// ID is a stable name of this agent; the host name if empty.
	ID string
	// Window is how long changes coalesce; Beat how often statistics and confirmations are sent.
	Window, Beat time.Duration
	// StatsInterval is how often engine statistics are read; ConcurrencyCeiling the number of
	// requests that counts as saturated.
	StatsInterval      time.Duration
	ConcurrencyCeiling int
	// MaxBlocks bounds the blocks followed per rank.
	MaxBlocks int
	// Version is that of this build, which aggregators are told; empty is unknown.
	Version string
	Now     func() time.Time
	Log     *slog.Logger
}

// reachGrace is how long readiness waits for engines that do not answer.
const reachGrace = 15 * time.Second

// Agent is a running agent.
type Agent struct {
	opts      Options
	following *following
	uplinks   uplinks
	epoch     uint64
	listener  net.Listener
	started   time.Time
}

// New checks the options, prepares everything and binds the HTTP address. Nothing runs before Run.
func New(o Options) (*Agent, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	a := &Agent{opts: o, started: o.Now()}
	if err := a.prepare(); err != nil {
		return nil, err
	}
	return a, nil
}

func (o *Options) complete() error {
	switch n := len(o.Aggregators); {
	case n == 0:
		return errors.New("aggregator: none given, at least one host:port is needed")
	case n > blocktable.MaxUplinks:
		return fmt.Errorf("aggregator: %d given, at most %d are served", n, blocktable.MaxUplinks)
	}
	for _, target := range o.Aggregators {
		if _, _, err := net.SplitHostPort(target); err != nil {
			return fmt.Errorf("aggregator: %q is not host:port", target)
		}
	}
	if len(o.Engines) == 0 && o.Discovery == nil {
		return errors.New("engines: none given")
	}
	if o.ID == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find a name for this agent: %w", err)
		}
		o.ID = host
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return nil
}

func (a *Agent) prepare() error {
	notify := func() {
		for _, u := range a.uplinks.all() {
			u.Wake()
		}
	}
	a.following = newFollowing(func(cfg config.Engine, ref uint32) (*engine, error) {
		return newEngine(cfg, a.opts, ref, notify)
	}, notify, a.opts.Log)
	for _, cfg := range a.opts.Engines {
		if _, err := a.following.add(cfg); err != nil {
			return err
		}
	}
	a.epoch = rand.Uint64()
	a.uplinks.names, a.uplinks.failing = a.opts.Aggregators, map[string]bool{}
	a.uplinks.make, a.uplinks.detach, a.uplinks.resolve = a.newUplink, a.detach, resolveHost
	var err error
	if a.listener, err = net.Listen("tcp", a.opts.HTTPAddress); err != nil {
		return fmt.Errorf("http-bind-address: %w", err)
	}
	return nil
}

func (a *Agent) newUplink(e endpoint, number int) (*uplink.Uplink, *grpc.ClientConn, error) {
	conn, err := a.dial(e)
	if err != nil {
		return nil, nil, err
	}
	return uplink.New(conn, uplink.Config{
		Target: e.address, Number: number, AgentID: a.opts.ID, Epoch: a.epoch, Version: a.opts.Version, Window: a.opts.Window, Beat: a.opts.Beat,
		Caches: func() []*uplink.Cache { return a.following.now().caches }, Whole: a.settled, Now: a.opts.Now, Log: a.opts.Log,
	}), conn, nil
}

// detach tells every table that an uplink is gone.
func (a *Agent) detach(number int) {
	for _, c := range a.following.now().caches {
		c.Table.Detach(number)
	}
}

// connect bounds how long a connection waits for its next try after an aggregator was away. The
// uplink spaces its streams out by itself; gRPC's own two minutes would come on top.
var connect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: 5 * time.Second,
}

// dial prepares a connection; it is made when the first stream is opened. The authority is the name
// that the aggregator is known by, whatever its address: its certificate must be for it. Keepalive finds an aggregator that vanished
// without closing.
func (a *Agent) dial(e endpoint) (*grpc.ClientConn, error) {
	creds, authority := insecure.NewCredentials(), e.name
	if a.opts.TLS != nil {
		creds = a.opts.TLS.Client("")
	}
	if a.opts.TLSServerName != "" {
		authority = a.opts.TLSServerName
	}
	return grpc.NewClient("passthrough:///"+e.address,
		grpc.WithTransportCredentials(creds),
		grpc.WithAuthority(authority),
		grpc.WithConnectParams(connect),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}))
}

// HTTPAddr returns the bound HTTP address.
func (a *Agent) HTTPAddr() string { return a.listener.Addr().String() }

// Run follows engines and feeds aggregators until ctx ends. One engine or aggregator that fails does
// not disturb another; only an error that no retry can mend ends the agent.
func (a *Agent) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, e := range a.following.now().engines {
		g.Go(func() error { return e.Run(ctx) })
	}
	defer a.following.wait() // when g has ended, and with it ctx
	if a.opts.Discovery != nil {
		g.Go(func() error { return a.discover(ctx) })
	}
	g.Go(func() error {
		return a.uplinks.Run(ctx, func(err error) { a.opts.Log.Warn("aggregator is not reached", "error", err) })
	})
	if a.opts.TLS != nil {
		g.Go(func() error { return a.opts.TLS.Run(ctx) })
	}
	g.Go(func() error { return a.serveHTTP(ctx) })
	a.opts.Log.Info("agent started", "id", a.opts.ID, "engines", len(a.opts.Engines), "discovery", a.opts.Discovery != nil,
		"aggregators", a.opts.Aggregators, "http", a.HTTPAddr())
	err := g.Wait()
	a.opts.Log.Info("agent stopped")
	return err
}
