package blocktable

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/inferencecache/inferencecache/index"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// MaxUplinks bounds the aggregators of one table: a cell keeps three bits for each.
const MaxUplinks = 8

// minDirty is the size below which an uplink's list is never cut off.
const minDirty = 1 << 16

// uplinkState is what one aggregator has yet to hear. It is a set of cells, not a queue of changes:
// what is sent is the state at the time of sending, so a store and an eviction between two sends
// cancel out, and an aggregator that cannot keep up costs no more than the table's own size.
type uplinkState struct {
	// active while the aggregator is being followed. Else nothing is tracked for it, and it starts
	// with a whole table.
	active bool
	// cleared means that the aggregator must drop what it has of this table before anything else.
	cleared bool
	// lost means that the set outgrew its bound: following stops at the end of the batch.
	lost  bool
	dirty []int32 // slots of cells, each once, oldest first
	next  int     // index of the first not yet sent
}

func (u *uplinkState) len() int { return len(u.dirty) - u.next }

// sentTier is the tier last put into a delta for uplink u.
func (c *cell) sentTier(u int) index.Tier { return index.Tier(c.sent >> (2 * u) & 3) }

func (c *cell) setSent(u int, t index.Tier) {
	c.sent = c.sent&^(3<<(2*u)) | uint16(t)<<(2*u)
}

// mark puts a cell into the dirty set of an uplink.
func (t *Table) mark(u int, slot int32) {
	s, c := &t.uplinks[u], t.cells.at(slot)
	if !s.active || s.lost || c.dirty&(1<<u) != 0 {
		return
	}
	if s.len() >= max(minDirty, 2*t.blocks.live()) {
		s.lost = true
		return
	}
	c.dirty |= 1 << u
	s.dirty = append(s.dirty, slot)
}

// Waiting returns how many blocks have changed since an aggregator was told of them.
func (t *Table) Waiting(u int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.uplinks[u].len()
}

// settle ends a batch: it lets go of uplinks that lost the thread, and wakes the others.
func (t *Table) settle() {
	for u := range t.uplinks {
		if t.uplinks[u].lost {
			t.detach(u)
			t.stats.Resyncs++
		}
	}
	t.cfg.Notify()
}

// detach stops tracking for an uplink. It is told the whole table when it is followed again.
func (t *Table) detach(u int) {
	s := &t.uplinks[u]
	*s = uplinkState{}
	for slot := range t.cells.used {
		c := t.cells.at(slot)
		c.setSent(u, 0)
		c.dirty &^= 1 << u
		t.free(slot)
	}
}

// Detach stops tracking for an aggregator that is gone.
func (t *Table) Detach(u int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.detach(u)
}

// Resend makes the next collections for u carry the whole table.
func (t *Table) Resend(u int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resend(u)
	t.cfg.Notify()
}

func (t *Table) resendAll() {
	for u := range t.uplinks {
		if t.uplinks[u].active {
			t.resend(u)
		}
	}
}

func (t *Table) resend(u int) {
	t.detach(u)
	t.uplinks[u] = uplinkState{active: true, cleared: true}
	for _, slot := range t.newestFirst() {
		t.markChain(u, slot)
	}
}

// newestFirst lists what is held by its last evidence, so that an aggregator that is sent the whole
// table gives useful hints before the end.
func (t *Table) newestFirst() []int32 {
	slots := make([]int32, 0, t.cells.live())
	for slot := range t.cells.used {
		if t.cells.at(slot).tier != 0 {
			slots = append(slots, slot)
		}
	}
	slices.SortFunc(slots, func(a, b int32) int { return cmp.Compare(t.cells.at(b).seen, t.cells.at(a).seen) })
	return slots
}

// markChain marks a cell behind its ancestors, so that chains are sent as long runs.
func (t *Table) markChain(u int, slot int32) {
	s := &t.uplinks[u]
	first := len(s.dirty)
	for {
		c := t.cells.at(slot)
		if c.tier == 0 || c.dirty&(1<<u) != 0 {
			break
		}
		c.dirty |= 1 << u
		s.dirty = append(s.dirty, slot)
		up, ok := t.findCell(cellKey{c.parent, c.adapter})
		if !c.hasParent || !ok {
			break
		}
		slot = up
	}
	for i, j := first, len(s.dirty)-1; i < j; i, j = i+1, j-1 {
		s.dirty[i], s.dirty[j] = s.dirty[j], s.dirty[i]
	}
}

// Following says whether u is being followed; if not, its next step is Resend.
func (t *Table) Following(u int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.uplinks[u].active
}

// Collect adds to d what u has yet to hear of this table, at most limit blocks, under the view
// number ref. It returns the number of blocks added and whether more waits.
func (t *Table) Collect(u int, ref uint32, limit int, d *pb.Delta, now index.Instant) (n int, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.uplinks[u]
	if s.cleared {
		s.cleared = false
		d.Cleared = append(d.Cleared, ref)
	}
	w := deltaWriter{delta: d, view: ref, now: now}
	for ; s.len() > 0 && n < limit; s.next++ {
		slot := s.dirty[s.next]
		c := t.cells.at(slot)
		c.dirty &^= 1 << u
		if c.tier != c.sentTier(u) {
			tier := c.tier
			if tier == 0 && t.cfg.Tier2 == Tier2Inferred {
				tier = index.T2
			}
			w.add(c, tier, t.adapters.names[c.adapter])
			c.setSent(u, c.tier)
			n++
		}
		t.free(slot)
	}
	s.compact()
	return n, s.len() > 0
}

// compact drops what was sent from the front of the list, and the memory of a large one.
func (u *uplinkState) compact() {
	switch {
	case u.len() == 0 && cap(u.dirty) > minDirty:
		u.dirty, u.next = nil, 0
	case u.next > len(u.dirty)/2:
		u.dirty, u.next = append(u.dirty[:0], u.dirty[u.next:]...), 0
	}
}

// Confirm adds to d the digests of this table, if u has been sent all of it, it can be trusted, and
// the engine can be reached.
func (t *Table) Confirm(u int, ref uint32, d *pb.Delta) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := &t.uplinks[u]; !s.active || s.cleared || s.len() > 0 || t.certain == Uncertain || t.away {
		return
	}
	for adapter, sums := range t.digests {
		if sums == (index.Digest{}) {
			continue
		}
		d.Confirms = append(d.Confirms, &pb.Confirm{
			View: ref, AdapterId: t.adapters.names[adapter],
			T1Only:  !t.knowsOffload(),
			T1Count: sums.Count[0], T1Xor: sums.XOR[0], T2Count: sums.Count[1], T2Xor: sums.XOR[1],
		})
	}
}

// deltaWriter turns cells into runs of a delta.
type deltaWriter struct {
	delta  *pb.Delta
	view   uint32
	now    index.Instant
	change *pb.Change
	run    *pb.Run
	last   uint64 // fingerprint that ends run
}

func (w *deltaWriter) add(c *cell, tier index.Tier, adapter string) {
	if w.change == nil || w.change.AdapterId != adapter {
		w.change = &pb.Change{View: w.view, AdapterId: adapter}
		w.delta.Changes = append(w.delta.Changes, w.change)
		w.run = nil
	}
	if tier == 0 {
		w.change.Removed = binary.BigEndian.AppendUint64(w.change.Removed, c.print)
		return
	}
	age := uint32(min(uint64(max(w.now, c.seen)-c.seen)*1000, math.MaxUint32))
	if !w.continues(c, tier, age) {
		w.run = &pb.Run{
			StartTokens: uint32(c.start), BlockTokens: uint32(c.tokens), AgeMs: age, Tier: pb.CacheTier(tier),
		}
		if c.hasParent {
			parent := c.parent
			w.run.Parent = &parent
		}
		w.change.Stored = append(w.change.Stored, w.run)
	}
	w.run.Keys = binary.BigEndian.AppendUint64(w.run.Keys, c.print)
	w.last = c.print
}

// continues says whether the cell is the next block of the run, in all that a run states once.
func (w *deltaWriter) continues(c *cell, tier index.Tier, age uint32) bool {
	r := w.run
	return r != nil && c.hasParent && c.parent == w.last && r.BlockTokens == uint32(c.tokens) &&
		r.Tier == pb.CacheTier(tier) && r.AgeMs == age
}
