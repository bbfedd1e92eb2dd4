package indextest

import (
	"testing"

	"github.com/inferencecache/inferencecache/index"
)

var housekeeping = map[string]func(*testing.T, New){
	"entries expire by the TTL of their tenant": func(t *testing.T, n New) {
		x := n(index.Config{Limits: func(tenant string) index.Limits {
			if tenant == "short" {
				return index.Limits{TTL: 60e9}
			}
			return index.Limits{}
		}})
		short := Base
		short.Tenant = "short"
		x.Store(Base, Pod("a"), T1(Words(1, 2), Start), Start)
		x.Store(short, Pod("a"), T1(Words(1, 2, 3), Start), Start)
		x.Store(short, Pod("a"), T1(Words(1), Start+30), Start+30)
		equal(t, "too early", len(Settle(x, Start+minute-1)), 0)
		equal(t, "the old part", Settle(x, Start+minute), map[index.Removed]int{{Tenant: "short", Why: index.RemovedByTTL}: 2})
		equal(t, "the rest", Settle(x, Start+minute+30), map[index.Removed]int{{Tenant: "short", Why: index.RemovedByTTL}: 1})
		equal(t, "the default", Settle(x, Start+30*minute), map[index.Removed]int{{Tenant: Base.Tenant, Why: index.RemovedByTTL}: 2})
		equal(t, "counts", x.Counts(), index.Counts{})
	},
	"a confirmation keeps entries from expiring": func(t *testing.T, n New) {
		x := n(limits(index.Limits{TTL: 60e9}))
		var d index.Digest
		x.Store(Base, Pod("a"), T1(Words(1), Start), Start)
		d.Add(index.T1, 1, 1)
		x.Confirm(Base, Pod("a"), d, Start+50)
		equal(t, "confirmed", len(Settle(x, Start+minute)), 0)
		equal(t, "expired", len(Settle(x, Start+50+minute)), 1)
	},
	"the cap takes the oldest, leaf first": func(t *testing.T, n New) {
		x := n(index.Config{MaxPairs: 6})
		x.Store(Base, Pod("a"), T1(Chain(11, 4), Start-1), Start)
		x.Store(Base, Pod("a"), T1(Chain(21, 4), Start), Start)
		equal(t, "removed", Settle(x, Start), map[index.Removed]int{{Tenant: Base.Tenant, Why: index.RemovedByCap}: 2})
		equal(t, "left", keysOf(x), []uint64{11, 12, 21, 22, 23, 24})
	},
	"the cap takes the deepest among equal age": func(t *testing.T, n New) {
		x := n(index.Config{MaxPairs: 6})
		x.Store(Base, Pod("a"), T1(Chain(11, 6), Start), Start)
		x.Store(Base, Pod("a"), T1(Chain(21, 2), Start), Start)
		Settle(x, Start)
		equal(t, "left", keysOf(x), []uint64{11, 12, 13, 14, 21, 22})
	},
	"an old head outlives what is behind it": func(t *testing.T, n New) {
		x := n(index.Config{MaxPairs: 5})
		x.Store(Base, Pod("a"), T1(Chain(1, 3), Start-9), Start)
		r := T1(Chain(4, 2), Start)
		r.Parent, r.HasParent, r.StartTokens = 3, true, 48
		x.Store(Base, Pod("a"), r, Start)
		x.Store(Base, Pod("a"), T1(Chain(21, 2), Start-5), Start)
		Settle(x, Start)
		equal(t, "left", keysOf(x), []uint64{1, 2, 3, 4, 5})
	},
	"the cap takes from whoever holds most": func(t *testing.T, n New) {
		x := n(index.Config{MaxPairs: 12})
		flood := Base
		flood.Tenant = "flood"
		x.Store(Base, Pod("a"), T1(Chain(1, 4), Start-9), Start)
		x.Store(flood, Pod("small"), T1(Chain(1, 3), Start-9), Start)
		x.Store(flood, Pod("large"), T1(Chain(1, 40), Start), Start)
		equal(t, "removed", Settle(x, Start), map[index.Removed]int{{Tenant: "flood", Why: index.RemovedByCap}: 35})
		equal(t, "team", x.HeldBy(Base.Scope, Pod("a")), int64(4))
		equal(t, "small", x.HeldBy(flood.Scope, Pod("small")), int64(3))
		equal(t, "large", x.HeldBy(flood.Scope, Pod("large")), int64(5))
	},
	"a large cap is brought some way below": func(t *testing.T, n New) {
		x := n(index.Config{MaxPairs: 640})
		x.Store(Base, Pod("a"), T1(Chain(1, 640), Start), Start)
		equal(t, "full", len(Settle(x, Start)), 0)
		x.Store(Base, Pod("b"), T1(Chain(1, 1), Start), Start)
		Settle(x, Start)
		equal(t, "pairs", x.Counts().Pairs, index.Floor(640))
	},
	"eviction leaves no block without what is in front of it": func(t *testing.T, n New) {
		for _, l := range []index.Limits{{}, {LFU: true}, {Quota: true, MaxPrefixes: 100}} {
			cfg := limits(l)
			cfg.MaxPairs = 150
			x := n(cfg)
			var chains []index.Keys
			for c := range uint64(12) { // a common head of 5, then 20 own blocks, stored at different times
				k := Chain(1, 5)
				k.Words = append(k.Words, Chain(100*(c+1), 20).Words...)
				chains = append(chains, k)
				for from := 0; from < 25; from += 5 {
					r := T1(index.Keys{Words: k.Words[from : from+5]}, Start-index.Instant((c*7+uint64(from)*13)%50))
					r.StartTokens = int32(from) * 16
					if from > 0 {
						r.Parent, r.HasParent = k.Words[from-1], true
					}
					x.Store(Base, Pod([]string{"a", "b"}[c%2]), r, Start)
				}
				x.Credit(index.Query{Partition: Base, Keys: k}, Pod("a"), int(c*3%25))
			}
			Settle(x, Start)
			reached := map[string]bool{}
			for _, k := range chains {
				for _, m := range Match(x, k) {
					for _, w := range k.Words[:m.Blocks] {
						reached[m.Holder.Replica+Bytes(w)] = true
					}
				}
			}
			equal(t, "blocks reached", int64(len(reached)), x.Counts().Pairs)
			equal(t, "some are left", len(reached) > 50, true)
		}
	},
	"use keeps entries under LFU, and ages": func(t *testing.T, n New) {
		cfg := limits(index.Limits{LFU: true})
		cfg.MaxPairs = 4
		x := n(cfg)
		x.Store(Base, Pod("a"), T1(Words(1), Start-9), Start)
		x.Credit(index.Query{Partition: Base, Keys: Words(1, 99)}, Pod("a"), 2)
		x.Store(Base, Pod("a"), T1(Words(2, 3, 4, 5), Start), Start)
		equal(t, "removed", Settle(x, Start), map[index.Removed]int{{Tenant: Base.Tenant, Why: index.RemovedByCap, LFU: true}: 1})
		equal(t, "the used one stays", keysOf(x), []uint64{1, 2, 3, 4})
		for i := range uint64(12) {
			at := Start + index.Instant(i) + 1
			x.Store(Base, Pod("a"), T1(Words(100+i), at), at)
			Settle(x, at)
		}
		equal(t, "newcomers take over", keysOf(x), []uint64{108, 109, 110, 111})
	},
	"a quota takes whole prefixes, leaf first": func(t *testing.T, n New) {
		x := n(limits(index.Limits{Quota: true, MaxPrefixes: 3}))
		x.Store(Base, Pod("a"), T1(Chain(1, 5), Start-9), Start)
		x.Store(Base, Pod("b"), T1(Chain(1, 3), Start-9), Start)
		equal(t, "removed", Settle(x, Start), map[index.Removed]int{{Tenant: Base.Tenant, Why: index.RemovedByQuota}: 2})
		equal(t, "counts", x.Counts(), index.Counts{Pairs: 6, Prefixes: 3})
		x.Store(Base, Pod("c"), T1(Words(21), Start), Start)
		x.Store(Base, Pod("a"), T1(Words(1), Start), Start)
		Settle(x, Start)
		equal(t, "left", x.PrefixesOf(Base.Tenant, ""), int64(3))
		equal(t, "the stale leaf went", len(Match(x, Words(3))), 0)
	},
	"a quota of nothing admits nothing": func(t *testing.T, n New) {
		x := n(limits(index.Limits{Quota: true}))
		x.Store(Base, Pod("a"), T1(Chain(1, 5), Start), Start)
		equal(t, "counts", x.Counts(), index.Counts{})
	},
}
