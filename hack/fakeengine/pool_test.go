package fakeengine

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const testBlock = 4 // block size of the pool tests

func testPool(blocks int) *pool { return newPool(blocks, testBlock, blockHash{1}) }

func seqOf(tokens []uint32) *sequence { return &sequence{tokens: slices.Clone(tokens)} }

// admitted admits a sequence that must find room, and returns its cached tokens.
func admitted(t *testing.T, p *pool, s *sequence) int {
	t.Helper()
	cached, ok := p.admit(s)
	if !ok {
		t.Fatal("no room")
	}
	return cached
}

func TestPoolServesWholeBlocksAndComputesTheLastToken(t *testing.T) {
	for _, c := range []struct {
		name         string
		first, again int // prompt lengths
		want         int // cached tokens of the second
	}{
		{"a shorter prompt hits its full blocks", 12, 10, 8},
		{"the last token of an exact multiple is computed", 12, 12, 8},
		{"one token more hits all full blocks", 12, 13, 12},
		{"a prompt within the first block hits nothing", 12, 4, 0},
		{"a partial block is not cached", 7, 12, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := testPool(32)
			first := seqOf(numbers(0, c.first))
			if got := admitted(t, p, first); got != 0 {
				t.Errorf("first request found %d tokens in an empty cache", got)
			}
			p.release(first)
			if got := admitted(t, p, seqOf(numbers(0, c.again))); got != c.want {
				t.Errorf("cached tokens: got %d, want %d", got, c.want)
			}
		})
	}
}

func TestPoolKeepsACopyForEachTimeALastBlockIsComputedAgain(t *testing.T) {
	p := testPool(32)
	for copies := 1; copies <= 3; copies++ {
		s := seqOf(numbers(0, 8))
		admitted(t, p, s)
		p.release(s)
		if got := len(p.cached[s.chain[1].hash].copies); got != copies {
			t.Fatalf("copies after %d requests: %d", copies, got)
		}
		if got := len(p.cached[s.chain[0].hash].copies); got != 1 {
			t.Fatalf("copies of the first block: %d, want 1", got)
		}
	}
}

func TestPoolKeepsACopyForEachRequestThatComputesABlockSideBySide(t *testing.T) {
	p := testPool(32)
	a, b := seqOf(numbers(0, 6)), seqOf(numbers(0, 6))
	admitted(t, p, a)
	admitted(t, p, b)
	for _, s := range []*sequence{a, b} {
		s.tokens = append(s.tokens, 90, 91)
		if !p.grow(s) {
			t.Fatal("no room")
		}
	}
	if a.table[0] != b.table[0] || a.table[1] == b.table[1] {
		t.Fatalf("tables %v and %v: want the first block shared, the second apart", a.table, b.table)
	}
	if got := len(p.cached[a.chain[1].hash].copies); got != 2 {
		t.Errorf("copies of the generated block: %d, want 2", got)
	}
}

func TestPoolTakesTheTailOfAPrefixFirst(t *testing.T) {
	p := testPool(5) // 4 usable
	old := seqOf(numbers(0, 12))
	admitted(t, p, old)
	p.release(old)
	p.takeEvents()
	admitted(t, p, seqOf(numbers(100, 8))) // takes the unused block and one of old's
	want := []event{{kind: blockRemoved, hashes: []blockHash{old.chain[2].hash}}}
	if got := p.takeEvents()[:1]; !slices.EqualFunc(got, want, sameEvent) {
		t.Errorf("got %+v, want the removal of the last block", got)
	}
}

func TestPoolAdmitChangesNothingWithoutRoom(t *testing.T) {
	p := testPool(5)
	head := seqOf(numbers(0, 8))
	admitted(t, p, head)
	p.release(head)
	other := seqOf(numbers(100, 8))
	admitted(t, p, other)
	p.takeEvents()
	// Its two cached blocks are the only free ones, so they cannot also serve as the third.
	s := seqOf(numbers(0, 12))
	if _, ok := p.admit(s); ok {
		t.Fatal("admitted")
	}
	if len(s.table) != 0 || p.free.size != 2 || len(p.takeEvents()) != 0 {
		t.Errorf("table %v, %d free: a refused request changed the pool", s.table, p.free.size)
	}
	p.release(other)
	if got := admitted(t, p, s); got != 8 {
		t.Errorf("cached tokens once there is room: %d, want 8", got)
	}
}

func TestPoolHashesTellAdaptersAndSaltsApart(t *testing.T) {
	ids := []identity{{}, {lora: "x", loraID: 1}, {salt: "x"}, {lora: "x", loraID: 1, salt: "y"}, {lora: "y", loraID: 2, salt: "x"}}
	p := testPool(64)
	for _, id := range ids {
		s := &sequence{id: id, tokens: numbers(0, 9)}
		if got := admitted(t, p, s); got != 0 {
			t.Errorf("%+v found %d tokens of another identity", id, got)
		}
	}
	if got, want := len(p.cached), 2*len(ids); got != want {
		t.Errorf("%d hashes, want %d", got, want)
	}
	for _, e := range p.cached {
		if e.index == 0 && e.fingerprint != p.cached[seqHash(p, identity{}, 0)].fingerprint {
			t.Errorf("fingerprint of %+v differs from the base model's", e.id)
		}
	}
}

// seqHash returns the hash of block i of the numbers from 0 on.
func seqHash(p *pool, id identity, i int) blockHash {
	s := &sequence{id: id, tokens: numbers(0, (i+1)*p.blockSize)}
	p.extend(s)
	return s.chain[i].hash
}

func TestPoolResetWaitsUntilNothingIsInUse(t *testing.T) {
	p := testPool(8)
	s := seqOf(numbers(0, 8))
	admitted(t, p, s)
	if p.reset() {
		t.Fatal("reset with blocks in use")
	}
	p.release(s)
	p.takeEvents()
	if !p.reset() {
		t.Fatal("no reset of an idle pool")
	}
	if got := p.takeEvents(); len(got) != 1 || got[0].kind != allCleared {
		t.Errorf("events %+v, want one clear", got)
	}
	if got := admitted(t, p, seqOf(numbers(0, 8))); got != 0 || len(p.takeEvents()) != 1 {
		t.Errorf("%d cached tokens after a reset; removals of forgotten blocks must not be announced", got)
	}
}

func TestRootHashIsRandomUnlessSeeded(t *testing.T) {
	root := func(seed string) blockHash {
		h, err := noneHash(seed)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if a, b := root(""), root(""); a == b {
		t.Error("two unseeded roots are equal")
	}
	if a, b, c := root("7"), root("7"), root("8"); a != b || a == c {
		t.Error("seeded roots must depend on the seed alone")
	}
}

func sameEvent(a, b event) bool {
	return a.kind == b.kind && slices.Equal(a.hashes, b.hashes)
}

// poolModel drives a pool with random requests, and follows its events as a plain consumer does: one count
// for each hash.
type poolModel struct {
	pool    *pool
	running []*sequence
	counts  map[blockHash]int
}

func TestPoolInvariantsHoldAndItsEventsTellWhatItCaches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &poolModel{pool: testPool(rapid.IntRange(2, 24).Draw(t, "blocks")), counts: map[blockHash]int{}}
		t.Repeat(map[string]func(*rapid.T){
			"admit":   m.admit,
			"grow":    m.grow,
			"release": m.release,
			"reset":   m.reset,
			"":        m.check,
		})
	})
}

// admit starts a request over an alphabet of two tokens, so that prefixes meet often.
func (m *poolModel) admit(t *rapid.T) {
	s := &sequence{
		id: identity{
			lora: rapid.SampledFrom([]string{"", "", "a"}).Draw(t, "lora"),
			salt: rapid.SampledFrom([]string{"", "", "s"}).Draw(t, "salt"),
		},
		tokens: rapid.SliceOfN(rapid.Uint32Range(0, 1), 1, 5*testBlock).Draw(t, "prompt"),
	}
	known := m.longestKnown(s)
	cached, ok := m.pool.admit(s)
	if !ok {
		if idle := len(m.running) == 0; idle && m.pool.blocksFor(len(s.tokens)) <= m.pool.usable() {
			t.Fatal("an idle pool refuses a request that fits")
		}
		return
	}
	if want := min(known, (len(s.tokens)-1)/testBlock*testBlock); cached != want {
		t.Fatalf("cached tokens: got %d, want %d by the events", cached, want)
	}
	m.running = append(m.running, s)
}

// longestKnown is the length of the prefix that the consumer of the events believes cached.
func (m *poolModel) longestKnown(s *sequence) int {
	m.pool.extend(s)
	n := 0
	for n < len(s.chain) && m.counts[s.chain[n].hash] > 0 {
		n++
	}
	return n * testBlock
}

func (m *poolModel) pick(t *rapid.T) int {
	if len(m.running) == 0 {
		t.Skip("nothing runs")
	}
	return rapid.IntRange(0, len(m.running)-1).Draw(t, "request")
}

func (m *poolModel) grow(t *rapid.T) {
	s := m.running[m.pick(t)]
	before := len(s.tokens)
	s.tokens = append(s.tokens, rapid.SliceOfN(rapid.Uint32Range(0, 1), 1, 2*testBlock).Draw(t, "generated")...)
	if !m.pool.grow(s) {
		s.tokens = s.tokens[:before]
	}
}

func (m *poolModel) release(t *rapid.T) {
	i := m.pick(t)
	m.pool.release(m.running[i])
	m.running = slices.Delete(m.running, i, i+1)
}

func (m *poolModel) reset(t *rapid.T) {
	if done := m.pool.reset(); done != (len(m.running) == 0) {
		t.Fatalf("reset returned %v with %d requests running", done, len(m.running))
	}
}

func (m *poolModel) check(t *rapid.T) {
	m.consume(t)
	refs := make([]int32, len(m.pool.refs))
	for _, s := range m.running {
		if len(s.table) != m.pool.blocksFor(len(s.tokens)) {
			t.Fatalf("%d blocks hold %d tokens", len(s.table), len(s.tokens))
		}
		for _, id := range s.table {
			refs[id]++
		}
	}
	if diff := cmp.Diff(refs, m.pool.refs); diff != "" {
		t.Fatalf("reference counts (-held by requests +counted):\n%s", diff)
	}
	m.checkFree(t)
	m.checkCached(t)
}

// consume applies the new events.
func (m *poolModel) consume(t *rapid.T) {
	for _, ev := range m.pool.takeEvents() {
		switch ev.kind {
		case blockStored:
			if len(ev.tokens) != len(ev.hashes)*testBlock {
				t.Fatalf("%d tokens for %d hashes", len(ev.tokens), len(ev.hashes))
			}
			for _, h := range ev.hashes {
				m.counts[h]++
			}
		case blockRemoved:
			for _, h := range ev.hashes {
				if m.counts[h]--; m.counts[h] < 0 {
					t.Fatal("more copies removed than stored")
				}
			}
		case allCleared:
			clear(m.counts)
		}
	}
	maps.DeleteFunc(m.counts, func(_ blockHash, n int) bool { return n == 0 })
}

// checkFree walks the queue: every block but the null block is in it if and only if nobody uses it.
func (m *poolModel) checkFree(t *rapid.T) {
	free := make([]bool, len(m.pool.refs))
	walked := 0
	for id := m.pool.free.next[0]; id != 0; id = m.pool.free.next[id] {
		if free[id] {
			t.Fatalf("block %d is free twice", id)
		}
		free[id] = true
		walked++
	}
	if walked != m.pool.free.size {
		t.Fatalf("%d blocks in a free queue of size %d", walked, m.pool.free.size)
	}
	for id, refs := range m.pool.refs[1:] {
		if free[id+1] == (refs > 0) {
			t.Fatalf("block %d has %d references, free %v", id+1, refs, free[id+1])
		}
	}
}

// checkCached compares the cache with the block table and with the consumer of the events.
func (m *poolModel) checkCached(t *rapid.T) {
	copies := make(map[blockHash]int)
	for id, e := range m.pool.entries {
		if e == nil {
			continue
		}
		copies[e.hash]++
		if m.pool.cached[e.hash] != e || !slices.Contains(e.copies, int32(id)) {
			t.Fatalf("block %d is cached under a hash that does not know it", id)
		}
	}
	for h, e := range m.pool.cached {
		if len(e.copies) == 0 || len(e.copies) != copies[h] {
			t.Fatalf("hash lists %d copies, %d blocks carry it", len(e.copies), copies[h])
		}
	}
	if diff := cmp.Diff(copies, m.counts); diff != "" {
		t.Fatalf("cached copies (-pool +consumer of events):\n%s", diff)
	}
}
