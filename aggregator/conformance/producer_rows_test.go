package conformance

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

func minutesOf(n int) time.Duration { return time.Duration(n) * time.Minute }

// holders names replicas as rank.Rendezvous wants them.
func holders(replicas []string) func(int) index.Holder {
	return func(i int) index.Holder { return index.Holder{Replica: replicas[i]} }
}

// The reasons in acks are InferenceCache's own: the contract names none.
func reportRows() []row {
	good := whole("good", 100)
	with := func(change func(*pb.CacheStateUpdate), entries ...*pb.PrefixEntry) []act {
		return all(join("b"), updateWith("a", change, entries...))
	}
	none := func(*pb.CacheStateUpdate) {}
	found := "PREFIX_MATCH a:100"
	asked := ask(hash("good", 100))
	rows := []row{
		{rule: "what is well formed is accepted", given: with(none, good), ask: asked, want: found},
		{rule: "an update of nothing is accepted", given: with(none), ack: ""},
		{rule: "a stream of nothing is accepted", given: all(report())},
		{rule: "fewer counts than hashes: ragged_chain", given: with(none, chainOf("xy", 16), good), ack: "ragged_chain=1", ask: asked, want: found},
		{rule: "counts without hashes: ragged_chain", given: with(none, chainOf("", 16), good), ack: "ragged_chain=1", ask: asked, want: found},
		{rule: "hashes without counts: ragged_chain", given: with(none, chainOf("xy"), good), ack: "ragged_chain=1", ask: asked, want: found},
		{rule: "a ragged chain takes its opaque prefix along", given: with(none, &pb.PrefixEntry{PrefixHash: []byte("good"), TokenCount: 100, BlockTokenCounts: []int32{1}}, whole("else", 9)), ack: "ragged_chain=1", state: "prefixes=1 b:0/0"},
		{rule: "an empty hash in a chain: empty_block_hash", given: with(none, &pb.PrefixEntry{BlockHashes: [][]byte{[]byte("x"), {}}, BlockTokenCounts: []int32{16, 16}}, good), ack: "empty_block_hash=1", ask: asked, want: found},
		{rule: "no hash at all: empty_prefix_hash", given: with(none, &pb.PrefixEntry{TokenCount: 16}, good), ack: "empty_prefix_hash=1", ask: asked, want: found},
		{rule: "an opaque prefix of 0 tokens: invalid_token_count", given: with(none, whole("x", 0), good), ack: "invalid_token_count=1", ask: asked, want: found},
		{rule: "an opaque prefix of -1 tokens: invalid_token_count", given: with(none, whole("x", -1), good), ack: "invalid_token_count=1", ask: asked, want: found},
		{rule: "a block of 0 tokens: invalid_token_count", given: with(none, chainOf("xy", 16, 0), good), ack: "invalid_token_count=1", ask: asked, want: found},
		{rule: "a block of -16 tokens: invalid_token_count", given: with(none, chainOf("xy", 16, -16), good), ack: "invalid_token_count=1", ask: asked, want: found},
		{rule: "a chain of 2^31 tokens: token_count_overflow", given: with(none, chainOf("xy", math.MaxInt32, 1), good), ack: "token_count_overflow=1", ask: asked, want: found},
		{rule: "a chain of 2^31-1 tokens fits", given: with(none, chainOf("xy", math.MaxInt32-1, 1), good), state: "prefixes=3 b:0/0"},
		{rule: "an opaque hash of 257 bytes: hash_too_long", given: with(none, whole(strings.Repeat("h", 257), 16), good), ack: "hash_too_long=1", ask: asked, want: found},
		{rule: "an opaque hash of 256 bytes is taken", given: with(none, whole(strings.Repeat("h", 256), 100)), ask: ask(hash(strings.Repeat("h", 256), 1)), want: found},
		{rule: "a block hash of 257 bytes: hash_too_long", given: with(none, &pb.PrefixEntry{BlockHashes: [][]byte{make([]byte, 257)}, BlockTokenCounts: []int32{16}}, good), ack: "hash_too_long=1", ask: asked, want: found},
		{rule: "an entry's adapter of 513 bytes: name_too_long", given: with(none, &pb.PrefixEntry{PrefixHash: []byte("x"), TokenCount: 16, AdapterId: strings.Repeat("a", 513)}, good), ack: "name_too_long=1", ask: asked, want: found},
		{rule: "an update's adapter of 513 bytes: name_too_long", given: with(func(u *pb.CacheStateUpdate) { u.AdapterId = strings.Repeat("a", 513) }, good), ack: "name_too_long=1", state: "prefixes=0 b:0/0"},
		{rule: "a replica of 513 bytes: name_too_long", given: with(func(u *pb.CacheStateUpdate) { u.ReplicaId = strings.Repeat("a", 513) }, good), ack: "name_too_long=1", state: "prefixes=0 b:0/0"},
		{rule: "a replica of 512 bytes is taken", given: with(func(u *pb.CacheStateUpdate) { u.ReplicaId = strings.Repeat("a", 512) }, good), state: "prefixes=1 b:0/0"},
		{rule: "a model of 513 bytes: name_too_long", given: with(func(u *pb.CacheStateUpdate) { u.ModelId = strings.Repeat("a", 513) }, good), ack: "name_too_long=1"},
		{rule: "a tenant of 513 bytes: name_too_long", given: with(func(u *pb.CacheStateUpdate) { u.TenantId = strings.Repeat("a", 513) }, good), ack: "name_too_long=1"},
		{rule: "a scheme of 513 bytes: name_too_long", given: with(func(u *pb.CacheStateUpdate) { u.HashScheme = strings.Repeat("a", 513) }, good), ack: "name_too_long=1"},
		{rule: "no replica: empty_replica_id", given: with(func(u *pb.CacheStateUpdate) { u.ReplicaId = "" }, good), ack: "empty_replica_id=1", state: "prefixes=0 b:0/0"},
		{rule: "no tenant: empty_tenant_id", given: with(func(u *pb.CacheStateUpdate) { u.TenantId = "" }, good), ack: "empty_tenant_id=1"},
		{rule: "no model: empty_model_id", given: with(func(u *pb.CacheStateUpdate) { u.ModelId = "" }, good), ack: "empty_model_id=1"},
		{rule: "no hash scheme: empty_hash_scheme, for each entry", given: with(func(u *pb.CacheStateUpdate) { u.HashScheme = "" }, good, whole("x", 1)), ack: "empty_hash_scheme=2", state: "prefixes=0 b:0/0"},
		{rule: "a time a TTL ago: stale_timestamp", given: with(ago(30*time.Minute), good, whole("x", 1)), ack: "stale_timestamp=2", state: "prefixes=0 b:0/0"},
		{rule: "a time before 1970: stale_timestamp", given: with(func(u *pb.CacheStateUpdate) { u.TimestampUs = -1 }, good), ack: "stale_timestamp=1"},
		{rule: "the earliest time there is: stale_timestamp", given: with(func(u *pb.CacheStateUpdate) { u.TimestampUs = math.MinInt64 }, good), ack: "stale_timestamp=1"},
		{rule: "the latest time there is counts as now", given: with(func(u *pb.CacheStateUpdate) { u.TimestampUs = math.MaxInt64 }, good), ask: asked, want: found + "=50"},
		{rule: "several reasons are all named, in order", given: with(none, whole("x", 0), whole("", 5), whole("y", 0)), ack: "empty_prefix_hash=1,invalid_token_count=2"},
		{rule: "reasons add up over a stream", given: all(report(update("a", whole("x", 0)), update("a", whole("y", 0)), update("a", good)), join("b"), report(update("a", whole("x", 0)), update("c", whole("y", 0)))), ack: "invalid_token_count=2", ask: asked, want: found},
		{rule: "more entries than 65,536 in an update: too_many_entries, for each beyond", given: all(report(update("a", manyEntries(65_540)...))), ack: "too_many_entries=4"},
		{rule: "more names than 4,096 in a stream: too_many_names", given: all(report(manyAdapters(4_098)...)), ack: "too_many_names=2"},
		{rule: "the reserved tenant is dropped silently", given: with(func(u *pb.CacheStateUpdate) { u.TenantId = "inferencecache.io/probe" }, good)},
		{rule: "a hit rate that is no number counts as 0", given: all(stats("a", float32(math.NaN()), 0)), state: "prefixes=0 a:0/0"},
		{rule: "infinite pressure counts as 0", given: all(stats("a", 0, float32(math.Inf(1)))), state: "prefixes=0 a:0/0"},
		{rule: "pressure above 1 counts as 1", given: all(stats("a", 0, 7)), state: "prefixes=0 a:0/1"},
		{rule: "negative pressure counts as 0", given: all(stats("a", 0, -5)), state: "prefixes=0 a:0/0"},
		{rule: "a hit rate above 1 counts as 1", given: all(stats("a", 40, 0)), state: "prefixes=0 a:1/0"},
		{rule: "statistics need no hash scheme", given: with(func(u *pb.CacheStateUpdate) { u.HashScheme = ""; u.Stats = &pb.ReplicaStats{Pressure: 0.5} }), state: "prefixes=0 a:0/0.5 b:0/0"},
		{rule: "the replica inside the statistics is ignored", given: with(func(u *pb.CacheStateUpdate) { u.Stats = &pb.ReplicaStats{ReplicaId: "x", Pressure: 0.5} }), state: "prefixes=0 a:0/0.5 b:0/0"},
	}
	for i := range rows {
		rows[i].own = true
	}
	return rows
}

func manyEntries(n int) []*pb.PrefixEntry {
	out := make([]*pb.PrefixEntry, n)
	for i := range out {
		out[i] = whole("same", 1)
	}
	return out
}

func manyAdapters(n int) []*pb.CacheStateUpdate {
	out := make([]*pb.CacheStateUpdate, n)
	for i := range out {
		out[i] = update("a", whole("x", 1))
		out[i].AdapterId = fmt.Sprint(i)
	}
	return out
}

func eventRows() []row {
	evict := func(change ...func(*pb.CacheEvent)) act {
		return event(pb.CacheEvent_PREFIX_EVICTED, append([]func(*pb.CacheEvent){func(e *pb.CacheEvent) { e.PrefixHash = []byte("key") }}, change...)...)
	}
	replica := func(id string) func(*pb.CacheEvent) { return func(e *pb.CacheEvent) { e.ReplicaId = id } }
	sglang := updateWith("a", func(u *pb.CacheStateUpdate) { u.HashScheme = "sglang" }, whole("key", 100))
	held := holdWhole("a", "key", 100)
	asked := ask(hash("key", 100))
	found := "PREFIX_MATCH a:100"
	own := []row{
		{rule: "an eviction without a hash: empty_prefix_hash", given: all(held, event(pb.CacheEvent_PREFIX_EVICTED)), ack: "empty_prefix_hash=1", ask: asked, want: found},
		{rule: "an event without a replica: empty_replica_id", given: all(held, evict(replica(""))), ack: "empty_replica_id=1", ask: asked, want: found},
		{rule: "an event without a tenant: empty_tenant_id", given: all(held, evict(func(e *pb.CacheEvent) { e.TenantId = "" })), ack: "empty_tenant_id=1", ask: asked, want: found},
		{rule: "an event without a model: empty_model_id", given: all(held, evict(func(e *pb.CacheEvent) { e.ModelId = "" })), ack: "empty_model_id=1", ask: asked, want: found},
		{rule: "a clear without a replica: empty_replica_id", given: all(held, event(pb.CacheEvent_ALL_CLEARED, replica(""))), ack: "empty_replica_id=1", ask: asked, want: found},
		{rule: "an event with a replica of 513 bytes: name_too_long", given: all(held, evict(replica(strings.Repeat("r", 513)))), ack: "name_too_long=1", ask: asked, want: found},
		{rule: "an event with an adapter of 513 bytes: name_too_long", given: all(held, evict(func(e *pb.CacheEvent) { e.AdapterId = strings.Repeat("r", 513) })), ack: "name_too_long=1", ask: asked, want: found},
	}
	for i := range own {
		own[i].own = true
	}
	return append(
		own,
		row{rule: "an eviction takes the prefix", given: all(held, holdWhole("b", "key", 100), join("c"), evict()), ask: asked, want: "PREFIX_MATCH b:100"},
		row{rule: "an eviction takes it in every hash scheme", given: all(held, sglang, evict()), state: "prefixes=0"},
		row{rule: "an eviction leaves other prefixes", given: all(held, holdWhole("a", "else", 100), evict()), ask: ask(hash("else", 1)), want: found},
		row{rule: "an eviction of what is not held changes nothing", given: all(held, evict(func(e *pb.CacheEvent) { e.PrefixHash = []byte("none") })), ask: asked, want: found},
		row{rule: "an eviction of another model changes nothing", given: all(held, evict(func(e *pb.CacheEvent) { e.ModelId = "m2" })), ask: asked, want: found},
		row{rule: "an eviction twice is as good as once", given: all(held, evict(), evict()), state: "prefixes=0"},
		row{rule: "a store behind an eviction holds again", given: all(held, evict(), held, join("b")), ask: asked, want: found},
		row{rule: "a clear takes everything of the replica", given: all(held, hold("a", long), sglang, event(pb.CacheEvent_ALL_CLEARED)), state: "prefixes=0"},
		row{rule: "a clear knows no adapters", given: all(updateWith("a", func(u *pb.CacheStateUpdate) { u.AdapterId = "lora" }, whole("key", 1)),
			event(pb.CacheEvent_ALL_CLEARED, func(e *pb.CacheEvent) { e.AdapterId = "else" })), state: "prefixes=0"},
		row{rule: "a clear leaves other replicas", given: all(held, holdWhole("b", "key", 100), event(pb.CacheEvent_ALL_CLEARED, replica("b"))), ask: asked, want: found, also: nil},
		row{rule: "a clear leaves other models", given: all(held, event(pb.CacheEvent_ALL_CLEARED, func(e *pb.CacheEvent) { e.ModelId = "m2" })), ask: asked, want: found},
		row{rule: "a clear takes the statistics", given: all(held, stats("a", 0.5, 0.5), event(pb.CacheEvent_ALL_CLEARED)), state: "prefixes=0"},
		row{rule: "PREFIX_ADDED changes nothing", given: all(held, event(pb.CacheEvent_PREFIX_ADDED, func(e *pb.CacheEvent) { e.PrefixHash = []byte("new") })), state: "prefixes=1"},
		row{rule: "REPLICA_UPDATED changes no entry", given: all(held, event(pb.CacheEvent_REPLICA_UPDATED)), ask: asked, want: found, state: "prefixes=1"},
		row{rule: "REPLICA_UPDATED of an unknown replica is accepted", given: all(held, event(pb.CacheEvent_REPLICA_UPDATED, replica("new"))), state: "prefixes=1"},
		row{rule: "no type changes nothing", given: all(held, event(pb.CacheEvent_UNSPECIFIED, func(e *pb.CacheEvent) { e.PrefixHash = []byte("key") })), ask: asked, want: found},
		row{rule: "a type of a later version changes nothing", given: all(held, event(99, func(e *pb.CacheEvent) { e.PrefixHash = []byte("key") })), ask: asked, want: found},
		row{rule: "the reserved tenant's events are dropped silently", given: all(held, event(pb.CacheEvent_ALL_CLEARED, func(e *pb.CacheEvent) { e.TenantId = "inferencecache.io/probe" })), ask: asked, want: found},
	)
}

func stateRows() []row {
	full := func(s *pb.ReplicaStats) act { return updateWith("a", func(u *pb.CacheStateUpdate) { u.Stats = s }) }
	// got asks for the state of the row's tenant and checks it.
	got := func(check func(*pb.GetCacheStateResponse) error, tenant, model string) act {
		return func(s *session) (*pb.Ack, error) {
			if tenant == "t" {
				tenant = s.tenant
			}
			state, err := s.GetCacheState(s.ctx, &pb.GetCacheStateRequest{TenantId: tenant, ModelId: model})
			if err == nil {
				err = check(state)
			}
			return &pb.Ack{Accepted: true}, err
		}
	}
	empty := func(r *pb.GetCacheStateResponse) error {
		if r.GetSummary() == nil || r.GetSummary().GetTotalPrefixes() != 0 || len(r.GetReplicas()) != 0 {
			return fmt.Errorf("state is not empty: %v", r)
		}
		return nil
	}
	return []row{
		{rule: "prefixes count once however many hold them", given: all(hold("a", long), hold("b", long)), state: "prefixes=16"},
		{rule: "prefixes count in each scheme", given: all(holdWhole("a", "k", 1), updateWith("a", func(u *pb.CacheStateUpdate) { u.HashScheme = "x" }, whole("k", 1))), state: "prefixes=2"},
		{rule: "prefixes count in each adapter", given: all(holdWhole("a", "k", 1), updateWith("a", func(u *pb.CacheStateUpdate) { u.AdapterId = "x" }, whole("k", 1))), state: "prefixes=2"},
		{rule: "other models do not count", given: all(holdWhole("a", "k", 1), updateWith("a", func(u *pb.CacheStateUpdate) { u.ModelId = "m2" }, whole("k2", 1))), state: "prefixes=1"},
		{rule: "only replicas with statistics are listed, by id", given: all(hold("a", long), stats("c", 0.25, 0), stats("b", 0.5, 0.75)), state: "prefixes=16 b:0.5/0.75 c:0.25/0"},
		{rule: "every statistic is kept", given: all(full(&pb.ReplicaStats{CacheMemoryBytes: 7, HitRate: 0.5, Pressure: 0.25, ClientVersion: "lmcache 1.2", T2HitTokens: 3, T2QueryTokens: 9}),
			got(func(r *pb.GetCacheStateResponse) error {
				s := r.GetReplicas()[0]
				if s.GetCacheMemoryBytes() != 7 || s.GetHitRate() != 0.5 || s.GetPressure() != 0.25 || s.GetT2HitTokens() != 3 || s.GetT2QueryTokens() != 9 {
					return fmt.Errorf("statistics %v", s)
				}
				return nil
			}, "t", "m"))},
		{rule: "the client version is kept", own: true, given: all(full(&pb.ReplicaStats{ClientVersion: "lmcache 1.2"}),
			got(func(r *pb.GetCacheStateResponse) error {
				if v := r.GetReplicas()[0].GetClientVersion(); v != "lmcache 1.2" {
					return fmt.Errorf("client version %q", v)
				}
				return nil
			}, "t", "m"))},
		{rule: "no client version is fine", given: all(full(&pb.ReplicaStats{}), got(func(r *pb.GetCacheStateResponse) error {
			if r.GetReplicas()[0].GetClientVersion() != "" {
				return errors.New("a version appears that nobody reported")
			}
			return nil
		}, "t", "m"))},
		{rule: "the reserved tenant is empty", given: all(got(empty, "inferencecache.io/probe", "m"))},
		{rule: "an unknown tenant is empty", given: all(got(empty, "nobody", "m"))},
		{rule: "an unknown model is empty", given: all(hold("a", long), got(empty, "t", "none"))},
		{rule: "no tenant is empty", own: true, given: all(got(empty, "", "m"))},
		{rule: "no model is empty", own: true, given: all(got(empty, "t", ""))},
		{rule: "without templates RenderTemplate answers OK and nothing else, with templates it may not find one", given: all(func(s *session) (*pb.Ack, error) {
			r, err := s.RenderTemplate(s.ctx, &pb.RenderTemplateRequest{TemplateRef: s.tenant + "/x"})
			missing := *target != "" && r.GetReasonCode() == "TEMPLATE_NOT_FOUND"
			if err == nil && (r.GetReasonCode() != "OK" && !missing || len(r.GetRenderedPrompt()) > 0) {
				err = fmt.Errorf("answer %v", r)
			}
			return &pb.Ack{Accepted: true}, err
		})},
		{rule: "LookupPDRoute answers NO_HINT", given: all(func(s *session) (*pb.Ack, error) {
			r, err := s.LookupPDRoute(s.ctx, &pb.LookupPDRouteRequest{ModelId: "m"})
			if err == nil && (r.GetReasonCode() != "NO_HINT" || r.GetPrefillReplicaId() != "") {
				err = fmt.Errorf("answer %v", r)
			}
			return &pb.Ack{Accepted: true}, err
		})},
	}
}

func explainRows() []row {
	explained := func(r *pb.LookupRouteRequest) { r.Explain = true }
	given := all(hold("a", long), stats("a", 0.5, 0.25), hold("b", long[:48]), join("c"))
	decided := func(by string, check ...func(*pb.LookupExplanation) error) func(*pb.LookupRouteResponse) error {
		return func(r *pb.LookupRouteResponse) error {
			if got := r.GetExplanation().GetDecidedBy(); got != by {
				return fmt.Errorf("decided by %q, want %q", got, by)
			}
			for _, f := range check {
				if err := f(r.GetExplanation()); err != nil {
					return err
				}
			}
			return nil
		}
	}
	outcomes := func(want string) func(*pb.LookupExplanation) error {
		return func(e *pb.LookupExplanation) error {
			got := ""
			for _, c := range e.GetCandidates() {
				got += fmt.Sprintf("%s:%d:%s ", c.GetReplicaId(), c.GetMatchedTokens(), c.GetOutcome())
			}
			if got != want+" " {
				return fmt.Errorf("candidates %q, want %q", got, want)
			}
			return nil
		}
	}
	factors := func(e *pb.LookupExplanation) error {
		c := e.GetCandidates()[0]
		product := float32(c.GetMatchedTokens()) * c.GetFreshness() * c.GetPressureFactor() * c.GetSloBias() * c.GetDistinguishingPower()
		if c.GetPressure() != 0.25 || c.GetPressureFactor() != 0.75 || c.GetHitRate() != 0.5 || !c.GetHasStats() || c.GetMatchedBlocks() != 16 || c.GetTier() != 1 {
			return fmt.Errorf("candidate %v", c)
		}
		return near("product of the factors", product, c.GetScore())
	}
	seed := chainSeed(hashes(long))
	withheld := pick(seed, "a", "b")
	rows := []row{
		{rule: "no explanation without asking", given: given, ask: ask(tokens(long)), want: "PREFIX_MATCH a:256", also: func(r *pb.LookupRouteResponse) error {
			if r.GetExplanation() != nil {
				return errors.New("an explanation nobody asked for")
			}
			return nil
		}},
		{
			rule: "a hint names every candidate and what became of it", given: given, ask: ask(tokens(long), explained), want: "PREFIX_MATCH a:256",
			also: decided("hint", outcomes("a:256:hinted b:48:below_minimum_matched_tokens c:0:no_match"), factors),
		},
		{
			rule: "results beyond the bound are named", given: all(hold("a", long), hold("b", long[:64]), join("c")), ask: ask(tokens(long), explained, func(r *pb.LookupRouteRequest) { r.MaxResults = 1 }), want: "PREFIX_MATCH a:256",
			also: decided("hint", outcomes("a:256:hinted b:64:beyond_max_results c:0:no_match")),
		},
		{
			rule: "a floor that withholds is named", policy: noAffinity, given: all(hold("a", long[:48]), join("b")), ask: ask(tokens(long), explained), want: "NO_HINT",
			also: decided("minimum_matched_tokens", outcomes("a:48:below_minimum_matched_tokens b:0:no_match")),
		},
		{
			rule: "the routing floor is named", policy: noAffinity, given: all(hold("a", long), hold("b", long)), ask: ask(tokens(long), explained), want: "NO_HINT",
			also: decided("routing_floor", outcomes("a:256:withheld b:256:withheld")),
		},
		{
			rule: "affinity is named", given: all(hold("a", long), hold("b", long)), ask: ask(tokens(long), explained), want: "AFFINITY_HINT " + withheld + ":0",
			also: decided("affinity", func(e *pb.LookupExplanation) error {
				for _, c := range e.GetCandidates() {
					if (c.GetOutcome() == "affinity") != (c.GetReplicaId() == withheld) {
						return fmt.Errorf("candidate %v", c)
					}
				}
				return nil
			}),
		},
		{rule: "the share is named", policy: minorWithheld, given: all(hold("a", prompt(64, 4)), join("b")), ask: ask(tokens(prompt(4096, 4)), explained), want: "NO_HINT", also: decided("minimum_matched_share")},
		{
			rule: "TENANT_HOT is explained", given: all(hold("d", other), stats("a", 0.5, 0), stats("b", 0.01, 0)), ask: ask(hash("new", 1), explained), want: "TENANT_HOT a:0",
			also: decided("hint", outcomes("a:0:hinted b:0:not_warm d:0:not_warm")),
		},
		{rule: "diagnostics are named", given: given, ask: ask(tokens(long), explained, model("none")), want: "UNKNOWN_MODEL", also: decided("diagnostics")},
		{rule: "malformed input is named", given: given, ask: ask(explained, func(r *pb.LookupRouteRequest) { r.BlockTokenCounts = []int32{1} }), want: "NO_HINT", also: decided("input")},
		{rule: "a missing chain is named", policy: requireChain, given: given, ask: ask(explained, tokens(long)), want: "POLICY_REQUIRES_CHAIN", also: decided("require_chain")},
		{rule: "missing keys are named", policy: noAffinity, given: given, ask: ask(explained, tokens(long), scheme("")), want: "NO_HINT", also: decided("keys")},
		{
			rule: "candidates of the caller are counted apart from the scope", given: given, ask: ask(tokens(long), explained, func(r *pb.LookupRouteRequest) { r.CandidateReplicaIds = []string{"a", "c"} }), want: "PREFIX_MATCH a:256",
			also: decided("hint", func(e *pb.LookupExplanation) error {
				if e.GetMembers() != 2 || e.GetScopeMembers() != 3 || e.GetPromptTokens() != 256 || len(e.GetBlockSizes()) != 1 || e.GetBlockSizes()[0] != 16 {
					return fmt.Errorf("explanation %v", e)
				}
				return nil
			}),
		},
	}
	for i := range rows {
		rows[i].own = true
	}
	return rows
}
