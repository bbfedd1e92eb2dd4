package aggregator_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/fingerprint"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a running aggregator and a connection to it.
type server struct {
	pb.InferenceCacheClient
	sync    pb.CacheSyncClient
	inspect pb.CacheInspectionClient
	health  grpc_health_v1.HealthClient
	grpc    string // address
	http    string
	admin   string
	stop    func() error // stops the aggregator and waits; may be called again
}

// start runs an aggregator on loopback until the test ends.
func start(t testing.TB, change ...func(*aggregator.Config)) *server {
	t.Helper()
	config := aggregator.Config{
		GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: 16,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	for _, f := range change {
		f(&config)
	}
	a, err := aggregator.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	conn, err := grpc.NewClient(a.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	var stopped error
	s := &server{
		InferenceCacheClient: pb.NewInferenceCacheClient(conn),
		sync:                 pb.NewCacheSyncClient(conn),
		inspect:              pb.NewCacheInspectionClient(conn),
		health:               grpc_health_v1.NewHealthClient(conn),
		grpc:                 a.GRPCAddr(),
		http:                 "http://" + a.HTTPAddr(),
		admin:                "http://" + a.AdminAddr(),
	}
	s.stop = func() error {
		if done != nil {
			cancel()
			stopped = <-done
			done = nil
		}
		return stopped
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
		conn.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

// get returns the status and body of an HTTP endpoint.
func (s *server) get(t *testing.T, path string) (int, string) {
	t.Helper()
	resp, err := http.Get(s.http + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// report sends updates on one stream and returns the Ack.
func (s *server) report(t testing.TB, updates ...*pb.CacheStateUpdate) *pb.Ack {
	t.Helper()
	stream, err := s.ReportCacheState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range updates {
		if err := stream.Send(u); err != nil {
			t.Fatal(err)
		}
	}
	ack, err := stream.CloseAndRecv()
	if err != nil {
		t.Fatal(err)
	}
	return ack
}

func (s *server) lookupRoute(t testing.TB, req *pb.LookupRouteRequest) *pb.LookupRouteResponse {
	t.Helper()
	resp, err := s.LookupRoute(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// tokens returns n token ids of a prompt that seed tells from others.
func tokens(n int, seed uint32) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = seed + uint32(i)
	}
	return ids
}

// packed returns the wire form of a prompt's block hashes.
func packed(ids []uint32, blockSize int) []byte {
	var b []byte
	for _, h := range fingerprint.Chain(ids, blockSize) {
		b = binary.BigEndian.AppendUint64(b, h)
	}
	return b
}

// chain returns the same as separate hashes with their token counts.
func chain(ids []uint32, blockSize int) (hashes [][]byte, counts []int32) {
	for p := packed(ids, blockSize); len(p) > 0; p = p[8:] {
		hashes = append(hashes, p[:8])
		counts = append(counts, int32(blockSize))
	}
	return hashes, counts
}

func chainUpdate(replica string, ids []uint32) *pb.CacheStateUpdate {
	hashes, counts := chain(ids, 16)
	return &pb.CacheStateUpdate{
		ReplicaId: replica, ModelId: "m", TenantId: "t", HashScheme: "vllm",
		Prefixes: []*pb.PrefixEntry{{BlockHashes: hashes, BlockTokenCounts: counts}},
	}
}

// idle is an update that makes a replica a member of its scope, holding nothing.
func idle(replica string) *pb.CacheStateUpdate {
	return &pb.CacheStateUpdate{
		ReplicaId: replica, ModelId: "m", TenantId: "t", HashScheme: "vllm", Stats: &pb.ReplicaStats{},
	}
}

func TestReportedChainIsFoundByEveryInputForm(t *testing.T) {
	s := start(t)
	ids := tokens(128, 1)
	update := chainUpdate("pod-a", ids)
	update.Prefixes[0].PrefixHash, update.Prefixes[0].TokenCount = []byte("whole prompt"), 128
	if ack := s.report(t, update, idle("pod-b")); !ack.Accepted || ack.ReasonCode != "" {
		t.Fatalf("ack %v", ack)
	}
	hashes, counts := chain(ids, 16)
	for name, req := range map[string]*pb.LookupRouteRequest{
		"block hashes":  {BlockHashes: hashes, BlockTokenCounts: counts},
		"packed hashes": {PackedBlockHashes: packed(ids, 16), BlockSize: 16},
		"prefix hash":   {PrefixHash: []byte("whole prompt"), PrefixTokenCount: 128},
		"token ids":     {TokenIds: append(ids, 7, 7, 7)},
	} {
		t.Run(name, func(t *testing.T) {
			req.TenantId, req.ModelId, req.HashScheme = "t", "m", "vllm"
			resp := s.lookupRoute(t, req)
			if resp.ReasonCode != "PREFIX_MATCH" || len(resp.ReplicaScores) != 1 {
				t.Fatalf("response %v", resp)
			}
			got := resp.ReplicaScores[0]
			if got.ReplicaId != "pod-a" || got.MatchedTokens != 128 || got.Tier != pb.CacheTier_CACHE_TIER_T1 {
				t.Errorf("score %v", got)
			}
			if got.Score < 63 || got.Score > 64 { // 128 tokens, nearly fresh, one of two members
				t.Errorf("score %v", got.Score)
			}
		})
	}
}

func TestStubsAnswerAsTheContractStates(t *testing.T) {
	s := start(t)
	ctx := t.Context()
	if r, err := s.RenderTemplate(ctx, &pb.RenderTemplateRequest{}); err != nil || r.ReasonCode != "OK" {
		t.Errorf("RenderTemplate: %v, %v", r, err)
	}
	if r, err := s.LookupPDRoute(ctx, &pb.LookupPDRouteRequest{}); err != nil || r.ReasonCode != "NO_HINT" {
		t.Errorf("LookupPDRoute: %v, %v", r, err)
	}
	events, err := s.StreamCacheEvents(ctx, &pb.StreamEventsRequest{})
	if err == nil {
		_, err = events.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("StreamCacheEvents: %v", err)
	}
	series, err := s.StreamMetrics(ctx, &pb.StreamMetricsRequest{})
	if err == nil {
		_, err = series.Recv()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("StreamMetrics: %v", err)
	}
}

func TestReservedTenantIsKeptOut(t *testing.T) {
	const reserved = "inferencecache.io/probe"
	s := start(t)
	update := chainUpdate("pod-a", tokens(64, 1))
	update.TenantId = reserved
	if ack := s.report(t, update); !ack.Accepted {
		t.Errorf("report: %v", ack)
	}
	event := &pb.CacheEvent{Type: pb.CacheEvent_ALL_CLEARED, TenantId: reserved}
	if ack, err := s.PublishEvent(t.Context(), event); err != nil || !ack.Accepted {
		t.Errorf("event: %v, %v", ack, err)
	}
	resp := s.lookupRoute(t, &pb.LookupRouteRequest{TenantId: reserved, ModelId: "m", HashScheme: "vllm", TokenIds: tokens(64, 1)})
	if resp.ReasonCode != "NO_HINT" || len(resp.ReplicaScores) != 0 || resp.LookupLatencyUs != 0 {
		t.Errorf("lookup: %v", resp)
	}
	state, err := s.GetCacheState(t.Context(), &pb.GetCacheStateRequest{TenantId: reserved, ModelId: "m"})
	if err != nil || state.Summary.TotalPrefixes != 0 || len(state.Replicas) != 0 {
		t.Errorf("state: %v, %v", state, err)
	}
	if n := len(s.dump(t, &pb.DumpIndexRequest{})); n != 0 {
		t.Errorf("dump has %d entries", n)
	}
}

func (s *server) dump(t testing.TB, req *pb.DumpIndexRequest) []*pb.IndexEntry {
	t.Helper()
	stream, err := s.inspect.DumpIndex(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	var all []*pb.IndexEntry
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, resp.Entries...)
	}
}

func TestCacheStateAndDumpShowWhatIsReported(t *testing.T) {
	s := start(t)
	a := chainUpdate("pod-a", tokens(10_000*16, 1))
	a.Stats = &pb.ReplicaStats{HitRate: 0.5, Pressure: 7, CacheMemoryBytes: -1, ClientVersion: "v1"}
	s.report(t, a, chainUpdate("pod-b", tokens(32, 1)))
	state, err := s.GetCacheState(t.Context(), &pb.GetCacheStateRequest{TenantId: "t", ModelId: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if state.Summary.TotalPrefixes != 10_000 || len(state.Replicas) != 1 {
		t.Errorf("state %v", state)
	}
	if r := state.Replicas[0]; r.ReplicaId != "pod-a" || r.Pressure != 1 || r.CacheMemoryBytes != 0 || r.ClientVersion != "v1" {
		t.Errorf("replica %v", r)
	}
	if n := len(s.dump(t, &pb.DumpIndexRequest{})); n != 10_002 {
		t.Errorf("dump of all has %d entries", n)
	}
	entries := s.dump(t, &pb.DumpIndexRequest{TenantId: "t", ModelId: "m", ReplicaId: "pod-b"})
	if len(entries) != 2 || entries[0].Tokens != 16 || len(entries[0].Hash) != 8 || entries[0].HashScheme != "vllm" {
		t.Errorf("dump of pod-b: %v", entries)
	}
}

func TestEveryMetricOfTheContractIsThere(t *testing.T) {
	s := start(t)
	s.report(t, chainUpdate("pod-a", tokens(64, 1)))
	for range 3 {
		s.lookupRoute(t, &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "vllm", TokenIds: tokens(64, 1)})
	}
	s.lookupRoute(t, &pb.LookupRouteRequest{TenantId: "t", ModelId: "made up by a caller", HashScheme: "vllm", TokenIds: tokens(64, 1)})
	code, body := s.get(t, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("status %d", code)
	}
	for _, want := range []string{
		"inferencecache_server_up 1\n",
		"inferencecache_server_grpc_tls_enabled 0\n",
		`inferencecache_index_entries{model="m"} 4` + "\n",
		`inferencecache_lookup_route_calls_total{hint_used="true",model="m",reason_code="PREFIX_MATCH"} 3` + "\n",
		`inferencecache_lookup_route_calls_total{hint_used="false",model="other",reason_code="UNKNOWN_MODEL"} 1` + "\n",
		`inferencecache_lookup_route_latency_seconds_count{model="m"} 3` + "\n",
		`inferencecache_lookup_route_latency_seconds_bucket{model="m",le="0.00025"}`,
		"go_goroutines", "process_open_fds",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(body, "made up") {
		t.Error("a model that only a caller named has a series")
	}
}

func TestProbesFollowTheServer(t *testing.T) {
	s := start(t)
	resp, err := s.health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil || resp.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("gRPC health: %v, %v", resp, err)
	}
	if code, body := s.get(t, "/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("healthz: %d %q", code, body)
	}
	if code, body := s.get(t, "/readyz"); code != 200 || !strings.HasPrefix(body, "ok\n") {
		t.Errorf("readyz: %d %q", code, body)
	}
}

func TestStopEndsEveryOpenStream(t *testing.T) {
	s := start(t)
	ctx := t.Context()
	report, err := s.ReportCacheState(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Send(chainUpdate("pod-a", tokens(64, 1))); err != nil {
		t.Fatal(err)
	}
	agent := s.connect(t, "node-1", 1)
	watch, err := s.health.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	if err := s.stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if took := time.Since(began); took > time.Minute { // open streams would hold it up for ever
		t.Errorf("stop took %v", took)
	}
	if _, err := report.CloseAndRecv(); status.Code(err) != codes.Unavailable {
		t.Errorf("report stream: %v", err)
	}
	if _, err := agent.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("agent stream: %v", err)
	}
	for err == nil {
		_, err = watch.Recv()
	}
}

func TestBadConfigurationIsRefused(t *testing.T) {
	for name, config := range map[string]aggregator.Config{
		"no block size":        {GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0"},
		"a negative index":     {GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: 16, MaxIndexEntries: -1},
		"a bad gRPC address":   {GRPCAddress: "nowhere", HTTPAddress: "127.0.0.1:0", BlockSize: 16},
		"an unusable HTTP one": {GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:99999", BlockSize: 16},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := aggregator.New(config); err == nil {
				t.Error("no error")
			}
		})
	}
}
