package indextest

import (
	"testing"

	"github.com/inferencecache/inferencecache/index"
)

var matching = map[string]func(*testing.T, New){
	"an empty index matches nothing": func(t *testing.T, n New) {
		x := n(index.Config{})
		equal(t, "match", len(Match(x, Words(1, 2))), 0)
		equal(t, "match of no keys", len(Match(x, index.Keys{})), 0)
	},
	"each cache matches its own leading run": func(t *testing.T, n New) {
		x := n(index.Config{})
		x.Store(Base, Pod("a"), T1(Words(1, 2, 3), Start), Start)
		x.Store(Base, Pod("b"), T1(Words(1), Start-5), Start)
		x.Store(Base, index.Holder{Replica: "b", Rank: 1}, T1(Words(1, 2), Start-9), Start)
		equal(t, "match", Match(x, Words(1, 2, 3, 4)), []index.Match{
			{Holder: Pod("a"), Blocks: 3, PrefixTokens: 48, Tier: index.T1, Evidence: Start},
			{Holder: Pod("b"), Blocks: 1, PrefixTokens: 16, Tier: index.T1, Evidence: Start - 5},
			{Holder: index.Holder{Replica: "b", Rank: 1}, Blocks: 2, PrefixTokens: 32, Tier: index.T1, Evidence: Start - 9},
		})
	},
	"a hole ends the run and a refill joins it": func(t *testing.T, n New) {
		x := n(index.Config{})
		x.Store(Base, Pod("a"), T1(Chain(1, 8), Start), Start)
		x.Remove(Base, Pod("a"), Words(4))
		equal(t, "blocks", Match(x, Chain(1, 8))[0].Blocks, 3)
		equal(t, "behind the hole", Match(x, Chain(5, 4))[0].Blocks, 4)
		x.Store(Base, Pod("a"), index.Run{
			Keys: Words(4), Parent: 3, HasParent: true, StartTokens: 48, BlockTokens: 16, Tier: index.T1, Evidence: Start,
		}, Start)
		equal(t, "refilled", Match(x, Chain(1, 8))[0].Blocks, 8)
	},
	"a run without its first block does not match": func(t *testing.T, n New) {
		x := n(index.Config{})
		x.Store(Base, Pod("a"), T1(Words(2, 3), Start), Start)
		equal(t, "matches", len(Match(x, Words(1, 2, 3))), 0)
	},
	"templates that differ in the middle match up to there": func(t *testing.T, n New) {
		x := n(index.Config{})
		x.Store(Base, Pod("a"), T1(Words(1, 2, 3, 4), Start), Start)
		x.Store(Base, Pod("b"), T1(Words(1, 2, 13, 14), Start), Start)
		m := Match(x, Words(1, 2, 13, 4))
		equal(t, "a", m[0].Blocks, 2)
		equal(t, "b", m[1].Blocks, 3)
	},
	"pieces that arrive in any order match as one": func(t *testing.T, n New) {
		x := n(index.Config{})
		for _, at := range []uint64{5, 1, 7, 3} {
			r := T1(Chain(at, 2), Start)
			r.StartTokens = int32(at-1) * 16
			r.Parent, r.HasParent = at-1, at > 1
			x.Store(Base, Pod("a"), r, Start)
		}
		equal(t, "match", Match(x, Chain(1, 8)), []index.Match{
			{Holder: Pod("a"), Blocks: 8, PrefixTokens: 128, Tier: index.T1, Evidence: Start},
		})
	},
	"the coldest tier and oldest evidence of the run are reported": func(t *testing.T, n New) {
		x := n(index.Config{})
		x.Store(Base, Pod("a"), T1(Words(1, 2), Start-1), Start)
		x.Store(Base, Pod("a"), index.Run{Keys: Words(2), StartTokens: 16, BlockTokens: 16, Tier: index.T3, Evidence: Start}, Start)
		x.Store(Base, Pod("a"), index.Run{Keys: Words(3), StartTokens: 32, BlockTokens: 16, Tier: index.T2, Evidence: Start}, Start)
		equal(t, "match", Match(x, Words(1, 2, 3)), []index.Match{
			{Holder: Pod("a"), Blocks: 3, PrefixTokens: 48, Tier: index.T3, Evidence: Start - 1},
		})
	},
	"what is older than the query allows is not held": func(t *testing.T, n New) {
		x := n(index.Config{})
		x.Store(Base, Pod("a"), T1(Words(1, 2), Start), Start)
		x.Store(Base, Pod("a"), index.Run{Keys: Words(3), StartTokens: 32, BlockTokens: 16, Tier: index.T1, Evidence: Start - 10}, Start)
		x.Store(Base, Pod("b"), T1(Words(1, 2), Start-10), Start)
		got := x.Match(index.Query{Partition: Base, Keys: Words(1, 2, 3), NotBefore: Start - 9}, nil)
		equal(t, "match", got, []index.Match{{Holder: Pod("a"), Blocks: 2, PrefixTokens: 32, Tier: index.T1, Evidence: Start}})
	},
	"partitions never meet": func(t *testing.T, n New) {
		x := n(index.Config{})
		for _, p := range []index.Partition{
			{Scope: index.Scope{Tenant: "other", Model: Base.Model, Scheme: Base.Scheme}},
			{Scope: index.Scope{Tenant: Base.Tenant, Model: "other", Scheme: Base.Scheme}},
			{Scope: index.Scope{Tenant: Base.Tenant, Model: Base.Model, Scheme: "other"}},
			{Scope: Base.Scope, Adapter: "other"},
		} {
			x.Store(p, Pod("a"), T1(Words(1), Start), Start)
		}
		equal(t, "matches", len(Match(x, Words(1))), 0)
	},
	"keys of any width match by their exact bytes": func(t *testing.T, n New) {
		x := n(index.Config{})
		x.Store(Base, Pod("a"), T1(Wide("k", "a 32-byte key of some other hash", "", Bytes(7)), Start), Start)
		equal(t, "all", Match(x, Wide("k", "a 32-byte key of some other hash", "", Bytes(7)))[0].Blocks, 4)
		equal(t, "one byte differs", Match(x, Wide("k", "a 32-byte key of some other hasH"))[0].Blocks, 1)
		equal(t, "8 bytes are a number", Match(x, Words(7))[0].Blocks, 1)
		equal(t, "a number is 8 bytes", Match(x, Wide(Bytes(7), "x"))[0].Blocks, 1)
		equal(t, "removed", x.Remove(Base, Pod("a"), Words(7)), 1)
		equal(t, "removed wide", x.Remove(Base, Pod("a"), Wide("k", "absent")), 1)
	},
	"an empty list beside the other is no list": func(t *testing.T, n New) {
		x := n(index.Config{})
		k := index.Keys{Words: []uint64{}, Wide: []string{"wide", Bytes(1)}}
		x.Store(Base, Pod("a"), T1(k, Start), Start)
		equal(t, "match", Match(x, k)[0].Blocks, 2)
		equal(t, "removed", x.Remove(Base, Pod("a"), k), 2)
	},
	"matches are appended": func(t *testing.T, n New) {
		x := n(index.Config{})
		x.Store(Base, Pod("a"), T1(Words(1), Start), Start)
		got := x.Match(index.Query{Partition: Base, Keys: Words(1)}, make([]index.Match, 1, 8))
		equal(t, "length", len(got), 2)
	},
}
