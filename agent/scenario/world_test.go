package scenario

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/inferencecache/inferencecache/agent"
	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/aggregator/policy"
)

// patience bounds every wait; none lasts that long unless it fails.
const patience = 20 * time.Second

// world is everything that one script moves.
type world struct {
	t           *testing.T
	log         *slog.Logger
	loop        *loop
	engines     []*engine
	aggregators []*aggregatorProcess
	agent       agentProcess
	running     bool // the declarations are over
	offset      atomic.Int64
}

// part is a running agent or aggregator.
type part struct {
	cancel context.CancelFunc
	ended  chan error
}

func run(f func(context.Context) error) *part {
	ctx, cancel := context.WithCancel(context.Background())
	p := &part{cancel, make(chan error, 1)}
	go func() { p.ended <- f(ctx) }()
	return p
}

func (p *part) stop() error {
	p.cancel()
	return <-p.ended
}

type agentProcess struct {
	declared []string
	part     *part // nil while it is stopped
	http     string
	follows  map[string]bool // engines
}

type aggregatorProcess struct {
	name  string
	lease time.Duration
	wants int    // agents before it is ready
	http  string // of the present process
	clock atomic.Int64
	relay *relay // between the agent and it, in all its lives
	part  *part  // nil while it is stopped
	conn  *grpc.ClientConn
}

func newWorld(t *testing.T) *world {
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	w := &world{t: t, log: log, loop: newLoop(t)}
	t.Cleanup(func() {
		for _, e := range w.engines {
			if e.page != nil {
				e.page.server.Close()
			}
		}
		if err := w.stopAgent(); err != nil {
			t.Errorf("agent: %v", err)
		}
		for _, a := range w.aggregators {
			if err := a.stop(); err != nil {
				t.Errorf("%s: %v", a.name, err)
			}
		}
	})
	return w
}

// now is the agent's clock.
func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.offset.Load())) }

// begin starts what was declared.
func (w *world) begin() error {
	if w.running {
		return nil
	}
	w.running = true
	if len(w.engines) == 0 {
		if err := w.declareEngine([]string{"pod-a"}); err != nil {
			return err
		}
	}
	if len(w.aggregators) == 0 {
		if err := w.declareAggregator([]string{"agg-0"}); err != nil {
			return err
		}
	}
	for _, a := range w.aggregators {
		if err := w.startAggregator(a); err != nil {
			return err
		}
	}
	for _, word := range w.agent.declared {
		if word == "stopped" {
			return nil
		}
	}
	return w.startAgent(w.agent.declared)
}

func (w *world) declareEngine(words []string) error {
	if len(words) == 0 {
		return errors.New("want a name")
	}
	e, err := newEngine(w.loop, words[0], words[1:])
	if err == nil {
		w.engines = append(w.engines, e)
	}
	return err
}

func (w *world) declareAggregator(words []string) (err error) {
	if len(words) == 0 {
		return errors.New("want a name")
	}
	a := &aggregatorProcess{name: words[0], relay: newRelay(w.t)}
	for _, word := range words[1:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "lease":
			a.lease, err = time.ParseDuration(value)
		case "agents":
			a.wants, err = strconv.Atoi(value)
		default:
			err = errors.New("no such option")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
	w.aggregators = append(w.aggregators, a)
	return nil
}

// startAggregator starts a process that hints whatever matches at all.
func (w *world) startAggregator(a *aggregatorProcess) error {
	if a.part != nil {
		return errors.New("it runs already")
	}
	p := policy.Default()
	p.MinimumMatchedTokens, p.RoutingFloorScore, p.Affinity, p.TenantHot = 0, 0, false, false
	agg, err := aggregator.New(aggregator.Config{
		GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: 1, AgentLease: a.lease, ExpectedAgents: a.wants, Policy: policy.Same(p),
		Now: func() time.Time { return time.Now().Add(time.Duration(a.clock.Load())) }, Log: w.log,
	})
	if err != nil {
		return err
	}
	if a.conn, err = grpc.NewClient(agg.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return err
	}
	a.part, a.http = run(agg.Run), "http://"+agg.HTTPAddr()
	a.relay.aim(agg.GRPCAddr())
	return nil
}

// stop ends the process as kill -9 does, seen from its agents: the connections break first.
func (a *aggregatorProcess) stop() error {
	if a.part == nil {
		return nil
	}
	a.relay.aim("")
	a.relay.cut()
	p := a.part
	a.part = nil
	return errors.Join(a.conn.Close(), p.stop())
}

func (w *world) startAgent(words []string) error {
	if w.agent.part != nil {
		return errors.New("it runs already")
	}
	o := agent.Options{
		HTTPAddress: "127.0.0.1:0", ID: "node-a", Window: 5 * time.Millisecond, Beat: 200 * time.Millisecond,
		StatsInterval: 100 * time.Millisecond, ConcurrencyCeiling: 8, Now: w.now, Log: w.log,
	}
	w.agent.follows = map[string]bool{}
	for _, e := range w.engines {
		w.agent.follows[e.cfg.Name] = true
	}
	for _, word := range words {
		if err := w.agentOption(&o, word); err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
	for _, e := range w.engines {
		if w.agent.follows[e.cfg.Name] {
			o.Engines = append(o.Engines, e.cfg)
		}
	}
	for _, a := range w.aggregators {
		o.Aggregators = append(o.Aggregators, a.relay.address)
	}
	a, err := agent.New(o)
	if err != nil {
		return err
	}
	w.loop.do(func() {
		for _, e := range w.engines {
			for _, p := range e.ranks {
				p.delivered, p.sinceOpen = 0, 0
			}
		}
	})
	w.agent.http = "http://" + a.HTTPAddr()
	w.agent.part = run(a.Run)
	for _, e := range w.engines {
		for _, p := range e.ranks {
			if err := w.awaitAgent(p, 2); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) agentOption(o *agent.Options, word string) (err error) {
	switch key, value, _ := strings.Cut(word, "="); key {
	case "stopped":
	case "max-blocks":
		o.MaxBlocks, err = strconv.Atoi(value)
	case "clock":
		return jump(&w.offset, value)
	case "engines":
		w.agent.follows = map[string]bool{}
		for name := range strings.SplitSeq(value, ",") {
			w.agent.follows[name] = true
		}
	default:
		err = errors.New("no such option")
	}
	return err
}

func jump(clock *atomic.Int64, by string) error {
	d, err := time.ParseDuration(by)
	clock.Add(int64(d))
	return err
}

func (w *world) stopAgent() error {
	if w.agent.part == nil {
		return nil
	}
	for _, a := range w.aggregators {
		a.relay.cut()
	}
	p := w.agent.part
	w.agent.part = nil
	if err := p.stop(); err != nil {
		return err
	}
	return w.await("the agent's subscriptions to be gone", func() bool {
		return !w.any(func(p *publisher) bool { return p.xpub != nil && p.subscribed })
	})
}

// any says whether some rank of some engine is so.
func (w *world) any(so func(*publisher) bool) (found bool) {
	w.loop.do(func() {
		for _, e := range w.engines {
			for _, p := range e.ranks {
				found = found || so(p)
			}
		}
	})
	return found
}

func (w *world) await(what string, done func() bool) error {
	for deadline := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited in vain for %s", what)
		}
	}
	return nil
}

// followed says whether the running agent follows the engine.
func (w *world) followed(e *engine) bool { return w.agent.part != nil && w.agent.follows[e.cfg.Name] }

// awaitAgent waits until the agent follows an open rank. An agent asks for a replay when it has
// connected, and once more a second later; that is waited for too, so that what comes next does not
// meet it.
func (w *world) awaitAgent(p *publisher, requests int) error {
	if !w.followed(p.engine) {
		return nil
	}
	is := func(so func() bool) (is bool) {
		w.loop.do(func() { is = so() })
		return is
	}
	err := w.await("the agent to subscribe to "+p.engine.cfg.Name, func() bool {
		return is(func() bool { return p.xpub == nil || p.subscribed })
	})
	asks := func() bool { return p.router != nil && !p.mute && !p.loseMarker && p.sinceOpen < requests }
	for deadline := time.Now().Add(patience / 2); requests > 0 && is(asks) && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// target finds an engine and its rank.
func (w *world) target(name string) (*engine, *publisher, error) {
	name, rank, _ := strings.Cut(name, "/")
	for _, e := range w.engines {
		if e.cfg.Name != name {
			continue
		}
		n := 0
		if rank != "" {
			n, _ = strconv.Atoi(rank)
		}
		if n < 0 || n >= len(e.ranks) {
			return nil, nil, fmt.Errorf("%s has no rank %s", name, rank)
		}
		return e, e.ranks[n], nil
	}
	return nil, nil, fmt.Errorf("no engine %q", name)
}

func (w *world) aggregator(name string) (*aggregatorProcess, error) {
	for _, a := range w.aggregators {
		if a.name == name {
			return a, nil
		}
	}
	return nil, fmt.Errorf("no aggregator %q", name)
}
