package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/demo/inspect"
	"github.com/inferencecache/inferencecache/hack/demo/process"
	"github.com/inferencecache/inferencecache/hack/fakeengine"
)

const (
	tenant = "serving"
	model  = "fake-model"
	scheme = "vllm"
	// patience bounds every wait; a loaded machine needs a part of it.
	patience = 30 * time.Second
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

// program is a child process that can be started again on the same addresses.
type program struct {
	name, path string
	args       []string
	grpc, http string
	process    *process.Process
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
	args := []string{"--engines", file}
	for i := range aggregators {
		p := &program{name: fmt.Sprintf("aggregator-%d", i), path: "aggregator", grpc: freeAddress(t), http: freeAddress(t)}
		p.args = []string{"--grpc-bind-address", p.grpc, "--http-bind-address", p.http}
		s.aggregators = append(s.aggregators, p)
		args = append(args, "--aggregator", p.grpc)
		s.start(p)
	}
	s.agent = &program{name: "agent", path: "agent", http: freeAddress(t)}
	s.agent.args = append(args, "--http-bind-address", s.agent.http)
	s.start(s.agent)
	s.await("the agent to be ready", func() error { return httpOK(s.agent.http + "/readyz") })
	return s
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

func (s *stack) start(p *program) {
	s.t.Helper()
	var err error
	p.process, err = process.Start(context.Background(), s.dir, p.name, filepath.Join(binaries, p.path), p.args...)
	if err != nil {
		s.t.Fatal(err)
	}
	child := p.process
	s.t.Cleanup(func() {
		_ = child.Stop(5 * time.Second)
		if strings.Contains(child.Tail(), "DATA RACE") || s.t.Failed() {
			s.t.Errorf("%s printed:\n%s", p.name, child.Tail())
		}
	})
}

// kill ends a program without warning.
func (s *stack) kill(p *program) {
	s.t.Helper()
	child, err := os.FindProcess(p.process.PID())
	if err != nil {
		s.t.Fatal(err)
	}
	if err := child.Kill(); err != nil {
		s.t.Fatal(err)
	}
	<-p.process.Done()
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

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
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
		client := pb.NewCacheInspectionClient(s.dial(p))
		s.await(p.name+" to agree with the engines "+when, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			known, err := s.known(ctx, client)
			if err != nil {
				return err
			}
			if diff := cmp.Diff(s.truth(), known); diff != "" {
				return fmt.Errorf("-engines +index:\n%s", diff)
			}
			return nil
		})
	}
}
