package probe_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/aggregator/ingest"
	"github.com/inferencecache/inferencecache/aggregator/lookup"
	"github.com/inferencecache/inferencecache/aggregator/metrics"
	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/probe"
	"github.com/inferencecache/inferencecache/aggregator/rank"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/runs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handlers are the real ones, each of which a test may break.
type handlers struct {
	pb.UnimplementedInferenceCacheServer
	index  index.Index
	ingest *ingest.Service
	lookup *lookup.Service

	report func(grpc.ClientStreamingServer[pb.CacheStateUpdate, pb.Ack]) error
	answer func(*pb.LookupRouteResponse) (*pb.LookupRouteResponse, error)
}

func newHandlers() *handlers {
	x := runs.New(index.Config{Reserved: probe.Tenant})
	r := registry.New(registry.Config{})
	of := func(tenant string) *policy.Policy {
		if tenant == probe.Tenant {
			return probe.Policy()
		}
		p := policy.Default()
		return &p
	}
	m := metrics.New(x)
	return &handlers{
		index:  x,
		ingest: ingest.New(ingest.Config{Index: x, Registry: r, Policy: of, Metrics: m}),
		lookup: lookup.New(lookup.Config{Index: x, Registry: r, Policy: of, Rank: rank.Default(), Metrics: m, BlockSize: 16}),
	}
}

func (h *handlers) ReportCacheState(s grpc.ClientStreamingServer[pb.CacheStateUpdate, pb.Ack]) error {
	if h.report != nil {
		return h.report(s)
	}
	return h.ingest.ReportCacheState(s)
}

func (h *handlers) PublishEvent(_ context.Context, e *pb.CacheEvent) (*pb.Ack, error) {
	return h.ingest.PublishEvent(e), nil
}

func (h *handlers) LookupRoute(ctx context.Context, req *pb.LookupRouteRequest) (*pb.LookupRouteResponse, error) {
	resp := h.lookup.LookupRoute(ctx, req)
	if h.answer != nil {
		return h.answer(resp)
	}
	return resp, nil
}

// held counts what the probe's tenant holds.
func (h *handlers) held() int {
	n := 0
	h.index.Dump(index.Filter{Tenant: probe.Tenant}, func(index.Entry) bool { n++; return true })
	return n
}

// storeFunc is a remote store.
type storeFunc func(ctx context.Context, name string, value []byte) error

func (f storeFunc) PutGet(ctx context.Context, name string, value []byte) error {
	return f(ctx, name, value)
}

func works(context.Context, string, []byte) error { return nil }

var request = probe.Request{Backend: "ns/backend", Model: "functional-self-test", HashScheme: "vllm", BackendType: "LMCache"}

func TestStagesEndAsWhatTheyTestDoes(t *testing.T) {
	refuse := func(s grpc.ClientStreamingServer[pb.CacheStateUpdate, pb.Ack]) error {
		return s.SendAndClose(&pb.Ack{ReasonCode: "too_many_names=1"})
	}
	lose := func(s grpc.ClientStreamingServer[pb.CacheStateUpdate, pb.Ack]) error {
		return s.SendAndClose(&pb.Ack{Accepted: true})
	}
	after := func(stage string) []probe.Finding {
		var skipped []probe.Finding
		for _, name := range []string{"routing", "t2"} {
			if name != stage {
				skipped = append(skipped, probe.Finding{Stage: name, Message: "the stage before it, " + stage + ", did not succeed"})
			}
		}
		return skipped
	}
	failed := func(stage, message string) []probe.Finding {
		return []probe.Finding{{Stage: stage, Message: message}}
	}
	for name, c := range map[string]struct {
		change func(*handlers)
		store  probe.Store
		kind   string
		want   probe.Response
	}{
		"all works": {
			store: storeFunc(works), kind: "LMCache",
			want: probe.Response{Ingest: "ok", Routing: "ok", T2: "ok"},
		},
		"all works for a backend of no type": {
			store: storeFunc(works),
			want:  probe.Response{Ingest: "ok", Routing: "ok", T2: "ok"},
		},
		"no remote store": {
			kind: "LMCache",
			want: probe.Response{Ingest: "ok", Routing: "ok", T2: "skipped", Skipped: []probe.Finding{
				{Stage: "t2", Message: "no remote store is configured (--t2-redis-address)"},
			}},
		},
		"a backend that has none": {
			store: storeFunc(works), kind: "HiCache",
			want: probe.Response{Ingest: "ok", Routing: "ok", T2: "skipped", Skipped: []probe.Finding{
				{Stage: "t2", Message: `backends of type "HiCache" keep nothing in the remote store`},
			}},
		},
		"a remote store that is broken": {
			store: storeFunc(func(context.Context, string, []byte) error { return errors.New("out of memory") }),
			want:  probe.Response{Ingest: "ok", Routing: "ok", T2: "failed", Errors: failed("t2", "out of memory")},
		},
		"a report that is refused": {
			change: func(h *handlers) { h.report = refuse }, store: storeFunc(works),
			want: probe.Response{
				Ingest: "failed", Routing: "skipped", T2: "skipped", Skipped: after("ingest"),
				Errors: failed("ingest", "report a block: refused: too_many_names=1"),
			},
		},
		"a report that fails": {
			change: func(h *handlers) {
				h.report = func(grpc.ClientStreamingServer[pb.CacheStateUpdate, pb.Ack]) error { return errors.New("broken") }
			},
			want: probe.Response{
				Ingest: "failed", Routing: "skipped", T2: "skipped", Skipped: after("ingest"),
				Errors: failed("ingest", "report a block: broken"),
			},
		},
		"a report that is lost": {
			change: func(h *handlers) { h.report = lose },
			want: probe.Response{
				Ingest: "failed", Routing: "skipped", T2: "skipped", Skipped: after("ingest"),
				Errors: failed("ingest", "find the reported block: the index does not have it (key of 8 bytes)"),
			},
		},
		"a lookup that finds nothing": {
			change: func(h *handlers) {
				h.answer = func(*pb.LookupRouteResponse) (*pb.LookupRouteResponse, error) {
					return &pb.LookupRouteResponse{ReasonCode: "NO_HINT"}, nil
				}
			},
			store: storeFunc(works),
			want: probe.Response{
				Ingest: "ok", Routing: "failed", T2: "skipped", Skipped: after("routing"),
				Errors: failed("routing", "look the block up: the answer is NO_HINT, want PREFIX_MATCH"),
			},
		},
		"a lookup that names another replica": {
			change: func(h *handlers) {
				h.answer = func(r *pb.LookupRouteResponse) (*pb.LookupRouteResponse, error) {
					r.ReplicaScores[0].ReplicaId = "pod-a"
					return r, nil
				}
			},
			want: probe.Response{
				Ingest: "ok", Routing: "failed", T2: "skipped", Skipped: after("routing"),
				Errors: failed("routing", "look the block up: the answer names 1 replicas, but not the one that reported it"),
			},
		},
		"a lookup that fails": {
			change: func(h *handlers) {
				h.answer = func(*pb.LookupRouteResponse) (*pb.LookupRouteResponse, error) { return nil, errors.New("broken") }
			},
			want: probe.Response{
				Ingest: "ok", Routing: "failed", T2: "skipped", Skipped: after("routing"),
				Errors: failed("routing", "look the block up: broken"),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandlers()
			if c.change != nil {
				c.change(h)
			}
			req := request
			req.BackendType = c.kind
			got, err := probe.New(h, h.index, c.store).Probe(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			c.want.Backend = "ns/backend"
			if diff := cmp.Diff(&c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if n := h.held(); n != 0 {
				t.Errorf("%d entries are left", n)
			}
		})
	}
}

func TestProbeTouchesItsOwnEntriesAlone(t *testing.T) {
	h := newHandlers()
	p := index.Partition{Scope: index.Scope{Tenant: "t", Model: request.Model, Scheme: "vllm"}}
	own := index.Run{Keys: index.Keys{Words: []uint64{1, 2}}, BlockTokens: 16, Tier: index.T1, Evidence: index.At(time.Now())}
	h.index.Store(p, index.Holder{Replica: "__probe-" + request.Backend}, own, own.Evidence)
	counts := h.index.Counts()
	during := index.Counts{}
	store := storeFunc(func(context.Context, string, []byte) error {
		during = h.index.Counts()
		if h.held() == 0 {
			t.Error("the probe holds nothing while it runs")
		}
		return nil
	})
	if _, err := probe.New(h, h.index, store).Probe(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if during != counts || h.index.Counts() != counts {
		t.Errorf("counts %+v before, %+v during, %+v after", counts, during, h.index.Counts())
	}
}

func TestProbesOfOneBackendTakeTurns(t *testing.T) {
	h := newHandlers()
	var inside, most atomic.Int32
	store := storeFunc(func(context.Context, string, []byte) error {
		most.Store(max(most.Load(), inside.Add(1)))
		time.Sleep(time.Millisecond)
		inside.Add(-1)
		return nil
	})
	p := probe.New(h, h.index, store)
	var probes sync.WaitGroup
	for i := range 16 {
		probes.Go(func() {
			req := request
			req.HashScheme = []string{"vllm", "sglang"}[i%2]
			resp, err := p.Probe(t.Context(), req)
			if err != nil || resp.Ingest != "ok" || resp.Routing != "ok" || resp.T2 != "ok" {
				t.Errorf("response %+v, error %v", resp, err)
			}
		})
	}
	probes.Wait()
	if most.Load() != 1 {
		t.Errorf("%d probes of one backend ran at once", most.Load())
	}
}

func TestProbesOfSeveralBackendsDoNotDisturbEachOther(t *testing.T) {
	h := newHandlers()
	p := probe.New(h, h.index, nil)
	var probes sync.WaitGroup
	for i := range 32 {
		probes.Go(func() {
			req := request
			req.Backend = fmt.Sprint("ns/backend-", i)
			resp, err := p.Probe(t.Context(), req)
			if err != nil || resp.Ingest != "ok" || resp.Routing != "ok" || resp.Backend != req.Backend {
				t.Errorf("response %+v, error %v", resp, err)
			}
		})
	}
	probes.Wait()
	if n := h.held(); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

func TestWaitForAnotherProbeEndsWithItsCaller(t *testing.T) {
	h := newHandlers()
	started, release := make(chan struct{}), make(chan struct{})
	p := probe.New(h, h.index, storeFunc(func(context.Context, string, []byte) error {
		close(started)
		<-release
		return nil
	}))
	var first sync.WaitGroup
	first.Go(func() { _, _ = p.Probe(t.Context(), request) })
	<-started
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Probe(ctx, request); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	close(release)
	first.Wait()
}

func TestBackendsHaveBlocksOfTheirOwn(t *testing.T) {
	h := newHandlers()
	names := map[string]probe.Request{}
	for _, req := range []probe.Request{
		{Backend: "ab", Model: "c", HashScheme: "d"},
		{Backend: "a", Model: "bc", HashScheme: "d"},
		{Backend: "c", Model: "ab", HashScheme: "d"},
		{Backend: "ab", Model: "c", HashScheme: "dd"},
		{Backend: "b", Model: "ca", HashScheme: "d"},
		{Backend: "", Model: "abc", HashScheme: "d"},
	} {
		store := storeFunc(func(_ context.Context, name string, value []byte) error {
			if other, taken := names[name]; taken {
				t.Errorf("%+v and %+v share a block", req, other)
			}
			names[name] = req
			if !strings.HasPrefix(string(value), "probe-payload-v1\n") || len(value) != len("probe-payload-v1\n")+32 {
				t.Errorf("payload %q", value)
			}
			return nil
		})
		if _, err := probe.New(h, h.index, store).Probe(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
}

// The name of the probe's tenant must not be one that a client can send.
func TestNoMessageCanNameTheProbesTenant(t *testing.T) {
	number := (&pb.LookupRouteRequest{}).ProtoReflect().Descriptor().Fields().ByName("tenant_id").Number()
	forged := protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), probe.Tenant)
	if err := proto.Unmarshal(forged, &pb.LookupRouteRequest{}); err == nil {
		t.Error("a request with the probe's tenant is read")
	}
	if !strings.HasPrefix(probe.Tenant, contract.ReservedTenant) {
		t.Error("the probe's tenant is not the reserved one")
	}
}

func TestDumpLeavesTheProbeOut(t *testing.T) {
	h := newHandlers()
	var tenants []string
	store := storeFunc(func(context.Context, string, []byte) error {
		probe.Hide(h.index).Dump(index.Filter{}, func(e index.Entry) bool {
			tenants = append(tenants, e.Partition.Tenant)
			return true
		})
		return nil
	})
	if _, err := probe.New(h, h.index, store).Probe(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(tenants, probe.Tenant) {
		t.Errorf("tenants %q", tenants)
	}
}

func TestRequestsOverHTTP(t *testing.T) {
	const good = `{"backend":"ns/b","model":"m","hashScheme":"vllm","backendType":"HiCache"}`
	h := newHandlers()
	handler := probe.New(h, h.index, nil).Handler(slog.New(slog.DiscardHandler))
	long := strings.Repeat("x", 512)
	for name, c := range map[string]struct {
		method, body string
		code         int
		want         string
	}{
		"a probe": {http.MethodPost, good, 200, `{"backend":"ns/b","ingest":"ok","routing":"ok","t2":"skipped",` +
			`"skipped":[{"stage":"t2","message":"backends of type \"HiCache\" keep nothing in the remote store"}]}`},
		"no type":                     {http.MethodPost, `{"backend":"ns/b","model":"m","hashScheme":"vllm"}`, 200, "--t2-redis-address"},
		"another method":              {http.MethodGet, "", 405, "use POST"},
		"no body":                     {http.MethodPost, "", 400, "unexpected end"},
		"no JSON":                     {http.MethodPost, "backend=a", 400, "invalid character"},
		"an unknown field":            {http.MethodPost, `{"backend":"b","model":"m","hashScheme":"s","tenant":"t"}`, 400, `unknown field "tenant"`},
		"something behind":            {http.MethodPost, good + "x", 400, "after top-level value"},
		"no backend":                  {http.MethodPost, `{"model":"m","hashScheme":"s"}`, 400, "backend is missing"},
		"no model":                    {http.MethodPost, `{"backend":"b","hashScheme":"s"}`, 400, "model is missing"},
		"no scheme":                   {http.MethodPost, `{"backend":"b","model":"m"}`, 400, "hashScheme is missing"},
		"a name of another type":      {http.MethodPost, `{"backend":1,"model":"m","hashScheme":"s"}`, 400, "backend"},
		"a name that is too long":     {http.MethodPost, `{"backend":"` + long + `","model":"m","hashScheme":"s"}`, 400, "longer than"},
		"a body that is too long":     {http.MethodPost, good + strings.Repeat(" ", 4<<10), 400, "request body too large"},
		"a body as long as it may be": {http.MethodPost, good + strings.Repeat(" ", 4<<10-len(good)), 200, `"ingest":"ok"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(c.method, "/probe", strings.NewReader(c.body)))
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
				t.Errorf("status %d %s, want %d %s", w.Code, w.Body, c.code, c.want)
			}
			if c.code == 405 && w.Header().Get("Allow") != "POST" {
				t.Errorf("Allow %q", w.Header().Get("Allow"))
			}
		})
	}
}
