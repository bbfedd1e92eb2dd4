package runs

import "math/bits"

// remove forgets that a cache holds the words, which are of one kind, and returns how many it held.
func (p *partition) remove(holder uint32, words []uint64, wide bool) int {
	removed := 0
	for i := 0; i < len(words); {
		l, ok := p.find(key{words[i], wide})
		if !ok {
			i++
			continue
		}
		from, m := l.offset(), 1
		if i+1 < len(words) {
			from, m = p.stretch(p.run(l.run()), from, words[i:])
		}
		removed += p.uncover(l.run(), from, from+m, holder)
		if i += m; m == 1 && i == 1 && len(words) > 4 {
			p.prefetch(words[1:], wide)
		}
	}
	return removed
}

// stretch returns the blocks from offset on, up or down, that the words name in order. Engines give up the
// last block of a chain first.
func (p *partition) stretch(r *run, offset int, words []uint64) (from, n int) {
	if n = p.agree(r, offset, words); n > 1 {
		return offset, n
	}
	n = p.agreeBackward(r, offset, words)
	return offset - (n - 1), n
}

// prefetch loads what removing words that lie here and there needs, in waves: the loads of a wave do not wait for
// each other, those of the next begin where they led. The waves are slots, runs, addresses of pages, keys and spans.
func (p *partition) prefetch(words []uint64, wide bool) {
	sum := uint64(0)
	p.met = p.met[:0]
	for _, hash := range p.hashes(words, wide) {
		s := p.table.segment(hash)
		b := &s.buckets[s.home(hash)]
		p.met = append(p.met, slotLocation(b[bits.TrailingZeros64(b.matching(hash))&(width-1)]))
	}
	for _, l := range p.met {
		sum += uint64(p.run(l.run()).n)
	}
	pages := p.hashed[:0]
	for _, l := range p.met {
		addr := uint32(0)
		if r := p.run(l.run()); l.offset() < int(r.n) {
			addr = p.pageAddr(r, l.offset()) + uint32(l.offset()&(pageLen-1))
		}
		pages = append(pages, uint64(addr))
	}
	for i, addr := range pages {
		if r := p.run(p.met[i].run()); p.met[i].offset() < int(r.n) && r.spanCount > 0 {
			sum += *p.pages.one(uint32(addr)) + uint64(p.spans.one(r.spans).holder)
		}
	}
	p.touched += sum
}

// uncover takes the blocks [from, to) of a run from a cache and returns how many it held. It may free
// the run or move what is left of it.
func (p *partition) uncover(id uint32, from, to int, holder uint32) int {
	r := p.run(id)
	all := p.spansIn(r)
	lo, hi := spansOf(all, holder)
	for lo < hi && int(all[lo].to) <= from {
		lo++
	}
	for lo < hi && int(all[hi-1].from) >= to {
		hi--
	}
	if lo == hi {
		return 0
	}
	removed := 0
	var gone [][2]int
	var buf [4][2]int
	gone = buf[:0]
	out := p.scratch[:0]
	for _, s := range all[lo:hi] {
		a, b := max(int(s.from), from), min(int(s.to), to)
		p.sum(r, a, b, holder, s.tier, -1)
		removed += b - a
		if int(s.from) < a {
			out = append(out, s.cutBack(a))
		}
		if int(s.to) > b {
			out = append(out, s.cutFront(b))
		}
		if n := len(gone); n > 0 && gone[n-1][1] == a {
			gone[n-1][1] = b
		} else {
			gone = append(gone, [2]int{a, b})
		}
	}
	p.replace(id, lo, hi, out, holder)
	p.drop(id, gone, removed, holder)
	return removed
}

// replace puts what uncover left of the spans [lo, hi) in their place.
func (p *partition) replace(id uint32, lo, hi int, with []span, holder uint32) {
	p.scratch = with[:0]
	p.holders[holder].spans += len(with) - (hi - lo)
	if all := p.spansIn(p.run(id)); len(with) == hi-lo {
		copy(all[lo:], with)
		return
	}
	p.splice(id, lo, hi, with)
}

// drop counts blocks that a cache no longer holds, and tidies the run up.
func (p *partition) drop(id uint32, gone [][2]int, removed int, holder uint32) {
	r := p.run(id)
	all := p.spansIn(r)
	prefixes := 0
	for _, g := range gone {
		prefixes += uncovered(all, g[0], g[1])
	}
	p.count(holder, -removed, -prefixes)
	r.live -= uint16(prefixes)
	if prefixes == 0 {
		return
	}
	if r.live == 0 {
		p.forget(id, 0, int(r.n))
		p.freeRun(id)
		return
	}
	if gone[len(gone)-1][1] == int(r.n) {
		end := 0
		for i := range all {
			end = max(end, int(all[i].to))
		}
		if n := int(r.n); end < n {
			p.forget(id, end, n)
			p.truncate(r, end)
		}
	}
	if p.sparse(r) {
		p.compact(id)
	}
}
