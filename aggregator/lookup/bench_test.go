package lookup

import (
	"encoding/binary"
	"testing"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/fingerprint"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/runs"
)

// BenchmarkDecision is a lookup without its transport: a prompt of 8192 tokens, of which four replicas
// hold all, half, a quarter and nothing, or nobody anything. Token ids are hashed as far as they match,
// and to the end where affinity needs the whole chain.
func BenchmarkDecision(b *testing.B) {
	ids := prompt(8192, 1)
	for _, state := range []struct {
		name  string
		holds []int
	}{{"all", []int{8192, 4096, 2048}}, {"eighth", []int{1024}}, {"nothing", nil}} {
		for name, form := range map[string]func([]uint32) *pb.LookupRouteRequest{"tokens": byTokens, "packed": byPacked} {
			b.Run("form="+name+"/held="+state.name, func(b *testing.B) {
				w := newWorld(b)
				w.Index = runs.New(index.Config{Reserved: contract.ReservedTenant})
				w.hold("z", prompt(16, 9)).join("a", "b", "c", "d")
				for i, n := range state.holds {
					w.hold(string(rune('a'+i)), ids[:n])
				}
				req := form(ids)
				b.ReportAllocs()
				for b.Loop() {
					w.ask(req)
				}
			})
		}
	}
}

func byPacked(ids []uint32) *pb.LookupRouteRequest {
	return request(func(r *pb.LookupRouteRequest) {
		r.BlockSize = 16
		for _, h := range fingerprint.Chain(ids, 16) {
			r.PackedBlockHashes = binary.BigEndian.AppendUint64(r.PackedBlockHashes, h)
		}
	})
}
