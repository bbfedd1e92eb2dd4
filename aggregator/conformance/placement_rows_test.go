package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/rank"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

func near(what string, got, want float32) error {
	if got < want*0.99 || got > want*1.01 {
		return fmt.Errorf("%s %g, want %g", what, got, want)
	}
	return nil
}

var five = []string{"a", "b", "c", "d", "e"}

// known makes the tenant known without a match for any of the prompts.
var known = report(update("a", whole("unrelated", 1)))

func affinityRows() []row {
	placed := func(seed []byte, replicas ...string) string {
		return "AFFINITY_HINT " + pick(seed, slices.Clone(replicas)...) + ":0=0"
	}
	seed := chainSeed(hashes(long))
	zero := func(r *pb.LookupRouteResponse) error {
		if s := r.ReplicaScores[0]; s.Score != 0 || s.EstimatedCacheHitProb != 0 || s.Tier != 0 {
			return fmt.Errorf("the hint claims something: %v", s)
		}
		return nil
	}
	members := all(join(five...), known)
	return []row{
		{rule: "a miss has a place by SHA-256 of the length-prefixed hashes", given: members, ask: ask(chain(long)), want: placed(seed, five...), also: zero},
		{rule: "tokens have the place of their chain", given: members, ask: ask(tokens(long)), want: placed(seed, five...)},
		{rule: "packed hashes have it too", own: true, given: members, ask: ask(packed(long)), want: placed(seed, five...)},
		{rule: "tokens behind the last whole block do not move it", given: members, ask: ask(tokens(append(slices.Clone(long), 9, 9))), want: placed(seed, five...)},
		{rule: "another prompt has a place of its own", given: members, ask: ask(chain(other)), want: placed(chainSeed(hashes(other)), five...)},
		{rule: "a longer prompt has another seed", given: members, ask: ask(chain(long[:128])), want: placed(chainSeed(hashes(long[:128])), five...)},
		{
			rule: "hashes of other widths are prefixed with theirs", given: members, ask: ask(opaque("xyz", 100, 100, 100)),
			want: placed(chainSeed([][]byte{[]byte("opaque-x"), []byte("opaque-y"), []byte("opaque-z")}), five...),
		},
		{
			rule: "token counts are no part of the seed", given: members, ask: ask(opaque("xyz", 1, 1, 1)),
			want: placed(chainSeed([][]byte{[]byte("opaque-x"), []byte("opaque-y"), []byte("opaque-z")}), five...),
		},
		{rule: "an opaque prefix is its own seed", given: members, ask: ask(hash("some key", 10)), want: placed([]byte("some key"), five...)},
		{rule: "without chain matching the last hash is the seed of tokens", policy: func(p *policy.Policy) { p.ChainMatching = false }, given: members, ask: ask(tokens(long)), want: placed(hashes(long)[15], five...)},
		{rule: "the adapter is no part of the seed", given: members, ask: ask(chain(long), adapter("lora")), want: placed(seed, five...)},
		{rule: "the order of reports does not matter", given: all(join("e", "c", "a", "d", "b"), known), ask: ask(chain(long)), want: placed(seed, five...)},
		{rule: "replicas of another scheme have no place", given: all(join("a", "b"), known,
			updateWith("c", func(u *pb.CacheStateUpdate) { u.HashScheme = "sglang" }, blocks(other))), ask: ask(chain(long)), want: placed(seed, "a", "b")},
		{rule: "replicas that hold nothing have a place", given: all(join("z"), known), ask: ask(chain(prompt(64, 3))), want: placed(chainSeed(hashes(prompt(64, 3))), "a", "z")},
		{rule: "pressure short of saturation does not move it", given: all(join(five...), known, stats(pick(seed, slices.Clone(five)...), 0, 0.99)), ask: ask(chain(long)), want: placed(seed, five...)},
		{rule: "switched off, there is no hint", policy: noAffinity, given: members, ask: ask(chain(long)), want: "NO_HINT"},
		{rule: "a ragged chain beside an opaque prefix has no place", policy: func(p *policy.Policy) { p.ChainMatching = false }, given: members, ask: ask(hash("none", 1), func(r *pb.LookupRouteRequest) {
			r.BlockTokenCounts = []int32{1}
		}), want: "NO_HINT"},
		{rule: "no input has no place", given: members, ask: ask(), want: "NO_HINT"},
		{rule: "fewer tokens than a block have no place", given: members, ask: ask(tokens(long[:15])), want: "NO_HINT"},
		{
			rule: "a saturated replica gives way", own: true, given: all(join(five...), known, stats(pick(seed, slices.Clone(five)...), 0, 1)), ask: ask(chain(long)),
			want: "AFFINITY_HINT " + five[rank.Affinity(seed, 5, 1, factorsWithout(five, pick(seed, slices.Clone(five)...)))] + ":0",
		},
	}
}

// factorsWithout are the pressure factors of a fleet of which one is saturated.
func factorsWithout(replicas []string, saturated string) func(int) float32 {
	return func(i int) float32 {
		if replicas[i] == saturated {
			return 0
		}
		return 1
	}
}

// minorWithheld withholds matches of less than an eighth of a long prompt, and affinity with them.
func minorWithheld(p *policy.Policy) { p.MinimumMatchedShare, p.Affinity = 0.125, false }

// placementRows are about the fields that InferenceCache adds to the policy.
func placementRows() []row {
	prompted := prompt(4096, 1)
	part := func(n int) []act { return all(hold("a", prompted[:n]), join("b")) }
	share := func(s float32) func(*policy.Policy) {
		return func(p *policy.Policy) { p.MinimumMatchedShare, p.Affinity = s, false }
	}
	placed := func(blocks int) string { return pick(chainSeed(hashes(prompted)[:blocks]), slices.Clone(five)...) }
	seeded := func(blocks int) func(*policy.Policy) { return func(p *policy.Policy) { p.AffinitySeedBlocks = blocks } }
	members := all(join(five...), known)
	eighth := func(p *policy.Policy) { p.MinimumMatchedShare = 0.125 }
	rows := []row{
		{rule: "without a word about it a match of any share is a hint", given: part(64), ask: ask(tokens(prompted)), want: "PREFIX_MATCH a:64"},
		{rule: "an eighth of a long prompt is enough", policy: eighth, given: part(512), ask: ask(tokens(prompted)), want: "PREFIX_MATCH a:512"},
		{rule: "a block less is not", policy: share(0.125), given: part(496), ask: ask(tokens(prompted)), want: "NO_HINT"},
		{rule: "a match of the last 1024 tokens but one is never minor", policy: share(1), given: part(3088), ask: ask(tokens(prompted)), want: "PREFIX_MATCH a:3088"},
		{rule: "with 1024 tokens to compute it may be", policy: share(1), given: part(3072), ask: ask(tokens(prompted)), want: "NO_HINT"},
		{rule: "a share of 0 is off", policy: share(0), given: part(64), ask: ask(tokens(prompted)), want: "PREFIX_MATCH a:64"},
		{rule: "short prompts know no share", policy: eighth, given: part(64), ask: ask(tokens(prompted[:1072])), want: "PREFIX_MATCH a:64"},
		{rule: "the longest match decides for all", policy: eighth, given: all(hold("a", prompted[:1024]), hold("b", prompted[:64]), join("c")), ask: ask(tokens(prompted)), want: "PREFIX_MATCH a:1024 b:64"},
		{rule: "an opaque prefix knows no share", policy: eighth, given: all(holdWhole("a", "key", 100), join("b")), ask: ask(hash("key", 100_000)), want: "PREFIX_MATCH a:100"},
		{rule: "a withheld match gets a place", policy: eighth, given: part(64), ask: ask(tokens(prompted)), want: "AFFINITY_HINT " + pick(chainSeed(hashes(prompted)), "a", "b") + ":0"},
		{rule: "a seed of 4 blocks gives prompts that begin alike one place", policy: seeded(4), given: members, ask: ask(tokens(prompted[:128])), want: "AFFINITY_HINT " + placed(4) + ":0"},
		{rule: "also when they are longer", policy: seeded(4), given: members, ask: ask(tokens(prompted)), want: "AFFINITY_HINT " + placed(4) + ":0"},
		{rule: "a prompt of fewer blocks has all in its seed", policy: seeded(400), given: members, ask: ask(tokens(prompted)), want: "AFFINITY_HINT " + placed(256) + ":0"},
		{rule: "of the places the one under less pressure is picked", policy: func(p *policy.Policy) { p.AffinityChoices = 4 }, given: all(known, stats("a", 0, 0.9), stats("b", 0, 0.1)), ask: ask(tokens(prompt(64, 5))), want: "AFFINITY_HINT b:0"},
		{rule: "rendezvous places by the highest hash", policy: func(p *policy.Policy) { p.Rendezvous = true }, given: members, ask: ask(tokens(prompted)), want: "AFFINITY_HINT " + highest(chainSeed(hashes(prompted)), five) + ":0"},
	}
	for i := range rows {
		rows[i].own = true
	}
	return append(rows, toleranceRows()...)
}

func highest(seed []byte, replicas []string) string {
	i := rank.Rendezvous(seed, len(replicas), 1, holders(replicas), func(int) float32 { return 1 })
	return replicas[i]
}

func toleranceRows() []row {
	number := xxh3.HashString(strings.Repeat("x", 9)) // the chain is one wide key
	order := []string{"a", "b", "c"}
	slices.SortFunc(order, func(a, b string) int {
		if xxh3.HashStringSeed(a, number) > xxh3.HashStringSeed(b, number) {
			return -1
		}
		return 1
	})
	key := func(r *pb.LookupRouteRequest) {
		r.BlockHashes, r.BlockTokenCounts = [][]byte{[]byte(strings.Repeat("x", 9))}, []int32{100}
	}
	entry := &pb.PrefixEntry{BlockHashes: [][]byte{[]byte(strings.Repeat("x", 9))}, BlockTokenCounts: []int32{100}}
	given := all(report(update("a", entry), update("b", entry), update("c", entry)), stats("a", 0, 0.04), stats("c", 0, 0.02), join("d"))
	tolerance := func(t float32) func(*policy.Policy) { return func(p *policy.Policy) { p.ScoreTolerance = t } }
	return []row{
		{rule: "without a tolerance scores alone order", own: true, policy: tolerance(0), given: given, ask: ask(key), want: "PREFIX_MATCH b:100 c:100 a:100"},
		{rule: "within the tolerance the prompt orders", own: true, policy: tolerance(0.1), given: given, ask: ask(key), want: fmt.Sprintf("PREFIX_MATCH %s:100 %s:100 %s:100", order[0], order[1], order[2])},
	}
}

func policyRows() []row {
	ttl := func(minutes int) func(*policy.Policy) {
		return func(p *policy.Policy) { p.TTL = minutesOf(minutes) }
	}
	rows := []row{
		{rule: "a longer evictionTTL makes entries age slower", policy: ttl(60), given: all(aged(minutesOf(30), "a", long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=64"},
		{rule: "a shorter one makes them age faster", policy: ttl(10), given: all(aged(minutesOf(5), "a", long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=64"},
		{rule: "an entry of a whole evictionTTL ago is refused", policy: ttl(10), given: all(hold("a", other), aged(minutesOf(10), "a", long)), ack: "stale_timestamp=1", own: true, ask: ask(tokens(long)), want: "AFFINITY_HINT a:0"},
		{rule: "LFU changes no answer", policy: func(p *policy.Policy) { p.LFU = true }, given: all(hold("a", long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=128"},
		{rule: "a lookup timeout that is kept changes no answer", policy: func(p *policy.Policy) { p.LookupTimeout = minutesOf(1) }, given: all(hold("a", long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=128"},
		{rule: "requireChain lets a chain pass", policy: requireChain, given: all(hold("a", long), join("b")), ask: ask(chain(long)), want: "PREFIX_MATCH a:256"},
		{rule: "requireChain lets packed hashes pass", own: true, policy: requireChain, given: all(hold("a", long), join("b")), ask: ask(packed(long)), want: "PREFIX_MATCH a:256"},
		{rule: "requireChain lets a chain beside others pass", policy: requireChain, given: all(hold("a", long), join("b")), ask: ask(chain(long), tokens(other), hash("k", 1)), want: "PREFIX_MATCH a:256"},
		{rule: "requireChain refuses hashes without counts", policy: requireChain, given: all(hold("a", long)), ask: ask(func(r *pb.LookupRouteRequest) { r.BlockHashes = hashes(long) }), want: "POLICY_REQUIRES_CHAIN"},
		{rule: "requireChain refuses packed hashes without a block size", own: true, policy: requireChain, given: all(hold("a", long)), ask: ask(func(r *pb.LookupRouteRequest) { r.PackedBlockHashes = make([]byte, 8) }), want: "POLICY_REQUIRES_CHAIN"},
		{rule: "requireChain refuses text", policy: requireChain, given: all(hold("a", long)), ask: ask(text), want: "POLICY_REQUIRES_CHAIN"},
		{rule: "requireChain refuses an empty request", policy: requireChain, given: all(hold("a", long)), ask: ask(), want: "POLICY_REQUIRES_CHAIN"},
		{rule: "requireChain without chain matching leaves no input", policy: func(p *policy.Policy) { p.RequireChain, p.ChainMatching = true, false }, given: all(hold("a", long)), ask: ask(chain(long)), want: "NO_HINT"},
	}
	return rows
}

func candidateRows() []row {
	only := func(ids ...string) change {
		return func(r *pb.LookupRouteRequest) { r.CandidateReplicaIds = ids }
	}
	most := func(n int32) change { return func(r *pb.LookupRouteRequest) { r.MaxResults = n } }
	given := all(hold("a", long), hold("b", long[:128]), hold("c", long[:64]), join("d", "e"))
	seed := chainSeed(hashes(other))
	rows := []row{
		{rule: "only candidates are hinted", given: given, ask: ask(tokens(long), only("b", "c", "d")), want: "PREFIX_MATCH b:128 c:64"},
		{rule: "power is told among the candidates", given: given, ask: ask(tokens(long), only("a", "d")), want: "PREFIX_MATCH a:256=128"},
		{rule: "no candidates named means all", given: given, ask: ask(tokens(long), only()), want: "PREFIX_MATCH a:256 b:128 c:64"},
		{rule: "a candidate named twice counts once", given: given, ask: ask(tokens(long), only("a", "d", "a", "d")), want: "PREFIX_MATCH a:256=128"},
		{rule: "candidates that nobody knows do not count", given: given, ask: ask(tokens(long), only("a", "x", "y")), want: "PREFIX_MATCH a:256=256"},
		{rule: "if nobody knows any there is no hint", given: given, ask: ask(tokens(long), only("x")), want: "NO_HINT"},
		{rule: "affinity places among the candidates", given: given, ask: ask(tokens(other), only("d", "e")), want: "AFFINITY_HINT " + pick(seed, "d", "e") + ":0"},
		{rule: "TENANT_HOT knows the candidates only", given: all(hold("a", long), stats("a", 0.9, 0), stats("b", 0.5, 0)), ask: ask(hash("new", 1), only("b")), want: "TENANT_HOT b:0"},
		{rule: "diagnostics know all replicas", given: given, ask: ask(tokens(long), only("x"), model("none")), want: "UNKNOWN_MODEL"},
		{rule: "what all candidates hold tells none apart", given: given, ask: ask(tokens(long[:64]), only("a", "c")), want: "AFFINITY_HINT " + pick(chainSeed(hashes(long[:64])), "a", "c") + ":0"},
		{rule: "one result", given: given, ask: ask(tokens(long), most(1)), want: "PREFIX_MATCH a:256"},
		{rule: "two results", given: given, ask: ask(tokens(long), most(2)), want: "PREFIX_MATCH a:256 b:128"},
		{rule: "more results than there are", given: given, ask: ask(tokens(long), most(100)), want: "PREFIX_MATCH a:256 b:128 c:64"},
		{rule: "0 results means all", given: given, ask: ask(tokens(long), most(0)), want: "PREFIX_MATCH a:256 b:128 c:64"},
		{rule: "a negative number means all", given: given, ask: ask(tokens(long), most(-1)), want: "PREFIX_MATCH a:256 b:128 c:64"},
		{rule: "the bound does not change the power", given: given, ask: ask(tokens(long), most(1)), want: "PREFIX_MATCH a:256=204.8"},
	}
	for i := range rows {
		rows[i].own = true
	}
	return rows
}
