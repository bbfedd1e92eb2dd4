// Package fleet runs the real thing on this machine: engines, one agent that follows them and one
// aggregator that the agent tells, each a process of its own, all on free loopback ports.
package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	icpb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/demo/engine"
	"github.com/inferencecache/inferencecache/hack/demo/process"
	"github.com/inferencecache/inferencecache/hack/demo/route"
)

const (
	startLimit = 20 * time.Second // for one process to be ready
	stopGrace  = 10 * time.Second // for one process to end when asked
	pollEvery  = 20 * time.Millisecond
)

// Scope is where the blocks of all engines are indexed: the defaults of an engines file.
var Scope = route.Scope{Tenant: "default", Model: "demo-model", HashScheme: "vllm"}

// Config says what to run.
type Config struct {
	BinDir string // folder of the programs
	Dir    string // folder for the engines file and what the processes print

	Engines       int
	Blocks        int     // blocks of each engine's cache
	BlockTokens   int     // tokens of a block
	PrefillMicros float64 // modelled microseconds to compute one uncached prompt token
	TimeScale     float64 // how many times faster than modelled the engines run
	InFlight      int     // requests under way at once, over all engines
}

// Fleet is running processes.
type Fleet struct {
	config    Config
	processes []*process.Process // in the order of their start
	watchers  sync.WaitGroup
	released  chan struct{} // closed when the processes are left to themselves
	fail      context.CancelCauseFunc

	Engines    []*engine.Client
	Routes     icpb.InferenceCacheClient
	Inspection icpb.CacheInspectionClient
	conn       *grpc.ClientConn

	engineHTTP     []string
	aggregatorGRPC string
	aggregatorHTTP string
	agentHTTP      string
}

// Start starts all processes and waits until they are ready. The context it returns ends when ctx does,
// and when a process ends by itself, which is then its cause. After an error everything is stopped.
func Start(ctx context.Context, c Config) (*Fleet, context.Context, error) {
	ctx, fail := context.WithCancelCause(ctx)
	f := &Fleet{config: c, released: make(chan struct{}), fail: fail}
	err := f.start(ctx)
	if err == nil {
		return f, ctx, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return nil, nil, errors.Join(err, f.Stop())
}

func (f *Fleet) start(ctx context.Context) error {
	file, err := f.startEngines(ctx)
	if err != nil {
		return err
	}
	ports, err := freeAddresses(ctx, 3)
	if err != nil {
		return err
	}
	f.aggregatorGRPC, f.aggregatorHTTP, f.agentHTTP = ports[0], ports[1], ports[2]
	if _, err := f.run(ctx, "aggregator", "aggregator",
		"--grpc-bind-address", f.aggregatorGRPC, "--http-bind-address", f.aggregatorHTTP, "--snapshot-bind-address", "",
		"--engine-block-size", strconv.Itoa(f.config.BlockTokens), "--log-format", "text"); err != nil {
		return err
	}
	if err := awaitReady(ctx, f.aggregatorHTTP); err != nil {
		return fmt.Errorf("wait for the aggregator: %w", err)
	}
	if _, err := f.run(ctx, "agent", "agent",
		"--engines", file, "--aggregator", f.aggregatorGRPC, "--http-bind-address", f.agentHTTP,
		"--log-format", "text"); err != nil {
		return err
	}
	if err := awaitReady(ctx, f.agentHTTP); err != nil {
		return fmt.Errorf("wait for the agent: %w", err)
	}
	return f.connect()
}

func (f *Fleet) connect() error {
	conn, err := grpc.NewClient(f.aggregatorGRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to the aggregator: %w", err)
	}
	f.conn = conn
	f.Routes, f.Inspection = icpb.NewInferenceCacheClient(conn), icpb.NewCacheInspectionClient(conn)
	return nil
}

// startEngines starts the engines, waits for their addresses and returns the path of the engines file.
func (f *Fleet) startEngines(ctx context.Context) (string, error) {
	engines := make([]*process.Process, f.config.Engines)
	for i := range engines {
		var err error
		name := fmt.Sprintf("engine-%d", i)
		if engines[i], err = f.run(ctx, name, "fakeengine",
			"--name", name, "--model", Scope.Model,
			"--http-bind-address", "127.0.0.1:0", "--events", "tcp://127.0.0.1:0", "--replay", "tcp://127.0.0.1:0",
			"--blocks", strconv.Itoa(f.config.Blocks), "--block-size", strconv.Itoa(f.config.BlockTokens),
			"--prefill-us-per-token", strconv.FormatFloat(f.config.PrefillMicros, 'f', -1, 64),
			"--time-scale", strconv.FormatFloat(f.config.TimeScale, 'f', -1, 64)); err != nil {
			return "", err
		}
	}
	var list strings.Builder
	list.WriteString("engines:\n")
	for _, p := range engines {
		bound, err := awaitAddresses(ctx, p)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&list, "  - name: %s\n    model: %s\n    events: %s\n    replay: %s\n    metrics: http://%s/metrics\n",
			p.Name(), Scope.Model, bound.Events[0], bound.Replay[0], bound.HTTP)
		f.engineHTTP = append(f.engineHTTP, bound.HTTP)
		f.Engines = append(f.Engines, engine.New(p.Name(), bound.HTTP, Scope.Model, f.config.InFlight))
	}
	file := filepath.Join(f.config.Dir, "engines.yaml")
	if err := os.WriteFile(file, []byte(list.String()), 0o600); err != nil {
		return "", fmt.Errorf("write engines file: %w", err)
	}
	return file, nil
}

// run starts one process, the end of which ends the fleet.
func (f *Fleet) run(ctx context.Context, name, program string, args ...string) (*process.Process, error) {
	p, err := process.Start(ctx, f.config.Dir, name, filepath.Join(f.config.BinDir, program), args...)
	if err != nil {
		return nil, err
	}
	f.processes = append(f.processes, p)
	f.watchers.Go(func() {
		select {
		case <-p.Done():
			f.fail(p.Err())
		case <-f.released:
		}
	})
	return p, nil
}

// addresses is what an engine prints once its sockets are bound.
type addresses struct {
	HTTP   string   `json:"http"`
	Events []string `json:"events"`
	Replay []string `json:"replay"`
}

func awaitAddresses(ctx context.Context, p *process.Process) (addresses, error) {
	var bound addresses
	err := poll(ctx, func() error {
		out, err := p.Output()
		if err != nil {
			return err
		}
		if err := json.Unmarshal(out, &bound); err != nil {
			return fmt.Errorf("read the addresses that it prints: %w", err)
		}
		if bound.HTTP == "" || len(bound.Events) == 0 || len(bound.Replay) == 0 {
			return fmt.Errorf("it prints no addresses: %s", out)
		}
		return nil
	})
	if err != nil {
		return bound, fmt.Errorf("wait for %s: %w", p.Name(), err)
	}
	return bound, nil
}

// Names returns the engines' replica names.
func (f *Fleet) Names() []string {
	names := make([]string, len(f.Engines))
	for i, e := range f.Engines {
		names[i] = e.Name()
	}
	return names
}

// AgentMetrics returns the URL of the agent's metrics page.
func (f *Fleet) AgentMetrics() string { return "http://" + f.agentHTTP + "/metrics" }

// Stop ends all processes, the latest first, and returns when they have ended.
func (f *Fleet) Stop() error {
	var errs []error
	if f.conn != nil {
		errs = append(errs, f.conn.Close())
	}
	for _, e := range f.Engines {
		e.Close()
	}
	close(f.released)
	f.watchers.Wait()
	for i := len(f.processes) - 1; i >= 0; i-- {
		errs = append(errs, f.processes[i].Stop(stopGrace))
	}
	f.fail(context.Canceled)
	return errors.Join(errs...)
}

// Release leaves the processes running when this one ends.
func (f *Fleet) Release() error {
	close(f.released)
	f.watchers.Wait()
	return f.conn.Close()
}

// LogTails returns the end of what each process has logged.
func (f *Fleet) LogTails() string {
	var b strings.Builder
	for _, p := range f.processes {
		fmt.Fprintf(&b, "--- %s\n%s\n", p.LogFile(), strings.TrimRight(p.Tail(), "\n"))
	}
	return b.String()
}
