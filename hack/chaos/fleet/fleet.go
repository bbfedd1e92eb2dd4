// Package fleet runs the engines, agents and aggregators of a chaos run as processes, joined by relays, and
// breaks them.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/chaos/plan"
	"github.com/inferencecache/inferencecache/hack/chaos/relay"
	"github.com/inferencecache/inferencecache/hack/demo/process"
)

// What there is. The pools are small, so that they overflow all the time.
const (
	Engines     = 8
	Ranks       = 2
	Agents      = 2
	Aggregators = 2
	Blocks      = 200 // of each rank
	BlockTokens = 16
)

// The one scope that is served.
const (
	Tenant = "serving"
	Model  = "fake-model"
	Scheme = "vllm"
)

// Lease is how long an aggregator believes an agent that is silent.
const Lease = 2 * time.Second

// Shape is what a plan of faults has to know.
var Shape = plan.Shape{Engines: Engines, Ranks: Ranks, Agents: Agents, Aggregators: Aggregators, Lease: Lease}

// Config says where programs and logs are.
type Config struct {
	Dir    string // of logs and files
	BinDir string // of fakeengine, agent and aggregator
}

// Fleet is everything that runs.
type Fleet struct {
	Engines     []*Engine
	Agents      []*Agent
	Aggregators []*Aggregator
	trouble     trouble
}

// Agent is one agent.
type Agent struct {
	program
	http atomic.Pointer[string]
}

// Aggregator is one aggregator, and the relays through which agents reach it.
type Aggregator struct {
	program
	uplinks []*relay.Relay // by agent
	conn    atomic.Pointer[grpc.ClientConn]
}

// Start starts everything and waits until each aggregator has been told everything. After an error nothing
// is left.
func Start(ctx context.Context, c Config) (*Fleet, error) {
	f := &Fleet{trouble: trouble{last: map[string]trace{}}}
	err := f.build(c)
	if err == nil {
		err = f.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	return f, nil
}

func (f *Fleet) build(c Config) error {
	for i := range Engines {
		e, err := newEngine(i, c)
		if err != nil {
			return err
		}
		f.Engines = append(f.Engines, e)
	}
	for i := range Aggregators {
		a := &Aggregator{}
		for range Agents {
			r, err := relay.Plain()
			if err != nil {
				return err
			}
			a.uplinks = append(a.uplinks, r)
		}
		a.program = program{
			name: fmt.Sprintf("aggregator-%d", i), path: binary(c.BinDir, "aggregator"), dir: c.Dir, ready: a.serving,
			args: []string{"--grpc-bind-address", "127.0.0.1:0", "--http-bind-address", "127.0.0.1:0", "--snapshot-bind-address", "", "--agent-lease", Lease.String()},
		}
		f.Aggregators = append(f.Aggregators, a)
	}
	for i := range Agents {
		if err := f.buildAgent(i, c); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fleet) buildAgent(number int, c Config) error {
	var list strings.Builder
	list.WriteString("engines:\n")
	for _, e := range f.Engines {
		if e.Agent == number {
			list.WriteString(e.describe())
		}
	}
	name := fmt.Sprintf("agent-%d", number)
	file := filepath.Join(c.Dir, name+".yaml")
	if err := os.WriteFile(file, []byte(list.String()), 0o600); err != nil {
		return fmt.Errorf("write engines file: %w", err)
	}
	a := &Agent{}
	a.program = program{
		name: name, path: binary(c.BinDir, "agent"), dir: c.Dir, ready: a.started,
		args: []string{"--engines", file, "--agent-id", name, "--http-bind-address", "127.0.0.1:0", "--beat", "500ms"},
	}
	for _, agg := range f.Aggregators {
		a.args = append(a.args, "--aggregator", agg.uplinks[number].Addr())
	}
	f.Agents = append(f.Agents, a)
	return nil
}

// start starts engines and aggregators, then the agents.
func (f *Fleet) start(ctx context.Context) error {
	var g errgroup.Group
	for _, e := range f.Engines {
		g.Go(func() error { return e.start(ctx) })
	}
	for _, a := range f.Aggregators {
		g.Go(func() error { return a.start(ctx) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, a := range f.Agents {
		g.Go(func() error { return a.start(ctx) })
	}
	return g.Wait()
}

func (a *Agent) started(p *process.Process) error {
	var at struct {
		HTTP string `json:"http"`
	}
	if err := announced(p, "agent started", &at); err != nil {
		return err
	}
	a.http.Store(&at.HTTP)
	return nil
}

func (a *Aggregator) serving(p *process.Process) error {
	var at struct {
		GRPC string `json:"grpc"`
	}
	if err := announced(p, "serving", &at); err != nil {
		return err
	}
	conn, err := grpc.NewClient(at.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", p.Name(), err)
	}
	if old := a.conn.Swap(conn); old != nil {
		_ = old.Close() // its process is gone
	}
	for _, r := range a.uplinks {
		r.Target(at.GRPC)
	}
	return nil
}

func (a *Aggregator) unbind() {
	for _, r := range a.uplinks {
		r.Target("")
	}
}

// Routes returns a client of the aggregator as it runs now.
func (a *Aggregator) Routes() pb.InferenceCacheClient {
	return pb.NewInferenceCacheClient(a.conn.Load())
}

// Lost returns how many live and replayed messages the relays took out.
func (f *Fleet) Lost() (live, replayed int64) {
	for _, e := range f.Engines {
		for rank := range Ranks {
			live += e.events[rank].Dropped()
			replayed += e.replay[rank].Dropped()
		}
	}
	return live, replayed
}

// Stop ends everything. Its error tells which processes ended by themselves or logged what none may.
func (f *Fleet) Stop() error {
	var g errgroup.Group
	var errs []error
	for _, a := range f.Agents {
		g.Go(a.stop)
	}
	errs = append(errs, g.Wait())
	for _, a := range f.Aggregators {
		if conn := a.conn.Load(); conn != nil {
			errs = append(errs, conn.Close())
		}
		g.Go(a.stop)
		for _, r := range a.uplinks {
			g.Go(r.Close)
		}
	}
	for _, e := range f.Engines {
		if c := e.client.Load(); c != nil {
			c.Close()
		}
		g.Go(e.stop)
		for _, r := range append(append([]*relay.Relay{e.http}, e.events...), e.replay...) {
			g.Go(r.Close)
		}
	}
	return errors.Join(append(errs, g.Wait())...)
}
