package lookup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/tokenize"
)

// row is one rule: a state, a request, and the answer in brief.
type row struct {
	name  string
	setup func(*world)
	req   *pb.LookupRouteRequest
	want  string
}

func check(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			w := newWorld(t)
			if r.setup != nil {
				r.setup(w)
			}
			if got := brief(w.ask(r.req)); got != r.want {
				t.Errorf("got %q, want %q", got, r.want)
			}
		})
	}
}

func TestMatches(t *testing.T) {
	long := prompt(256, 1)
	twoBlockSizes := func(w *world) {
		w.hold("a", long[:128])
		w.join("z")
		if err := w.Registry.Report(scope, index.Holder{Replica: "a"}, 16, w.now); err != nil {
			t.Fatal(err)
		}
		if err := w.Registry.Report(scope, index.Holder{Replica: "z"}, 32, w.now); err != nil {
			t.Fatal(err)
		}
	}
	check(t, []row{
		{"the longest match comes first", func(w *world) { w.hold("a", long[:128]).hold("b", long).join("c") }, byTokens(long), "PREFIX_MATCH b:256 a:128"},
		{"a chain says the same as its tokens", func(w *world) { w.hold("a", long).join("b") }, byChain(long), "PREFIX_MATCH a:256"},
		{"tokens past the last whole block do not count", func(w *world) { w.hold("a", long).join("b") }, byTokens(append(slices.Clone(long), 1, 2)), "PREFIX_MATCH a:256"},
		{"a match ends where the prompts part", func(w *world) { w.hold("a", append(slices.Clone(long[:160]), prompt(96, 9)...)).join("b") }, byTokens(long), "PREFIX_MATCH a:160"},
		{"equal scores come in order of names", func(w *world) { w.hold("b", long).hold("a", long).join("c") }, byTokens(long), "PREFIX_MATCH a:256 b:256"},
		{"pressure outweighs a longer match", func(w *world) { w.hold("a", long).stats("a", 0, 0.9).hold("b", long[:128]).join("c", "d") }, byTokens(long), "PREFIX_MATCH b:128 a:256"},
		{"statistics that are a TTL old say nothing", func(w *world) {
			w.stats("a", 0, 0.9)
			w.now = t0.Add(30 * time.Minute)
			w.hold("a", long).hold("b", long[:128]).join("c", "d")
		}, byTokens(long), "PREFIX_MATCH a:256 b:128"},
		{"an entry that is a TTL old does not match", func(w *world) {
			w.hold("a", long)
			w.now = t0.Add(30 * time.Minute)
			w.join("a")
		}, byTokens(long), "AFFINITY_HINT a:0"},
		{"an entry just short of a TTL old does, if no floor is set", func(w *world) {
			w.policy.RoutingFloorScore = 0
			w.hold("a", long)
			w.now = t0.Add(30*time.Minute - time.Second)
			w.join("a", "b")
		}, byTokens(long), "PREFIX_MATCH a:256"},
		{"a holder that is no member is not hinted", func(w *world) {
			w.hold("a", long)
			w.Index.Store(index.Partition{Scope: scope}, index.Holder{Replica: "gone"},
				index.Run{Keys: index.Keys{Words: []uint64{1}}, BlockTokens: 16, Tier: index.T1, Evidence: index.At(t0)}, index.At(t0))
		}, request(func(r *pb.LookupRouteRequest) {
			r.PackedBlockHashes, r.BlockSize = []byte{0, 0, 0, 0, 0, 0, 0, 1}, 1000
		}), "AFFINITY_HINT a:0"},
		{"each block size in use is tried", twoBlockSizes, byTokens(long), "PREFIX_MATCH a:128"},
		{"tokens of a whole prefix are those it was reported with", func(w *world) { w.holdKey("a", "key", 100).join("b") }, byHash("key"), "PREFIX_MATCH a:100"},
		{"tokens of a chain are the request's own", func(w *world) { w.hold("a", long[:16]).join("b") }, request(func(r *pb.LookupRouteRequest) {
			r.BlockHashes, r.BlockTokenCounts = byChain(long[:16]).BlockHashes, []int32{1000}
		}), "PREFIX_MATCH a:1000"},
		{"token counts that overflow are cut", func(w *world) { w.hold("a", long[:32]).join("b") }, request(func(r *pb.LookupRouteRequest) {
			r.BlockHashes, r.BlockTokenCounts = byChain(long[:32]).BlockHashes, []int32{math.MaxInt32, 16}
		}), "PREFIX_MATCH a:2147483647"},
		{"a chain may meet a whole prefix in its first block", func(w *world) { w.holdKey("a", "opaque", 200).join("b") }, request(func(r *pb.LookupRouteRequest) {
			r.BlockHashes, r.BlockTokenCounts = [][]byte{[]byte("opaque"), []byte("next")}, []int32{100, 100}
		}), "PREFIX_MATCH a:100"},
	})
}

func TestAdapterIsAPartition(t *testing.T) {
	ids := prompt(128, 1)
	w := newWorld(t).hold("a", ids).join("b")
	req := byTokens(ids)
	if got := w.ask(req); brief(got) != "PREFIX_MATCH a:128" || got.AdapterId != "" {
		t.Errorf("base model: %v", got)
	}
	req.AdapterId = "sql-lora"
	got := w.ask(req)
	if got.ReasonCode != contract.AffinityHint || got.AdapterId != "sql-lora" {
		t.Errorf("adapter: %v", got)
	}
	req.TokenIds = ids[:3]
	if got := w.ask(req); got.AdapterId != "" {
		t.Errorf("an answer without the index echoes the adapter: %v", got)
	}
}

func TestFloors(t *testing.T) {
	long := prompt(256, 1)
	noAffinity := func(f func(*world)) func(*world) {
		return func(w *world) { w.policy.Affinity = false; f(w) }
	}
	check(t, []row{
		{"64 matched tokens are enough", noAffinity(func(w *world) { w.hold("a", long[:64]).join("b") }), byTokens(long), "PREFIX_MATCH a:64"},
		{"48 are not", noAffinity(func(w *world) { w.hold("a", long[:48]).join("b") }), byTokens(long), "NO_HINT"},
		{"replicas below the floor are dropped one by one", noAffinity(func(w *world) { w.hold("a", long[:48]).hold("b", long).join("c") }), byTokens(long), "PREFIX_MATCH b:256"},
		{"a floor of 0 lets one block pass", noAffinity(func(w *world) { w.policy.MinimumMatchedTokens = 0; w.hold("a", long[:16]).join("b") }), byTokens(long), "PREFIX_MATCH a:16"},
		{"a score of the routing floor is enough", noAffinity(func(w *world) { w.policy.RoutingFloorScore = 128; w.hold("a", long).join("b") }), byTokens(long), "PREFIX_MATCH a:256"},
		{"a score below it withholds all", noAffinity(func(w *world) { w.policy.RoutingFloorScore = 128.1; w.hold("a", long).join("b") }), byTokens(long), "NO_HINT"},
		{"what every member holds scores 0", noAffinity(func(w *world) { w.hold("a", long).hold("b", long) }), byTokens(long), "NO_HINT"},
		{"a routing floor of 0 gives it all the same", noAffinity(func(w *world) { w.policy.RoutingFloorScore = 0; w.hold("a", long).hold("b", long) }), byTokens(long), "PREFIX_MATCH a:256 b:256"},
		{"and even then a saturated replica comes last", noAffinity(func(w *world) {
			w.policy.RoutingFloorScore = 0
			w.hold("a", long).stats("a", 0, 1).hold("b", long)
		}), byTokens(long), "PREFIX_MATCH b:256 a:256"},
		{"a floor ends in affinity where that is on", func(w *world) { w.hold("a", long[:48]) }, byTokens(long), "AFFINITY_HINT a:0"},
	})
}

func TestMinimumPrefixTokens(t *testing.T) {
	ids := prompt(128, 1)
	minimum := func(n int64, affinity bool) func(*world) {
		return func(w *world) {
			w.policy.MinimumPrefixTokens, w.policy.Affinity = n, affinity
			w.hold("a", ids).join("a")
		}
	}
	check(t, []row{
		{"a prompt of the minimum is hinted", minimum(128, false), byTokens(ids), "PREFIX_MATCH a:128"},
		{"a shorter one is not", minimum(129, false), byTokens(ids), "NO_HINT"},
		{"with affinity it gets that", minimum(129, true), byTokens(ids), "AFFINITY_HINT a:0"},
		{"diagnostics come before the minimum only with affinity", minimum(129, true), request(func(r *pb.LookupRouteRequest) { r.TenantId = "x"; r.TokenIds = ids }), "UNKNOWN_TENANT"},
		{"without affinity the index is not asked", minimum(129, false), request(func(r *pb.LookupRouteRequest) { r.TenantId = "x"; r.TokenIds = ids }), "NO_HINT"},
		{"a whole prefix counts as the request says", minimum(100, false), request(func(r *pb.LookupRouteRequest) { r.PrefixHash, r.PrefixTokenCount = []byte("k"), 99 }), "NO_HINT"},
	})
}

func TestMalformedInputHasNoHint(t *testing.T) {
	state := func(w *world) { w.hold("a", prompt(128, 1)).join("b") }
	good := byChain(prompt(128, 1))
	check(t, []row{
		{"more hashes than counts", state, request(func(r *pb.LookupRouteRequest) { r.BlockHashes, r.BlockTokenCounts = good.BlockHashes, []int32{16} }), "NO_HINT"},
		{"hashes alone", state, request(func(r *pb.LookupRouteRequest) { r.BlockHashes = good.BlockHashes }), "NO_HINT"},
		{"counts alone, beside tokens", state, request(func(r *pb.LookupRouteRequest) { r.BlockTokenCounts, r.TokenIds = []int32{16}, prompt(128, 1) }), "NO_HINT"},
		{"a negative count", state, request(func(r *pb.LookupRouteRequest) { r.BlockHashes, r.BlockTokenCounts = good.BlockHashes[:1], []int32{-1} }), "NO_HINT"},
		{"packed hashes that are not whole", state, request(func(r *pb.LookupRouteRequest) { r.PackedBlockHashes, r.BlockSize = make([]byte, 12), 16 }), "NO_HINT"},
		{"packed hashes without a block size", state, request(func(r *pb.LookupRouteRequest) { r.PackedBlockHashes = make([]byte, 8) }), "NO_HINT"},
		{"less than a block of tokens", state, byTokens(prompt(15, 1)), "NO_HINT"},
		{"more tokens than are taken", state, byTokens(make([]uint32, MaxTokens+1)), "NO_HINT"},
		{"text without a tokenizer", state, request(func(r *pb.LookupRouteRequest) { r.PromptText = "hello" }), "NO_HINT"},
		{"no tenant", state, request(func(r *pb.LookupRouteRequest) { r.TenantId = ""; r.TokenIds = prompt(128, 1) }), "NO_HINT"},
		{"no model", state, request(func(r *pb.LookupRouteRequest) { r.ModelId = ""; r.TokenIds = prompt(128, 1) }), "NO_HINT"},
		{"no hash scheme", state, request(func(r *pb.LookupRouteRequest) { r.HashScheme = ""; r.TokenIds = prompt(128, 1) }), "NO_HINT"},
		{"an empty hash in a chain ends it", state, request(func(r *pb.LookupRouteRequest) { r.BlockHashes, r.BlockTokenCounts = [][]byte{{}}, []int32{100} }), "AFFINITY_HINT b:0"},
	})
}

func TestInputPrecedence(t *testing.T) {
	a, b, c, d := prompt(128, 1), prompt(128, 2), prompt(128, 3), "whole"
	state := func(w *world) { w.hold("a", a).hold("b", b).hold("c", c).holdKey("d", d, 128) }
	packed := func(r *pb.LookupRouteRequest) {
		for _, h := range byChain(a).BlockHashes {
			r.PackedBlockHashes = append(r.PackedBlockHashes, h...)
		}
		r.BlockSize = 16
	}
	wire := func(r *pb.LookupRouteRequest) {
		r.BlockHashes, r.BlockTokenCounts = byChain(b).BlockHashes, byChain(b).BlockTokenCounts
	}
	exact := func(r *pb.LookupRouteRequest) { r.PrefixHash = []byte(d) }
	ids := func(r *pb.LookupRouteRequest) { r.TokenIds = c }
	text := func(r *pb.LookupRouteRequest) { r.PromptText = "hello" }
	noChains := func(w *world) { state(w); w.policy.ChainMatching = false }
	check(t, []row{
		{"packed hashes come first", state, request(packed, exact, ids, text), "PREFIX_MATCH a:128"},
		{"a chain comes before a whole prefix", state, request(wire, exact, ids, text), "PREFIX_MATCH b:128"},
		{"a whole prefix comes before tokens", state, request(exact, ids, text), "PREFIX_MATCH d:128"},
		{"tokens come before text", state, request(ids, text), "PREFIX_MATCH c:128"},
		{"without chain matching a whole prefix comes first", noChains, request(wire, exact, ids), "PREFIX_MATCH d:128"},
		{"then tokens, as one whole prefix", noChains, request(wire, ids), "PREFIX_MATCH c:128"},
		{"and a chain alone is no input", noChains, request(wire), "NO_HINT"},
		{"nor are packed hashes", noChains, request(packed), "NO_HINT"},
	})
}

func TestRequireChain(t *testing.T) {
	ids := prompt(128, 1)
	state := func(w *world) { w.policy.RequireChain = true; w.hold("a", ids).join("b") }
	check(t, []row{
		{"a chain passes", state, byChain(ids), "PREFIX_MATCH a:128"},
		{"tokens do not", state, byTokens(ids), "POLICY_REQUIRES_CHAIN"},
		{"a whole prefix does not", state, byHash("x"), "POLICY_REQUIRES_CHAIN"},
		{"a ragged chain does not", state, request(func(r *pb.LookupRouteRequest) { r.BlockHashes = [][]byte{{1}} }), "POLICY_REQUIRES_CHAIN"},
		{"nothing does not", state, request(), "POLICY_REQUIRES_CHAIN"},
	})
}

func TestTenantHot(t *testing.T) {
	noAffinity := func(w *world) { w.policy.Affinity = false }
	warm := func(w *world) {
		w.stats("a", 0.3, 0).stats("b", 0.9, 0.5).stats("c", 0.05, 0).holdKey("d", "other", 10)
	}
	check(t, []row{
		{"a miss on a whole prefix goes to warm replicas", warm, byHash("new"), "TENANT_HOT b:0 a:0"},
		{"so does a request without input", warm, request(), "TENANT_HOT b:0 a:0"},
		{"a chain asks for a match and gets none", warm, byChain(prompt(64, 1)), "AFFINITY_HINT b:0"},
		{"switched off it is a miss", func(w *world) { warm(w); noAffinity(w); w.policy.TenantHot = false }, byHash("new"), "NO_HINT"},
		{"which affinity takes up", func(w *world) { w.stats("a", 0.3, 0); w.policy.TenantHot = false }, byHash("new"), "AFFINITY_HINT a:0"},
		{"old statistics are not warm", func(w *world) { noAffinity(w); warm(w); w.now = t0.Add(5 * time.Minute) }, byHash("new"), "NO_HINT"},
		{"a prompt below the minimum does not get it", func(w *world) { w.stats("a", 0.3, 0); w.policy.MinimumPrefixTokens = 10 }, byHash("new"), "AFFINITY_HINT a:0"},
	})
	resp := func() *pb.LookupRouteResponse { w := newWorld(t); warm(w); return w.ask(byHash("new")) }()
	if s := resp.ReplicaScores[0]; s.Score != 0.45 || s.EstimatedCacheHitProb != 0.9 || s.Tier != pb.CacheTier_CACHE_TIER_UNSPECIFIED {
		t.Errorf("score %v", s)
	}
}

func TestDiagnostics(t *testing.T) {
	known := func(w *world) { w.hold("a", prompt(64, 1)) }
	ask := func(change func(*pb.LookupRouteRequest)) *pb.LookupRouteRequest {
		return request(func(r *pb.LookupRouteRequest) { r.TokenIds = prompt(64, 9) }, change)
	}
	check(t, []row{
		{"an empty index knows nothing to compare with", nil, byTokens(prompt(64, 9)), "NO_HINT"},
		{"an unknown tenant", known, ask(func(r *pb.LookupRouteRequest) { r.TenantId = "x"; r.ModelId = "x" }), "UNKNOWN_TENANT"},
		{"an unknown model", known, ask(func(r *pb.LookupRouteRequest) { r.ModelId = "x"; r.HashScheme = "x" }), "UNKNOWN_MODEL"},
		{"an unknown scheme", known, ask(func(r *pb.LookupRouteRequest) { r.HashScheme = "x" }), "UNKNOWN_HASH_SCHEME"},
		{"an unknown adapter is a plain miss", known, ask(func(r *pb.LookupRouteRequest) { r.AdapterId = "x" }), "AFFINITY_HINT a:0"},
		{"a whole prefix is diagnosed too", known, request(func(r *pb.LookupRouteRequest) { r.TenantId = "x"; r.PrefixHash = []byte("k") }), "UNKNOWN_TENANT"},
		{"a tenant with statistics alone is unknown", func(w *world) {
			known(w)
			s := index.Scope{Tenant: "x", Model: "m", Scheme: "vllm"}
			if err := w.Registry.Report(s, index.Holder{Replica: "a"}, 0, t0); err != nil {
				t.Fatal(err)
			}
		}, ask(func(r *pb.LookupRouteRequest) { r.TenantId = "x" }), "UNKNOWN_TENANT"},
		{"a scope that an agent declared is known while it is empty", func(w *world) {
			known(w)
			s := index.Scope{Tenant: "x", Model: "m", Scheme: "vllm"}
			if err := w.Registry.Join(s, index.Holder{Replica: "new"}, "node-1", t0); err != nil {
				t.Fatal(err)
			}
		}, ask(func(r *pb.LookupRouteRequest) { r.TenantId = "x" }), "AFFINITY_HINT new:0"},
		{"of a declared tenant the model may be unknown", func(w *world) {
			known(w)
			s := index.Scope{Tenant: "x", Model: "m", Scheme: "vllm"}
			if err := w.Registry.Join(s, index.Holder{Replica: "new"}, "node-1", t0); err != nil {
				t.Fatal(err)
			}
		}, ask(func(r *pb.LookupRouteRequest) { r.TenantId = "x"; r.ModelId = "y" }), "UNKNOWN_MODEL"},
		{"a reserved tenant's entries leave the index empty", func(w *world) {
			w.Index.Store(index.Partition{Scope: index.Scope{Tenant: contract.ReservedTenant, Model: "m", Scheme: "vllm"}}, index.Holder{Replica: "p"},
				index.Run{Keys: index.Keys{Words: []uint64{1}}, BlockTokens: 16, Tier: index.T1, Evidence: index.At(t0)}, index.At(t0))
		}, byTokens(prompt(64, 9)), "NO_HINT"},
	})
}

func TestAffinity(t *testing.T) {
	ids := prompt(64, 9)
	var replicas []string
	for i := range 16 {
		replicas = append(replicas, fmt.Sprintf("pod-%02d", i))
	}
	w := newWorld(t).join(replicas...)
	pick := func(w *world, req *pb.LookupRouteRequest) string {
		resp := w.ask(req)
		if resp.ReasonCode != contract.AffinityHint || len(resp.ReplicaScores) != 1 {
			t.Fatalf("response %v", resp)
		}
		s := resp.ReplicaScores[0]
		if s.Score != 0 || s.MatchedTokens != 0 || s.EstimatedCacheHitProb != 0 || s.Tier != 0 {
			t.Errorf("score %v", s)
		}
		return s.ReplicaId
	}
	first := pick(w, byTokens(ids))
	if again := pick(w, byTokens(ids)); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	if other := pick(w, byChain(ids)); other != first {
		t.Errorf("by tokens %s, by their chain %s", first, other)
	}
	seen := map[string]int{}
	for i := range 400 {
		seen[pick(w, byTokens(prompt(64, uint32(i))))]++
	}
	for r, n := range seen {
		if n > 50 {
			t.Errorf("%s got %d of 400 prompts", r, n)
		}
	}
	w.stats(first, 0, 1)
	if second := pick(w, byTokens(ids)); second == first {
		t.Errorf("%s is saturated and still picked", first)
	}
}

func TestPrefixThatAllHoldIsNotSentToASaturatedReplica(t *testing.T) {
	for seed := range uint32(50) {
		ids := prompt(512, seed)
		w := newWorld(t).hold("a", ids).hold("b", ids).hold("c", ids).stats("a", 0, 1).stats("c", 0, 1)
		if got := brief(w.ask(byTokens(ids))); got != "AFFINITY_HINT b:0" {
			t.Fatalf("seed %d: %s", seed, got)
		}
	}
}

// A fleet that starts cold: each replica reports what it was asked to serve, and each conversation
// comes back longer. Were only holders members, the first warm replica would attract every miss.
func TestColdFleetIsSpreadOver(t *testing.T) {
	const replicas, conversations, turns = 16, 300, 4
	w := newWorld(t)
	for i := range replicas {
		if err := w.Registry.Join(scope, index.Holder{Replica: fmt.Sprintf("pod-%02d", i)}, "node", t0); err != nil {
			t.Fatal(err)
		}
	}
	load, home := map[string]int{}, map[int]string{}
	for turn := range turns {
		for c := range conversations {
			ids := prompt(256*(turn+1), uint32(c))
			resp := w.ask(byTokens(ids))
			if len(resp.ReplicaScores) == 0 {
				t.Fatalf("turn %d of conversation %d: %v", turn, c, resp)
			}
			replica := resp.ReplicaScores[0].ReplicaId
			if turn > 0 && replica != home[c] {
				t.Fatalf("conversation %d moved from %s to %s", c, home[c], replica)
			}
			home[c] = replica
			load[replica]++
			w.hold(replica, ids)
		}
	}
	for r, n := range load {
		if n > 2*conversations*turns/replicas {
			t.Errorf("%s got %d of %d requests", r, n, conversations*turns)
		}
	}
}

func TestTimeout(t *testing.T) {
	ids := prompt(128, 1)
	done, cancel := context.WithCancel(context.Background())
	cancel()
	t.Run("a caller that is gone wins over every rule", func(t *testing.T) {
		w := newWorld(t).hold("a", ids)
		w.policy.RequireChain = true
		if got := w.LookupRoute(done, byTokens(ids)); brief(got) != "TIMEOUT" || got.AdapterId != "" {
			t.Errorf("got %v", got)
		}
	})
	for name, late := range map[string]int{"at the start": 2, "after the input": 3, "after the match": 4} {
		t.Run("the policy's time runs out "+name, func(t *testing.T) {
			w := newWorld(t).hold("a", ids).join("b")
			w.policy.LookupTimeout = time.Second
			reads := 0
			w.Now = func() time.Time {
				if reads++; reads >= late {
					return t0.Add(time.Second)
				}
				return t0
			}
			w.policy.LFU = true
			if got := w.ask(byTokens(ids)); brief(got) != "TIMEOUT" || len(w.credited) != 0 {
				t.Errorf("got %v, credited %v", got, w.credited)
			}
		})
	}
}

func TestOnlyDeliveredMatchesAreCredited(t *testing.T) {
	long := prompt(256, 1)
	w := newWorld(t).hold("a", long).hold("b", long[:48]).join("c")
	w.ask(byTokens(long))
	if len(w.credited) != 0 {
		t.Errorf("without LFU: %v", w.credited)
	}
	w.policy.LFU = true
	w.ask(byTokens(long))
	if len(w.credited) != 1 || w.credited[index.Holder{Replica: "a"}] != 16 {
		t.Errorf("credited %v", w.credited)
	}
	w.policy.RoutingFloorScore = 1e6
	w.ask(byTokens(long))
	if w.credited[index.Holder{Replica: "a"}] != 16 {
		t.Errorf("a match that was withheld is credited: %v", w.credited)
	}
}

// byteTokenizer takes each byte of a prompt for a token.
type byteTokenizer struct{ seen *tokenize.Input }

func (b byteTokenizer) Encode(_ context.Context, model string, in tokenize.Input) (tokenize.Result, error) {
	if b.seen != nil {
		*b.seen = in
	}
	if in.Prompt == "!" {
		return tokenize.Result{}, tokenize.Unavailable("cannot be tokenized")
	}
	var ids []uint32
	for _, b := range []byte(in.Prompt + in.Raw) {
		ids = append(ids, uint32(b))
	}
	return tokenize.Result{IDs: ids, Model: model}, nil
}

func TestTextIsTokenizedAndEchoed(t *testing.T) {
	text := "The quick brown fox jumps over the lazy dog, and the dog does not even wake."
	ids := tokensOf(text)
	w := newWorld(t).hold("a", ids).join("b")
	w.Tokenizer = byteTokenizer{}
	for name, c := range map[string]struct {
		req          *pb.LookupRouteRequest
		want, reason string
		echo         int
	}{
		"a known prompt":          {&pb.LookupRouteRequest{PromptText: text}, "PREFIX_MATCH a:64", "", len(text)},
		"known raw text":          {&pb.LookupRouteRequest{RawText: text}, "PREFIX_MATCH a:64", "", len(text)},
		"less than a block":       {&pb.LookupRouteRequest{PromptText: "hello"}, "NO_HINT", "", 5},
		"what cannot be read":     {&pb.LookupRouteRequest{PromptText: "!"}, "NO_HINT", "unavailable", 0},
		"tokens come before text": {&pb.LookupRouteRequest{TokenIds: ids, PromptText: "!"}, "PREFIX_MATCH a:64", "", 0},
		"a prompt before raw":     {&pb.LookupRouteRequest{PromptText: "!", RawText: text}, "NO_HINT", "unavailable", 0},
	} {
		t.Run(name, func(t *testing.T) {
			c.req.TenantId, c.req.ModelId, c.req.HashScheme = "t", "m", "vllm"
			got := w.ask(c.req)
			if brief(got) != c.want || got.TextReason != c.reason || len(got.TokenIds) != c.echo {
				t.Errorf("got %v, want %s with reason %q and %d ids", got, c.want, c.reason, c.echo)
			}
		})
	}
}

func tokensOf(text string) []uint32 {
	result, _ := byteTokenizer{}.Encode(context.Background(), "", tokenize.Input{Prompt: text})
	return result.IDs
}

func TestTextReachesTheTokenizerAsItWasSent(t *testing.T) {
	message := &pb.ChatMessage{
		Role: "assistant", Content: "c", ContentPartsJson: "[1]", Name: "n", ToolCallsJson: "[2]", ToolCallId: "id", Reasoning: "r",
	}
	read := tokenize.Message{
		Role: "assistant", Content: "c", Parts: []byte("[1]"), Name: "n", ToolCalls: []byte("[2]"), ToolCallID: "id", Reasoning: "r",
	}
	for name, c := range map[string]struct {
		req  *pb.LookupRouteRequest
		want tokenize.Input
	}{
		"a prompt": {&pb.LookupRouteRequest{PromptText: "p", ToolsJson: "[]", RawText: "r"}, tokenize.Input{Prompt: "p", Tools: []byte("[]")}},
		"raw text": {&pb.LookupRouteRequest{RawText: "r", AddGenerationPrompt: new(bool)}, tokenize.Input{Raw: "r"}},
		"raw text alone": {
			&pb.LookupRouteRequest{RawText: "r", AddSpecialTokens: new(bool)}, tokenize.Input{Raw: "r", NoSpecialTokens: true},
		},
		"a chat to be answered": {
			&pb.LookupRouteRequest{Messages: []*pb.ChatMessage{message}, PromptText: "p"}, tokenize.Input{Messages: []tokenize.Message{read}},
		},
		"a chat with everything": {
			&pb.LookupRouteRequest{
				Messages: []*pb.ChatMessage{message}, ToolsJson: "[3]", DocumentsJson: "[4]", ChatTemplateKwargsJson: "{}",
				AddGenerationPrompt: new(bool), ContinueFinalMessage: true,
			},
			tokenize.Input{
				Messages: []tokenize.Message{read}, Tools: []byte("[3]"), Documents: []byte("[4]"), TemplateArgs: []byte("{}"),
				NoGenerationPrompt: true, ContinueFinal: true,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var got tokenize.Input
			w.Tokenizer = byteTokenizer{&got}
			w.ask(c.req)
			if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// refusingTokenizer refuses everything.
type refusingTokenizer tokenize.Reason

func (r refusingTokenizer) Encode(context.Context, string, tokenize.Input) (tokenize.Result, error) {
	return tokenize.Result{}, &tokenize.Error{Reason: tokenize.Reason(r)}
}

func TestEveryReasonIsAnsweredAndCounted(t *testing.T) {
	w := newWorld(t).hold("a", tokensOf("hello"))
	for _, reason := range tokenize.Reasons()[1:] {
		w.Tokenizer = refusingTokenizer(reason)
		got := w.ask(request(func(r *pb.LookupRouteRequest) { r.RawText = "hello" }))
		if brief(got) != "NO_HINT" || got.TextReason != string(reason) || len(got.TokenIds) > 0 {
			t.Errorf("%s: answer %v", reason, got)
		}
	}
	w.Tokenizer = byteTokenizer{}
	w.ask(request(func(r *pb.LookupRouteRequest) { r.RawText = "hello" }))
	families, err := w.Metrics.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "inferencecache_tokenize_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetCounter().GetValue() != 1 {
				t.Errorf("%v", m)
			}
		}
		if len(f.GetMetric()) != len(tokenize.Reasons()) {
			t.Errorf("%d reasons are counted", len(f.GetMetric()))
		}
		return
	}
	t.Error("nothing is counted")
}

func TestWithoutATokenizerTextHasNoHintAndAReason(t *testing.T) {
	w := newWorld(t).hold("a", tokensOf("hello"))
	got := w.ask(request(func(r *pb.LookupRouteRequest) { r.PromptText, r.Explain = "hello", true }))
	if brief(got) != "NO_HINT" || got.TextReason != "unavailable" || len(got.TokenIds) > 0 {
		t.Errorf("answer %v", got)
	}
	if found := got.GetExplanation().GetSteps()[0].GetFinding(); !strings.Contains(found, "no tokenizer") {
		t.Errorf("explained as %q", found)
	}
}

func TestWhoeverSendsTooManyMessagesHasFewOfThemRead(t *testing.T) {
	w := newWorld(t)
	var got tokenize.Input
	w.Tokenizer = byteTokenizer{&got}
	w.ask(request(func(r *pb.LookupRouteRequest) { r.Messages = make([]*pb.ChatMessage, 2*maxMessages) }))
	if len(got.Messages) != maxMessages {
		t.Errorf("%d messages are read", len(got.Messages))
	}
}

// deadlineTokenizer notes how long it was given, and takes all of it.
type deadlineTokenizer struct {
	w     *world
	given *time.Duration
}

func (d deadlineTokenizer) Encode(ctx context.Context, _ string, _ tokenize.Input) (tokenize.Result, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return tokenize.Result{}, errors.New("no deadline")
	}
	*d.given = time.Until(deadline)
	d.w.now = d.w.now.Add(10 * time.Second)
	return tokenize.Result{IDs: prompt(64, 1)}, nil
}

func TestTokenizingIsBounded(t *testing.T) {
	ask := request(func(r *pb.LookupRouteRequest) { r.PromptText = "hello" })
	for name, c := range map[string]struct{ policy, least, most time.Duration }{
		"by 5 s where nothing else bounds it": {0, 4 * time.Second, 5 * time.Second},
		"by the policy":                       {time.Second, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).hold("a", prompt(64, 1))
			w.policy.LookupTimeout = c.policy
			var given time.Duration
			w.Tokenizer = deadlineTokenizer{w, &given}
			got := w.ask(ask)
			if brief(got) != "TIMEOUT" || len(got.TokenIds) != 64 {
				t.Errorf("answer %v", got)
			}
			if given < c.least || given > c.most {
				t.Errorf("given %v, want %v to %v", given, c.least, c.most)
			}
		})
	}
}

func TestExplanationsAreBounded(t *testing.T) {
	w := newWorld(t).hold("a", prompt(64, 1))
	for i := range maxExplained + 10 {
		if err := w.Registry.Report(scope, index.Holder{Replica: fmt.Sprint("pod-", i)}, 0, t0); err != nil {
			t.Fatal(err)
		}
	}
	req := byTokens(prompt(64, 1))
	req.Explain = true
	e := w.ask(req).GetExplanation()
	if len(e.GetCandidates()) != maxExplained || e.GetOmitted() != 11 || e.GetCandidates()[0].GetReplicaId() != "a" {
		t.Errorf("%d candidates, %d omitted", len(e.GetCandidates()), e.GetOmitted())
	}
}
