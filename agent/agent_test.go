package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/inferencecache/inferencecache/agent"
	"github.com/inferencecache/inferencecache/agent/config"
	"github.com/inferencecache/inferencecache/aggregator"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/fakeengine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// site is an engine, an aggregator and an agent that reaches the aggregator through a relay.
type site struct {
	t      *testing.T
	engine *fakeengine.Engine
	relay  *relay
	conn   *grpc.ClientConn
	http   string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, engine: startEngine(t)}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	agg, err := aggregator.New(aggregator.Config{GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: 16, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	run(t, "aggregator", agg.Run)
	s.relay = newRelay(t, agg.GRPCAddr())
	at := s.engine.Addresses()
	a, err := agent.New(agent.Options{
		Engines: []config.Engine{{
			Name: "pod-a", Model: "fake-model", Tenant: "t", HashScheme: "vllm", Ranks: 1, Tier2: config.Tier2Observed,
			Events: at.Events[0], Replay: at.Replay[0], Metrics: "http://" + at.HTTP + "/metrics",
		}},
		Aggregators: []string{s.relay.address}, HTTPAddress: "127.0.0.1:0", ID: "node-a", Beat: 50 * time.Millisecond, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, "agent", a.Run)
	s.http = "http://" + a.HTTPAddr()
	s.conn, err = grpc.NewClient(agg.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.conn.Close() })
	s.await("the agent to be ready", func() bool { return strings.HasPrefix(s.get("/readyz"), "ok") })
	return s
}

func startEngine(t *testing.T) *fakeengine.Engine {
	t.Helper()
	cfg := fakeengine.LoopbackConfig()
	cfg.Blocks = 100
	e, err := fakeengine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	run(t, "engine", e.Run)
	<-e.Ready()
	return e
}

func (s *site) await(what string, done func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (s *site) get(path string) string {
	s.t.Helper()
	resp, err := http.Get(s.http + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return string(body)
}

// metric returns the value of the agent's first series that begins with prefix.
func (s *site) metric(prefix string) string {
	s.t.Helper()
	for line := range strings.Lines(s.get("/metrics")) {
		if strings.HasPrefix(line, "inferencecache_agent_"+prefix) {
			return strings.TrimSpace(line[strings.LastIndexByte(line, ' '):])
		}
	}
	return ""
}

// complete lets the engine compute a prompt of its own.
func (s *site) complete(first uint32) {
	s.t.Helper()
	prompt := make([]uint32, 100)
	prompt[0] = first
	if _, err := s.engine.Complete(context.Background(), fakeengine.Request{Prompt: prompt, MaxTokens: 1}); err != nil {
		s.t.Fatal(err)
	}
}

// agree waits until the aggregator holds exactly what the engine holds.
func (s *site) agree(when string) {
	s.t.Helper()
	s.await("the index to equal the engine "+when, func() bool {
		var want []string
		for _, f := range s.engine.Fingerprints() {
			for _, print := range f.Fingerprints {
				want = append(want, heldLine(f.Rank, f.LoRA, "T1", fmt.Sprintf("%016x", print)))
			}
		}
		return fmt.Sprint(want) == fmt.Sprint(dump(s.t, s.conn))
	})
}

func TestAStreamThatBreaksIsResumedWithoutTheWholeTable(t *testing.T) {
	s := newSite(t)
	s.complete(1)
	s.agree("before the break")
	for i := range uint32(3) {
		s.relay.cut()
		s.complete(2 + i)
		s.agree("after the break")
	}
	if full, resumed := s.metric("uplink_full_syncs_total"), s.metric("uplink_resumes_total"); full != "1" || resumed == "0" {
		t.Errorf("%s full syncs, %s resumes", full, resumed)
	}
}

func TestAnIndexThatLostABlockIsRepaired(t *testing.T) {
	s := newSite(t)
	s.complete(1)
	s.agree("at first")
	print := s.engine.Fingerprints()[0].Fingerprints[0]
	key := []byte{byte(print >> 56), byte(print >> 48), byte(print >> 40), byte(print >> 32), byte(print >> 24), byte(print >> 16), byte(print >> 8), byte(print)}
	ack, err := pb.NewInferenceCacheClient(s.conn).PublishEvent(t.Context(), &pb.CacheEvent{
		Type: pb.CacheEvent_PREFIX_EVICTED, ReplicaId: "pod-a", ModelId: "fake-model", TenantId: "t", PrefixHash: key,
	})
	if err != nil || !ack.Accepted {
		t.Fatalf("ack %v, error %v", ack, err)
	}
	s.agree("after the loss")
	s.await("the repair to be counted", func() bool { return s.metric("uplink_repairs_total") == "1" })
}

func TestMetricsNameWhatTheAgentDoes(t *testing.T) {
	s := newSite(t)
	s.complete(1)
	s.agree("after one request")
	for prefix, want := range map[string]string{
		"up":                                "1",
		`engine_connected{engine="pod-a"`:   "1",
		`blocks{engine="pod-a"`:             "6",
		`events_total{engine="pod-a",kind`:  "0", // cleared, the first in order
		`view_certainty{certainty="exact"`:  "1",
		"uplink_in_step":                    "1",
		"messages_total":                    "1",
		"messages_waiting":                  "0",
		"uplink_waiting_blocks":             "0",
		"uplink_unacknowledged_deltas":      "0",
		`rank_pressure{engine="pod-a"`:      "0",
		`tier2_reporting{engine="pod-a",ra`: "0", // ignored, the first in order
	} {
		s.await(prefix+" to be "+want, func() bool { return s.metric(prefix) == want })
	}
	if got := s.get("/healthz"); got != "ok\n" {
		t.Errorf("healthz %q", got)
	}
}

func TestNewRefusesOptionsThatCannotWork(t *testing.T) {
	engines := []config.Engine{{Name: "a", Model: "m", Events: "tcp://127.0.0.1:5557", Ranks: 1}}
	for name, c := range map[string]struct {
		opts agent.Options
		want string
	}{
		"no aggregator":               {agent.Options{Engines: engines}, "aggregator: none given"},
		"an aggregator without port":  {agent.Options{Engines: engines, Aggregators: []string{"host"}}, `"host" is not host:port`},
		"too many aggregators":        {agent.Options{Engines: engines, Aggregators: make([]string, 9)}, "at most 8"},
		"no engines":                  {agent.Options{Aggregators: []string{"h:1"}}, "engines: none given"},
		"an address that is no use":   {agent.Options{Engines: engines, Aggregators: []string{"h:1"}, HTTPAddress: "nowhere"}, "http-bind-address"},
		"an engine that is no engine": {agent.Options{Engines: []config.Engine{{Name: "a"}}, Aggregators: []string{"h:1"}}, "engine a"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := agent.New(c.opts)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// relay passes TCP connections on, and can cut them.
type relay struct {
	address string
	target  string
	mu      sync.Mutex
	open    []net.Conn
}

func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{address: l.Addr().String(), target: target}
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
		r.cut()
		wg.Wait()
	})
	return r
}

func (r *relay) pass(in net.Conn) {
	out, err := net.Dial("tcp", r.target)
	if err != nil {
		_ = in.Close()
		return
	}
	r.mu.Lock()
	r.open = append(r.open, in, out)
	r.mu.Unlock()
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		wg.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_, _ = way[0].Close(), way[1].Close()
		})
	}
	wg.Wait()
}

func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.open {
		_ = c.Close()
	}
	r.open = nil
}
