package uplink

import (
	"slices"
	"time"

	"github.com/inferencecache/inferencecache/agent/blocktable"
	"github.com/inferencecache/inferencecache/index"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// build makes the next delta and puts it among the unacknowledged; nil when there is nothing to say.
func (u *Uplink) build(beat, declare bool) (d *pb.Delta, more bool) {
	d = &pb.Delta{Seq: u.seq + 1}
	caches := u.cfg.Caches()
	u.declare(d, caches, declare)
	more = u.collect(d, caches)
	if beat {
		u.beat(d, caches)
	}
	if !more && !u.complete && u.cfg.Whole() {
		d.Complete, u.complete = true, true
	}
	if len(d.Views)+len(d.Cleared)+len(d.Changes)+len(d.Closed)+len(d.Stats)+len(d.Confirms) == 0 && !d.Complete && !beat {
		return nil, false
	}
	u.seq++
	sent := unacked{Delta: d}
	if len(d.Changes) > 0 {
		sent.changed = u.changed
	}
	u.unacked = append(u.unacked, sent)
	if !more {
		u.changed = time.Time{}
	}
	return d, more
}

// declare names the views that are new, or all of them, and closes those that are gone.
func (u *Uplink) declare(d *pb.Delta, caches []*Cache, all bool) {
	live := make(map[uint32]bool, len(caches))
	for _, c := range caches {
		for _, v := range c.views() {
			live[v.Ref] = true
			_, told := u.views[v.Ref]
			if !told {
				u.views[v.Ref] = 0
			}
			if !told || all {
				d.Views = append(d.Views, v)
			}
		}
	}
	for ref, closedAt := range u.views {
		if !live[ref] && closedAt == 0 {
			u.views[ref] = d.Seq
			d.Closed = append(d.Closed, ref)
		}
	}
}

// collect fills the delta from the tables, starting at another one each time.
func (u *Uplink) collect(d *pb.Delta, caches []*Cache) (more bool) {
	now, left := index.At(u.cfg.Now()), u.cfg.DeltaBlocks
	for i := range caches {
		c := caches[(u.first+i)%len(caches)]
		if left <= 0 {
			u.first = (u.first + i) % len(caches)
			return true
		}
		if !c.Table.Following(u.cfg.Number) {
			c.Table.Resend(u.cfg.Number)
			if !slices.Contains(d.Views, c.View) { // a new engine's table is sent for the first time
				u.fullSyncs.Add(1)
			}
		}
		before := fill(d)
		n, waits := c.Table.Collect(u.cfg.Number, c.View.Ref, left, d, now)
		c.repeat(d, before)
		left -= n
		more = more || waits
		u.blocks.Add(uint64(n))
	}
	return more
}

// beat adds what is sent regularly.
func (u *Uplink) beat(d *pb.Delta, caches []*Cache) {
	for _, c := range caches {
		state := certainty(c.Table.Certainty())
		for _, v := range c.views() {
			d.States = append(d.States, &pb.ViewState{View: v.Ref, Certainty: state})
		}
		before := fill(d)
		c.Table.Confirm(u.cfg.Number, c.View.Ref, d)
		if c.Stats != nil {
			if s := c.Stats(); s != nil {
				d.Stats = append(d.Stats, &pb.ViewStats{View: c.View.Ref, Stats: s})
			}
		}
		c.repeat(d, before)
	}
}

// certainty is the word of the wire for how far a table can be trusted.
func certainty(c blocktable.Certainty) pb.ViewCertainty {
	switch c {
	case blocktable.Exact:
		return pb.ViewCertainty_VIEW_CERTAINTY_EXACT
	case blocktable.Partial:
		return pb.ViewCertainty_VIEW_CERTAINTY_PARTIAL
	default:
		return pb.ViewCertainty_VIEW_CERTAINTY_UNCERTAIN
	}
}
