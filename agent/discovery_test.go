package agent_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/inferencecache/inferencecache/agent"
	"github.com/inferencecache/inferencecache/agent/config"
	"github.com/inferencecache/inferencecache/agent/status"
	"github.com/inferencecache/inferencecache/aggregator"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/fakeengine"
)

// byHand finds the engines that a test tells it of.
type byHand struct {
	prometheus.Collector
	steps   chan func(follow func(config.Engine) error, unfollow func(string))
	settled atomic.Bool
}

func newByHand() *byHand {
	return &byHand{
		Collector: prometheus.NewGauge(prometheus.GaugeOpts{Name: "by_hand"}),
		steps:     make(chan func(func(config.Engine) error, func(string))),
	}
}

func (h *byHand) Run(ctx context.Context, follow func(config.Engine) error, unfollow func(string)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case step := <-h.steps:
			step(follow, unfollow)
		}
	}
}

func (h *byHand) Settled() bool { return h.settled.Load() }
func (h *byHand) Status() *status.Discovery {
	return &status.Discovery{Node: "node-a", Error: "forbidden"}
}

// found is an engine as discovery would describe it.
func found(id string, e *fakeengine.Engine) config.Engine {
	at := e.Addresses()
	return config.Engine{
		ID: id, Name: id[strings.LastIndexByte(id, '/')+1:], Tenant: "t", Model: "fake-model", HashScheme: "vllm", Ranks: len(at.Events),
		Tier2: config.Tier2Observed, Events: at.Events[0], Replay: at.Replay[0], Metrics: "http://" + at.HTTP + "/metrics",
	}
}

func TestEnginesThatAreFoundComeAndGo(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	agg, err := aggregator.New(aggregator.Config{GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: 16, ExpectedAgents: 1, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	run(t, "aggregator", agg.Run)
	hand := newByHand()
	a, err := agent.New(agent.Options{
		Discovery: hand, Aggregators: []string{agg.GRPCAddr()}, HTTPAddress: "127.0.0.1:0", ID: "node-a", Beat: 20 * time.Millisecond, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, "agent", a.Run)
	conn, err := grpc.NewClient(agg.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s := &site{t: t, conn: conn, http: "http://" + a.HTTPAddr()}

	// Until the engines are known, neither the agent nor the aggregator that waits for it is whole.
	s.await("a stream", func() bool { return s.metric("uplink_connected") == "1" })
	if ready := s.get("/readyz"); !strings.Contains(ready, "the pods of the node have not been listed yet: forbidden") {
		t.Errorf("readyz %q", ready)
	}
	if code := statusOf(t, "http://"+agg.HTTPAddr()+"/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("the aggregator's readyz is %d before the agent knows its engines", code)
	}
	tell := func(step func(follow func(config.Engine) error, unfollow func(string))) {
		done := make(chan struct{})
		hand.steps <- func(follow func(config.Engine) error, unfollow func(string)) {
			step(follow, unfollow)
			close(done)
		}
		<-done
	}
	first, second := startEngine(t), startEngine(t)
	cfg := found("t/first", first)
	cfg.ModelAliases = []string{"alias"}
	tell(func(follow func(config.Engine) error, _ func(string)) {
		for _, e := range []config.Engine{cfg, found("t/second", second)} {
			if err := follow(e); err != nil {
				t.Error(err)
			}
		}
	})
	hand.settled.Store(true)
	s.await("agent and aggregator to be ready", func() bool {
		return strings.HasPrefix(s.get("/readyz"), "ok") && statusOf(t, "http://"+agg.HTTPAddr()+"/readyz") == http.StatusOK
	})
	for i := range uint32(3) {
		ask(t, first, i)
		ask(t, second, 10+i)
	}
	holds := func(when string, lists ...[]string) {
		t.Helper()
		want := slices.Sorted(slices.Values(slices.Concat(lists...)))
		s.await("the index to be right "+when, func() bool { return slices.Equal(want, dumpReplicas(t, conn)) })
	}
	holds("with two engines", truthOf("first fake-model", first), truthOf("first alias", first), truthOf("second fake-model", second))

	// The process changes: what the old one held is gone before anything of the new one is told.
	third := startEngine(t)
	ask(t, third, 20)
	tell(func(follow func(config.Engine) error, _ func(string)) {
		if err := follow(found("t/second", third)); err != nil {
			t.Error(err)
		}
	})
	holds("with another process", truthOf("first fake-model", first), truthOf("first alias", first), truthOf("second fake-model", third))
	tell(func(_ func(config.Engine) error, unfollow func(string)) { unfollow("t/first") })
	holds("without the first", truthOf("second fake-model", third))
	state, err := pb.NewInferenceCacheClient(conn).GetCacheState(t.Context(), &pb.GetCacheStateRequest{TenantId: "t", ModelId: "alias"})
	if err != nil || len(state.Replicas) != 0 {
		t.Errorf("%v serve the alias still, error %v", state.GetReplicas(), err)
	}
}

func ask(t *testing.T, e *fakeengine.Engine, first uint32) {
	t.Helper()
	prompt := make([]uint32, 100)
	prompt[0] = first
	if _, err := e.Complete(t.Context(), fakeengine.Request{Prompt: prompt, MaxTokens: 1}); err != nil {
		t.Fatal(err)
	}
}

func truthOf(name string, e *fakeengine.Engine) (all []string) {
	for _, set := range e.Fingerprints() {
		for _, print := range set.Fingerprints {
			all = append(all, fmt.Sprintf("%s %016x", name, print))
		}
	}
	return all
}

// dumpReplicas lists replica, model and fingerprint of each entry of the index.
func dumpReplicas(t *testing.T, conn *grpc.ClientConn) (all []string) {
	t.Helper()
	stream, err := pb.NewCacheInspectionClient(conn).DumpIndex(t.Context(), &pb.DumpIndexRequest{})
	for err == nil {
		var batch *pb.DumpIndexResponse
		if batch, err = stream.Recv(); err == nil {
			for _, e := range batch.Entries {
				all = append(all, fmt.Sprintf("%s %s %x", e.ReplicaId, e.ModelId, e.Hash))
			}
		}
	}
	if err != io.EOF { //nolint:errorlint // gRPC returns it as it is
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

func statusOf(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	return resp.StatusCode
}
