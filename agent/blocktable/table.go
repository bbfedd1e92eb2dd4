// Package blocktable follows what one KV cache of an engine holds. It maps the engine's opaque block
// hashes to content fingerprints, counts copies per tier, and keeps, for each aggregator, the set of
// blocks whose final state that aggregator has not been sent yet.
//
// Two layers: a block is what the engine names (hash and cache group) with its copies; a cell is
// what the index knows (adapter and fingerprint) and is held as long as any block of it is. Blocks
// whose identity is more than their tokens (a salt, an image, an adapter without a name) have no
// cell: they are counted and never reported.
package blocktable

import (
	"slices"
	"sync"

	"github.com/inferencecache/inferencecache/fingerprint"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/kvevents"
)

// DefaultMaxBlocks bounds the blocks of one table when Config does not: a 16-token block of a 1 TiB
// cache at 16 KiB a token would need 4 million.
const DefaultMaxBlocks = 4 << 20

// maxAdapters bounds the adapter names one table keeps.
const maxAdapters = 4096

// Config describes one table.
type Config struct {
	// LoRANames maps an engine's integer adapter ids to stable names, for engines that send none.
	LoRANames map[int64]string
	// Tier2 says what stands for the offload tier.
	Tier2 Tier2
	// MaxBlocks bounds the blocks tracked; more are refused and counted. 0 means DefaultMaxBlocks.
	MaxBlocks int
	// Uplinks is the number of aggregators that are served, at most MaxUplinks.
	Uplinks int
	// Notify is called, with the table locked, when something may wait to be sent. It must not block.
	Notify func()
}

// Tier2 says how blocks of the offload tier become known.
type Tier2 uint8

// Values of Tier2.
const (
	// Tier2Observed counts what the engine's events say of host memory.
	Tier2Observed Tier2 = iota
	// Tier2Inferred takes a block that left the GPU to be offloaded: it is reported at T2 once, as
	// of its eviction, and forgotten. It is never confirmed, so it ages out.
	Tier2Inferred
	// Tier2None ignores the offload tier.
	Tier2None
)

// Table is the state of one KV cache. All methods may be called from any goroutine.
type Table struct {
	cfg Config

	mu       sync.Mutex
	blocks   slab[block]
	byHash   finder // blocks by what the engine names
	cells    slab[cell]
	byPrint  finder               // cells by what the index knows
	waiting  map[blockKey][]int32 // blocks whose parent's fingerprint is not known yet, by parent
	adapters adapterNames
	digests  []index.Digest // by adapter
	uplinks  []uplinkState
	stats    Stats
	certain  Certainty
	gpuBlock int           // tokens in the block that a store of a main group on the GPU had last
	now      index.Instant // of the batch being applied
}

// Certainty says how far a table can be trusted to be what the engine holds.
type Certainty uint8

// Values of Certainty.
const (
	// Exact: every event since the engine's cache was empty has been applied.
	Exact Certainty = iota
	// Partial: the engine held blocks before the first event that was seen. What is known is right.
	Partial
	// Uncertain: an event could not be read. What it removed may still be listed, so the table is no
	// longer confirmed and ages out at the aggregators.
	Uncertain
)

// String returns the value of the metric label.
func (c Certainty) String() string { return [...]string{"exact", "partial", "uncertain"}[c] }

// blockKey is what the engine names.
type blockKey struct {
	hash  kvevents.Hash
	group int16 // -1 if the engine names none
}

// cellKey is what the index knows.
type cellKey struct {
	print   uint64
	adapter uint16
}

// identity says how far the fingerprint of a block is known.
type identity uint8

const (
	undescribed identity = iota // no store has given its tokens
	orphan                      // tokens known, fingerprint of the parent not
	known                       // has a cell
	excluded                    // more than tokens identify it; never has a cell
)

// medium is where the engine keeps a copy, as far as the table tells apart.
type medium uint8

const (
	onGPU     medium = iota // T1
	offload                 // T2
	elsewhere               // media whose removals engines do not report: counted, no hold
	media
)

// block is one engine hash of one group. Millions are kept: the fields are as narrow as they can be.
type block struct {
	hash      kvevents.Hash
	parent    kvevents.Hash // of the same group; valid when hasParent
	content   uint64        // content hash of its tokens; valid unless undescribed
	cell      int32         // valid when known
	group     int16
	adapter   uint16
	tokens    uint16       // block size
	copies    [media]uint8 // 255 stands for that many or more
	state     identity
	why       Exclusion // valid when excluded
	hasParent bool
}

// maxCopies is far above what engines hold of one hash (5 were seen).
const maxCopies = 255

// maxRefs bounds the engine hashes of one fingerprint. Engines that do not show salts make many.
const maxRefs = 1<<16 - 1

// maxBlockTokens bounds the block size.
const maxBlockTokens = 1<<16 - 1

func (b *block) key() blockKey { return blockKey{b.hash, b.group} }

// cell is one fingerprint under one adapter.
type cell struct {
	print     uint64
	parent    uint64        // fingerprint; valid when hasParent
	start     int32         // prompt tokens in front of it
	seen      index.Instant // last evidence
	sent      uint16        // 2 bits per uplink: the tier last put into a delta, 0 for none
	refs      uint16        // known blocks that have this cell
	held      [2]uint16     // those of them with copies, by T1 and T2
	tokens    uint16        // block size; 0 only in a free slot
	adapter   uint16
	dirty     uint8      // 1 bit per uplink: waits in its list
	tier      index.Tier // current; 0 when not held
	hasParent bool
}

func (c *cell) key() cellKey { return cellKey{c.print, c.adapter} }

// hash spreads engine hashes, of which some releases choose small numbers.
func (k blockKey) hash64() uint64 { return mix(uint64(k.hash) + uint64(uint16(k.group))<<48) }

func (k cellKey) hash64() uint64 { return mix(k.print + uint64(k.adapter)<<48) }

// mix is the finalizer of MurmurHash3: every bit of the input reaches the low bits.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// findBlock and findCell return the slot of a key.
func (t *Table) findBlock(k blockKey) (int32, bool) {
	return t.byHash.find(k.hash64(), func(slot int32) bool { return t.blocks.at(slot).key() == k })
}

func (t *Table) findCell(k cellKey) (int32, bool) {
	return t.byPrint.find(k.hash64(), func(slot int32) bool { return t.cells.at(slot).key() == k })
}

// filedBlocks and filedCells list what the finders file.
type (
	filedBlocks struct{ *slab[block] }
	filedCells  struct{ *slab[cell] }
)

func (f filedBlocks) each(yield func(slot int32, hash uint64)) {
	for slot := range f.used {
		if b := f.at(slot); b.copies != [media]uint8{} {
			yield(slot, b.key().hash64())
		}
	}
}

func (f filedCells) each(yield func(slot int32, hash uint64)) {
	for slot := range f.used {
		if c := f.at(slot); c.tokens != 0 {
			yield(slot, c.key().hash64())
		}
	}
}

// New returns an empty table.
func New(cfg Config) *Table {
	if cfg.MaxBlocks <= 0 {
		cfg.MaxBlocks = DefaultMaxBlocks
	}
	if cfg.Notify == nil {
		cfg.Notify = func() {}
	}
	t := &Table{cfg: cfg, uplinks: make([]uplinkState, min(cfg.Uplinks, MaxUplinks))}
	t.drop()
	return t
}

// drop forgets every block and cell.
func (t *Table) drop() {
	t.byHash, t.byPrint = finder{}, finder{}
	t.waiting = make(map[blockKey][]int32)
	t.blocks, t.cells = slab[block]{}, slab[cell]{}
	t.adapters, t.digests = newAdapterNames(), []index.Digest{{}}
	t.stats.held()
}

// Reset forgets everything, because the engine restarted, or because events were missed and what is
// left cannot be trusted. certain is what the table is from here on.
func (t *Table) Reset(certain Certainty) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop()
	t.certain = certain
	t.resendAll()
	t.cfg.Notify()
}

// Doubt lowers the certainty; only Reset raises it again.
func (t *Table) Doubt(c Certainty) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.certain = max(t.certain, c)
}

// Certainty returns how far the table can be trusted.
func (t *Table) Certainty() Certainty {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.certain
}

// Apply applies the events of one batch in order. now is when they were received.
func (t *Table) Apply(events []kvevents.Event, now index.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = now
	for i := range events {
		switch e := &events[i]; e.Kind {
		case kvevents.Stored:
			t.store(e)
		case kvevents.Removed:
			t.remove(e)
		case kvevents.Cleared:
			t.clearGPU()
		}
	}
	t.settle()
}

// link is what a block needs to know of the one in front of it.
type link struct {
	key       blockKey
	exists    bool // false for the first block of a prompt
	state     identity
	print     uint64 // when known
	endTokens int32  // prompt tokens up to its end, when known
	why       Exclusion
}

func (t *Table) linkTo(k blockKey) link {
	slot, ok := t.findBlock(k)
	if !ok {
		return link{key: k, exists: true, state: undescribed}
	}
	return t.linkOf(t.blocks.at(slot))
}

func (t *Table) linkOf(b *block) link {
	l := link{key: b.key(), exists: true, state: b.state, why: b.why}
	if b.state == known {
		c := t.cells.at(b.cell)
		l.print, l.endTokens = c.print, c.start+int32(c.tokens)
	}
	return l
}

// store applies one BlockStored. A store without tokens (a placeholder of an offload tier) only
// counts copies; its blocks get their identity from the store that carries tokens.
func (t *Table) store(e *kvevents.Event) {
	at := t.mediumOf(e.Medium)
	adapter, why := t.adapterOf(e)
	if why == included && !mainAttention(e.SpecKind) {
		why = ExcludedGroup
	}
	if at == onGPU && why != ExcludedGroup && e.BlockSize > 0 {
		t.gpuBlock = e.BlockSize
	}
	if at == offload && e.BlockSize > 0 && t.gpuBlock > 0 && e.BlockSize != t.gpuBlock {
		// Chunks of a connector with hashes of its own, which announces no removals.
		at = elsewhere
	}
	if why == included && e.Salted {
		why = ExcludedSalt
	}
	paired := e.BlockSize > 0 && e.BlockSize <= maxBlockTokens && len(e.Tokens) == len(e.Hashes)*e.BlockSize
	if !paired && len(e.Tokens) > 0 && why != ExcludedGroup {
		t.stats.Mismatched++
	}
	prev, group := link{}, groupOf(e)
	if e.HasParent {
		prev = t.linkTo(blockKey{e.Parent, group})
	}
	for i, h := range e.Hashes {
		slot, ok := t.blockAt(blockKey{h, group})
		if !ok {
			t.stats.Refused += uint64(len(e.Hashes) - i)
			return
		}
		if paired {
			d := description{adapter: adapter, tokens: e.Tokens[i*e.BlockSize : (i+1)*e.BlockSize], prev: prev, why: why}
			if d.why == included && i < len(e.Extra) {
				d.why = exclusionOf(e.Extra[i])
			}
			t.describe(slot, d)
		}
		t.addCopy(slot, at)
		prev = t.linkOf(t.blocks.at(slot))
	}
}

// blockAt returns the block of a key, made if need be; false when the table is full.
func (t *Table) blockAt(k blockKey) (int32, bool) {
	if slot, ok := t.findBlock(k); ok {
		return slot, true
	}
	if t.blocks.live() >= t.cfg.MaxBlocks {
		return 0, false
	}
	slot := t.blocks.take()
	*t.blocks.at(slot) = block{hash: k.hash, group: k.group}
	t.byHash.add(k.hash64(), slot, filedBlocks{&t.blocks})
	t.stats.count(undescribed, included, +1)
	return slot, true
}

// description is what a store says of one block.
type description struct {
	adapter uint16
	tokens  []uint32
	prev    link
	why     Exclusion // included unless something but tokens identifies the block
}

// describe gives a block its identity. A block described before must be described the same again:
// an engine that uses one hash for two prefixes cannot be followed, and the block is excluded.
func (t *Table) describe(slot int32, d description) {
	b := t.blocks.at(slot)
	if b.state == excluded {
		return
	}
	content := fingerprint.Content(d.tokens)
	if b.state != undescribed {
		same := b.content == content && b.adapter == d.adapter && b.hasParent == d.prev.exists &&
			(!b.hasParent || b.parent == d.prev.key.hash)
		if !same {
			t.exclude(slot, ExcludedReused)
		}
		return
	}
	b.content, b.adapter, b.tokens = content, d.adapter, uint16(len(d.tokens))
	b.parent, b.hasParent = d.prev.key.hash, d.prev.exists
	if d.why != included {
		d.prev.exists, d.prev.state, d.prev.why = true, excluded, d.why
	}
	t.attach(slot, d.prev)
}

// attach derives the fingerprint of a described block from the one in front of it, and with it those
// of the blocks that waited for this one.
func (t *Table) attach(slot int32, prev link) {
	type task struct {
		slot int32
		prev link
	}
	for tasks := []task{{slot, prev}}; len(tasks) > 0; {
		next := tasks[len(tasks)-1]
		tasks = tasks[:len(tasks)-1]
		if !t.attachOne(next.slot, next.prev) {
			continue
		}
		b := t.blocks.at(next.slot)
		for _, child := range t.waiting[b.key()] {
			tasks = append(tasks, task{child, t.linkOf(b)})
		}
		delete(t.waiting, b.key())
	}
}

// attachOne says whether the block's fate is decided: it has a cell, or is excluded.
func (t *Table) attachOne(slot int32, prev link) bool {
	b := t.blocks.at(slot)
	switch {
	case prev.exists && prev.state == excluded:
		t.exclude(slot, prev.why)
	case prev.exists && prev.key == b.key(): // its own parent: no chain leads here
		t.exclude(slot, ExcludedReused)
	case prev.exists && prev.state != known:
		t.setState(b, orphan, included)
		t.waiting[prev.key] = append(t.waiting[prev.key], slot)
		return false
	default:
		cell := t.cellFor(b, prev)
		if t.cells.at(cell).refs == maxRefs {
			t.exclude(slot, ExcludedReused)
			break
		}
		t.setState(b, known, included)
		b.cell = cell
		t.hold(b)
	}
	return true
}

// exclude takes a block out of the index for as long as it lives.
func (t *Table) exclude(slot int32, why Exclusion) {
	b := t.blocks.at(slot)
	if b.state == known {
		t.release(b)
	}
	t.forgetWaiting(slot)
	t.setState(b, excluded, why)
}

func (t *Table) setState(b *block, s identity, why Exclusion) {
	t.stats.count(b.state, b.why, -1)
	b.state, b.why = s, why
	t.stats.count(s, why, +1)
}

// forgetWaiting takes an orphan off its parent's list.
func (t *Table) forgetWaiting(slot int32) {
	b := t.blocks.at(slot)
	if b.state != orphan {
		return
	}
	parent := blockKey{b.parent, b.group}
	list := t.waiting[parent]
	if i := slices.Index(list, slot); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(t.waiting, parent)
		return
	}
	t.waiting[parent] = list
}

// remove applies one BlockRemoved. Children keep their identity: their own removals will come.
func (t *Table) remove(e *kvevents.Event) {
	at, group := t.mediumOf(e.Medium), groupOf(e)
	for _, h := range e.Hashes {
		slot, ok := t.findBlock(blockKey{h, group})
		if !ok || t.blocks.at(slot).copies[at] == 0 {
			t.stats.UnknownRemovals++
			continue
		}
		t.setCopies(slot, at, t.blocks.at(slot).copies[at]-1)
	}
}

// clearGPU applies AllBlocksCleared, which empties the GPU tier alone.
func (t *Table) clearGPU() {
	t.stats.Clears++
	for slot := range t.blocks.used {
		if t.blocks.at(slot).copies[onGPU] > 0 {
			t.setCopies(slot, onGPU, 0)
		}
	}
}

func (t *Table) addCopy(slot int32, at medium) {
	b := t.blocks.at(slot)
	if n := b.copies[at]; n < maxCopies {
		t.setCopies(slot, at, n+1)
	}
	if b.state == known {
		c := t.cells.at(b.cell)
		c.seen = t.now
	}
}

// setCopies changes the number of copies in one medium, and lets the block go with the last one.
func (t *Table) setCopies(slot int32, at medium, n uint8) {
	b := t.blocks.at(slot)
	before := b.copies[at] > 0
	if at == onGPU && b.why != ExcludedGroup {
		t.stats.GPUCopies += int(n) - int(b.copies[at])
	}
	b.copies[at] = n
	if b.state == known && at != elsewhere && before != (n > 0) {
		if before {
			t.holdAt(b, at, -1)
		} else {
			t.holdAt(b, at, +1)
		}
	}
	if b.copies == [media]uint8{} {
		if b.state == known {
			t.release(b)
		}
		t.forgetWaiting(slot)
		t.stats.count(b.state, b.why, -1)
		t.byHash.drop(b.key().hash64(), slot)
		t.blocks.give(slot)
	}
}

// groupOf returns the event's cache group in the width that is kept.
func groupOf(e *kvevents.Event) int16 {
	return int16(max(-1, min(e.Group, 1<<15-1))) //nolint:gosec // bounded here
}
