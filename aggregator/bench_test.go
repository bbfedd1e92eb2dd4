package aggregator_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// benchmarkTokens is the prompt length of the benchmarks: 512 blocks of 16 tokens.
const benchmarkTokens = 8192

// BenchmarkLookupRouteRPC is a lookup by token ids over TCP loopback: four replicas hold all, half, a
// quarter and nothing of the prompt.
func BenchmarkLookupRouteRPC(b *testing.B) {
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
	benchmarkRPC(b, s, byTokens(ids), "PREFIX_MATCH")
}

// BenchmarkEmptyRPC is the same request of the reserved tenant, which is answered at once: what the
// transport and the decoding of the token ids cost.
func BenchmarkEmptyRPC(b *testing.B) {
	s := start(b)
	req := byTokens(tokens(benchmarkTokens, 100_000))
	req.TenantId = "inferencecache.io/probe"
	benchmarkRPC(b, s, req, "NO_HINT")
}

func benchmarkRPC(b *testing.B, s *server, req *pb.LookupRouteRequest, reason string) {
	for _, clients := range []int{1, 8} {
		b.Run(fmt.Sprintf("tokens=%d/clients=%d", benchmarkTokens, clients), func(b *testing.B) {
			b.ReportAllocs()
			latencies := make([]time.Duration, b.N)
			next := make(chan int)
			var work sync.WaitGroup
			for range clients {
				work.Go(func() {
					for i := range next {
						began := time.Now()
						resp, err := s.LookupRoute(context.Background(), req)
						latencies[i] = time.Since(began)
						if err != nil || resp.ReasonCode != reason {
							b.Errorf("response %v, %v", resp, err)
						}
					}
				})
			}
			b.ResetTimer()
			for i := range b.N {
				next <- i
			}
			close(next)
			work.Wait()
			b.StopTimer()
			slices.Sort(latencies)
			b.ReportMetric(float64(latencies[len(latencies)/2]), "p50-ns")
			b.ReportMetric(float64(latencies[len(latencies)*99/100]), "p99-ns")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "qps")
		})
	}
}
