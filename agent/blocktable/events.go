package blocktable

import (
	"github.com/inferencecache/inferencecache/kvevents"
)

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
	at, counts := t.mediumOf(e.Medium)
	if !counts {
		t.stats.Ignored += uint64(len(e.Hashes))
		return
	}
	adapter, why := t.identityOf(e)
	if at == onGPU && why != ExcludedGroup && e.BlockSize > 0 {
		t.gpuBlock = max(t.gpuBlock, e.BlockSize) // entries of a part of a block are smaller
	}
	paired := e.BlockSize > 0 && e.BlockSize <= maxBlockTokens && len(e.Tokens) == len(e.Hashes)*e.BlockSize
	if at == offload {
		t.offload.stored = true
		if t.isChunk(e) {
			t.storeChunks(e, paired, adapter == 0 && why == included && e.Extra == nil)
			return
		}
		t.offload.storesOnly = t.offload.storesOnly || e.Medium == storesOnly && !t.offload.removed
	}
	if !paired && len(e.Tokens) > 0 && why != ExcludedGroup {
		t.stats.Mismatched++
	}
	group := groupOf(e)
	if at == onGPU && paired && e.SpecKind == "" {
		t.noteGroup(group)
	}
	r := run{event: e, at: at, group: group, paired: paired, description: description{adapter: adapter, why: why}}
	if e.HasParent {
		r.prev = t.linkTo(blockKey{e.Parent, group})
	}
	t.place(r)
}

// run is the blocks of one store, with the description of the next one to be placed.
type run struct {
	event  *kvevents.Event
	at     medium
	group  int16
	paired bool // tokens pair with hashes
	description
}

// place counts a copy of each block of a run, and describes the blocks if the tokens can be told apart.
func (t *Table) place(r run) {
	e := r.event
	for i, h := range e.Hashes {
		slot, ok := t.blockAt(blockKey{h, r.group})
		if !ok {
			t.refuse(len(e.Hashes) - i)
			return
		}
		if r.paired {
			d := r.description
			d.tokens = e.Tokens[i*e.BlockSize : (i+1)*e.BlockSize]
			if d.why == included && i < len(e.Extra) {
				d.why = exclusionOf(e.Extra[i])
			}
			t.describe(slot, d)
		}
		t.addCopy(slot, r.at)
		r.prev = t.linkOf(t.blocks.at(slot))
	}
}

// refuse counts blocks for which there was no room. What is known is right, and not all.
func (t *Table) refuse(blocks int) {
	t.stats.Refused += uint64(blocks)
	t.certain = max(t.certain, Partial)
}

// blockAt returns the block of a key, made if need be; false when the table is full.
func (t *Table) blockAt(k blockKey) (int32, bool) {
	if slot, ok := t.findBlock(k); ok {
		return slot, true
	}
	if t.blocks.live() >= t.cfg.MaxBlocks {
		if t.offload.storesOnly {
			t.clear(offload)
		}
		if t.blocks.live() >= t.cfg.MaxBlocks {
			return 0, false
		}
	}
	slot := t.blocks.take()
	*t.blocks.at(slot) = block{hash: k.hash, group: k.group}
	t.byHash.add(k.hash64(), slot, filedBlocks{&t.blocks})
	t.stats.count(undescribed, included, +1)
	return slot, true
}

// remove applies one BlockRemoved. Children keep their identity: their own removals will come.
func (t *Table) remove(e *kvevents.Event) {
	at, counts := t.mediumOf(e.Medium)
	if !counts {
		return
	}
	group := groupOf(e)
	for _, h := range e.Hashes {
		slot, ok := t.findBlock(blockKey{h, group})
		ok = ok && t.blocks.at(slot).copies[at] > 0
		switch {
		case ok:
			t.setCopies(slot, at, t.blocks.at(slot).copies[at]-1)
		case at != offload || !t.removeChunk(h):
			t.stats.UnknownRemovals++
			continue
		}
		if at == offload {
			t.offload.removed = true
			t.offload.storesOnly = t.offload.storesOnly && e.Medium != storesOnly
		}
	}
}

// clearAll applies AllBlocksCleared. It empties the GPU tier, and the offload tier of engines that are said
// to empty both.
func (t *Table) clearAll() {
	t.stats.Clears++
	t.clear(onGPU)
	if t.cfg.ClearsOffload {
		t.clear(offload)
	}
}

func (t *Table) clear(at medium) {
	for slot := range t.blocks.used {
		if t.blocks.at(slot).copies[at] > 0 {
			t.setCopies(slot, at, 0)
		}
	}
}

func (t *Table) addCopy(slot int32, at medium) {
	b := t.blocks.at(slot)
	if n := b.copies[at]; n == 0 || n < maxCopies && !t.cfg.Once {
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
	if b.state == known && before != (n > 0) {
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
