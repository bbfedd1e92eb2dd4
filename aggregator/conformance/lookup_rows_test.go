package conformance

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/policy"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

var (
	long  = prompt(256, 1)
	other = prompt(256, 2)
)

func noAffinity(p *policy.Policy) { p.Affinity = false }

func matchRows() []row {
	parted := append(slices.Clone(long[:160]), prompt(96, 9)...)
	return []row{
		{rule: "a held prompt is a match", given: all(hold("a", long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=128"},
		{rule: "a chain says the same as its tokens", given: all(hold("a", long), join("b")), ask: ask(chain(long)), want: "PREFIX_MATCH a:256=128"},
		{rule: "packed hashes say the same as a chain", own: true, given: all(hold("a", long), join("b")), ask: ask(packed(long)), want: "PREFIX_MATCH a:256=128"},
		{rule: "an opaque prefix matches exactly", given: all(holdWhole("a", "key", 100), join("b")), ask: ask(hash("key", 100)), want: "PREFIX_MATCH a:100=50"},
		{rule: "an opaque prefix has the tokens that it was reported with", given: all(holdWhole("a", "key", 100), join("b")), ask: ask(hash("key", 5)), want: "PREFIX_MATCH a:100"},
		{rule: "an opaque prefix that differs in a byte does not match", given: all(holdWhole("a", "key", 100)), ask: ask(hash("kez", 100)), want: "AFFINITY_HINT a:0"},
		{rule: "a chain need not be held to its end", given: all(hold("a", long[:128]), join("b")), ask: ask(chain(long)), want: "PREFIX_MATCH a:128=64"},
		{rule: "a match ends where the prompts part", given: all(hold("a", parted), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:160"},
		{rule: "blocks behind a hole do not count", given: all(
			hold("a", long), event(pb.CacheEvent_PREFIX_EVICTED, func(e *pb.CacheEvent) { e.PrefixHash = hashes(long)[8] }), join("b"),
		), ask: ask(chain(long)), want: "PREFIX_MATCH a:128"},
		{rule: "without the first block nothing matches", given: all(
			hold("a", long), event(pb.CacheEvent_PREFIX_EVICTED, func(e *pb.CacheEvent) { e.PrefixHash = hashes(long)[0] }),
		), ask: ask(chain(long)), want: "AFFINITY_HINT a:0"},
		{rule: "a suffix alone does not match", given: all(report(update("a", &pb.PrefixEntry{
			BlockHashes: hashes(long)[4:], BlockTokenCounts: slices.Repeat([]int32{16}, 12),
		}))), ask: ask(chain(long)), want: "AFFINITY_HINT a:0"},
		{rule: "chains that come in pieces are one", given: all(
			report(update("a", &pb.PrefixEntry{BlockHashes: hashes(long)[8:], BlockTokenCounts: slices.Repeat([]int32{16}, 8)})),
			hold("a", long[:128]), join("b"),
		), ask: ask(chain(long)), want: "PREFIX_MATCH a:256"},
		{rule: "one opaque entry per block makes a chain", given: all(report(
			update("a", whole("opaque-x", 40), whole("opaque-y", 80)), update("b", whole("opaque-x", 40)),
		), join("c")), ask: ask(opaque("xy", 40, 40)), want: "PREFIX_MATCH a:80"},
		{
			rule: "tokens of a match are the request's own counts", given: all(report(update("a", chainOf("xy", 16, 16))), join("b")),
			ask: ask(opaque("xyz", 100, 50, 10)), want: "PREFIX_MATCH a:150",
		},
		{
			rule: "an opaque entry meets the first block of a chain and no more", given: all(holdWhole("a", "opaque-x", 200), join("b")),
			ask: ask(opaque("xy", 100, 100)), want: "PREFIX_MATCH a:100",
		},
		{rule: "an entry with a chain and an opaque hash is found by both: the hash", given: all(report(update("a", func() *pb.PrefixEntry {
			e := blocks(long)
			e.PrefixHash, e.TokenCount = []byte("key"), 256
			return e
		}())), join("b")), ask: ask(hash("key", 256)), want: "PREFIX_MATCH a:256"},
		{rule: "an entry with a chain and an opaque hash is found by both: the chain", given: all(report(update("a", func() *pb.PrefixEntry {
			e := blocks(long)
			e.PrefixHash, e.TokenCount = []byte("key"), 256
			return e
		}())), join("b")), ask: ask(chain(long)), want: "PREFIX_MATCH a:256"},
		{rule: "hash widths may differ within a chain", given: all(report(update("a", &pb.PrefixEntry{
			BlockHashes: [][]byte{[]byte("12345678"), []byte("wide-one-12345678")}, BlockTokenCounts: []int32{50, 50},
		})), join("b")), ask: ask(func(r *pb.LookupRouteRequest) {
			r.BlockHashes, r.BlockTokenCounts = [][]byte{[]byte("12345678"), []byte("wide-one-12345678")}, []int32{50, 50}
		}), want: "PREFIX_MATCH a:100"},
		{
			rule: "token counts that overflow are cut, not wrapped", given: all(report(update("a", chainOf("xy", 16, 16))), join("b")),
			ask: ask(opaque("xy", math.MaxInt32, 16)), want: "PREFIX_MATCH a:2147483647",
		},
		{rule: "a second report of a prompt changes nothing", given: all(hold("a", long), hold("a", long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=128", state: "prefixes=16 b:0/0"},
		{rule: "updates add up", given: all(hold("a", long), hold("a", other), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256"},
		{
			rule: "hash schemes do not meet", given: all(hold("a", long), updateWith("b", func(u *pb.CacheStateUpdate) { u.HashScheme = "sglang" }, blocks(other))),
			ask: ask(tokens(other)), want: "AFFINITY_HINT a:0",
		},
		{
			rule: "models do not meet", given: all(hold("a", long), updateWith("b", func(u *pb.CacheStateUpdate) { u.ModelId = "m2" }, blocks(other))),
			ask: ask(tokens(other)), want: "AFFINITY_HINT a:0",
		},
		{rule: "latency is not negative", given: all(hold("a", long)), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256", also: func(r *pb.LookupRouteResponse) error {
			if r.LookupLatencyUs < 0 {
				return fmt.Errorf("latency %d", r.LookupLatencyUs)
			}
			return nil
		}},
	}
}

func rankRows() []row {
	probability := func(want float32) func(*pb.LookupRouteResponse) error {
		return func(r *pb.LookupRouteResponse) error {
			if got := r.ReplicaScores[0].EstimatedCacheHitProb; got < want-0.01 || got > want+0.01 {
				return fmt.Errorf("hit probability %g, want %g", got, want)
			}
			return nil
		}
	}
	return []row{
		{rule: "the longest match comes first", given: all(hold("a", long[:128]), hold("b", long), join("c")), ask: ask(tokens(long)), want: "PREFIX_MATCH b:256=170.67 a:128=42.67"},
		{
			rule: "three depths of three replicas: power 2/3, 1/3, 0", given: all(hold("a", long), hold("b", long[:128]), hold("c", long[:64])),
			ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=170.67 b:128=42.67 c:64=0",
		},
		{rule: "a lone replica has power 1", given: all(hold("a", long)), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=256"},
		{rule: "replicas that hold nothing count against the power's denominator", given: all(hold("a", long), join("b", "c", "d")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=192"},
		{rule: "equal depths share their power", given: all(together(long, "a", "b"), join("c", "d")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=128 b:256=128"},
		{
			rule: "opaque prefixes have no depth: all holders count for each", given: all(holdWhole("a", "key", 300), holdWhole("b", "key", 100), join("c", "d")),
			ask: ask(hash("key", 300)), want: "PREFIX_MATCH a:300=150 b:100=50",
		},
		{
			rule: "power counts replicas of every adapter", given: all(hold("a", long), updateWith("b", func(u *pb.CacheStateUpdate) { u.AdapterId = "lora" }, blocks(long))),
			ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=128",
		},
		{
			rule: "power counts replicas of the hash scheme alone", given: all(hold("a", long), updateWith("b", func(u *pb.CacheStateUpdate) { u.HashScheme = "sglang" }, blocks(long))),
			ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=256",
		},
		{rule: "equal scores come in order of ids", given: all(hold("b", long), hold("c", long), hold("a", long), join("d")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256 b:256 c:256"},
		{rule: "pressure takes its part of the score", given: all(hold("a", long), stats("a", 0, 0.25), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=96"},
		{
			rule: "pressure outweighs a longer match", given: all(hold("a", long), stats("a", 0, 0.9), hold("b", long[:128]), join("c", "d")),
			ask: ask(tokens(long)), want: "PREFIX_MATCH b:128=64 a:256=19.2",
		},
		{
			rule: "full pressure leaves no score, and the replica in the list", given: all(hold("a", long), stats("a", 0, 1), hold("b", long[:128]), join("c", "d")),
			ask: ask(tokens(long)), want: "PREFIX_MATCH b:128=64 a:256=0",
		},
		{rule: "a replica without statistics counts as idle", given: all(hold("a", long), hold("b", long), stats("b", 0, 0.5), join("c", "d")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=128 b:256=64"},
		{
			rule: "statistics count over adapters and schemes", given: all(hold("a", long),
				updateWith("a", func(u *pb.CacheStateUpdate) { u.HashScheme = ""; u.Stats = &pb.ReplicaStats{Pressure: 0.5} }), join("b")),
			ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=64",
		},
		{rule: "the last statistics count", given: all(hold("a", long), stats("a", 0, 1), stats("a", 0, 0.5), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=64"},
		{rule: "older statistics that come late do not count", own: true, given: all(hold("a", long), stats("a", 0, 0.5), agedStats(time.Minute, "a", 0, 1), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=64"},
		{rule: "freshness falls linearly over the TTL", given: all(aged(15*time.Minute, "a", long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=64", also: probability(0.5)},
		{
			rule: "the oldest block of a match makes its freshness", given: all(aged(15*time.Minute, "a", long[:128]),
				report(update("a", &pb.PrefixEntry{BlockHashes: hashes(long)[8:], BlockTokenCounts: slices.Repeat([]int32{16}, 8)})), join("b")),
			ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=64", also: probability(0.5),
		},
		{rule: "a report makes an entry fresh again", given: all(aged(15*time.Minute, "a", long), hold("a", long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=128", also: probability(1)},
		{rule: "an older report does not make it old", own: true, given: all(hold("a", long), aged(15*time.Minute, "a", long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=128"},
		{rule: "a timestamp in the future is now", own: true, given: all(aged(-1000*time.Hour, "a", long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256=128", also: probability(1)},
		{rule: "the hit probability is the freshness, however short the match", given: all(hold("a", long[:64]), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:64", also: probability(1)},
		{rule: "a tight target favours the fresh", given: all(hold("a", long), join("b")), ask: ask(tokens(long), ttft(199)), want: "PREFIX_MATCH a:256=256"},
		{rule: "a target of 200 ms is not tight", given: all(hold("a", long), join("b")), ask: ask(tokens(long), ttft(200)), want: "PREFIX_MATCH a:256=128"},
		{rule: "a target of 1 ms is tight", given: all(hold("a", long), join("b")), ask: ask(tokens(long), ttft(1)), want: "PREFIX_MATCH a:256=256"},
		{rule: "no target is not tight", given: all(hold("a", long), join("b")), ask: ask(tokens(long), ttft(0)), want: "PREFIX_MATCH a:256=128"},
		{rule: "a negative target is not tight", given: all(hold("a", long), join("b")), ask: ask(tokens(long), ttft(-5)), want: "PREFIX_MATCH a:256=128"},
		{rule: "the bias of a tight target shrinks with age", given: all(aged(15*time.Minute, "a", long), join("b")), ask: ask(tokens(long), ttft(100)), want: "PREFIX_MATCH a:256=96"},
		{rule: "tbt_ms changes nothing", given: all(hold("a", long), join("b")), ask: ask(tokens(long), func(r *pb.LookupRouteRequest) { r.Slo = &pb.SLO{TbtMs: 1} }), want: "PREFIX_MATCH a:256=128"},
	}
}

func tierRows() []row {
	in := func(replica string, tier pb.CacheTier, ids []uint32) act {
		e := blocks(ids)
		e.Tier = tier
		return report(update(replica, e))
	}
	rest := func(tier pb.CacheTier) act {
		return report(update("a", &pb.PrefixEntry{BlockHashes: hashes(long)[8:], BlockTokenCounts: slices.Repeat([]int32{16}, 8), Tier: tier}))
	}
	return []row{
		{rule: "an entry that names no tier is in T1", given: all(in("a", 0, long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256@T1"},
		{rule: "T1 is kept", given: all(in("a", 1, long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256@T1"},
		{rule: "T2 is kept", given: all(in("a", 2, long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256@T2"},
		{rule: "T3 is kept", given: all(in("a", 3, long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256@T3"},
		{rule: "an eviction moves T1 to T2", given: all(in("a", 1, long), in("a", 2, long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256@T2"},
		{rule: "a store moves T2 to T1", given: all(in("a", 2, long), in("a", 1, long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256@T1"},
		{rule: "a run has the tier of its coldest block", given: all(in("a", 1, long[:128]), rest(2), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256@T2"},
		{rule: "blocks behind the run do not make it cold", given: all(in("a", 1, long[:128]), rest(2), join("b")), ask: ask(tokens(long[:128])), want: "PREFIX_MATCH a:128@T1"},
		{rule: "the tier does not rank", given: all(in("a", 2, long), in("b", 1, long), join("c")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256@T2 b:256@T1"},
		{rule: "a tier of a later version is shown as unspecified", given: all(in("a", 9, long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256@UNSPECIFIED"},
		{rule: "a negative tier too", given: all(in("a", -1, long), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256@UNSPECIFIED"},
		{rule: "an unknown tier is colder than all known", given: all(in("a", 3, long[:128]), rest(9), join("b")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256@UNSPECIFIED"},
		{rule: "an opaque prefix has a tier", given: all(report(update("a", &pb.PrefixEntry{PrefixHash: []byte("key"), TokenCount: 100, Tier: 2})), join("b")), ask: ask(hash("key", 100)), want: "PREFIX_MATCH a:100@T2"},
		{rule: "affinity claims no tier", given: all(hold("a", other)), ask: ask(tokens(long)), want: "AFFINITY_HINT a:0@UNSPECIFIED"},
	}
}

func adapterRows() []row {
	under := func(update, entry string, ids []uint32) act {
		e := blocks(ids)
		e.AdapterId = entry
		return updateWith("a", func(u *pb.CacheStateUpdate) { u.AdapterId = update }, e)
	}
	echo := func(want string) func(*pb.LookupRouteResponse) error {
		return func(r *pb.LookupRouteResponse) error {
			if r.AdapterId != want {
				return fmt.Errorf("echo %q, want %q", r.AdapterId, want)
			}
			return nil
		}
	}
	evicted := func(adapter string) act {
		return event(pb.CacheEvent_PREFIX_EVICTED, func(e *pb.CacheEvent) { e.PrefixHash, e.AdapterId = hashes(long)[0], adapter })
	}
	return []row{
		{rule: "an adapter is a partition of its own", given: all(under("", "lora", long), join("b")), ask: ask(tokens(long), adapter("lora")), want: "PREFIX_MATCH a:256", also: echo("lora")},
		{rule: "the base model does not meet an adapter", policy: noAffinity, given: all(under("", "lora", long)), ask: ask(tokens(long)), want: "NO_HINT"},
		{rule: "an adapter does not meet the base model", policy: noAffinity, given: all(under("", "", long)), ask: ask(tokens(long), adapter("lora")), want: "NO_HINT", also: echo("lora")},
		{rule: "adapters do not meet each other", policy: noAffinity, given: all(under("", "x", long)), ask: ask(tokens(long), adapter("y")), want: "NO_HINT"},
		{rule: "an update's adapter is its entries' default", given: all(under("lora", "", long), join("b")), ask: ask(tokens(long), adapter("lora")), want: "PREFIX_MATCH a:256"},
		{rule: "an entry's adapter goes before the update's", given: all(under("x", "y", long), join("b")), ask: ask(tokens(long), adapter("y")), want: "PREFIX_MATCH a:256"},
		{rule: "and the update's does not count then", policy: noAffinity, given: all(under("x", "y", long)), ask: ask(tokens(long), adapter("x")), want: "NO_HINT"},
		{rule: "an adapter that nobody reports is a miss, not a mistake", given: all(under("", "", long)), ask: ask(tokens(other), adapter("new")), want: "AFFINITY_HINT a:0", also: echo("new")},
		{rule: "opaque prefixes are partitioned too", policy: noAffinity, given: all(updateWith("a", func(u *pb.CacheStateUpdate) { u.AdapterId = "x" }, whole("key", 100))), ask: ask(hash("key", 100)), want: "NO_HINT"},
		{rule: "an eviction of one adapter leaves the others", given: all(under("", "", long), under("", "lora", long), join("b"), evicted("lora")), ask: ask(tokens(long)), want: "PREFIX_MATCH a:256"},
		{rule: "and takes its own", policy: noAffinity, given: all(under("", "", long), under("", "lora", long), evicted("lora")), ask: ask(tokens(long), adapter("lora")), want: "NO_HINT"},
		{rule: "an eviction that names no adapter takes all", policy: noAffinity, given: all(under("", "lora", long), evicted("")), ask: ask(tokens(long), adapter("lora")), want: "NO_HINT"},
		{rule: "TENANT_HOT knows no adapters", given: all(hold("a", other), stats("a", 0.5, 0)), ask: ask(hash("new", 10), adapter("lora")), want: "TENANT_HOT a:0", also: echo("lora")},
		{rule: "a malformed request is not echoed", given: all(hold("a", long)), ask: ask(adapter("lora"), func(r *pb.LookupRouteRequest) { r.BlockTokenCounts = []int32{1} }), want: "NO_HINT", also: echo("")},
		{rule: "POLICY_REQUIRES_CHAIN is not echoed", policy: requireChain, given: all(hold("a", long)), ask: ask(adapter("lora"), tokens(long)), want: "POLICY_REQUIRES_CHAIN", also: echo("")},
		{rule: "UNKNOWN_MODEL is echoed: the index was consulted", given: all(hold("a", long)), ask: ask(adapter("lora"), tokens(long), model("none")), want: "UNKNOWN_MODEL", also: echo("lora")},
	}
}

func requireChain(p *policy.Policy) { p.RequireChain = true }

func inputRows() []row {
	a, b, c := prompt(128, 1), prompt(128, 2), prompt(128, 3)
	state := all(hold("a", a), hold("b", b), hold("c", c), holdWhole("d", "key", 128))
	chains := func(on bool) func(*policy.Policy) { return func(p *policy.Policy) { p.ChainMatching = on } }
	key := hash("key", 128)
	ragged := func(hashCount, counts int) change {
		return func(r *pb.LookupRouteRequest) {
			r.BlockHashes, r.BlockTokenCounts = hashes(b)[:hashCount], slices.Repeat([]int32{16}, counts)
		}
	}
	noEcho := func(r *pb.LookupRouteResponse) error {
		if len(r.TokenIds) > 0 {
			return errors.New("token ids are echoed that the server did not make")
		}
		return nil
	}
	return []row{
		{rule: "packed hashes come before a chain's opaque prefix, tokens and text", own: true, given: state, ask: ask(packed(a), key, tokens(c), text), want: "PREFIX_MATCH a:128"},
		{rule: "a chain comes before an opaque prefix", given: state, ask: ask(chain(b), key), want: "PREFIX_MATCH b:128"},
		{rule: "a chain comes before tokens", given: state, ask: ask(chain(b), tokens(c)), want: "PREFIX_MATCH b:128", also: noEcho},
		{rule: "a chain comes before text", given: state, ask: ask(chain(b), text), want: "PREFIX_MATCH b:128"},
		{rule: "an opaque prefix comes before tokens", given: state, ask: ask(key, tokens(c)), want: "PREFIX_MATCH d:128"},
		{rule: "an opaque prefix comes before text", given: state, ask: ask(key, text), want: "PREFIX_MATCH d:128"},
		{rule: "tokens come before text", given: state, ask: ask(tokens(c), text), want: "PREFIX_MATCH c:128", also: noEcho},
		{rule: "a chain that matches nothing does not fall back to the opaque prefix", policy: noAffinity, given: state, ask: ask(chain(prompt(128, 7)), key), want: "NO_HINT"},
		{rule: "an opaque prefix that matches nothing does not fall back to tokens", policy: noAffinity, given: state, ask: ask(hash("none", 128), tokens(c)), want: "NO_HINT"},

		{rule: "without chain matching an opaque prefix comes before a chain", policy: chains(false), given: state, ask: ask(chain(b), key), want: "PREFIX_MATCH d:128"},
		{rule: "without chain matching tokens are one prefix", policy: chains(false), given: state, ask: ask(tokens(c)), want: "PREFIX_MATCH c:128"},
		{rule: "which matches as a whole or not at all", policy: func(p *policy.Policy) { p.ChainMatching = false; p.Affinity = false }, given: state, ask: ask(tokens(append(slices.Clone(c), prompt(16, 8)...))), want: "NO_HINT"},
		{rule: "without chain matching a chain beside tokens is ignored", policy: chains(false), given: state, ask: ask(chain(b), tokens(c)), want: "PREFIX_MATCH c:128"},
		{rule: "without chain matching a chain alone is no input", policy: chains(false), given: state, ask: ask(chain(b)), want: "NO_HINT"},
		{rule: "without chain matching a ragged chain beside an opaque prefix is ignored", policy: chains(false), given: state, ask: ask(ragged(2, 1), key), want: "PREFIX_MATCH d:128"},
		{rule: "without chain matching packed hashes alone are no input", own: true, policy: chains(false), given: state, ask: ask(packed(a)), want: "NO_HINT"},

		{rule: "more hashes than counts are malformed", given: state, ask: ask(ragged(3, 2)), want: "NO_HINT"},
		{rule: "more counts than hashes are malformed", given: state, ask: ask(ragged(2, 3)), want: "NO_HINT"},
		{rule: "hashes without counts are malformed", given: state, ask: ask(ragged(2, 0)), want: "NO_HINT"},
		{rule: "counts without hashes are malformed", given: state, ask: ask(ragged(0, 2)), want: "NO_HINT"},
		{rule: "a malformed chain does not fall back to the opaque prefix", given: state, ask: ask(ragged(3, 2), key), want: "NO_HINT"},
		{rule: "a malformed chain does not fall back to tokens", given: state, ask: ask(ragged(0, 1), tokens(c)), want: "NO_HINT"},
		{rule: "a malformed chain does not get affinity", given: state, ask: ask(ragged(3, 2)), want: "NO_HINT"},
		{rule: "a negative count is malformed", given: state, ask: ask(func(r *pb.LookupRouteRequest) { r.BlockHashes, r.BlockTokenCounts = hashes(b)[:1], []int32{-16} }), want: "NO_HINT"},
		{rule: "an empty hash in a chain matches nothing", policy: noAffinity, given: state, ask: ask(func(r *pb.LookupRouteRequest) { r.BlockHashes, r.BlockTokenCounts = [][]byte{{}}, []int32{100} }), want: "NO_HINT"},
		{rule: "packed hashes that are not whole are malformed", own: true, given: state, ask: ask(func(r *pb.LookupRouteRequest) { r.PackedBlockHashes, r.BlockSize = make([]byte, 12), 16 }), want: "NO_HINT"},
		{rule: "packed hashes need a block size", own: true, given: state, ask: ask(func(r *pb.LookupRouteRequest) { r.PackedBlockHashes = make([]byte, 8) }), want: "NO_HINT"},
		{rule: "packed hashes need a positive block size", own: true, given: state, ask: ask(func(r *pb.LookupRouteRequest) { r.PackedBlockHashes, r.BlockSize = make([]byte, 8), -1 }), want: "NO_HINT"},

		{rule: "15 tokens are no block", given: state, ask: ask(tokens(c[:15])), want: "NO_HINT"},
		{rule: "16 tokens are one", policy: func(p *policy.Policy) { p.MinimumMatchedTokens = 0 }, given: state, ask: ask(tokens(c[:16])), want: "PREFIX_MATCH c:16"},
		{rule: "tokens behind the last whole block do not count", given: state, ask: ask(tokens(append(slices.Clone(c), 1, 2, 3))), want: "PREFIX_MATCH c:128"},
		{rule: "2^20 tokens are taken", given: state, ask: ask(tokens(append(slices.Clone(c), make([]uint32, 1<<20-128)...))), policy: func(p *policy.Policy) { p.Placement.MinimumMatchedShare = 0 }, want: "PREFIX_MATCH c:128"},
		{rule: "one more is not", given: state, ask: ask(tokens(make([]uint32, 1<<20+1))), want: "NO_HINT"},
		{rule: "text without a tokenizer has no hint", own: true, given: state, ask: ask(text), want: "NO_HINT", also: noEcho},
		{rule: "more text than 1 MiB has no hint", given: state, ask: ask(func(r *pb.LookupRouteRequest) { r.PromptText = string(make([]byte, 1<<20+1)) }), want: "NO_HINT"},
		{rule: "nothing at all is a miss without affinity", given: state, ask: ask(), want: "NO_HINT"},
		{rule: "nothing at all may find warm replicas", given: all(hold("a", a), stats("a", 0.5, 0)), ask: ask(), want: "TENANT_HOT a:0"},
		{rule: "nothing at all is diagnosed", given: state, ask: ask(model("none")), want: "UNKNOWN_MODEL"},
		{rule: "the reserved tenant has no hint", given: state, ask: ask(tokens(c), tenant("inferencecache.io/probe")), want: "NO_HINT", also: func(r *pb.LookupRouteResponse) error {
			if r.LookupLatencyUs != 0 {
				return fmt.Errorf("latency %d", r.LookupLatencyUs)
			}
			return nil
		}},
	}
}
