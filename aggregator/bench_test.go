package aggregator_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// benchmarkTokens is the prompt length of the benchmarks: 512 blocks of 16 tokens.
const benchmarkTokens = 8192

// BenchmarkLookupRouteRPC is a lookup by token ids over TCP loopback: four replicas hold all, half, a
// quarter and nothing of the prompt.
func BenchmarkLookupRouteRPC(b *testing.B) { benchmarkLookups(b, byTokens) }

// BenchmarkEmptyRPC is the same request of the reserved tenant, which is answered at once: what the
// transport and the decoding of the token ids cost.
func BenchmarkEmptyRPC(b *testing.B) { benchmarkEmpty(b, byTokens) }

// BenchmarkLookupRoutePackedRPC and BenchmarkEmptyPackedRPC are the same with the prompt as packed
// block hashes, which the caller has made: 4 KiB instead of some 24, and nothing to decode.
func BenchmarkLookupRoutePackedRPC(b *testing.B) { benchmarkLookups(b, byPacked) }

// BenchmarkEmptyPackedRPC is what the transport of packed block hashes costs.
func BenchmarkEmptyPackedRPC(b *testing.B) { benchmarkEmpty(b, byPacked) }

func byPacked(ids []uint32) *pb.LookupRouteRequest {
	return &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "vllm", PackedBlockHashes: packed(ids, 16), BlockSize: 16}
}

func benchmarkLookups(b *testing.B, form func([]uint32) *pb.LookupRouteRequest) {
	s := start(b)
	ids := tokens(benchmarkTokens, 100_000)
	a := s.connect(b, "node-1", 1)
	a.apply(&pb.Delta{
		Seq:   1,
		Views: []*pb.View{view(1, "pod-a", 0), view(2, "pod-b", 0), view(3, "pod-c", 0), view(4, "pod-d", 0)},
		Changes: []*pb.Change{
			stored(1, run(ids, 16)), stored(2, run(ids[:benchmarkTokens/2], 16)), stored(3, run(ids[:benchmarkTokens/4], 16)),
		},
	})
	benchmarkRPC(b, s, form(ids), "PREFIX_MATCH")
}

func benchmarkEmpty(b *testing.B, form func([]uint32) *pb.LookupRouteRequest) {
	req := form(tokens(benchmarkTokens, 100_000))
	req.TenantId = "inferencecache.io/probe"
	benchmarkRPC(b, start(b), req, "NO_HINT")
}

// benchmarkRPC sends a request from several callers at once and reports their latencies. The request
// is encoded anew for each call, as by a gateway.
func benchmarkRPC(b *testing.B, s *server, req *pb.LookupRouteRequest, reason string) {
	for _, clients := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("tokens=%d/clients=%d", benchmarkTokens, clients), func(b *testing.B) {
			b.ReportAllocs()
			latencies := make([]time.Duration, b.N)
			var next atomic.Int64
			var work sync.WaitGroup
			b.ResetTimer()
			for range clients {
				work.Go(func() {
					for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
						began := time.Now()
						resp, err := s.LookupRoute(context.Background(), req)
						latencies[i] = time.Since(began)
						if err != nil || resp.ReasonCode != reason {
							b.Errorf("response %v, %v", resp, err)
						}
					}
				})
			}
			work.Wait()
			b.StopTimer()
			slices.Sort(latencies)
			b.ReportMetric(float64(latencies[len(latencies)/2]), "p50-ns")
			b.ReportMetric(float64(latencies[len(latencies)*99/100]), "p99-ns")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "qps")
		})
	}
}
