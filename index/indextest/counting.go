package indextest

import (
	"fmt"
	"testing"

	"github.com/inferencecache/inferencecache/index"
)

var counting = map[string]func(*testing.T, New){
	"counters follow stores and removals": func(t *testing.T, n New) {
		x := n(index.Config{})
		lora, other := Base, Base
		lora.Adapter, other.Scheme, other.Model = "sql", "sglang", "other"
		x.Store(Base, Pod("a"), T1(Words(1, 2, 2), Start), Start)
		x.Store(Base, Pod("b"), T1(Words(1), Start), Start)
		x.Store(lora, Pod("a"), T1(Words(1), Start), Start)
		x.Store(other, Pod("a"), T1(Words(1, 5, 6), Start), Start)
		equal(t, "counts", x.Counts(), index.Counts{Pairs: 7, Prefixes: 6})
		equal(t, "tenant", x.PrefixesOf(Base.Tenant, ""), int64(6))
		equal(t, "model", x.PrefixesOf(Base.Tenant, Base.Model), int64(3))
		equal(t, "no tenant", x.PrefixesOf("nobody", ""), int64(0))
		equal(t, "by model", x.PrefixesByModel(), map[string]int64{Base.Model: 3, "other": 3})
		equal(t, "held in scope", x.HeldBy(Base.Scope, Pod("a")), int64(3))
		equal(t, "held in tenant", x.HeldBy(index.Scope{Tenant: Base.Tenant}, Pod("a")), int64(6))
		equal(t, "held in model", x.HeldBy(index.Scope{Tenant: Base.Tenant, Model: "other"}, Pod("a")), int64(3))
		equal(t, "held in scheme", x.HeldBy(index.Scope{Tenant: Base.Tenant, Scheme: "vllm"}, Pod("b")), int64(1))
		equal(t, "scheme held", x.SchemeHeld(other.Scope), true)
		x.Remove(other, Pod("a"), Words(1, 5, 6))
		x.Remove(Base, Pod("b"), Words(1))
		equal(t, "scheme no longer held", x.SchemeHeld(other.Scope), false)
		equal(t, "counts after", x.Counts(), index.Counts{Pairs: 3, Prefixes: 3})
		equal(t, "by model after", x.PrefixesByModel(), map[string]int64{Base.Model: 3})
		equal(t, "held after", x.HeldBy(Base.Scope, Pod("b")), int64(0))
	},
	"the reserved tenant is left out of totals": func(t *testing.T, n New) {
		x := n(index.Config{Reserved: "probe", MaxPairs: 4})
		probe := Base
		probe.Tenant = "probe"
		x.Store(probe, Pod("a"), T1(Chain(1, 20), Start), Start)
		x.Store(Base, Pod("a"), T1(Chain(1, 4), Start), Start)
		equal(t, "counts", x.Counts(), index.Counts{Pairs: 4, Prefixes: 4})
		equal(t, "by model", x.PrefixesByModel(), map[string]int64{Base.Model: 4})
		equal(t, "removed", len(Settle(x, Start)), 0)
		equal(t, "still there", len(Dump(x, index.Filter{})), 24)
		Settle(x, Start+index.Instant(index.DefaultTTL.Seconds()))
		equal(t, "expired", len(Dump(x, index.Filter{})), 0)
	},
	"names that come and go leave nothing": func(t *testing.T, n New) {
		x := n(index.Config{})
		for i := range 200 {
			p := index.Partition{Scope: index.Scope{Tenant: fmt.Sprint("t", i), Model: fmt.Sprint("m", i), Scheme: "s"}}
			h := Pod(fmt.Sprint("r", i))
			x.Store(p, h, T1(Words(uint64(i)), Start), Start)
			x.Remove(p, h, Words(uint64(i)))
		}
		equal(t, "counts", x.Counts(), index.Counts{})
		equal(t, "by model", len(x.PrefixesByModel()), 0)
	},
}
