package command_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/fingerprint"
	icpb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/tlsconfig"
)

// startAggregator runs an aggregator and returns its gRPC address.
func startAggregator(t *testing.T) string {
	t.Helper()
	return startWith(t, nil)
}

// startWith is startAggregator with certificates.
func startWith(t *testing.T, certificates *tlsconfig.Source) string {
	t.Helper()
	a, err := aggregator.New(aggregator.Config{
		GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: 16, TLS: certificates, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.Run(ctx); err != nil {
			t.Errorf("aggregator: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return a.GRPCAddr()
}

// report tells the aggregator that a replica holds the blocks of a prompt.
func report(t *testing.T, address, replica string, tokens []uint32) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := icpb.NewInferenceCacheClient(conn).ReportCacheState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entry := &icpb.PrefixEntry{}
	for _, h := range fingerprint.Chain(tokens, 16) {
		key := fingerprint.Key(h)
		entry.BlockHashes = append(entry.BlockHashes, key[:])
		entry.BlockTokenCounts = append(entry.BlockTokenCounts, 16)
	}
	if err := stream.Send(&icpb.CacheStateUpdate{
		ReplicaId: replica, ModelId: "m", TenantId: "default", HashScheme: "vllm", Prefixes: []*icpb.PrefixEntry{entry},
		Stats: &icpb.ReplicaStats{ReplicaId: replica, Pressure: 0.25},
	}); err != nil {
		t.Fatal(err)
	}
	if ack, err := stream.CloseAndRecv(); err != nil || !ack.GetAccepted() {
		t.Fatalf("ack %v, error %v", ack, err)
	}
}

func TestVerbs_AgreeOverOneAggregator(t *testing.T) {
	address := startAggregator(t)
	tokens := make([]uint32, 130)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	report(t, address, "vllm-0", tokens)
	report(t, address, "vllm-1", tokens[:32])
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(tokens), " ", ","), "[]")
	ask := func(args ...string) string {
		t.Helper()
		got := run(t, list, append(args, "--server", address)...)
		if got.code != 0 {
			t.Fatalf("%v: exit %d, %s", args, got.code, got.stderr)
		}
		return got.stdout
	}

	hashes := strings.Fields(run(t, list, "hash", "--tokens-file", "-").stdout)
	for _, form := range [][]string{{"--tokens", list}, {"--tokens-file", "-"}, {"--block-hashes", strings.Join(hashes, ",")}} {
		answer := ask(append([]string{"lookup", "--model", "m"}, form...)...)
		if !strings.HasPrefix(answer, "PREFIX_MATCH in ") || !strings.Contains(answer, "\nvllm-0   0     128      T1 ") {
			t.Errorf("lookup %s answers\n%s", form[0], answer)
		}
	}

	if state := ask("state", "--model", "m"); !strings.HasPrefix(state, "8 prefixes") || !strings.Contains(state, "\nvllm-1   0.250 ") {
		t.Errorf("state is\n%s", state)
	}

	dumped := make(map[string]bool)
	for line := range strings.Lines(ask("dump", "--replica", "vllm-0", "-o", "json")) {
		var block struct{ Replica, Hash, Tier string }
		if err := json.Unmarshal([]byte(line), &block); err != nil || block.Replica != "vllm-0" || block.Tier != "T1" {
			t.Fatalf("line %q: %v", line, err)
		}
		dumped[block.Hash] = true
	}
	for _, h := range hashes {
		if !dumped[h] || len(dumped) != len(hashes) {
			t.Errorf("%d blocks are dumped, hash %s among them: %v", len(dumped), h, dumped[h])
		}
	}
}
