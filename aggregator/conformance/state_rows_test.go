package conformance

import (
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/inferencecache/inferencecache/aggregator/policy"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// asked asks a number of times.
func asked(times int, changes ...change) act {
	return func(s *session) (*pb.Ack, error) {
		req := proto.CloneOf(ask(changes...))
		req.TenantId = s.tenant
		for range times {
			if _, err := s.LookupRoute(s.ctx, req, grpc.WaitForReady(true)); err != nil {
				return nil, err
			}
		}
		return &pb.Ack{Accepted: true}, nil
	}
}

// stateOf checks the state of a model of the row's tenant.
func stateOf(model string, check func(*pb.GetCacheStateResponse) error) act {
	return func(s *session) (*pb.Ack, error) {
		state, err := s.GetCacheState(s.ctx, &pb.GetCacheStateRequest{TenantId: s.tenant, ModelId: model})
		if err == nil {
			err = check(state)
		}
		return &pb.Ack{Accepted: true}, err
	}
}

// hotRows are about the prefixes that answers rest on. An aggregator that the test starts takes 8 uses.
func hotRows() []row {
	hot := func(want int64) act {
		return stateOf("m", func(r *pb.GetCacheStateResponse) error {
			if got := r.GetSummary().GetHotPrefixes(); got != want {
				return fmt.Errorf("%d hot prefixes, want %d", got, want)
			}
			return nil
		})
	}
	both := func(u *pb.CacheStateUpdate) { u.AdapterId = "lora" }
	given := func(acts ...act) []act { return append(all(hold("a", long), join("b")), acts...) }
	rows := []row{
		{rule: "a prefix is hot from eight answers on", given: given(asked(8, tokens(long)), hot(1))},
		{rule: "seven do not make it hot", given: given(asked(7, tokens(long)), hot(0))},
		{rule: "what nobody asks for is not hot", given: given(hot(0))},
		{rule: "each longest match is a prefix of its own", given: given(asked(8, tokens(long)), asked(8, tokens(long[:128])), hot(2))},
		{rule: "prompts that part behind the match have one prefix", given: given(
			asked(4, tokens(append(long[:128:128], prompt(64, 7)...))), asked(4, tokens(append(long[:128:128], prompt(64, 8)...))), hot(1),
		)},
		{rule: "in whatever form they come", given: given(asked(4, tokens(long)), asked(2, packed(long)), asked(2, chain(long)), hot(1))},
		{rule: "an opaque prefix counts too", given: all(holdWhole("a", "key", 100), join("b"), asked(8, hash("key", 100)), hot(1))},
		{rule: "under an adapter it is another prefix", given: given(
			updateWith("a", both, blocks(long)), asked(4, tokens(long)), asked(4, tokens(long), adapter("lora")), hot(0),
		)},
		{rule: "a miss makes nothing hot", given: given(asked(9, tokens(prompt(256, 9))), hot(0))},
		{rule: "a match that is withheld makes nothing hot", policy: func(p *policy.Policy) { p.MinimumMatchedTokens = 1000 }, given: given(asked(9, tokens(long)), hot(0))},
		{rule: "an affinity hint makes nothing hot", given: all(hold("a", long), hold("b", long), asked(9, tokens(long)), hot(0))},
		{rule: "nor does a warm replica", given: given(stats("a", 0.9, 0), asked(9, hash("new", 1)), hot(0))},
		{rule: "another model's prefixes are its own", given: given(asked(8, tokens(long)), stateOf("m2", func(r *pb.GetCacheStateResponse) error {
			if r.GetSummary().GetHotPrefixes() != 0 {
				return fmt.Errorf("summary %v", r.GetSummary())
			}
			return nil
		}))},
	}
	return own(rows)
}

func own(rows []row) []row {
	for i := range rows {
		rows[i].own = true
	}
	return rows
}

// declare is what an agent says of caches of replica a, one for each certainty: ranks from 0 on. All of
// them hold long. The stream stays open until the row ends.
func declare(version string, certainties ...pb.ViewCertainty) act {
	return func(s *session) (*pb.Ack, error) {
		stream, err := pb.NewCacheSyncClient(s.conn).Sync(s.ctx, grpc.WaitForReady(true))
		if err != nil {
			return nil, err
		}
		d := &pb.Delta{Seq: 1, Complete: true}
		for rank, certainty := range certainties {
			ref := uint32(rank + 1)
			d.Views = append(d.Views, &pb.View{Ref: ref, ReplicaId: "a", Rank: int32(rank), TenantId: s.tenant, ModelId: "m", HashScheme: "vllm"})
			d.Changes = append(d.Changes, &pb.Change{View: ref, Stored: []*pb.Run{{
				Keys: ask(packed(long)).PackedBlockHashes, BlockTokens: 16, Tier: pb.CacheTier_CACHE_TIER_T1,
			}}})
			if certainty != pb.ViewCertainty_VIEW_CERTAINTY_UNSPECIFIED {
				d.States = append(d.States, &pb.ViewState{View: ref, Certainty: certainty})
			}
		}
		hello := &pb.Hello{AgentId: "agent-" + s.tenant, AgentEpoch: 1, AgentVersion: version}
		for _, m := range []*pb.SyncRequest{{Message: &pb.SyncRequest_Hello{Hello: hello}}, {Message: &pb.SyncRequest_Delta{Delta: d}}} {
			if err := stream.Send(m); err != nil {
				return nil, err
			}
			if _, err := stream.Recv(); err != nil {
				return nil, err
			}
		}
		return &pb.Ack{Accepted: true}, nil
	}
}

// viewRows are about who vouches for what is known of a cache.
func viewRows() []row {
	// views wants replica/rank scheme certainty version of each view, in order.
	views := func(want ...string) act {
		return stateOf("m", func(r *pb.GetCacheStateResponse) error {
			var got []string
			for _, v := range r.GetViews() {
				certainty := strings.ToLower(strings.TrimPrefix(v.GetCertainty().String(), "VIEW_CERTAINTY_"))
				got = append(got, fmt.Sprintf("%s/%d %s %s %s", v.GetReplicaId(), v.GetRank(), v.GetHashScheme(), certainty, v.GetAgentVersion()))
			}
			if g, w := strings.Join(got, ", "), strings.Join(want, ", "); g != w {
				return fmt.Errorf("views %q, want %q", g, w)
			}
			return nil
		})
	}
	const exact, partial, uncertain = pb.ViewCertainty_VIEW_CERTAINTY_EXACT, pb.ViewCertainty_VIEW_CERTAINTY_PARTIAL, pb.ViewCertainty_VIEW_CERTAINTY_UNCERTAIN
	sglang := func(u *pb.CacheStateUpdate) { u.HashScheme = "sglang" }
	return own([]row{
		{rule: "a reported replica has nobody who vouches for it", given: all(hold("b", long), join("a"), views("a/0 vllm unspecified ", "b/0 vllm unspecified "))},
		{rule: "each scheme is a view of its own", given: all(hold("a", long), updateWith("a", sglang, whole("k", 1)), views("a/0 sglang unspecified ", "a/0 vllm unspecified "))},
		{rule: "an agent's certainty is told rank by rank", given: all(declare("v1", exact, partial, uncertain), views("a/0 vllm exact v1", "a/1 vllm partial v1", "a/2 vllm uncertain v1"))},
		{rule: "an agent of an earlier version says nothing", given: all(declare("", 0), views("a/0 vllm unspecified "))},
		{rule: "a certainty of a later version is as bad as any", given: all(declare("v9", 77), views("a/0 vllm uncertain v9"))},
		{rule: "what is uncertain is hinted all the same while it is fresh", given: all(declare("v1", uncertain), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256"},
		{rule: "a model that nobody serves has no views", given: all(hold("a", long), stateOf("m2", func(r *pb.GetCacheStateResponse) error {
			if len(r.GetViews()) != 0 {
				return fmt.Errorf("views %v", r.GetViews())
			}
			return nil
		}))},
	})
}
