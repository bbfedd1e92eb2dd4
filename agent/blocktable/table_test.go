package blocktable

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inferencecache/inferencecache/fingerprint"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/kvevents"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// block returns the tokens of a 4-token test block.
func tokensOf(blocks ...uint32) []uint32 {
	var out []uint32
	for _, b := range blocks {
		out = append(out, b, b, b, b)
	}
	return out
}

// prints returns the fingerprints of the chain of such blocks.
func prints(blocks ...uint32) []uint64 { return fingerprint.Chain(tokensOf(blocks...), testBlock) }

type hashes = []kvevents.Hash

func stored(parent kvevents.Hash, hs hashes, blocks ...uint32) kvevents.Event {
	return kvevents.Event{
		Kind: kvevents.Stored, Hashes: hs, Parent: parent, HasParent: parent != 0,
		Tokens: tokensOf(blocks...), BlockSize: testBlock, Group: -1,
	}
}

func removed(hs ...kvevents.Hash) kvevents.Event {
	return kvevents.Event{Kind: kvevents.Removed, Hashes: hs, Group: -1}
}

func on(medium string, e kvevents.Event) kvevents.Event { e.Medium = medium; return e }

// chunk is a store of chunks of two blocks each, as a connector announces it.
func chunk(parent kvevents.Hash, hs hashes, blocks ...uint32) kvevents.Event {
	return with(on("CPU", stored(parent, hs, blocks...)), func(e *kvevents.Event) { e.BlockSize = 2 * testBlock })
}

// chunksRemoved begins a stream whose connector announces removals, and leaves nothing held.
func chunksRemoved() []kvevents.Event {
	return []kvevents.Event{stored(0, hashes{99}, 99), chunk(0, hashes{98}, 98, 98), on("CPU", removed(98)), removed(99)}
}

func with2(a, b held) held { maps.Copy(a, b); return a }

func with(e kvevents.Event, set func(*kvevents.Event)) kvevents.Event { set(&e); return e }

func heldBy(t *Table) held {
	got := held{}
	t.Held(func(adapter string, print uint64, tier index.Tier) { got[heldKey(adapter, print)] = tier })
	return got
}

// at builds the expected state: the chain's blocks up to its length, in one tier.
func at(tier index.Tier, adapter string, prints ...uint64) held {
	h := held{}
	for _, p := range prints {
		h[heldKey(adapter, p)] = tier
	}
	return h
}

func TestTableEvents(t *testing.T) {
	placeholder := kvevents.Event{Kind: kvevents.Stored, Hashes: hashes{1}, Medium: "CPU", Group: -1}
	group := func(g int32, kind string) func(*kvevents.Event) {
		return func(e *kvevents.Event) { e.Group, e.SpecKind = g, kind }
	}
	for name, c := range map[string]struct {
		cfg    Config
		events []kvevents.Event
		want   held
		check  func(*testing.T, Stats)
	}{
		"a run is held under the fingerprints of its chain": {
			events: []kvevents.Event{stored(0, hashes{1, 2, 3}, 10, 20, 30)},
			want:   at(index.T1, "", prints(10, 20, 30)...),
		},
		"of groups whose kind is not named every one must have a block": {
			events: []kvevents.Event{
				with(stored(0, hashes{1, 2, 3}, 10, 20, 30), group(0, "")), with(stored(0, hashes{1, 2, 3}, 10, 20, 30), group(1, "")),
				with(removed(1), group(0, "")), with(removed(3), group(1, "")),
			},
			want: at(index.T1, "", prints(10, 20)[1]),
		},
		"a second group without a kind puts the first in question": {
			events: []kvevents.Event{
				with(stored(0, hashes{1}, 10), group(0, "")), with(stored(0, hashes{2}, 20), group(1, "")), with(stored(0, hashes{2}, 20), group(0, "")),
			},
			want: at(index.T1, "", prints(20)...),
		},
		"placeholders, which name no kind, leave groups with a kind alone": {
			events: []kvevents.Event{
				with(stored(0, hashes{1}, 10), group(0, "full_attention")), with(stored(0, hashes{1}, 10), group(1, "sliding_window")),
				with(placeholder, group(0, "")), with(placeholder, group(1, "")), with(removed(1), group(0, "")),
			},
			want: at(index.T2, "", prints(10)...),
		},
		"a later run continues behind its parent": {
			events: []kvevents.Event{stored(0, hashes{1}, 10), stored(1, hashes{2}, 20)},
			want:   at(index.T1, "", prints(10, 20)...),
		},
		"a block with two copies is held until both are gone": {
			events: []kvevents.Event{stored(0, hashes{1}, 10), stored(0, hashes{1}, 10), removed(1)},
			want:   at(index.T1, "", prints(10)...),
		},
		"where blocks are announced again a removal ends what was announced before": {
			cfg:    Config{Once: true},
			events: []kvevents.Event{stored(0, hashes{1, 2}, 10, 20), stored(0, hashes{1}, 10), stored(0, hashes{1}, 10), removed(1)},
			want:   at(index.T1, "", prints(10, 20)[1]),
		},
		"a removal of an unknown hash does not stop the rest of its list": {
			events: []kvevents.Event{stored(0, hashes{1}, 10), removed(99, 1)},
			want:   held{},
			check: func(t *testing.T, s Stats) {
				if s.UnknownRemovals != 1 {
					t.Errorf("unknown removals %d", s.UnknownRemovals)
				}
			},
		},
		"removing a parent leaves its children": {
			events: []kvevents.Event{stored(0, hashes{1, 2}, 10, 20), removed(1)},
			want:   at(index.T1, "", prints(10, 20)[1]),
		},
		"a run whose parent is unknown is held back": {
			events: []kvevents.Event{stored(7, hashes{1, 2}, 10, 20)},
			want:   held{},
			check: func(t *testing.T, s Stats) {
				if s.Orphans != 2 {
					t.Errorf("orphans %d", s.Orphans)
				}
			},
		},
		"orphans are adopted when the parent appears": {
			events: []kvevents.Event{stored(7, hashes{1, 2}, 20, 30), stored(0, hashes{7}, 10)},
			want:   at(index.T1, "", prints(10, 20, 30)...),
		},
		"an orphan that was removed is not adopted": {
			events: []kvevents.Event{stored(7, hashes{1, 2}, 20, 30), removed(2), stored(0, hashes{7}, 10)},
			want:   at(index.T1, "", prints(10, 20)...),
		},
		"a block that names itself as parent is excluded": {
			events: []kvevents.Event{stored(7, hashes{7}, 10)},
			want:   held{},
			check: func(t *testing.T, s Stats) {
				if s.Excluded[ExcludedReused] != 1 {
					t.Errorf("excluded %v", s.Excluded)
				}
			},
		},
		"a hash used for two prefixes is excluded": {
			events: []kvevents.Event{stored(0, hashes{1}, 10), stored(0, hashes{1}, 11)},
			want:   held{},
		},
		"two hashes of one prefix hold it together": {
			events: []kvevents.Event{stored(0, hashes{1}, 10), stored(0, hashes{2}, 10), removed(1)},
			want:   at(index.T1, "", prints(10)...),
		},
		"a salted run and what follows it are excluded": {
			events: []kvevents.Event{
				with(stored(0, hashes{1}, 10), func(e *kvevents.Event) { e.Salted = true }), stored(1, hashes{2}, 20),
			},
			want: held{},
			check: func(t *testing.T, s Stats) {
				if s.Excluded[ExcludedSalt] != 2 {
					t.Errorf("excluded %v", s.Excluded)
				}
			},
		},
		"blocks in front of an image are held, the image and what follows are not": {
			events: []kvevents.Event{with(stored(0, hashes{1, 2, 3}, 10, 20, 30), func(e *kvevents.Event) {
				e.Extra = []kvevents.Extra{0, kvevents.ExtraMultimodal, 0}
			})},
			want: at(index.T1, "", prints(10)...),
		},
		"an adapter has entries of its own": {
			events: []kvevents.Event{
				stored(0, hashes{1}, 10),
				with(stored(0, hashes{2}, 10), func(e *kvevents.Event) { e.LoRAName = "sql" }),
				removed(1),
			},
			want: at(index.T1, "sql", prints(10)...),
		},
		"an adapter id is named by the configuration": {
			cfg:    Config{LoRANames: map[int64]string{3: "sql"}},
			events: []kvevents.Event{with(stored(0, hashes{2}, 10), func(e *kvevents.Event) { e.LoRAID, e.HasLoRAID = 3, true })},
			want:   at(index.T1, "sql", prints(10)...),
		},
		"an adapter id without a name is excluded": {
			events: []kvevents.Event{with(stored(0, hashes{2}, 10), func(e *kvevents.Event) { e.LoRAID, e.HasLoRAID = 3, true })},
			want:   held{},
		},
		"an offloaded block whose GPU copy goes is held at T2": {
			events: []kvevents.Event{stored(0, hashes{1}, 10), placeholder, removed(1)},
			want:   at(index.T2, "", prints(10)...),
		},
		"removing the offloaded copy leaves the GPU copy": {
			events: []kvevents.Event{stored(0, hashes{1}, 10), placeholder, on("CPU", removed(1))},
			want:   at(index.T1, "", prints(10)...),
		},
		"a placeholder in front of the store that describes it waits for it": {
			events: []kvevents.Event{placeholder, stored(0, hashes{1}, 10), removed(1)},
			want:   at(index.T2, "", prints(10)...),
		},
		"a clear empties the GPU and leaves the offload tier": {
			events: []kvevents.Event{stored(0, hashes{1, 2}, 10, 20), placeholder, {Kind: kvevents.Cleared}},
			want:   at(index.T2, "", prints(10)...),
		},
		"an offload tier that is to be ignored is": {
			cfg:    Config{Tier2: Tier2None},
			events: []kvevents.Event{stored(0, hashes{1}, 10), placeholder, removed(1)},
			want:   held{},
		},
		"a medium that reports no removals is no hold": {
			events: []kvevents.Event{on("STORAGE", stored(0, hashes{1}, 10)), stored(0, hashes{1}, 10), removed(1)},
			want:   held{},
			check: func(t *testing.T, s Stats) {
				if s.Ignored != 1 || s.Undescribed+s.Orphans != 0 {
					t.Errorf("%+v", s)
				}
			},
		},
		"chunks of a connector that announced no removal are no hold": {
			events: []kvevents.Event{stored(0, hashes{1, 2}, 10, 20), chunk(0, hashes{77}, 10, 20), removed(1, 2)},
			want:   held{},
		},
		"a chunk holds the blocks of its tokens": {
			events: append(chunksRemoved(), chunk(0, hashes{71, 72}, 10, 20, 30, 40)),
			want:   at(index.T2, "", prints(10, 20, 30, 40)...),
		},
		"a chunk follows one that did not count": {
			events: []kvevents.Event{stored(0, hashes{1}, 10), chunk(0, hashes{77, 78}, 10, 20, 90, 90), on("CPU", removed(78)), chunk(77, hashes{79}, 30, 40)},
			want:   with2(at(index.T1, "", prints(10)...), at(index.T2, "", prints(10, 20, 30, 40)[2:]...)),
		},
		"a chunk is there once, and its removal takes all of it": {
			events: append(chunksRemoved(), chunk(0, hashes{71, 72}, 10, 20, 30, 40), chunk(0, hashes{71}, 10, 20), on("CPU", removed(71))),
			want:   at(index.T2, "", prints(10, 20, 30, 40)[2:]...),
		},
		"a chunk and the GPU hold a block together": {
			events: append(chunksRemoved(), chunk(0, hashes{71}, 10, 20), stored(0, hashes{1, 2}, 10, 20), on("CPU", removed(71)), removed(2)),
			want:   at(index.T1, "", prints(10)...),
		},
		"where adapters are in use a chunk may be one's": {
			events: append(chunksRemoved(),
				with(stored(0, hashes{2}, 10), func(e *kvevents.Event) { e.LoRAName = "sql" }), removed(2), chunk(0, hashes{71}, 10, 20)),
			want: held{},
		},
		"where salts are in use a chunk may be one's": {
			events: append(chunksRemoved(),
				with(stored(0, hashes{2}, 10), func(e *kvevents.Event) { e.Salted = true }), removed(2), chunk(0, hashes{71}, 10, 20)),
			want: held{},
		},
		"a chunk that is no multiple of a block cannot be taken apart": {
			events: append(chunksRemoved(), with(chunk(0, hashes{71}, 10, 20), func(e *kvevents.Event) { e.BlockSize, e.Tokens = 7, e.Tokens[:7] })),
			want:   held{},
		},
		"a chunk for which there is no room is refused whole": {
			cfg:    Config{MaxBlocks: 2},
			events: append(chunksRemoved(), stored(0, hashes{5}, 50), chunk(0, hashes{71}, 10, 20)),
			want:   at(index.T1, "", prints(50)...),
			check: func(t *testing.T, s Stats) {
				if s.Refused != 1 {
					t.Errorf("refused %d", s.Refused)
				}
			},
		},
		"what a connector never removes gives way when the table is full": {
			cfg:    Config{MaxBlocks: 3},
			events: []kvevents.Event{on("cpu", stored(0, hashes{7, 8, 9}, 70, 80, 90)), stored(0, hashes{1, 2}, 10, 20)},
			want:   at(index.T1, "", prints(10, 20)...),
		},
		"a reset that may mean both tiers empties both": {
			cfg:    Config{ClearsOffload: true},
			events: []kvevents.Event{stored(0, hashes{1, 2}, 10, 20), placeholder, {Kind: kvevents.Cleared}},
			want:   held{},
		},
		"hashes of the content alone do not tell where a block begins": {
			events: []kvevents.Event{
				stored(0, hashes{contentHash(tokensOf(10)), 2}, 10, 20), stored(0, hashes{3}, 30),
			},
			want: at(index.T1, "", prints(30)...),
			check: func(t *testing.T, s Stats) {
				if s.Excluded[ExcludedContent] != 2 {
					t.Errorf("excluded %v", s.Excluded)
				}
			},
		},
		"a window group neither holds nor removes": {
			events: []kvevents.Event{
				with(stored(0, hashes{1}, 10), group(0, "full_attention")), with(stored(0, hashes{1}, 10), group(1, "sliding_window")),
				with(removed(1), group(1, "")),
			},
			want: at(index.T1, "", prints(10)...),
		},
		"tokens that do not pair with hashes are not guessed at": {
			events: []kvevents.Event{stored(0, hashes{1, 2}, 10, 20, 30)},
			want:   held{},
			check: func(t *testing.T, s Stats) {
				if s.Mismatched != 1 || s.Undescribed != 2 {
					t.Errorf("mismatched %d, undescribed %d", s.Mismatched, s.Undescribed)
				}
			},
		},
		"a store without hashes changes nothing": {
			events: []kvevents.Event{stored(0, nil, 10, 20)},
			want:   held{},
		},
		"a full table refuses more and keeps what it has": {
			cfg:    Config{MaxBlocks: 2},
			events: []kvevents.Event{stored(0, hashes{1, 2, 3, 4}, 10, 20, 30, 40)},
			want:   at(index.T1, "", prints(10, 20)...),
			check: func(t *testing.T, s Stats) {
				if s.Refused != 2 {
					t.Errorf("refused %d", s.Refused)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := New(c.cfg)
			table.Apply(c.events, 100)
			if diff := cmp.Diff(c.want, heldBy(table)); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
			if c.check != nil {
				c.check(t, table.Stats())
			}
		})
	}
}

// listen returns a table that uplink 0 follows and has been told all of.
func listen(t *testing.T, cfg Config, events ...kvevents.Event) *Table {
	t.Helper()
	cfg.Uplinks = 1
	table := New(cfg)
	table.Apply(events, 100)
	table.Resend(0)
	collect(table)
	return table
}

func collect(table *Table) *pb.Delta {
	d := &pb.Delta{}
	table.Collect(0, 7, 1000, d, 103)
	return d
}

func TestCollect(t *testing.T) {
	t.Run("a store and an eviction between two sends cancel out", func(t *testing.T) {
		table := listen(t, Config{})
		table.Apply([]kvevents.Event{stored(0, hashes{1, 2}, 10, 20)}, 100)
		table.Apply([]kvevents.Event{removed(2, 1)}, 100)
		if d := collect(table); len(d.Changes) != 0 {
			t.Errorf("sent %v", d)
		}
	})
	t.Run("an eviction and a store between two sends cancel out", func(t *testing.T) {
		table := listen(t, Config{}, stored(0, hashes{1}, 10))
		table.Apply([]kvevents.Event{removed(1), stored(0, hashes{1}, 10)}, 100)
		if d := collect(table); len(d.Changes) != 0 {
			t.Errorf("sent %v", d)
		}
	})
	t.Run("a chain goes as one run, with its parent, position and age", func(t *testing.T) {
		table := listen(t, Config{}, stored(0, hashes{1}, 10))
		table.Apply([]kvevents.Event{stored(1, hashes{2, 3}, 20, 30)}, 100)
		d := collect(table)
		if len(d.Changes) != 1 || len(d.Changes[0].Stored) != 1 {
			t.Fatalf("sent %v", d)
		}
		r := d.Changes[0].Stored[0]
		if r.GetParent() != prints(10)[0] || r.StartTokens != testBlock || r.BlockTokens != testBlock || len(r.Keys) != 16 ||
			r.AgeMs != 3000 || r.Tier != pb.CacheTier_CACHE_TIER_T1 {
			t.Errorf("run %v", r)
		}
	})
	t.Run("a whole table is sent in long runs, cleared first", func(t *testing.T) {
		table := listen(t, Config{}, stored(0, hashes{1, 2, 3, 4}, 10, 20, 30, 40))
		table.Resend(0)
		d := collect(table)
		if len(d.Cleared) != 1 || d.Cleared[0] != 7 || len(d.Changes) != 1 || len(d.Changes[0].Stored) != 1 {
			t.Errorf("sent %v", d)
		}
	})
	t.Run("a whole table is sent newest first", func(t *testing.T) {
		table := listen(t, Config{}, stored(0, hashes{1}, 10))
		table.Apply([]kvevents.Event{stored(0, hashes{2}, 20)}, 102)
		table.Apply([]kvevents.Event{stored(0, hashes{3}, 30)}, 101)
		table.Resend(0)
		var ages []uint32
		for _, r := range collect(table).Changes[0].Stored {
			ages = append(ages, r.AgeMs)
		}
		if diff := cmp.Diff([]uint32{1000, 2000, 3000}, ages); diff != "" {
			t.Errorf("ages (-want +got):\n%s", diff)
		}
	})
	t.Run("an inferred offload tier reports an eviction at T2 and forgets it", func(t *testing.T) {
		table := listen(t, Config{Tier2: Tier2Inferred}, stored(0, hashes{1}, 10))
		table.Apply([]kvevents.Event{removed(1)}, 101)
		d := collect(table)
		if len(d.Changes) != 1 || len(d.Changes[0].Stored) != 1 || len(d.Changes[0].Removed) != 0 {
			t.Fatalf("sent %v", d)
		}
		if r := d.Changes[0].Stored[0]; r.Tier != pb.CacheTier_CACHE_TIER_T2 || r.AgeMs != 2000 {
			t.Errorf("run %v", r)
		}
		if n := table.cells.live(); n != 0 {
			t.Errorf("%d cells kept", n)
		}
	})
	t.Run("an offload tier whose removals may go unheard is not confirmed", func(t *testing.T) {
		for name, c := range map[string]struct {
			events []kvevents.Event
			t1Only bool
		}{
			"of the engine's own":       {[]kvevents.Event{on("CPU", stored(0, hashes{1}, 10))}, false},
			"of a connector":            {[]kvevents.Event{on("cpu", stored(0, hashes{1}, 10))}, true},
			"of one that does remove":   {[]kvevents.Event{on("cpu", stored(0, hashes{1, 2}, 10, 20)), on("cpu", removed(2))}, false},
			"of one that keeps chunks":  {append(chunksRemoved(), chunk(0, hashes{71}, 10, 20)), true},
			"of chunks that are no use": {[]kvevents.Event{stored(0, hashes{99}, 99), chunk(0, hashes{71}, 10, 20)}, false},
		} {
			table := listen(t, Config{}, c.events...)
			var d pb.Delta
			table.Confirm(0, 7, &d)
			if len(d.Confirms) != 1 || d.Confirms[0].T1Only != c.t1Only {
				t.Errorf("%s: confirmed %v", name, d.Confirms)
			}
		}
	})
	t.Run("a set that outgrows the table ends the following", func(t *testing.T) {
		table := listen(t, Config{})
		for h := kvevents.Hash(1); h <= minDirty+1; h++ {
			table.Apply([]kvevents.Event{stored(0, hashes{h}, uint32(h)), removed(h)}, 100)
		}
		if table.Following(0) || int(table.cells.used) > minDirty+1 || table.Stats().Resyncs != 1 {
			t.Errorf("following %v, %d cells, %d resyncs", table.Following(0), table.cells.used, table.Stats().Resyncs)
		}
	})
	t.Run("a table is confirmed only once all of it was sent", func(t *testing.T) {
		table := listen(t, Config{}, stored(0, hashes{1}, 10))
		table.Apply([]kvevents.Event{stored(0, hashes{2}, 20)}, 100)
		var d pb.Delta
		table.Confirm(0, 7, &d)
		if len(d.Confirms) != 0 {
			t.Errorf("confirmed %v", d.Confirms)
		}
		collect(table)
		table.Confirm(0, 7, &d)
		if want := prints(10)[0] ^ prints(20)[0]; len(d.Confirms) != 1 || d.Confirms[0].T1Xor != want || d.Confirms[0].T1Count != 2 {
			t.Errorf("confirmed %v", d.Confirms)
		}
	})
	t.Run("a table is confirmed only while its engine can be reached", func(t *testing.T) {
		table := listen(t, Config{}, stored(0, hashes{1}, 10))
		for _, away := range []bool{true, false} {
			var d pb.Delta
			table.Away(away)
			table.Confirm(0, 7, &d)
			if confirmed := len(d.Confirms) > 0; confirmed == away {
				t.Errorf("away %v, confirmed %v", away, d.Confirms)
			}
		}
	})
}

func TestATableThatRefusesBlocksIsPartial(t *testing.T) {
	table := New(Config{MaxBlocks: 2})
	table.Apply([]kvevents.Event{stored(0, hashes{1, 2}, 10, 20)}, 100)
	if c := table.Certainty(); c != Exact {
		t.Errorf("a full table is %v", c)
	}
	table.Apply([]kvevents.Event{stored(2, hashes{3}, 30)}, 100)
	if c := table.Certainty(); c != Partial {
		t.Errorf("a table that refused a block is %v", c)
	}
}

func TestATableTellsHowMuchItIsToldOfTheOffloadTier(t *testing.T) {
	store, remove := on("CPU", stored(0, hashes{1}, 10)), on("CPU", removed(1))
	for name, c := range map[string]struct {
		tier2  Tier2
		events []kvevents.Event
		want   Reporting
	}{
		"no event of it":            {Tier2Observed, []kvevents.Event{stored(0, hashes{1}, 10), removed(1)}, ReportsNothing},
		"a store":                   {Tier2Observed, []kvevents.Event{store}, ReportsStores},
		"a chunk":                   {Tier2Observed, chunksRemoved()[:2], ReportsStores},
		"a removal":                 {Tier2Observed, []kvevents.Event{store, remove}, ReportsAll},
		"a removal of a chunk":      {Tier2Observed, chunksRemoved(), ReportsAll},
		"a removal of what was not": {Tier2Observed, []kvevents.Event{remove}, ReportsNothing},
		"storage is another tier":   {Tier2Observed, []kvevents.Event{on("FS", stored(0, hashes{1}, 10))}, ReportsNothing},
		"it is to be ignored":       {Tier2None, []kvevents.Event{store, remove}, ReportIgnored},
		"it is inferred":            {Tier2Inferred, []kvevents.Event{store, remove}, ReportIgnored},
	} {
		table := New(Config{Tier2: c.tier2})
		table.Apply(c.events, 100)
		if got := table.Tier2Reporting(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestChunksThatAreNotedAreBounded(t *testing.T) {
	table := New(Config{})
	table.Apply([]kvevents.Event{stored(0, hashes{1}, 10)}, 100)
	for h := range kvevents.Hash(maxNoted + 10) {
		table.Apply([]kvevents.Event{chunk(0, hashes{1000 + h}, 10, 20)}, 100)
	}
	if n := len(table.chunks.noted); n > maxNoted || n == 0 {
		t.Errorf("%d chunks are noted, at most %d may be", n, maxNoted)
	}
	if n := table.blocks.live(); n != 1 {
		t.Errorf("%d blocks are kept, want the one on the GPU", n)
	}
}

// TestContentHash compares with what Python prints for hash((...)).
func TestContentHash(t *testing.T) {
	for _, c := range []struct {
		tokens []uint32
		want   int64
	}{{nil, 5740354900026072187}, {[]uint32{1}, -6644214454873602895}, {[]uint32{1, 2, 3, 4}, 590899387183067792}, {[]uint32{4294967295, 0}, -4749709417860325614}} {
		if got := int64(contentHash(c.tokens)); got != c.want {
			t.Errorf("%v: %d, want %d", c.tokens, got, c.want)
		}
	}
}

// BenchmarkTable applies batches of one store of 32 blocks of 16 tokens, and the removal of the
// blocks stored 64 batches before.
func BenchmarkTable(b *testing.B) {
	const blocks, size, live = 32, 16, 64
	table := New(Config{})
	tokens := make([]uint32, blocks*size)
	hs := make(hashes, blocks)
	events := []kvevents.Event{{Kind: kvevents.Stored, BlockSize: size, Tokens: tokens, Group: 0}, {Kind: kvevents.Removed, Group: 0}}
	old := make(hashes, blocks)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		tokens[0] = uint32(n)
		for i := range hs {
			hs[i], old[i] = kvevents.Hash(n*blocks+i), kvevents.Hash((n-live)*blocks+i)
		}
		events[0].Hashes, events[1].Hashes = hs, old
		table.Apply(events, 100)
		n++
	}
	b.ReportMetric(float64(n*blocks)/b.Elapsed().Seconds(), "blocks/s")
}
