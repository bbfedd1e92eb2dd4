package client_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/client"
	"github.com/inferencecache/inferencecache/fingerprint"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/loopback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answering is a server that answers what the test wants, over a real connection: an aggregator gives
// some answers only rarely, and those of later versions never.
type answering struct {
	pb.UnimplementedInferenceCacheServer
	answer func(context.Context) (*pb.LookupRouteResponse, error)
}

func (a *answering) LookupRoute(ctx context.Context, _ *pb.LookupRouteRequest) (*pb.LookupRouteResponse, error) {
	return a.answer(ctx)
}

// serve returns a client of a server.
func serve(t *testing.T, answer func(context.Context) (*pb.LookupRouteResponse, error), change ...func(*client.Config)) *client.Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterInferenceCacheServer(server, &answering{answer: answer})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return connect(t, listener.Addr().String(), change...)
}

func connect(t *testing.T, target string, change ...func(*client.Config)) *client.Client {
	t.Helper()
	config := client.Config{Target: target, Deadline: 5 * time.Second}
	for _, f := range change {
		f(&config)
	}
	c, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestEveryReasonIsOneToRouteBy(t *testing.T) {
	scores := []*pb.ReplicaScore{{ReplicaId: "a"}, {ReplicaId: "b"}}
	for code, want := range map[string]struct {
		reason        string
		hints         int
		misconfigured bool
	}{
		"PREFIX_MATCH":          {client.PrefixMatch, 2, false},
		"TENANT_HOT":            {client.TenantHot, 2, false},
		"AFFINITY_HINT":         {client.AffinityHint, 2, false},
		"NO_HINT":               {client.NoHint, 0, false},
		"TIMEOUT":               {client.Timeout, 0, false},
		"POLICY_REQUIRES_CHAIN": {client.PolicyRequiresChain, 0, true},
		"UNKNOWN_TENANT":        {client.UnknownTenant, 0, true},
		"UNKNOWN_MODEL":         {client.UnknownModel, 0, true},
		"UNKNOWN_HASH_SCHEME":   {client.UnknownHashScheme, 0, true},
		"CODE_OF_A_LATER_YEAR":  {client.NoHint, 0, false},
		"":                      {client.NoHint, 0, false},
	} {
		t.Run("code "+code, func(t *testing.T) {
			c := serve(t, func(context.Context) (*pb.LookupRouteResponse, error) {
				return &pb.LookupRouteResponse{ReasonCode: code, ReplicaScores: scores}, nil
			})
			a := c.LookupRoute(t.Context(), &pb.LookupRouteRequest{})
			if a.Err != nil || a.Reason() != want.reason || len(a.Ranked()) != want.hints || a.Misconfigured() != want.misconfigured {
				t.Errorf("reason %s, %d hints, misconfigured %v, error %v", a.Reason(), len(a.Ranked()), a.Misconfigured(), a.Err)
			}
			if _, ok := a.Best(nil); ok != (want.hints > 0) {
				t.Errorf("best: %v", ok)
			}
		})
	}
}

func TestBestSkipsWhatCannotBeReached(t *testing.T) {
	a := client.Answer{Response: &pb.LookupRouteResponse{ReasonCode: "PREFIX_MATCH", ReplicaScores: []*pb.ReplicaScore{{ReplicaId: "a"}, {ReplicaId: "b"}}}}
	if best, ok := a.Best(func(r string) bool { return r != "a" }); !ok || best.ReplicaId != "b" {
		t.Errorf("best %v, %v", best, ok)
	}
	if best, ok := a.Best(func(string) bool { return false }); ok {
		t.Errorf("best %v of none", best)
	}
}

func TestWhateverGoesWrongTheAnswerIsTimeout(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed, err := net.Listen("tcp", loopback.Host()+":0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	short := func(c *client.Config) { c.Deadline = 50 * time.Millisecond }
	stuck := func(ctx context.Context) (*pb.LookupRouteResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, c := range map[string]*client.Client{
		"nobody listens":                 connect(t, closed.Addr().String(), short),
		"somebody listens and is silent": connect(t, silent.Addr().String(), short),
		"the server takes too long":      serve(t, stuck, short),
		"the server fails": serve(t, func(context.Context) (*pb.LookupRouteResponse, error) {
			return nil, status.Error(codes.Internal, "broken")
		}),
		"the server panics the stream": serve(t, func(context.Context) (*pb.LookupRouteResponse, error) {
			return nil, status.Error(codes.Unavailable, "going away")
		}),
	} {
		t.Run(name, func(t *testing.T) {
			a := c.LookupRoute(t.Context(), &pb.LookupRouteRequest{})
			if a.Err == nil || a.Reason() != client.Timeout || len(a.Ranked()) != 0 {
				t.Errorf("answer %v, error %v", a.Response, a.Err)
			}
			if a.Took > 30*time.Second { // far beyond the deadline, and far less than for ever
				t.Errorf("took %s", a.Took)
			}
		})
	}
}

func TestTheCallersDeadlineWinsIfItIsSooner(t *testing.T) {
	c := serve(t, func(ctx context.Context) (*pb.LookupRouteResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}, func(c *client.Config) { c.Deadline = time.Hour })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if a := c.LookupRoute(ctx, &pb.LookupRouteRequest{}); a.Reason() != client.Timeout || status.Code(a.Err) != codes.DeadlineExceeded {
		t.Errorf("answer %v, error %v", a.Response, a.Err)
	}
}

func TestEachAnswerIsObserved(t *testing.T) {
	var seen []string
	c := serve(t, func(context.Context) (*pb.LookupRouteResponse, error) {
		return &pb.LookupRouteResponse{ReasonCode: "NO_HINT"}, nil
	}, func(c *client.Config) { c.Observe = func(a client.Answer) { seen = append(seen, a.Reason()) } })
	c.LookupRoute(t.Context(), &pb.LookupRouteRequest{})
	c.Close()
	c.LookupRoute(t.Context(), &pb.LookupRouteRequest{})
	if !slices.Equal(seen, []string{client.NoHint, client.Timeout}) {
		t.Errorf("seen %q", seen)
	}
}

func TestBadConfigurationIsNamed(t *testing.T) {
	for name, config := range map[string]client.Config{
		"no target":           {},
		"a negative deadline": {Target: "x:1", Deadline: -1},
		"an unusable target":  {Target: "nowhere://x\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			if c, err := client.New(config); err == nil {
				c.Close()
				t.Error("no error")
			}
		})
	}
}

func TestSetPromptPacksTheChain(t *testing.T) {
	tokens := make([]uint32, 100)
	for i := range tokens {
		tokens[i] = uint32(i * i)
	}
	var want []byte
	for _, h := range fingerprint.Chain(tokens, 16) {
		key := fingerprint.Key(h)
		want = append(want, key[:]...)
	}
	req := &pb.LookupRouteRequest{PackedBlockHashes: []byte("of an earlier prompt")}
	if err := client.SetPrompt(req, tokens, 16); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(req.PackedBlockHashes, want) || req.BlockSize != 16 {
		t.Errorf("packed %x in blocks of %d, want %x", req.PackedBlockHashes, req.BlockSize, want)
	}
	if err := client.SetPrompt(req, tokens, 0); err == nil {
		t.Error("a block size of 0 is taken")
	}
	if err := client.SetPrompt(req, tokens[:15], 16); err != nil || len(req.PackedBlockHashes) != 0 {
		t.Errorf("less than a block: %x, %v", req.PackedBlockHashes, err)
	}
}

// startAggregator runs an aggregator on loopback; stop waits for its end.
func startAggregator() (address string, stop func(), err error) {
	a, err := aggregator.New(aggregator.Config{
		GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: 16, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stop = func() {
		cancel()
		<-done
	}
	return a.GRPCAddr(), stop, nil
}

func TestALookupOutlivesItsAggregator(t *testing.T) {
	address, stop, err := startAggregator()
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, address)
	req := &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "vllm"}
	if err := client.SetPrompt(req, make([]uint32, 64), 16); err != nil {
		t.Fatal(err)
	}
	if a := c.LookupRoute(t.Context(), req); a.Err != nil || a.Reason() != client.NoHint {
		t.Errorf("answer %v, error %v", a.Response, a.Err)
	}
	stop()
	if a := c.LookupRoute(t.Context(), req); a.Err == nil || a.Reason() != client.Timeout {
		t.Errorf("answer %v, error %v", a.Response, a.Err)
	}
}

func BenchmarkSetPrompt(b *testing.B) {
	tokens, req := make([]uint32, 8192), &pb.LookupRouteRequest{}
	b.ReportAllocs()
	for b.Loop() {
		if err := client.SetPrompt(req, tokens, 16); err != nil {
			b.Fatal(err)
		}
	}
}
