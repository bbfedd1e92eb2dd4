package blocktable

import (
	"encoding/binary"
	"fmt"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/inferencecache/inferencecache/fingerprint"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/kvevents"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// held is what is held: adapter and fingerprint to tier.
type held map[string]index.Tier

func heldKey(adapter string, print uint64) string { return fmt.Sprintf("%s/%016x", adapter, print) }

// mirror is an aggregator at its simplest: it applies deltas and checks their form.
type mirror struct {
	t    *rapid.T
	held held
}

func (m *mirror) apply(d *pb.Delta) {
	if len(d.Cleared) > 0 {
		m.held = held{}
	}
	for _, c := range d.Changes {
		for _, r := range c.Stored {
			if len(r.Keys) == 0 || len(r.Keys)%8 != 0 || r.BlockTokens == 0 || r.StartTokens%r.BlockTokens != 0 {
				m.t.Fatalf("malformed run %v", r)
			}
			for k := r.Keys; len(k) > 0; k = k[8:] {
				m.held[heldKey(c.AdapterId, binary.BigEndian.Uint64(k))] = index.Tier(r.Tier)
			}
		}
		for k := c.Removed; len(k) > 0; k = k[8:] {
			key := heldKey(c.AdapterId, binary.BigEndian.Uint64(k))
			if m.held[key] == 0 {
				m.t.Fatalf("removal of %s, which this aggregator was never told of", key)
			}
			delete(m.held, key)
		}
	}
}

// engine is the model: a tree of blocks with plain counts, from which the truth is read directly.
type engine struct {
	blocks map[kvevents.Hash]*modelBlock
}

type modelBlock struct {
	parent   kvevents.Hash // 0 for none
	tokens   []uint32
	print    uint64
	adapter  string
	salted   bool
	gpu, cpu int
}

// truth lists what is held, salted chains left out.
func (e *engine) truth() held {
	out := held{}
	for _, b := range e.blocks {
		switch key := heldKey(b.adapter, b.print); {
		case b.salted:
		case b.gpu > 0:
			out[key] = index.T1
		case b.cpu > 0:
			out[key] = index.T2
		}
	}
	return out
}

// settle forgets blocks without copies.
func (e *engine) settle() {
	for h, b := range e.blocks {
		if b.gpu+b.cpu == 0 {
			delete(e.blocks, h)
		}
	}
}

const testBlock = 4

// TestTableFollowsARandomEngine stores, duplicates, offloads, removes, clears and resets at random,
// and compares two aggregators that listen at random times with the engine's own blocks.
func TestTableFollowsARandomEngine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := New(Config{Uplinks: 2})
		e := &engine{blocks: map[kvevents.Hash]*modelBlock{}}
		mirrors := []*mirror{{t, held{}}, {t, held{}}}
		next := kvevents.Hash(1)
		step := func(events ...kvevents.Event) { table.Apply(events, 100) }
		collect := func(u, limit int) bool {
			if !table.Following(u) {
				table.Resend(u)
			}
			var d pb.Delta
			_, more := table.Collect(u, 7, limit, &d, 100)
			mirrors[u].apply(&d)
			return more
		}
		any := func() (kvevents.Hash, *modelBlock) {
			if len(e.blocks) == 0 {
				return 0, nil
			}
			for tries := 0; tries < 8; tries++ {
				h := kvevents.Hash(rapid.Uint64Range(1, uint64(next)).Draw(t, "hash"))
				if b := e.blocks[h]; b != nil {
					return h, b
				}
			}
			return 0, nil
		}
		t.Repeat(map[string]func(*rapid.T){
			"store a run": func(t *rapid.T) {
				parent, up := any()
				ev := kvevents.Event{Kind: kvevents.Stored, BlockSize: testBlock, Group: -1, HasParent: up != nil, Parent: parent}
				b := modelBlock{parent: parent}
				if up != nil {
					b.adapter, b.salted, b.print = up.adapter, up.salted, up.print
				} else {
					b.adapter = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "adapter")
					b.salted = rapid.IntRange(0, 5).Draw(t, "salt") == 0
					ev.Salted = b.salted
				}
				ev.LoRAName = b.adapter
				for range rapid.IntRange(1, 5).Draw(t, "blocks") {
					n := b
					n.gpu, n.tokens = 1, make([]uint32, testBlock)
					n.tokens[0] = uint32(next) // distinct chains
					n.print = fingerprint.Content(n.tokens)
					if n.parent != 0 {
						n.print = fingerprint.Child(b.print, n.print)
					}
					e.blocks[next] = &n
					ev.Hashes, ev.Tokens = append(ev.Hashes, next), append(ev.Tokens, n.tokens...)
					b.parent, b.print = next, n.print
					next++
				}
				step(ev)
			},
			"store a copy again": func(t *rapid.T) {
				h, b := any()
				if b == nil {
					return
				}
				b.gpu++
				step(kvevents.Event{
					Kind: kvevents.Stored, Hashes: []kvevents.Hash{h}, Tokens: b.tokens, BlockSize: testBlock, Group: -1,
					HasParent: b.parent != 0, Parent: b.parent, LoRAName: b.adapter, Salted: b.salted && b.parent == 0,
				})
			},
			"offload without tokens": func(t *rapid.T) {
				h, b := any()
				if b == nil {
					return
				}
				b.cpu++
				step(kvevents.Event{Kind: kvevents.Stored, Hashes: []kvevents.Hash{h}, Medium: "CPU", Group: -1, LoRAName: b.adapter})
			},
			"store where no removal is reported": func(t *rapid.T) {
				if h, b := any(); b != nil {
					step(kvevents.Event{Kind: kvevents.Stored, Hashes: []kvevents.Hash{h}, Medium: "STORAGE", Group: -1, LoRAName: b.adapter})
				}
			},
			"remove a copy": func(t *rapid.T) {
				h, b := any()
				if b == nil {
					return
				}
				ev := kvevents.Event{Kind: kvevents.Removed, Hashes: []kvevents.Hash{9999999, h}, Group: -1}
				switch {
				case b.gpu > 0:
					b.gpu--
				default:
					b.cpu--
					ev.Medium = "CPU"
				}
				e.settle()
				step(ev)
			},
			"clear the GPU": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "really") != 0 {
					return
				}
				for _, b := range e.blocks {
					b.gpu = 0
				}
				e.settle()
				step(kvevents.Event{Kind: kvevents.Cleared})
			},
			"restart": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "really") == 0 {
					e.blocks = map[kvevents.Hash]*modelBlock{}
					table.Reset(Exact)
				}
			},
			"an aggregator listens": func(t *rapid.T) {
				collect(rapid.IntRange(0, 1).Draw(t, "uplink"), rapid.IntRange(1, 20).Draw(t, "limit"))
			},
			"an aggregator is lost": func(t *rapid.T) {
				u := rapid.IntRange(0, 1).Draw(t, "uplink")
				if rapid.IntRange(0, 4).Draw(t, "really") == 0 {
					table.Detach(u)
				}
			},
			"": func(t *rapid.T) {
				got := held{}
				table.Held(func(adapter string, print uint64, tier index.Tier) { got[heldKey(adapter, print)] = tier })
				if diff := cmp.Diff(e.truth(), got); diff != "" {
					t.Fatalf("the table differs from the engine (-engine +table):\n%s", diff)
				}
			},
		})
		for u := range mirrors {
			for collect(u, 3) {
			}
			if diff := cmp.Diff(e.truth(), mirrors[u].held); diff != "" {
				t.Fatalf("aggregator %d differs from the engine (-engine +aggregator):\n%s", u, diff)
			}
		}
		checkInvariants(t, table)
	})
}

// connector is a model of an engine whose connector keeps chunks of two blocks. Prompts are strings, each
// letter a block; blocks leave the GPU from the end of a prompt on, chunks in any order.
type connector struct {
	numbers map[string]kvevents.Hash // of prefixes
	gpu     map[string]bool          // prefixes whose last block is on the GPU
	chunks  map[string]bool          // prefixes whose last two blocks are in host memory
}

// hashes of a prefix's last block and of the chunk that ends with it; 0 for no prefix.
func (c *connector) hash(prefix string) (block, chunk kvevents.Hash) {
	if prefix == "" {
		return 0, 0
	}
	n, ok := c.numbers[prefix]
	if !ok {
		n = kvevents.Hash(len(c.numbers) + 1)
		c.numbers[prefix] = n
	}
	return 1000 + 2*n, 1001 + 2*n
}

func (c *connector) blocks(text string) (out []uint32) {
	for _, letter := range text {
		out = append(out, uint32(letter))
	}
	return out
}

// compute stores the blocks that are missing.
func (c *connector) compute(prompt string) (events []kvevents.Event) {
	for n := range prompt {
		prefix := prompt[:n+1]
		if !c.gpu[prefix] {
			c.gpu[prefix] = true
			parent, _ := c.hash(prompt[:n])
			h, _ := c.hash(prefix)
			events = append(events, stored(parent, hashes{h}, c.blocks(prefix[n:])...))
		}
	}
	return events
}

// save stores the chunks that are missing.
func (c *connector) save(prompt string) (events []kvevents.Event) {
	for n := 2; n <= len(prompt); n += 2 {
		if prefix := prompt[:n]; !c.chunks[prefix] {
			c.chunks[prefix] = true
			_, parent := c.hash(prompt[:n-2])
			_, h := c.hash(prefix)
			events = append(events, chunk(parent, hashes{h}, c.blocks(prefix[n-2:])...))
		}
	}
	return events
}

func (c *connector) truth() held {
	out := held{}
	add := func(prefix string, tier index.Tier) {
		chain := prints(c.blocks(prefix)...)
		out[heldKey("", chain[len(chain)-1])] = tier
	}
	for prefix := range c.chunks {
		add(prefix, index.T2)
		add(prefix[:len(prefix)-1], index.T2)
	}
	for prefix := range c.gpu {
		add(prefix, index.T1)
	}
	return out
}

// TestTableFollowsARandomConnector computes, saves and drops at random, and compares what is held in both tiers.
func TestTableFollowsARandomConnector(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := New(Config{Uplinks: 1})
		table.Apply(chunksRemoved(), 100)
		c := &connector{numbers: map[string]kvevents.Hash{}, gpu: map[string]bool{}, chunks: map[string]bool{}}
		prompt := func() string { return rapid.StringMatching("[ab]{1,6}").Draw(t, "prompt") }
		t.Repeat(map[string]func(*rapid.T){
			"compute": func(*rapid.T) { table.Apply(c.compute(prompt()), 100) },
			"compute and save": func(*rapid.T) {
				p := prompt()
				table.Apply(append(c.compute(p), c.save(p)...), 100)
			},
			"leave the GPU": func(*rapid.T) {
				p := prompt()
				if h, _ := c.hash(p); c.gpu[p] && !c.gpu[p+"a"] && !c.gpu[p+"b"] {
					delete(c.gpu, p)
					table.Apply([]kvevents.Event{removed(h)}, 100)
				}
			},
			"drop a chunk": func(*rapid.T) {
				p := prompt()
				if _, h := c.hash(p); c.chunks[p] {
					delete(c.chunks, p)
					table.Apply([]kvevents.Event{on("CPU", removed(h))}, 100)
				}
			},
			"clear the GPU": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "really") == 0 {
					c.gpu = map[string]bool{}
					table.Apply([]kvevents.Event{{Kind: kvevents.Cleared}}, 100)
				}
			},
			"": func(t *rapid.T) {
				if diff := cmp.Diff(c.truth(), heldBy(table)); diff != "" {
					t.Fatalf("the table differs (-engine +table):\n%s", diff)
				}
			},
		})
		checkInvariants(t, table)
	})
}

// checkInvariants recomputes what the table keeps incrementally.
func checkInvariants(t *rapid.T, table *Table) {
	digests := make([]index.Digest, len(table.digests))
	var counts [2]int
	cells := 0
	for slot := range table.cells.used {
		c := table.cells.at(slot)
		if c.tokens == 0 {
			continue
		}
		cells++
		if found, ok := table.findCell(c.key()); !ok || found != slot {
			t.Fatalf("cell %v is filed at slot %d, found at %d (%v)", c.key(), slot, found, ok)
		}
		if c.tier != 0 {
			digests[c.adapter].Add(c.tier, c.print, +1)
			counts[c.tier-1]++
		}
		if c.refs == 0 && c.sent == 0 && c.dirty == 0 {
			t.Fatalf("cell %v is kept for nobody", c.key())
		}
	}
	if diff := cmp.Diff(digests, table.digests); diff != "" {
		t.Fatalf("digests (-recomputed +kept):\n%s", diff)
	}
	if counts != table.stats.Cells {
		t.Fatalf("cells by tier: recomputed %v, kept %v", counts, table.stats.Cells)
	}
	if cells != table.cells.live() || cells != table.byPrint.count {
		t.Fatalf("%d cells, %d live slots, %d filed", cells, table.cells.live(), table.byPrint.count)
	}
	if table.blocks.live() != table.byHash.count {
		t.Fatalf("%d live blocks, %d filed", table.blocks.live(), table.byHash.count)
	}
}

// filed is a set of slots with hashes.
type filed struct {
	hashes []uint64
	in     map[int32]bool
}

func (f filed) each(yield func(slot int32, hash uint64)) {
	for slot := range f.in {
		yield(slot, f.hashes[slot])
	}
}

func TestFinderKeepsWhatAMapKeeps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Few different hashes, so that probes collide, run long and wrap around.
		hash := rapid.Custom(func(t *rapid.T) uint64 { return rapid.Uint64Range(0, 40).Draw(t, "hash") * 0x0666_6666_6666_6666 })
		all := filed{rapid.SliceOfN(hash, 1, 200).Draw(t, "hashes"), map[int32]bool{}}
		var f finder
		for _, n := range rapid.SliceOf(rapid.IntRange(0, len(all.hashes)-1)).Draw(t, "steps") {
			slot := int32(n)
			if all.in[slot] {
				f.drop(all.hashes[slot], slot)
				delete(all.in, slot)
			} else {
				f.add(all.hashes[slot], slot, all)
				all.in[slot] = true
			}
			for s := range all.hashes {
				want := int32(s)
				got, ok := f.find(all.hashes[s], func(slot int32) bool { return slot == want })
				if ok != all.in[want] || (ok && got != want) {
					t.Fatalf("slot %d: found %v, want %v", s, ok, all.in[want])
				}
			}
			if f.count != len(all.in) {
				t.Fatalf("%d entries, want %d", f.count, len(all.in))
			}
		}
	})
}

// TestSizes keeps the structs that exist once per block small.
func TestSizes(t *testing.T) {
	if size := unsafe.Sizeof(block{}); size != 40 {
		t.Errorf("a block takes %d bytes, want 40", size)
	}
	if size := unsafe.Sizeof(cell{}); size != 40 {
		t.Errorf("a cell takes %d bytes, want 40", size)
	}
}
