package lookup

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/aggregator/metrics"
	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/rank"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	"github.com/inferencecache/inferencecache/fingerprint"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/reference"
)

// t0 is when every test begins.
var t0 = time.Unix(1_700_000_000, 0)

var scope = index.Scope{Tenant: "t", Model: "m", Scheme: "vllm"}

// world is a service with its surroundings. Its clock stands still.
type world struct {
	*Service
	t        testing.TB
	now      time.Time
	policy   policy.Policy
	credited map[index.Holder]int
}

// creditedIndex notes what is credited.
type creditedIndex struct {
	index.Index
	w *world
}

func (x creditedIndex) Credit(q index.Query, h index.Holder, blocks int) {
	x.w.credited[h] += blocks
	x.Index.Credit(q, h, blocks)
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, now: t0, policy: policy.Default(), credited: map[index.Holder]int{}}
	x := creditedIndex{reference.New(index.Config{Reserved: contract.ReservedTenant}), w}
	w.Service = New(Config{
		Index: x, Registry: registry.New(registry.Config{}), Metrics: metrics.New(x), Rank: rank.Default(), BlockSize: 16,
		Policy: func(string) *policy.Policy { return &w.policy },
		Now:    func() time.Time { return w.now },
	})
	return w
}

// join makes replicas members of the scope as a public report does, which leaves them undeclared.
func (w *world) join(replicas ...string) *world {
	for _, r := range replicas {
		if err := w.Registry.Report(scope, index.Holder{Replica: r}, 0, w.now); err != nil {
			w.t.Fatal(err)
		}
	}
	return w
}

// hold makes a replica a member that holds the leading tokens of a prompt in blocks of 16.
func (w *world) hold(replica string, prompt []uint32) *world {
	w.join(replica)
	keys := index.Keys{Words: fingerprint.Chain(prompt, 16)}
	w.Index.Store(index.Partition{Scope: scope}, index.Holder{Replica: replica},
		index.Run{Keys: keys, BlockTokens: 16, Tier: index.T1, Evidence: index.At(w.now)}, index.At(w.now))
	return w
}

// holdKey makes a replica a member that holds a whole prefix under an opaque key.
func (w *world) holdKey(replica, key string, tokens int32) *world {
	w.join(replica)
	w.Index.Store(index.Partition{Scope: scope}, index.Holder{Replica: replica},
		index.Run{Keys: index.Keys{Wide: []string{key}}, BlockTokens: tokens, Tier: index.T1, Evidence: index.At(w.now)}, index.At(w.now))
	return w
}

func (w *world) stats(replica string, hitRate, pressure float32) *world {
	s := registry.Stats{HitRate: hitRate, Pressure: pressure, Reported: w.now}
	if err := w.Registry.SetStats("t", "m", index.Holder{Replica: replica}, s, w.now); err != nil {
		w.t.Fatal(err)
	}
	return w.join(replica)
}

func (w *world) ask(req *pb.LookupRouteRequest) *pb.LookupRouteResponse {
	return w.LookupRoute(context.Background(), req)
}

// prompt returns n token ids that seed tells from others.
func prompt(n int, seed uint32) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = seed<<16 + uint32(i)
	}
	return ids
}

func request(change ...func(*pb.LookupRouteRequest)) *pb.LookupRouteRequest {
	req := &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "vllm"}
	for _, f := range change {
		f(req)
	}
	return req
}

func byTokens(ids []uint32) *pb.LookupRouteRequest {
	return request(func(r *pb.LookupRouteRequest) { r.TokenIds = ids })
}

func byHash(key string) *pb.LookupRouteRequest {
	return request(func(r *pb.LookupRouteRequest) { r.PrefixHash = []byte(key) })
}

func byChain(ids []uint32) *pb.LookupRouteRequest {
	return request(func(r *pb.LookupRouteRequest) {
		for _, h := range fingerprint.Chain(ids, 16) {
			key := fingerprint.Key(h)
			r.BlockHashes = append(r.BlockHashes, key[:])
			r.BlockTokenCounts = append(r.BlockTokenCounts, 16)
		}
	})
}

// brief says a response in one line: reason, then replica:tokens for each score.
func brief(resp *pb.LookupRouteResponse) string {
	s := resp.ReasonCode
	for _, r := range resp.ReplicaScores {
		s += fmt.Sprintf(" %s:%d", r.ReplicaId, r.MatchedTokens)
	}
	return s
}
