package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/chaos/relay"
	"github.com/inferencecache/inferencecache/hack/demo/inspect"
	"github.com/inferencecache/inferencecache/hack/demo/process"
	"github.com/inferencecache/inferencecache/hack/fakeengine"
)

const (
	tenant = "serving"
	model  = "fake-model"
	scheme = "vllm"
	// patience bounds every wait; a loaded machine needs a part of it.
	patience = 90 * time.Second
)

// binaries is the folder of the programs under test, built once with the race detector.
var binaries string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		panic(err)
	}
	binaries = dir
	build := exec.Command("go", "build", "-race", "-o", dir+string(filepath.Separator), "../../cmd/agent", "../../cmd/aggregator")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build the programs: %v\n%s", err, out))
	}
	defer func() { _ = os.RemoveAll(dir) }()
	m.Run()
}

// stack is a set of engines, an agent and aggregators.
type stack struct {
	t           *testing.T
	dir         string
	engines     []*runningEngine
	aggregators []*program
	agent       *program
}

// program is a child process that can be started again.
type program struct {
	name, path string
	args       []string
	process    *process.Process
	grpc, http string       // where the present process serves
	relay      *relay.Relay // between the agent and an aggregator, in all its lives; nil for the agent
}

type runningEngine struct {
	*fakeengine.Engine
	name string
	cfg  fakeengine.Config
	stop func()
}

// newStack starts engines, then aggregators, then the agent, and waits until the agent is ready.
func newStack(t *testing.T, aggregators int, engines ...fakeengine.Config) *stack {
	t.Helper()
	s := &stack{t: t, dir: t.TempDir()}
	var list strings.Builder
	list.WriteString("engines:\n")
	for i, cfg := range engines {
		e := s.startEngine(fmt.Sprintf("engine-%d", i), cfg)
		s.engines = append(s.engines, e)
		at := e.Addresses()
		fmt.Fprintf(&list, "  - {name: %s, model: %s, tenant: %s, hashScheme: %s, ranks: %d, events: %s, replay: %s, metrics: 'http://%s/metrics'}\n",
			e.name, model, tenant, scheme, cfg.Ranks, at.Events[0], at.Replay[0], at.HTTP)
	}
	file := filepath.Join(s.dir, "engines.yaml")
	if err := os.WriteFile(file, []byte(list.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s.agent = &program{name: "agent", path: "agent", args: []string{"--engines", file, "--http-bind-address", anyPort}}
	for i := range aggregators {
		p := s.newAggregator(fmt.Sprintf("aggregator-%d", i))
		s.aggregators = append(s.aggregators, p)
		s.agent.args = append(s.agent.args, "--aggregator", p.relay.Addr())
		s.start(p)
	}
	s.start(s.agent)
	s.await("the agent to be ready", func() error { return httpOK(s.agent.http + "/readyz") })
	return s
}

// anyPort makes a program choose a port, which it then logs.
const anyPort = "127.0.0.1:0"

func (s *stack) newAggregator(name string) *program {
	s.t.Helper()
	r, err := relay.Plain()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = r.Close() })
	return &program{
		name: name, path: "aggregator", relay: r, args: []string{"--grpc-bind-address", anyPort, "--http-bind-address", anyPort},
	}
}

func (s *stack) startEngine(name string, cfg fakeengine.Config) *runningEngine {
	s.t.Helper()
	e, err := fakeengine.New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("engine %s: %v", name, err)
		}
	})
	s.t.Cleanup(stop)
	select {
	case <-e.Ready():
	case err := <-ended:
		s.t.Fatalf("engine %s: %v", name, err)
	}
	return &runningEngine{Engine: e, name: name, cfg: cfg, stop: stop}
}

// restartEngine ends an engine and starts an empty one in its place, on the same addresses.
func (s *stack) restartEngine(i int) {
	s.t.Helper()
	old := s.engines[i]
	at := old.Addresses()
	old.stop()
	cfg := old.cfg
	cfg.HTTPBindAddress, cfg.Events, cfg.Replay = at.HTTP, at.Events[0], at.Replay[0]
	s.engines[i] = s.startEngine(old.name, cfg)
}

// start starts a process of a program and waits until it serves.
func (s *stack) start(p *program) {
	s.t.Helper()
	child, err := process.Start(context.Background(), s.t.TempDir(), p.name, filepath.Join(binaries, p.path), p.args...)
	if err != nil {
		s.t.Fatal(err)
	}
	p.process = child
	s.t.Cleanup(func() {
		_ = signal(child, syscall.SIGCONT)
		_ = child.Stop(5 * time.Second)
		if strings.Contains(child.Tail(), "DATA RACE") || s.t.Failed() {
			s.t.Errorf("%s printed:\n%s", p.name, child.Tail())
		}
	})
	s.await(p.name+" to serve", func() error { return p.findAddresses() })
	if p.relay != nil {
		p.relay.Target(p.grpc)
	}
}

// findAddresses reads from the log where the process serves.
func (p *program) findAddresses() error {
	log, err := os.ReadFile(p.process.LogFile())
	if err != nil {
		return err
	}
	for line := range bytes.Lines(log) {
		var said struct {
			Msg  string `json:"msg"`
			GRPC string `json:"grpc"`
			HTTP string `json:"http"`
		}
		if json.Unmarshal(line, &said) == nil && (said.Msg == "serving" || said.Msg == "agent started") {
			p.grpc, p.http = said.GRPC, said.HTTP
			return nil
		}
	}
	select {
	case <-p.process.Done():
		return p.process.Err()
	default:
		return errors.New("it has not said so yet")
	}
}

// kill ends a program without warning.
func (s *stack) kill(p *program) {
	s.t.Helper()
	s.signal(p, syscall.SIGKILL)
	<-p.process.Done()
	if p.relay != nil {
		p.relay.Target("")
		p.relay.Cut()
	}
}

func (s *stack) signal(p *program, sig syscall.Signal) {
	s.t.Helper()
	if err := signal(p.process, sig); err != nil {
		s.t.Fatalf("send %s to %s: %v", sig, p.name, err)
	}
}

func signal(child *process.Process, sig syscall.Signal) error {
	p, err := os.FindProcess(child.PID())
	if err != nil {
		return err
	}
	return p.Signal(sig)
}

// await tries until check succeeds.
func (s *stack) await(what string, check func() error) {
	s.t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	s.t.Fatalf("waited in vain for %s: %v", what, err)
}

func httpOK(address string) error {
	resp, err := http.Get("http://" + address)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}

func (s *stack) dial(p *program) *grpc.ClientConn {
	s.t.Helper()
	conn, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// blocks is what is held: lines of engine, rank, adapter and fingerprint.
type blocks []string

func line(engine string, rank int, adapter string, print uint64) string {
	return fmt.Sprintf("%s/%d/%s/%016x", engine, rank, adapter, print)
}

// truth is what the engines' pools hold.
func (s *stack) truth() blocks {
	all := blocks{}
	for _, e := range s.engines {
		for _, f := range e.Fingerprints() {
			for _, print := range f.Fingerprints {
				all = append(all, line(e.name, f.Rank, f.LoRA, print))
			}
		}
	}
	slices.Sort(all)
	return all
}

// known is what an aggregator's index holds.
func (s *stack) known(ctx context.Context, client pb.CacheInspectionClient) (blocks, error) {
	byReplica, err := inspect.Known(ctx, client)
	if err != nil {
		return nil, err
	}
	all := blocks{}
	for replica, set := range byReplica {
		for b := range set {
			all = append(all, line(replica, int(b.Rank), b.Adapter, b.Hash))
		}
	}
	slices.Sort(all)
	return all, nil
}

// mustAgree waits until every aggregator holds exactly what the engines hold.
func (s *stack) mustAgree(when string) {
	s.t.Helper()
	for _, p := range s.aggregators {
		s.mustAgreeAt(p, when)
	}
}

func (s *stack) mustAgreeAt(p *program, when string) {
	s.t.Helper()
	client := pb.NewCacheInspectionClient(s.dial(p))
	s.await(p.name+" to agree with the engines "+when, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		known, err := s.known(ctx, client)
		if err != nil {
			return err
		}
		return s.truth().compare(known)
	})
}

// compare says what an index has too little and too much.
func (b blocks) compare(index blocks) error {
	if slices.Equal(b, index) {
		return nil
	}
	missing, extra := b.without(index), index.without(b)
	some := func(all blocks) blocks { return all[:min(len(all), 5)] }
	return fmt.Errorf("%d blocks held, %d known: %d missing, such as %v; %d extra, such as %v",
		len(b), len(index), len(missing), some(missing), len(extra), some(extra))
}

// without lists what is not in other; both are sorted.
func (b blocks) without(other blocks) (rest blocks) {
	for _, x := range b {
		if _, found := slices.BinarySearch(other, x); !found {
			rest = append(rest, x)
		}
	}
	return rest
}
