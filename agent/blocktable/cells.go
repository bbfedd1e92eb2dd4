package blocktable

import (
	"slices"

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
	t.cells.at(b.cell).held[at] += uint16(delta)
	t.retier(b.cell)
}

// retier finds the warmest tier in which a cell is held. Where groups do not name their kind, each of
// them must hold it.
func (t *Table) retier(slot int32) {
	c, need := t.cells.at(slot), max(1, len(t.bare))
	tier := index.Tier(0)
	for i := len(tiers) - 1; i >= 0; i-- {
		if int(c.held[i]) >= need {
			tier = tiers[i]
		}
	}
	t.setTier(slot, tier)
}

// maxBare bounds the groups without a kind that are told apart; engines have a handful.
const maxBare = 64

// noteGroup learns that an engine stores blocks of a group without naming the group's kind.
func (t *Table) noteGroup(group int16) {
	if group < 0 || len(t.bare) >= maxBare || slices.Contains(t.bare, group) {
		return
	}
	if t.bare = append(t.bare, group); len(t.bare) == 1 {
		return
	}
	for slot := range t.cells.used {
		if t.cells.at(slot).tokens != 0 {
			t.retier(slot)
		}
	}
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
