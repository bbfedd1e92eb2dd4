package blocktable

import (
	"github.com/inferencecache/inferencecache/fingerprint"
	"github.com/inferencecache/inferencecache/index"
)

// tiers are the index tiers of the media that count as a hold.
var tiers = [2]index.Tier{onGPU: index.T1, offload: index.T2}

// cellFor returns the cell of a described block behind prev, made if need be.
func (t *Table) cellFor(b *block, prev link) int32 {
	print := b.content
	if prev.exists {
		print = fingerprint.Child(prev.print, b.content)
	}
	key := cellKey{print, b.adapter}
	if slot, ok := t.findCell(key); ok {
		return slot
	}
	slot := t.cells.take()
	*t.cells.at(slot) = cell{
		print: print, adapter: b.adapter, parent: prev.print, hasParent: prev.exists, start: prev.endTokens, tokens: b.tokens,
	}
	t.byPrint.add(key.hash64(), slot, filedCells{&t.cells})
	return slot
}

// hold counts a block that has become known in its cell.
func (t *Table) hold(b *block) {
	t.cells.at(b.cell).refs++
	for at := range tiers {
		if b.copies[at] > 0 {
			t.holdAt(b, medium(at), +1)
		}
	}
}

// release takes a block out of its cell.
func (t *Table) release(b *block) {
	for at := range tiers {
		if b.copies[at] > 0 {
			t.holdAt(b, medium(at), -1)
		}
	}
	t.cells.at(b.cell).refs--
	t.free(b.cell)
}

func (t *Table) holdAt(b *block, at medium, delta int) {
	c := t.cells.at(b.cell)
	c.held[at] += uint16(delta)
	tier := index.Tier(0)
	for i := len(tiers) - 1; i >= 0; i-- {
		if c.held[i] > 0 {
			tier = tiers[i]
		}
	}
	t.setTier(b.cell, tier)
}

// setTier moves a cell between tiers, 0 being none, and marks it for every aggregator.
func (t *Table) setTier(slot int32, tier index.Tier) {
	c := t.cells.at(slot)
	if c.tier == tier {
		return
	}
	d := &t.digests[c.adapter]
	if c.tier != 0 {
		d.Add(c.tier, c.print, -1)
		t.stats.Cells[c.tier-1]--
	}
	if tier != 0 {
		d.Add(tier, c.print, +1)
		t.stats.Cells[tier-1]++
	}
	c.tier, c.seen = tier, t.now
	for u := range t.uplinks {
		t.mark(u, slot)
	}
	t.free(slot)
}

// free gives a cell back once no block has it and no aggregator needs to hear of it.
func (t *Table) free(slot int32) {
	c := t.cells.at(slot)
	if c.tokens == 0 || c.refs != 0 || c.sent != 0 || c.dirty != 0 {
		return
	}
	t.byPrint.drop(c.key().hash64(), slot)
	t.cells.give(slot)
}

// adapterNumber interns a name and makes room for its digest.
func (t *Table) adapterNumber(name string) (uint16, bool) {
	n, ok := t.adapters.intern(name)
	for len(t.digests) < len(t.adapters.names) {
		t.digests = append(t.digests, index.Digest{})
	}
	return n, ok
}
