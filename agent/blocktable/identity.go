package blocktable

import (
	"slices"

	"github.com/inferencecache/inferencecache/fingerprint"
)

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
	if d.why == included && !d.prev.exists && b.hash == contentHash(d.tokens) {
		d.why = ExcludedContent
	}
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
