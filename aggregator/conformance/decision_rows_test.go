package conformance

import (
	"time"

	"github.com/inferencecache/inferencecache/aggregator/policy"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// precedenceRows proves for pairs of codes which one wins where both conditions hold.
func precedenceRows() []row {
	late := func(p *policy.Policy) { p.LookupTimeout = time.Nanosecond }
	also := func(fs ...func(*policy.Policy)) func(*policy.Policy) {
		return func(p *policy.Policy) {
			for _, f := range fs {
				f(p)
			}
		}
	}
	minimum := func(p *policy.Policy) { p.MinimumPrefixTokens = 1000 }
	held := all(hold("a", long), join("b"))
	warm := all(hold("a", long), stats("a", 0.5, 0))
	ragged := func(r *pb.LookupRouteRequest) { r.BlockTokenCounts = []int32{1} }
	return []row{
		{rule: "TIMEOUT before PREFIX_MATCH", own: true, policy: late, given: held, ask: ask(tokens(long)), want: "TIMEOUT"},
		{rule: "TIMEOUT before POLICY_REQUIRES_CHAIN", own: true, policy: also(late, requireChain), given: held, ask: ask(tokens(long)), want: "TIMEOUT"},
		{rule: "TIMEOUT before TENANT_HOT", own: true, policy: late, given: warm, ask: ask(hash("new", 1)), want: "TIMEOUT"},
		{rule: "TIMEOUT before AFFINITY_HINT", own: true, policy: late, given: held, ask: ask(tokens(other)), want: "TIMEOUT"},
		{rule: "TIMEOUT before UNKNOWN_MODEL", own: true, policy: late, given: held, ask: ask(tokens(other), model("none")), want: "TIMEOUT"},
		{rule: "TIMEOUT before UNKNOWN_HASH_SCHEME", own: true, policy: late, given: held, ask: ask(tokens(other), scheme("none")), want: "TIMEOUT"},
		{rule: "TIMEOUT before NO_HINT of malformed input", own: true, policy: late, given: held, ask: ask(ragged), want: "TIMEOUT"},
		{rule: "NO_HINT of the reserved tenant before every policy", own: true, policy: late, given: held, ask: ask(tokens(long), tenant("inferencecache.io/probe")), want: "NO_HINT"},
		{rule: "POLICY_REQUIRES_CHAIN before PREFIX_MATCH by tokens", policy: requireChain, given: held, ask: ask(tokens(long)), want: "POLICY_REQUIRES_CHAIN"},
		{rule: "POLICY_REQUIRES_CHAIN before PREFIX_MATCH by an opaque prefix", policy: requireChain, given: all(holdWhole("a", "key", 100)), ask: ask(hash("key", 100)), want: "POLICY_REQUIRES_CHAIN"},
		{rule: "POLICY_REQUIRES_CHAIN before NO_HINT of malformed input", policy: requireChain, given: held, ask: ask(ragged), want: "POLICY_REQUIRES_CHAIN"},
		{rule: "POLICY_REQUIRES_CHAIN before TENANT_HOT", policy: requireChain, given: warm, ask: ask(hash("new", 1)), want: "POLICY_REQUIRES_CHAIN"},
		{rule: "POLICY_REQUIRES_CHAIN before UNKNOWN_MODEL", policy: requireChain, given: held, ask: ask(tokens(long), model("none")), want: "POLICY_REQUIRES_CHAIN"},
		{rule: "POLICY_REQUIRES_CHAIN before AFFINITY_HINT", policy: requireChain, given: held, ask: ask(tokens(other)), want: "POLICY_REQUIRES_CHAIN"},
		{rule: "POLICY_REQUIRES_CHAIN before NO_HINT of empty keys", policy: requireChain, given: held, ask: ask(tokens(long), scheme("")), want: "POLICY_REQUIRES_CHAIN"},
		{rule: "NO_HINT of malformed input before UNKNOWN_MODEL", given: held, ask: ask(ragged, model("none")), want: "NO_HINT"},
		{rule: "NO_HINT of malformed input before PREFIX_MATCH", given: held, ask: ask(ragged, tokens(long)), want: "NO_HINT"},
		{rule: "NO_HINT of too few tokens before UNKNOWN_MODEL", given: held, ask: ask(tokens(long[:3]), model("none")), want: "NO_HINT"},
		{rule: "NO_HINT of too few tokens before AFFINITY_HINT", given: held, ask: ask(tokens(long[:3])), want: "NO_HINT"},
		{rule: "NO_HINT of the minimum before UNKNOWN_MODEL, without affinity", policy: also(minimum, noAffinity), given: held, ask: ask(tokens(long), model("none")), want: "NO_HINT"},
		{rule: "UNKNOWN_MODEL before the minimum's AFFINITY_HINT", policy: minimum, given: held, ask: ask(tokens(long), model("none")), want: "UNKNOWN_MODEL"},
		{rule: "NO_HINT of empty keys before UNKNOWN_MODEL", given: held, ask: ask(tokens(long), model("none"), scheme("")), want: "NO_HINT"},
		{rule: "NO_HINT of empty keys before TENANT_HOT", given: warm, ask: ask(hash("new", 1), scheme("")), want: "NO_HINT"},
		{rule: "NO_HINT of empty keys before AFFINITY_HINT", given: held, ask: ask(tokens(other), scheme("")), want: "NO_HINT"},
		{rule: "PREFIX_MATCH before TENANT_HOT", given: all(holdWhole("a", "key", 100), stats("b", 1, 0)), ask: ask(hash("key", 100)), want: "PREFIX_MATCH a:100"},
		{rule: "PREFIX_MATCH before AFFINITY_HINT", given: held, ask: ask(tokens(long)), want: "PREFIX_MATCH a:256"},
		{rule: "TENANT_HOT before AFFINITY_HINT", given: warm, ask: ask(hash("new", 1)), want: "TENANT_HOT a:0"},
		{rule: "a match that the floor withholds does not become TENANT_HOT", policy: noAffinity, given: all(holdWhole("a", "key", 10), stats("a", 1, 0)), ask: ask(hash("key", 10)), want: "NO_HINT"},
		{rule: "UNKNOWN_TENANT before UNKNOWN_MODEL and UNKNOWN_HASH_SCHEME", given: held, ask: ask(tokens(long), tenant("nobody"), model("none"), scheme("none")), want: "UNKNOWN_TENANT"},
		{rule: "UNKNOWN_MODEL before UNKNOWN_HASH_SCHEME", given: held, ask: ask(tokens(long), model("none"), scheme("none")), want: "UNKNOWN_MODEL"},
		{rule: "UNKNOWN_HASH_SCHEME before AFFINITY_HINT", given: held, ask: ask(tokens(long), scheme("none")), want: "UNKNOWN_HASH_SCHEME"},
		{rule: "AFFINITY_HINT before NO_HINT", given: held, ask: ask(chain(other[:16])), want: "AFFINITY_HINT " + pick(chainSeed(hashes(other[:16])), "a", "b") + ":0"},
	}
}

func floorRows() []row {
	matched := func(floor int32) func(*policy.Policy) {
		return func(p *policy.Policy) { p.MinimumMatchedTokens, p.Affinity = floor, false }
	}
	routing := func(floor float32) func(*policy.Policy) {
		return func(p *policy.Policy) { p.RoutingFloorScore, p.Affinity = floor, false }
	}
	x := func(tokens int32) change { return opaque("x", tokens) }
	heldX := all(report(update("a", chainOf("x", 16))), join("b"))
	everywhere := all(together(long, "a", "b"))
	return []row{
		{rule: "without a policy 64 matched tokens are enough", given: heldX, ask: ask(x(64)), want: "PREFIX_MATCH a:64"},
		{rule: "without a policy 63 are not", given: heldX, ask: ask(x(63)), want: "AFFINITY_HINT " + pick(chainSeed([][]byte{[]byte("opaque-x")}), "a", "b") + ":0"},
		{rule: "a floor of 100 takes 100", policy: matched(100), given: heldX, ask: ask(x(100)), want: "PREFIX_MATCH a:100"},
		{rule: "a floor of 100 refuses 99", policy: matched(100), given: heldX, ask: ask(x(99)), want: "NO_HINT"},
		{rule: "a floor of 0 takes a token", policy: matched(0), given: heldX, ask: ask(x(1)), want: "PREFIX_MATCH a:1"},
		{rule: "a floor of 1 takes a token", policy: matched(1), given: heldX, ask: ask(x(1)), want: "PREFIX_MATCH a:1"},
		{rule: "a match of 0 tokens is none", policy: matched(0), given: heldX, ask: ask(x(0)), want: "NO_HINT"},
		{rule: "replicas are dropped one by one", policy: matched(64), given: all(hold("a", long[:48]), hold("b", long[:64]), hold("c", long), join("d")), ask: ask(tokens(long)), want: "PREFIX_MATCH c:256 b:64"},
		{rule: "power is not computed again without them", policy: matched(64), given: all(hold("a", long[:48]), hold("b", long), join("c", "d")), ask: ask(tokens(long)), want: "PREFIX_MATCH b:256=192"},
		{rule: "opaque prefixes have the floor too: at it", policy: matched(64), given: all(holdWhole("a", "key", 64), join("b")), ask: ask(hash("key", 1)), want: "PREFIX_MATCH a:64"},
		{rule: "opaque prefixes have the floor too: below it", policy: matched(64), given: all(holdWhole("a", "key", 63), join("b")), ask: ask(hash("key", 1000)), want: "NO_HINT"},

		{rule: "without a policy a score above 0.1 is enough", given: all(hold("a", long), stats("a", 0, 0.999), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=0.128"},
		{rule: "without a policy a score below 0.1 is not", policy: noAffinity, given: all(hold("a", long), stats("a", 0, 0.9995), join("b")), ask: ask(tokens(long)), want: "NO_HINT"},
		{rule: "a floor just below the score passes", policy: routing(127), given: all(hold("a", long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=128"},
		{rule: "a floor just above withholds", policy: routing(128.1), given: all(hold("a", long), join("b")), ask: ask(tokens(long)), want: "NO_HINT"},
		{rule: "a floor of 0 is off", policy: routing(0), given: all(hold("a", long), stats("a", 0, 0.9999), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256"},
		{rule: "a negative floor is off", own: true, policy: routing(-1), given: everywhere, ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=0 b:256=0"},
		{rule: "only the best score counts", policy: routing(50), given: all(hold("a", long), hold("b", long[:64]), join("c")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256 b:64"},
		{rule: "the matched-tokens floor comes first: the score of a dropped replica does not count", policy: func(p *policy.Policy) {
			p.MinimumMatchedTokens, p.RoutingFloorScore, p.Affinity = 200, 100, false
		}, given: all(hold("a", long), stats("a", 0, 0.9), hold("b", long[:160]), join("c", "d")), ask: ask(tokens(long)), want: "NO_HINT"},
		{rule: "what every replica holds has a score of 0, below the default", policy: noAffinity, given: everywhere, ask: ask(tokens(long)), want: "NO_HINT"},
		{rule: "which affinity takes up", given: everywhere, ask: ask(tokens(long)), want: "AFFINITY_HINT " + pick(chainSeed(hashes(long)), "a", "b") + ":0"},
		{rule: "with a floor of 0 what every replica holds is hinted", policy: routing(0), given: everywhere, ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=0 b:256=0"},
		{rule: "and then the pressure orders it", own: true, policy: routing(0), given: all(hold("a", long), stats("a", 0, 0.5), hold("b", long), stats("b", 0, 0.25)), ask: ask(tokens(long)), want: "PREFIX_MATCH b:256=0 a:256=0"},
		{rule: "and a saturated replica comes last", own: true, policy: routing(0), given: all(hold("a", long), stats("a", 0, 1), hold("b", long)), ask: ask(tokens(long)), want: "PREFIX_MATCH b:256=0 a:256=0"},
		{rule: "affinity passes over a saturated replica of two", own: true, given: all(hold("a", long), stats("a", 0, 1), hold("b", long)), ask: ask(tokens(long)), want: "AFFINITY_HINT b:0"},
		{rule: "and the other of two", own: true, given: all(hold("a", long), hold("b", long), stats("b", 0, 1)), ask: ask(tokens(long)), want: "AFFINITY_HINT a:0"},
		{rule: "TENANT_HOT knows neither floor", policy: func(p *policy.Policy) { p.RoutingFloorScore, p.MinimumMatchedTokens = 100, 100 }, given: all(hold("a", long), stats("a", 0.5, 0)), ask: ask(hash("new", 1)), want: "TENANT_HOT a:0=0.5"},
	}
}

// minimumRows proves minimumPrefixTokens for every form of input, at its boundary and below, with
// affinity and without.
func minimumRows() []row {
	ids := prompt(128, 1)
	given := all(report(update("a", blocks(ids), whole("key", 128))), join("b"))
	var rows []row
	for _, form := range []struct {
		name string
		own  bool
		by   change
		seed []byte
	}{
		{"tokens", false, tokens(ids), chainSeed(hashes(ids))},
		{"a chain", false, chain(ids), chainSeed(hashes(ids))},
		{"packed hashes", true, packed(ids), chainSeed(hashes(ids))},
		{"an opaque prefix", false, hash("key", 128), []byte("key")},
	} {
		minimum := func(n int64, affinity bool) func(*policy.Policy) {
			return func(p *policy.Policy) { p.MinimumPrefixTokens, p.Affinity = n, affinity }
		}
		add := func(rule, want string, n int64, affinity bool) {
			rows = append(rows, row{rule: form.name + rule, own: form.own, policy: minimum(n, affinity), given: given, ask: ask(form.by), want: want})
		}
		placed := "AFFINITY_HINT " + pick(form.seed, "a", "b") + ":0"
		add(" of the minimum is hinted", "PREFIX_MATCH a:128", 128, false)
		add(" of the minimum is hinted, with affinity", "PREFIX_MATCH a:128", 128, true)
		add(" below the minimum is not", "NO_HINT", 129, false)
		add(" below the minimum gets affinity", placed, 129, true)
	}
	return append(
		rows,
		row{rule: "a minimum of 0 is off", policy: func(p *policy.Policy) { p.MinimumPrefixTokens = 0 }, given: given, ask: ask(hash("key", 0)), want: "PREFIX_MATCH a:128"},
		row{rule: "a negative minimum is off", policy: func(p *policy.Policy) { p.MinimumPrefixTokens = -5 }, given: given, ask: ask(hash("key", 0)), want: "PREFIX_MATCH a:128"},
		row{rule: "what the request says counts, not what is held", policy: func(p *policy.Policy) { p.MinimumPrefixTokens, p.Affinity = 100, false }, given: given, ask: ask(hash("key", 99)), want: "NO_HINT"},
		row{rule: "tokens behind the last whole block do not count for it", policy: func(p *policy.Policy) { p.MinimumPrefixTokens, p.Affinity = 129, false }, given: given, ask: ask(tokens(append(prompt(128, 1), 1, 2, 3))), want: "NO_HINT"},
		row{rule: "below the minimum TENANT_HOT is withheld", policy: func(p *policy.Policy) { p.MinimumPrefixTokens = 10 }, given: all(hold("a", ids), stats("a", 0.5, 0)), ask: ask(hash("new", 9)), want: "AFFINITY_HINT a:0"},
		row{rule: "at the minimum TENANT_HOT is given", policy: func(p *policy.Policy) { p.MinimumPrefixTokens = 10 }, given: all(hold("a", ids), stats("a", 0.5, 0)), ask: ask(hash("new", 10)), want: "TENANT_HOT a:0"},
	)
}

func tenantHotRows() []row {
	known := hold("d", other)
	off := func(affinity bool) func(*policy.Policy) {
		return func(p *policy.Policy) { p.TenantHot, p.Affinity = false, affinity }
	}
	miss := ask(hash("new", 10))
	return []row{
		{rule: "a miss on an opaque prefix goes to warm replicas, warmest first", given: all(known, stats("a", 0.3, 0), stats("b", 0.9, 0)), ask: miss, want: "TENANT_HOT b:0=0.9@UNSPECIFIED a:0=0.3"},
		{rule: "pressure takes its part", given: all(known, stats("a", 0.3, 0), stats("b", 0.9, 0.9)), ask: miss, want: "TENANT_HOT a:0=0.3 b:0=0.09"},
		{rule: "a hit rate of 0.1 is warm", given: all(known, stats("a", 0.1, 0)), ask: miss, want: "TENANT_HOT a:0=0.1"},
		{rule: "a hit rate of 0.09 is not", policy: noAffinity, given: all(known, stats("a", 0.09, 0)), ask: miss, want: "NO_HINT"},
		{rule: "the hit probability is the hit rate", given: all(known, stats("a", 0.3, 0.5)), ask: miss, want: "TENANT_HOT a:0=0.15", also: func(r *pb.LookupRouteResponse) error {
			return near("hit probability", r.ReplicaScores[0].EstimatedCacheHitProb, 0.3)
		}},
		{rule: "the score falls with the age of the statistics", given: all(known, agedStats(150*time.Second, "a", 0.8, 0)), ask: miss, want: "TENANT_HOT a:0=0.4"},
		{rule: "statistics of four minutes are warm", given: all(known, agedStats(4*time.Minute, "a", 0.8, 0)), ask: miss, want: "TENANT_HOT a:0=0.16"},
		{rule: "statistics of five minutes are not", policy: noAffinity, given: all(known, agedStats(5*time.Minute, "a", 0.8, 0)), ask: miss, want: "NO_HINT"},
		{rule: "a tight target doubles fresh statistics", given: all(known, stats("a", 0.3, 0)), ask: ask(hash("new", 10), ttft(100)), want: "TENANT_HOT a:0=0.6"},
		{rule: "equal scores come in order of ids", given: all(known, stats("b", 0.5, 0), stats("a", 0.5, 0)), ask: miss, want: "TENANT_HOT a:0 b:0"},
		{rule: "a replica of another hash scheme is not warm for this one", policy: noAffinity, given: all(known,
			updateWith("a", func(u *pb.CacheStateUpdate) { u.HashScheme = "sglang"; u.Stats = &pb.ReplicaStats{HitRate: 0.9} })), ask: miss, want: "NO_HINT"},
		{rule: "a replica of another model is not", policy: noAffinity, given: all(known,
			updateWith("a", func(u *pb.CacheStateUpdate) { u.ModelId = "m2"; u.Stats = &pb.ReplicaStats{HitRate: 0.9} })), ask: miss, want: "NO_HINT"},
		{rule: "a chain asks for a match, not for warmth", given: all(hold("a", other), stats("a", 0.9, 0)), ask: ask(chain(long)), want: "AFFINITY_HINT a:0"},
		{rule: "so do tokens", given: all(hold("a", other), stats("a", 0.9, 0)), ask: ask(tokens(long)), want: "AFFINITY_HINT a:0"},
		{rule: "without chain matching tokens are one prefix, which may", policy: func(p *policy.Policy) { p.ChainMatching = false }, given: all(hold("a", other), stats("a", 0.9, 0)), ask: ask(tokens(long)), want: "TENANT_HOT a:0"},
		{rule: "switched off, there is no hint", policy: off(false), given: all(known, stats("a", 0.9, 0)), ask: miss, want: "NO_HINT"},
		{rule: "unless affinity has one", policy: off(true), given: all(hold("a", other), stats("a", 0.9, 0)), ask: miss, want: "AFFINITY_HINT a:0"},
		{rule: "a clear forgets the statistics", policy: noAffinity, given: all(known, stats("a", 0.9, 0), event(pb.CacheEvent_ALL_CLEARED)), ask: miss, want: "NO_HINT"},
		{rule: "a hit rate above 1 counts as 1", own: true, given: all(known, stats("a", 40, 0)), ask: miss, want: "TENANT_HOT a:0=1"},
		{rule: "a saturated replica has a score of 0", given: all(known, stats("a", 0.9, 1)), ask: miss, want: "TENANT_HOT a:0=0"},
	}
}

func diagnosticRows() []row {
	known := hold("a", long)
	return []row{
		{rule: "an empty index knows nothing to compare with", alone: true, ask: ask(tokens(long)), want: "NO_HINT"},
		{rule: "statistics alone leave it empty", alone: true, policy: noAffinity, given: all(join("a")), ask: ask(tokens(long), model("none")), want: "NO_HINT"},
		{rule: "the reserved tenant's reports leave it empty", alone: true, given: all(updateWith("a", func(u *pb.CacheStateUpdate) { u.TenantId = "inferencecache.io/probe" }, blocks(long))), ask: ask(tokens(long)), want: "NO_HINT"},
		{rule: "an unknown tenant", given: all(known), ask: ask(tokens(long), tenant("nobody")), want: "UNKNOWN_TENANT"},
		{rule: "an unknown model", given: all(known), ask: ask(tokens(long), model("none")), want: "UNKNOWN_MODEL"},
		{rule: "an unknown hash scheme", given: all(known), ask: ask(tokens(long), scheme("vllm-v1")), want: "UNKNOWN_HASH_SCHEME"},
		{rule: "a new prompt is none of these", policy: noAffinity, given: all(known), ask: ask(tokens(other)), want: "NO_HINT"},
		{rule: "an opaque prefix is diagnosed: tenant", given: all(known), ask: ask(hash("k", 9), tenant("nobody")), want: "UNKNOWN_TENANT"},
		{rule: "an opaque prefix is diagnosed: model", given: all(known), ask: ask(hash("k", 9), model("none")), want: "UNKNOWN_MODEL"},
		{rule: "an opaque prefix is diagnosed: scheme", given: all(known), ask: ask(hash("k", 9), scheme("none")), want: "UNKNOWN_HASH_SCHEME"},
		{rule: "a chain is diagnosed", given: all(known), ask: ask(chain(long), model("none")), want: "UNKNOWN_MODEL"},
		{rule: "an empty tenant is no hint", given: all(known), ask: ask(tokens(long), tenant("")), want: "NO_HINT"},
		{rule: "an empty model is no hint", given: all(known), ask: ask(tokens(long), model("")), want: "NO_HINT"},
		{rule: "an empty scheme is no hint", given: all(known), ask: ask(tokens(long), scheme("")), want: "NO_HINT"},
		{rule: "a tenant with statistics alone is unknown", given: all(join("a")), ask: ask(tokens(long)), want: "UNKNOWN_TENANT"},
		{rule: "a model with statistics alone is unknown", given: all(known, updateWith("a", func(u *pb.CacheStateUpdate) { u.ModelId = "m2"; u.Stats = &pb.ReplicaStats{} })), ask: ask(tokens(long), model("m2")), want: "UNKNOWN_MODEL"},
		{rule: "a scheme with statistics alone is unknown", given: all(known, updateWith("a", func(u *pb.CacheStateUpdate) { u.HashScheme = "x"; u.Stats = &pb.ReplicaStats{} })), ask: ask(tokens(long), scheme("x")), want: "UNKNOWN_HASH_SCHEME"},
		{rule: "after everything is evicted the tenant is unknown", given: all(known, event(pb.CacheEvent_ALL_CLEARED)), ask: ask(tokens(long)), want: "UNKNOWN_TENANT"},
		{rule: "a model of another tenant does not count", given: all(known, updateWith("a", func(u *pb.CacheStateUpdate) { u.TenantId = "conformance-neighbour"; u.ModelId = "m9" }, blocks(long))), ask: ask(tokens(long), model("m9")), want: "UNKNOWN_MODEL"},
		{rule: "diagnostics know no adapters", policy: noAffinity, given: all(known), ask: ask(tokens(long), adapter("x")), want: "NO_HINT"},
	}
}
