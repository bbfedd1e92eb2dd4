package runs

import "github.com/inferencecache/inferencecache/index"

// stepCost bounds one hold of a partition's lock by a walk: spans passed plus blocks changed.
const stepCost = 512

// walk passes over all runs of a partition, giving the lock up on the way. While it is under way
// the partition is pinned, so that it meets every block that was there from the start.
type walk struct {
	p    *partition
	next uint32
}

// begin pins the partition. It reports false when the partition is no more.
func (w *walk) begin(p *partition) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return false
	}
	p.pins++
	w.p, w.next = p, 1
	return true
}

func (w *walk) end() {
	w.p.mu.Lock()
	w.p.pins--
	w.p.mu.Unlock()
}

// step passes runs to visit, which returns its cost and whether it must see the run again, until one hold
// of the lock has cost enough. The caller holds the lock. It reports whether there are runs left.
func (w *walk) step(visit func(id uint32) (cost int, again bool)) bool {
	p := w.p
	for cost := 0; cost < stepCost; cost++ {
		if p.dead || int(w.next) >= p.runCount() {
			return false
		}
		again := false
		if r := p.run(w.next); r.n > 0 {
			cost += int(r.spanCount)
			var c int
			c, again = visit(w.next)
			cost += c
		}
		if !again {
			w.next++
		}
	}
	return true
}

// walk calls visit for each run of a partition, under its lock, until it reports false.
func (x *Index) walk(p *partition, visit func(id uint32) (cost int, more bool)) {
	var w walk
	if !w.begin(p) {
		return
	}
	for more, goOn := true, true; more && goOn; {
		p.mu.Lock()
		more = w.step(func(id uint32) (cost int, again bool) {
			if goOn {
				cost, goOn = visit(id)
			}
			if !goOn {
				cost = stepCost
			}
			return cost, false
		})
		x.close(p)
	}
	w.end()
}

// Dump implements index.Index. While it is under way the partition at hand is not tidied up, so a yield
// should not wait for long.
func (x *Index) Dump(f index.Filter, yield func(index.Entry) bool) {
	for _, p := range x.selected(f.Tenant, f.Model, "") {
		if !p.dump(f.Replica, yield) {
			return
		}
	}
}

// dumpBatch bounds the entries copied out under one hold of the lock.
const dumpBatch = 1024

func (p *partition) dump(replica string, yield func(index.Entry) bool) bool {
	var w walk
	if !w.begin(p) {
		return true
	}
	defer w.end()
	d := dumper{p: p, replica: replica}
	for more := true; more; {
		d.entries = d.entries[:0]
		p.mu.RLock()
		more = !p.dead && d.fill()
		p.mu.RUnlock()
		for _, e := range d.entries {
			if !yield(e) {
				return false
			}
		}
	}
	return true
}

// dumper copies entries out. It goes on at a block of a holder of a run, which stays where it is while
// the partition is pinned, even if the spans around it change.
type dumper struct {
	p       *partition
	replica string
	run     uint32
	holder  uint32
	offset  int
	entries []index.Entry
}

// fill copies up to dumpBatch entries and reports whether there may be more.
func (d *dumper) fill() bool {
	passed := 0
	for ; int(d.run) < d.p.runCount(); d.run, d.holder, d.offset = d.run+1, 0, 0 {
		r := d.p.run(d.run)
		if r.n == 0 {
			continue
		}
		for _, s := range d.p.spansIn(r) {
			if s.holder < d.holder || s.holder == d.holder && int(s.to) <= d.offset {
				continue
			}
			from := int(s.from)
			if s.holder == d.holder {
				from = max(from, d.offset)
			}
			passed += d.copySpan(r, &s, from, dumpBatch-passed)
			if passed >= dumpBatch {
				return true
			}
		}
		if passed++; passed >= dumpBatch {
			d.run, d.holder, d.offset = d.run+1, 0, 0
			return true
		}
	}
	return false
}

// copySpan copies at most limit blocks of a span from offset on, and returns how many it passed.
func (d *dumper) copySpan(r *run, s *span, offset, limit int) int {
	name := d.p.holders[s.holder].name
	end := min(int(s.to), offset+limit)
	d.holder, d.offset = s.holder, end
	if d.replica != "" && name.Replica != d.replica {
		d.offset = int(s.to)
		return 1
	}
	for o := offset; o < end; o++ {
		d.entries = append(d.entries, index.Entry{
			Partition: d.p.key, Holder: name, Key: d.p.bytes(d.p.keyAt(r, o)), Tier: s.tier, Tokens: s.block,
			PrefixTokens: s.through(o), Evidence: s.seen(d.p.confirms),
		})
	}
	return end - offset
}
