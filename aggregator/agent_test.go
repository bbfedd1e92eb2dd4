package aggregator_test

import (
	"encoding/binary"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/fingerprint"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// agentStream is what a test plays an agent with.
type agentStream struct {
	grpc.BidiStreamingClient[pb.SyncRequest, pb.SyncResponse]
	t       testing.TB
	welcome *pb.Welcome
}

// connect opens a stream and says Hello.
func (s *server) connect(t testing.TB, agent string, epoch uint64) *agentStream {
	t.Helper()
	return s.greet(t, &pb.Hello{AgentId: agent, AgentEpoch: epoch})
}

func (s *server) greet(t testing.TB, hello *pb.Hello) *agentStream {
	t.Helper()
	stream, err := s.sync.Sync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a := &agentStream{BidiStreamingClient: stream, t: t}
	if err := stream.Send(&pb.SyncRequest{Message: &pb.SyncRequest_Hello{Hello: hello}}); err != nil {
		t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if a.welcome = resp.GetWelcome(); a.welcome == nil {
		t.Fatalf("first response %v", resp)
	}
	return a
}

// post sends a delta without waiting.
func (a *agentStream) post(d *pb.Delta) {
	a.t.Helper()
	if err := a.Send(&pb.SyncRequest{Message: &pb.SyncRequest_Delta{Delta: d}}); err != nil {
		a.t.Fatal(err)
	}
}

// apply sends a delta and returns its ack.
func (a *agentStream) apply(d *pb.Delta) *pb.DeltaAck {
	a.t.Helper()
	a.post(d)
	resp, err := a.Recv()
	if err != nil {
		a.t.Fatal(err)
	}
	if ack := resp.GetAck(); ack == nil || ack.Seq != d.Seq || ack.BootId != a.welcome.BootId {
		a.t.Fatalf("response %v to delta %d", resp, d.Seq)
	}
	return resp.GetAck()
}

// end closes the stream from the agent's side and waits until the aggregator has noticed.
func (a *agentStream) end() {
	a.t.Helper()
	if err := a.CloseSend(); err != nil {
		a.t.Fatal(err)
	}
	for {
		if _, err := a.Recv(); err != nil {
			return
		}
	}
}

func view(ref uint32, replica string, rank int32) *pb.View {
	return &pb.View{Ref: ref, ReplicaId: replica, Rank: rank, TenantId: "t", ModelId: "m", HashScheme: "vllm"}
}

func run(ids []uint32, blockSize int) *pb.Run {
	return &pb.Run{Keys: packed(ids, blockSize), BlockTokens: uint32(blockSize), Tier: pb.CacheTier_CACHE_TIER_T1}
}

func stored(ref uint32, runs ...*pb.Run) *pb.Change { return &pb.Change{View: ref, Stored: runs} }

func byTokens(ids []uint32) *pb.LookupRouteRequest {
	return &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "vllm", TokenIds: ids}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestAgentTableIsFound(t *testing.T) {
	s := start(t)
	a := s.connect(t, "node-1", 1)
	if a.welcome.AppliedSeq != 0 || a.welcome.BootId == 0 {
		t.Errorf("welcome %v", a.welcome)
	}
	ids := tokens(320, 1)
	ack := a.apply(&pb.Delta{
		Seq:      1,
		Views:    []*pb.View{view(1, "pod-a", 0), view(2, "pod-a", 1), view(3, "pod-b", 0)},
		Changes:  []*pb.Change{stored(1, run(ids, 32)), stored(2, run(ids[:96], 32))},
		Complete: true,
	})
	if len(ack.Refused) != 0 {
		t.Errorf("refused %v", ack.Refused)
	}
	resp := s.lookupRoute(t, byTokens(ids)) // with the block size of the engines, not of the flag
	if resp.ReasonCode != "PREFIX_MATCH" || len(resp.ReplicaScores) != 2 {
		t.Fatalf("response %v", resp)
	}
	first, second := resp.ReplicaScores[0], resp.ReplicaScores[1]
	if first.MatchedTokens != 320 || first.DataParallelRank != 0 || second.MatchedTokens != 96 || second.DataParallelRank != 1 {
		t.Errorf("scores %v", resp.ReplicaScores)
	}
	if code, body := s.get(t, "/readyz"); code != 200 || body != "ok\nagents connected: 1, of which have sent their whole table: 1\n" {
		t.Errorf("readyz: %d %q", code, body)
	}
}

func TestTwoBlockSizesGiveTwoChains(t *testing.T) {
	s := start(t)
	a := s.connect(t, "node-1", 1)
	ids := tokens(256, 1)
	a.apply(&pb.Delta{
		Seq:     1,
		Views:   []*pb.View{view(1, "pod-a", 0), view(2, "pod-b", 0), view(3, "pod-c", 0)},
		Changes: []*pb.Change{stored(1, run(ids, 64)), stored(2, run(ids[:128], 16))},
	})
	resp := s.lookupRoute(t, byTokens(ids))
	if len(resp.ReplicaScores) != 2 || resp.ReplicaScores[0].MatchedTokens != 256 || resp.ReplicaScores[1].MatchedTokens != 128 {
		t.Errorf("scores %v", resp.ReplicaScores)
	}
}

func TestRemovedClearedAndClosedBlocksAreNotHinted(t *testing.T) {
	s := start(t)
	a := s.connect(t, "node-1", 1)
	ids := tokens(160, 1)
	keys := packed(ids, 16)
	pairs := func() int { return len(s.dump(t, &pb.DumpIndexRequest{})) }
	a.apply(&pb.Delta{
		Seq: 1, Views: []*pb.View{view(1, "pod-a", 0), view(2, "pod-b", 0)},
		Changes: []*pb.Change{stored(1, run(ids, 16)), stored(2, run(ids, 16))},
	})
	a.apply(&pb.Delta{Seq: 2, Changes: []*pb.Change{{View: 1, Removed: keys[40:]}}})
	if n := pairs(); n != 15 {
		t.Errorf("%d pairs after removal, want 15", n)
	}
	resp := s.lookupRoute(t, byTokens(ids))
	if len(resp.ReplicaScores) != 2 || resp.ReplicaScores[1].MatchedTokens != 80 {
		t.Errorf("scores %v", resp.ReplicaScores)
	}
	a.apply(&pb.Delta{Seq: 3, Cleared: []uint32{1}, Changes: []*pb.Change{stored(1, run(ids[:16], 16))}})
	if n := pairs(); n != 11 {
		t.Errorf("%d pairs after clear, want 11", n)
	}
	a.apply(&pb.Delta{Seq: 4, Closed: []uint32{2}})
	if n := pairs(); n != 1 {
		t.Errorf("%d pairs after close, want 1", n)
	}
	if resp := s.lookupRoute(t, byTokens(tokens(64, 99))); resp.ReasonCode != "AFFINITY_HINT" || resp.ReplicaScores[0].ReplicaId != "pod-a" {
		t.Errorf("the closed replica is still a member: %v", resp)
	}
}

func TestMalformedChangesAreRefusedAndTheirNeighboursApplied(t *testing.T) {
	s := start(t)
	a := s.connect(t, "node-1", 1)
	good := run(tokens(64, 1), 16)
	for i, c := range []struct {
		name  string
		delta *pb.Delta
		want  map[string]uint64
	}{
		{
			"keys that are not whole", &pb.Delta{Changes: []*pb.Change{stored(1, &pb.Run{Keys: make([]byte, 9), BlockTokens: 16}, good)}},
			map[string]uint64{"ragged_keys": 1},
		},
		{"no keys", &pb.Delta{Changes: []*pb.Change{stored(1, &pb.Run{BlockTokens: 16}, good)}}, map[string]uint64{"ragged_keys": 2}},
		{
			"no block size", &pb.Delta{Changes: []*pb.Change{stored(1, &pb.Run{Keys: make([]byte, 8)}, good)}},
			map[string]uint64{"invalid_block_tokens": 1},
		},
		{
			"more tokens than fit", &pb.Delta{Changes: []*pb.Change{stored(1, &pb.Run{Keys: make([]byte, 16), BlockTokens: 1 << 30}, good)}},
			map[string]uint64{"token_count_overflow": 1},
		},
		{
			"a tier of another planet", &pb.Delta{Changes: []*pb.Change{stored(1, &pb.Run{Keys: make([]byte, 8), BlockTokens: 16, Tier: 9}, good)}},
			map[string]uint64{"invalid_tier": 1},
		},
		{
			"an unknown view", &pb.Delta{Changes: []*pb.Change{stored(7, good, good), stored(1, good)}, Cleared: []uint32{8}, Closed: []uint32{9}},
			map[string]uint64{"unknown_view": 4},
		},
		{"ragged removals", &pb.Delta{Changes: []*pb.Change{{View: 1, Removed: make([]byte, 7), Stored: []*pb.Run{good}}}}, map[string]uint64{"ragged_keys": 3}},
		{
			"views that name nothing", &pb.Delta{Views: []*pb.View{
				view(10, "", 0), view(11, "pod-z", -1),
				{Ref: 12, ReplicaId: "r", ModelId: "m", HashScheme: "vllm"},
				{Ref: 13, ReplicaId: "r", TenantId: "t", HashScheme: "vllm"},
				{Ref: 14, ReplicaId: "r", TenantId: "t", ModelId: "m"},
				{Ref: 15, ReplicaId: "r", TenantId: "inferencecache.io/probe", ModelId: "m", HashScheme: "vllm"},
			}},
			map[string]uint64{
				"empty_replica_id": 1, "invalid_rank": 1, "empty_tenant_id": 1, "empty_model_id": 1,
				"empty_hash_scheme": 1, "reserved_tenant": 1,
			},
		},
		{"statistics without any", &pb.Delta{Stats: []*pb.ViewStats{{View: 1}}}, map[string]uint64{"missing_stats": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.delta.Seq = uint64(2*i + 1)
			c.delta.Views = append(c.delta.Views, view(1, "pod-a", 0))
			ack := a.apply(c.delta)
			for reason, n := range c.want {
				if ack.Refused[reason] != n {
					t.Errorf("refused %v, want %s %d", ack.Refused, reason, n)
				}
			}
			if len(c.delta.Changes) > 0 {
				if n := len(s.dump(t, &pb.DumpIndexRequest{})); n != 4 {
					t.Errorf("%d pairs, want the 4 of the good run", n)
				}
			}
			a.apply(&pb.Delta{Seq: uint64(2*i + 2), Cleared: []uint32{1}})
		})
	}
}

func TestConfirmRefreshesOnlyWhatIsEqual(t *testing.T) {
	s := start(t)
	a := s.connect(t, "node-1", 1)
	r := run(tokens(64, 1), 16)
	r.AgeMs = 600_000
	var xor uint64
	for k := r.Keys; len(k) > 0; k = k[8:] {
		xor ^= binary.BigEndian.Uint64(k)
	}
	a.apply(&pb.Delta{Seq: 1, Views: []*pb.View{view(1, "pod-a", 0)}, Changes: []*pb.Change{stored(1, r)}})
	age := func() int64 { return s.dump(t, &pb.DumpIndexRequest{})[0].AgeSeconds }
	if ack := a.apply(&pb.Delta{Seq: 2, Confirms: []*pb.Confirm{{View: 1, T1Count: 3, T1Xor: xor}}}); ack.Refused["digest_mismatch"] != 1 {
		t.Errorf("refused %v", ack.Refused)
	}
	if got := age(); got < 600 {
		t.Errorf("age %d s after a digest that differs", got)
	}
	if ack := a.apply(&pb.Delta{Seq: 3, Confirms: []*pb.Confirm{{View: 1, T1Count: 4, T1Xor: xor}}}); ack.Refused["digest_mismatch"] != 1 {
		t.Errorf("refused %v", ack.Refused)
	}
	if got := age(); got > 5 {
		t.Errorf("age %d s after an equal digest", got)
	}
}

func TestStreamOfTheSameEpochResumes(t *testing.T) {
	s := start(t)
	a := s.connect(t, "node-1", 1)
	ids := tokens(64, 1)
	a.apply(&pb.Delta{Seq: 1, Views: []*pb.View{view(1, "pod-a", 0)}})
	a.apply(&pb.Delta{Seq: 2, Changes: []*pb.Change{stored(1, run(ids[:32], 16))}})
	a.end()
	b := s.connect(t, "node-1", 1)
	if b.welcome.AppliedSeq != 2 || b.welcome.BootId != a.welcome.BootId {
		t.Fatalf("welcome %v", b.welcome)
	}
	ack := b.apply(&pb.Delta{Seq: 3, Views: []*pb.View{view(1, "pod-a", 0)}, Changes: []*pb.Change{stored(1, run(ids, 16))}})
	if n := len(s.dump(t, &pb.DumpIndexRequest{})); n != 4 || len(ack.Refused) != 0 {
		t.Errorf("%d pairs, refused %v", n, ack.Refused)
	}
}

func TestNewEpochDropsWhatTheOldOneDeclared(t *testing.T) {
	s := start(t)
	a := s.connect(t, "node-1", 1)
	a.apply(&pb.Delta{Seq: 1, Views: []*pb.View{view(1, "pod-a", 0)}, Changes: []*pb.Change{stored(1, run(tokens(64, 1), 16))}})
	b := s.connect(t, "node-1", 2)
	if b.welcome.AppliedSeq != 0 {
		t.Errorf("welcome %v", b.welcome)
	}
	if n := len(s.dump(t, &pb.DumpIndexRequest{})); n != 0 {
		t.Errorf("%d pairs", n)
	}
}

func TestStreamEndsWith(t *testing.T) {
	hello := &pb.SyncRequest{Message: &pb.SyncRequest_Hello{Hello: &pb.Hello{AgentId: "node-1", AgentEpoch: 1}}}
	delta := func(seq uint64) *pb.SyncRequest {
		return &pb.SyncRequest{Message: &pb.SyncRequest_Delta{Delta: &pb.Delta{Seq: seq}}}
	}
	for name, c := range map[string]struct {
		send []*pb.SyncRequest
		want codes.Code
	}{
		"a gap in the sequence":         {[]*pb.SyncRequest{hello, delta(1), delta(3)}, codes.FailedPrecondition},
		"a sequence number twice":       {[]*pb.SyncRequest{hello, delta(1), delta(1)}, codes.FailedPrecondition},
		"a first delta other than next": {[]*pb.SyncRequest{hello, delta(5)}, codes.FailedPrecondition},
		"a delta before hello":          {[]*pb.SyncRequest{delta(1)}, codes.FailedPrecondition},
		"a second hello":                {[]*pb.SyncRequest{hello, hello}, codes.InvalidArgument},
		"a hello that names nobody":     {[]*pb.SyncRequest{{Message: &pb.SyncRequest_Hello{Hello: &pb.Hello{}}}}, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			stream, err := start(t).sync.Sync(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range c.send {
				_ = stream.Send(r) // the error that counts comes from Recv
			}
			for err == nil {
				_, err = stream.Recv()
			}
			if status.Code(err) != c.want {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestSecondStreamOfAnAgentReplacesTheFirst(t *testing.T) {
	s := start(t)
	a := s.connect(t, "node-1", 1)
	a.apply(&pb.Delta{Seq: 1, Views: []*pb.View{view(1, "pod-a", 0)}})
	b := s.connect(t, "node-1", 1)
	if _, err := a.Recv(); status.Code(err) != codes.Aborted {
		t.Errorf("first stream: %v", err)
	}
	if ack := b.apply(&pb.Delta{Seq: 2, Changes: []*pb.Change{stored(1, run(tokens(64, 1), 16))}}); len(ack.Refused) != 0 {
		t.Errorf("refused %v", ack.Refused)
	}
}

func TestCacheBelongsToTheAgentThatDeclaredItLast(t *testing.T) {
	s := start(t)
	a, b := s.connect(t, "node-1", 1), s.connect(t, "node-2", 1)
	a.apply(&pb.Delta{Seq: 1, Views: []*pb.View{view(1, "pod-a", 0)}, Changes: []*pb.Change{stored(1, run(tokens(64, 1), 16))}})
	b.apply(&pb.Delta{Seq: 1, Views: []*pb.View{view(5, "pod-a", 0)}, Changes: []*pb.Change{stored(5, run(tokens(32, 50), 16))}})
	if n := len(s.dump(t, &pb.DumpIndexRequest{})); n != 2 {
		t.Errorf("%d pairs, want those of the second agent alone", n)
	}
	if ack := a.apply(&pb.Delta{Seq: 2, Changes: []*pb.Change{stored(1, run(tokens(64, 1), 16))}}); ack.Refused["view_taken_by_another_agent"] != 1 {
		t.Errorf("refused %v", ack.Refused)
	}
	a.apply(&pb.Delta{Seq: 3, Closed: []uint32{1}})
	if n := len(s.dump(t, &pb.DumpIndexRequest{})); n != 2 {
		t.Errorf("%d pairs after the first agent closed its view", n)
	}
}

func TestCacheDeclaredUnderANewNumberStartsEmpty(t *testing.T) {
	s := start(t)
	a := s.connect(t, "node-1", 1)
	a.apply(&pb.Delta{Seq: 1, Views: []*pb.View{view(1, "pod-a", 0)}, Changes: []*pb.Change{stored(1, run(tokens(64, 1), 16))}})
	a.apply(&pb.Delta{
		Seq: 2, Views: []*pb.View{view(2, "pod-a", 0)}, Closed: []uint32{1},
		Changes: []*pb.Change{stored(2, run(tokens(32, 1), 16))},
	})
	if n := len(s.dump(t, &pb.DumpIndexRequest{})); n != 2 {
		t.Errorf("%d pairs, want those of the new number alone", n)
	}
	if resp := s.lookupRoute(t, byTokens(tokens(64, 99))); resp.ReasonCode != "AFFINITY_HINT" {
		t.Errorf("the cache is no member any more: %v", resp)
	}
}

// lease is how long an agent may be silent in tests that move a clock; leases are looked at every quarter of it.
const lease = 40 * time.Millisecond

func startLeased(t *testing.T) (*server, *clock) {
	t.Helper()
	c := newClock()
	return start(t, c.of, func(a *aggregator.Config) { a.AgentLease = lease }), c
}

func TestAgentThatIsAwayLosesItsLeaseThenItsEntries(t *testing.T) {
	s, c := startLeased(t)
	ids := tokens(128, 1)
	a := s.connect(t, "node-1", 1)
	full := &pb.Delta{Seq: 1, Views: []*pb.View{view(1, "pod-a", 0)}, Changes: []*pb.Change{stored(1, run(ids, 16))}}
	a.apply(full)
	if resp := s.lookupRoute(t, byTokens(ids)); resp.ReasonCode != "PREFIX_MATCH" {
		t.Fatalf("before: %v", resp)
	}
	a.end()
	c.pass(lease)
	eventually(t, "the replica is no longer hinted", func() bool {
		return len(s.lookupRoute(t, byTokens(ids)).ReplicaScores) == 0
	})
	c.pass(10 * lease)
	eventually(t, "its entries are dropped", func() bool { return len(s.dump(t, &pb.DumpIndexRequest{})) == 0 })
	b := s.connect(t, "node-1", 1)
	if b.welcome.AppliedSeq != 0 {
		t.Errorf("welcome %v", b.welcome)
	}
	b.apply(full)
	if resp := s.lookupRoute(t, byTokens(ids)); resp.ReasonCode != "PREFIX_MATCH" {
		t.Errorf("after: %v", resp)
	}
}

func TestAgentThatReturnsWithinTheGraceIsHintedAgain(t *testing.T) {
	s, c := startLeased(t)
	ids := tokens(128, 1)
	a := s.connect(t, "node-1", 1)
	a.apply(&pb.Delta{Seq: 1, Views: []*pb.View{view(1, "pod-a", 0)}, Changes: []*pb.Change{stored(1, run(ids, 16))}})
	a.end()
	c.pass(9 * lease)
	eventually(t, "the replica is hidden", func() bool { return len(s.lookupRoute(t, byTokens(ids)).ReplicaScores) == 0 })
	b := s.connect(t, "node-1", 1)
	if b.welcome.AppliedSeq != 1 {
		t.Errorf("welcome %v", b.welcome)
	}
	if resp := s.lookupRoute(t, byTokens(ids)); len(resp.ReplicaScores) != 0 {
		t.Errorf("before it has said what changed meanwhile: %v", resp)
	}
	b.apply(&pb.Delta{Seq: 2})
	if resp := s.lookupRoute(t, byTokens(ids)); resp.ReasonCode != "PREFIX_MATCH" {
		t.Errorf("after the return: %v", resp)
	}
}

// A process that is stopped, or a network that swallows everything, leaves the stream open.
func TestAgentThatFallsSilentOnAnOpenStreamLosesItsLeaseUntilItSpeaks(t *testing.T) {
	s, c := startLeased(t)
	ids := tokens(128, 1)
	a := s.connect(t, "node-1", 1)
	a.apply(&pb.Delta{Seq: 1, Views: []*pb.View{view(1, "pod-a", 0)}, Changes: []*pb.Change{stored(1, run(ids, 16))}})
	c.pass(lease)
	eventually(t, "the replica is hidden", func() bool { return len(s.lookupRoute(t, byTokens(ids)).ReplicaScores) == 0 })
	a.apply(&pb.Delta{Seq: 2, Stats: []*pb.ViewStats{{View: 1, Stats: &pb.ReplicaStats{ReplicaId: "pod-a"}}}})
	if resp := s.lookupRoute(t, byTokens(ids)); resp.ReasonCode != "PREFIX_MATCH" {
		t.Errorf("after a sign of life: %v", resp)
	}
	c.pass(20 * lease)
	eventually(t, "the replica is hidden again", func() bool { return len(s.lookupRoute(t, byTokens(ids)).ReplicaScores) == 0 })
	if n := len(s.dump(t, &pb.DumpIndexRequest{})); n != 8 {
		t.Errorf("%d pairs are left while the stream is open, want 8", n)
	}
}

func TestRunBehindAParentContinuesItsChain(t *testing.T) {
	s := start(t)
	a := s.connect(t, "node-1", 1)
	ids := tokens(160, 1)
	hashes := fingerprint.Chain(ids, 16)
	tail := &pb.Run{Keys: packed(ids, 16)[32:], Parent: &hashes[3], StartTokens: 64, BlockTokens: 16, Tier: pb.CacheTier_CACHE_TIER_T2}
	a.apply(&pb.Delta{
		Seq: 1, Views: []*pb.View{view(1, "pod-a", 0)},
		Changes: []*pb.Change{stored(1, tail), stored(1, run(ids[:64], 16))},
	})
	resp := s.lookupRoute(t, byTokens(ids))
	if len(resp.ReplicaScores) != 1 || resp.ReplicaScores[0].MatchedTokens != 160 || resp.ReplicaScores[0].Tier != pb.CacheTier_CACHE_TIER_T2 {
		t.Errorf("scores %v", resp.ReplicaScores)
	}
}
