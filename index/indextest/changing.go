package indextest

import (
	"encoding/binary"
	"testing"

	"github.com/inferencecache/inferencecache/index"
)

// both is the answer to a digest that is equal in both tiers.
var both = [2]bool{true, true}

var changing = map[string]func(*testing.T, New){
	"the later evidence wins and an older report changes nothing": func(t *testing.T, n New) {
		x := n(index.Config{})
		store := func(tier index.Tier, seen index.Instant) index.Match {
			x.Store(Base, Pod("a"), index.Run{Keys: Words(1), BlockTokens: 16, Tier: tier, Evidence: seen}, Start)
			return Match(x, Words(1))[0]
		}
		want := index.Match{Holder: Pod("a"), Blocks: 1, PrefixTokens: 16, Tier: index.T2, Evidence: Start - 5}
		equal(t, "first", store(index.T2, Start-5), want)
		equal(t, "older", store(index.T1, Start-6), want)
		want.Tier = index.T1
		equal(t, "equal", store(index.T1, Start-5), want)
		want.Tier, want.Evidence = index.T3, Start
		equal(t, "later", store(index.T3, Start), want)
	},
	"evidence from the future counts as now": func(t *testing.T, n New) {
		x := n(index.Config{})
		x.Store(Base, Pod("a"), T1(Words(1), Start+1_000_000), Start)
		equal(t, "evidence", Match(x, Words(1))[0].Evidence, Start)
		x.Store(Base, Pod("a"), index.Run{Keys: Words(1), BlockTokens: 16, Tier: index.T2, Evidence: Start + 1}, Start+1)
		equal(t, "a later report", Match(x, Words(1))[0].Tier, index.T2)
	},
	"token counts are clamped, not wrapped": func(t *testing.T, n New) {
		x := n(index.Config{})
		x.Store(Base, Pod("a"), index.Run{Keys: Chain(1, 4), StartTokens: 1<<31 - 30, BlockTokens: 16, Tier: index.T1, Evidence: Start}, Start)
		x.Store(Base, Pod("b"), index.Run{Keys: Chain(1, 4), StartTokens: -5, BlockTokens: -1, Tier: index.T1, Evidence: Start}, Start)
		m := Match(x, Chain(1, 4))
		equal(t, "large", m[0].PrefixTokens, int32(1<<31-1))
		equal(t, "negative", m[1].PrefixTokens, int32(0))
	},
	"removal counts what was held": func(t *testing.T, n New) {
		x := n(index.Config{})
		x.Store(Base, Pod("a"), T1(Chain(1, 4), Start), Start)
		x.Store(Base, Pod("b"), T1(Chain(1, 4), Start), Start)
		equal(t, "tail and unknown", x.Remove(Base, Pod("a"), Words(4, 3, 99)), 2)
		equal(t, "again", x.Remove(Base, Pod("a"), Words(4, 3)), 0)
		equal(t, "unknown cache", x.Remove(Base, Pod("c"), Words(1)), 0)
		m := Match(x, Chain(1, 4))
		equal(t, "a", m[0].Blocks, 2)
		equal(t, "b", m[1].Blocks, 4)
	},
	"an eviction reaches all schemes, ranks and, unless named, adapters": func(t *testing.T, n New) {
		other, lora, model := Base, Base, Base
		other.Scheme, lora.Adapter, model.Model = "sglang", "sql", "other"
		fill := func() index.Index {
			x := n(index.Config{})
			for _, p := range []index.Partition{Base, other, lora, model} {
				x.Store(p, Pod("a"), T1(Words(1, 2), Start), Start)
				x.Store(p, index.Holder{Replica: "a", Rank: 1}, T1(Words(1), Start), Start)
				x.Store(p, Pod("b"), T1(Words(1), Start), Start)
			}
			return x
		}
		e := index.Evict{Replica: "a", Tenant: Base.Tenant, Model: Base.Model, Key: Bytes(1)}
		x := fill()
		equal(t, "all adapters", x.Evict(e), 6)
		equal(t, "left", x.Counts().Pairs, int64(10))
		e.Adapter = "sql"
		equal(t, "one adapter", fill().Evict(e), 2)
		e.Key = "wide"
		equal(t, "unknown key", fill().Evict(e), 0)
	},
	"a clear takes what it selects": func(t *testing.T, n New) {
		other, lora := Base, Base
		other.Model, other.Scheme, lora.Adapter = "other", "sglang", "sql"
		rank := int32(1)
		for name, c := range map[string]struct {
			clear index.Clear
			want  int
		}{
			"the replica":        {index.Clear{Replica: "a"}, 9},
			"one model":          {index.Clear{Replica: "a", Model: "other"}, 3},
			"one scheme":         {index.Clear{Replica: "a", Scheme: Base.Scheme}, 6},
			"one rank":           {index.Clear{Replica: "a", Rank: &rank}, 3},
			"another tenant":     {index.Clear{Replica: "a", Tenant: "nobody"}, 0},
			"an unknown replica": {index.Clear{Replica: "nobody"}, 0},
		} {
			x := n(index.Config{})
			for _, p := range []index.Partition{Base, other, lora} {
				x.Store(p, Pod("a"), T1(Words(1, 2), Start), Start)
				x.Store(p, index.Holder{Replica: "a", Rank: 1}, T1(Words(2), Start), Start)
				x.Store(p, Pod("b"), T1(Words(1, 2), Start), Start)
			}
			equal(t, name, x.Clear(c.clear), c.want)
			equal(t, name+", left", x.Counts().Pairs, int64(15-c.want))
			equal(t, name+", dumped", int64(len(Dump(x, index.Filter{}))), x.Counts().Pairs)
		}
	},
	"an equal digest refreshes its tier of a cache": func(t *testing.T, n New) {
		x := n(index.Config{})
		var d index.Digest
		x.Store(Base, Pod("a"), T1(Words(1, 2), Start), Start)
		x.Store(Base, Pod("a"), index.Run{Keys: Words(3), StartTokens: 32, BlockTokens: 16, Tier: index.T2, Evidence: Start}, Start)
		x.Store(Base, Pod("a"), index.Run{Keys: Wide("wide"), BlockTokens: 16, Tier: index.T1, Evidence: Start}, Start)
		x.Store(Base, Pod("b"), T1(Words(1), Start), Start)
		d.Add(index.T1, 1, 1)
		d.Add(index.T1, 2, 1)
		equal(t, "without the T2 block", x.Confirm(Base, Pod("a"), d, Start+9), [2]bool{true, false})
		equal(t, "T1 alone", Match(x, Words(1, 2))[0].Evidence, Start+9)
		equal(t, "not T2", Match(x, Words(1, 2, 3))[0].Evidence, Start)
		d.Add(index.T2, 3, 1)
		equal(t, "complete", x.Confirm(Base, Pod("a"), d, Start+9), both)
		m := Match(x, Words(1, 2, 3))
		equal(t, "a", m[0].Evidence, Start+9)
		equal(t, "b", m[1].Evidence, Start)
		equal(t, "wide", Match(x, Wide("wide"))[0].Evidence, Start+9)
		equal(t, "an older one", x.Confirm(Base, Pod("a"), d, Start+3), both)
		equal(t, "does not move back", Match(x, Words(1))[0].Evidence, Start+9)
		x.Store(Base, Pod("a"), index.Run{Keys: Words(4), StartTokens: 48, BlockTokens: 16, Tier: index.T1, Evidence: Start + 2}, Start+9)
		equal(t, "stored later with older evidence", Match(x, Words(4))[0].Evidence, Start+2)
		x.Store(Base, Pod("a"), index.Run{Keys: Words(1), BlockTokens: 16, Tier: index.T2, Evidence: Start + 8}, Start+10)
		equal(t, "a report older than the confirmation", Match(x, Words(1))[0].Tier, index.T1)
	},
	"an empty digest equals a cache that holds nothing": func(t *testing.T, n New) {
		x := n(index.Config{})
		equal(t, "nothing", x.Confirm(Base, Pod("a"), index.Digest{}, Start), both)
		equal(t, "something", x.Confirm(Base, Pod("a"), index.Digest{Count: [2]uint64{1}}, Start), [2]bool{false, true})
		x.Store(Base, Pod("a"), T1(Words(1), Start), Start)
		equal(t, "holds one", x.Confirm(Base, Pod("a"), index.Digest{}, Start), [2]bool{false, true})
		x.Remove(Base, Pod("a"), Words(1))
		equal(t, "empty again", x.Confirm(Base, Pod("a"), index.Digest{}, Start), both)
	},
	"a dump shows every field of what the filter selects": func(t *testing.T, n New) {
		x := n(index.Config{})
		other := Base
		other.Tenant, other.Adapter = "team-b", "sql"
		x.Store(Base, Pod("a"), index.Run{Keys: Words(1, 2), StartTokens: 32, BlockTokens: 16, Tier: index.T2, Evidence: Start}, Start)
		x.Store(other, index.Holder{Replica: "b", Rank: 3}, T1(Wide("wide"), Start), Start)
		a := []index.Entry{
			{Partition: Base, Holder: Pod("a"), Key: Bytes(1), Tier: index.T2, Tokens: 16, PrefixTokens: 48, Evidence: Start},
			{Partition: Base, Holder: Pod("a"), Key: Bytes(2), Tier: index.T2, Tokens: 16, PrefixTokens: 64, Evidence: Start},
		}
		b := []index.Entry{{
			Partition: other, Holder: index.Holder{Replica: "b", Rank: 3}, Key: "wide", Tier: index.T1, Tokens: 16, PrefixTokens: 16, Evidence: Start,
		}}
		equal(t, "all", Dump(x, index.Filter{}), append(a[:2:2], b...))
		equal(t, "tenant", Dump(x, index.Filter{Tenant: "team-a"}), a)
		equal(t, "replica", Dump(x, index.Filter{Replica: "b"}), b)
		equal(t, "model", len(Dump(x, index.Filter{Model: "nothing"})), 0)
		seen := 0
		x.Dump(index.Filter{}, func(index.Entry) bool { seen++; return false })
		equal(t, "stopped", seen, 1)
	},
	"digests follow moves between tiers": func(t *testing.T, n New) {
		x := n(index.Config{})
		var want index.Digest
		for i := range uint64(40) {
			tier := index.Tier(1 + i%3)
			x.Store(Base, Pod("a"), index.Run{Keys: Words(i), BlockTokens: 16, Tier: index.T1, Evidence: Start}, Start)
			x.Store(Base, Pod("a"), index.Run{Keys: Words(i), BlockTokens: 16, Tier: tier, Evidence: Start}, Start)
			want.Add(tier, binary.BigEndian.Uint64([]byte(Bytes(i))), 1)
		}
		equal(t, "confirmed", x.Confirm(Base, Pod("a"), want, Start), both)
	},
}
