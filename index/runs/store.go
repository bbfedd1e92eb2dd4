package runs

import "github.com/inferencecache/inferencecache/index"

// report is what a store says of consecutive blocks of one cache.
type report struct {
	holder   uint32
	tier     index.Tier
	evidence index.Instant
	start    int32 // prompt tokens in front of the first block of the run
	block    int32
	uses     uint32 // of a block that the cache did not hold before
}

// reported returns the report for offsets [from, to) of a run, of which from is the report's n-th block.
func (p *partition) reported(r *report, from, to, n int) span {
	return span{
		holder: r.holder, evidence: r.evidence, confirms: p.confirms[r.holder].of(r.tier).n,
		start: index.TokensThrough(r.start, r.block, n), block: r.block, uses: r.uses,
		from: uint16(from), to: uint16(to), tier: r.tier,
	}
}

// store applies a report to words of one kind, of which the first is the report's n-th block, behind
// the key prev if there is one.
func (p *partition) store(r *report, n int, words []uint64, wide bool, prev key, hasPrev bool) {
	p.oldest = min(p.oldest, r.evidence)
	for i := 0; i < len(words); {
		tail := p.tailOf(wide, prev, hasPrev)
		var hashes []uint64
		if tail != 0 { // nobody has gone on from here yet, so the words are likely new
			hashes = p.hashes(words[i:], wide)
		}
		l, ok := p.find(key{words[i], wide})
		fresh := false
		switch {
		case !ok:
			if tail == 0 {
				tail, hashes = p.newRun(runFlags(wide)), p.hashes(words[i:], wide)
			}
			l, fresh = p.append(tail, words[i:], wide, hashes), true
		case hasPrev && l.offset() == 0:
			l = p.join(prev, l)
		}
		id, from := l.run(), l.offset()
		run := p.run(id)
		if hasPrev && from == 0 {
			run.setParent(prev)
		}
		m := int(run.n) - from
		if !fresh {
			m = p.agree(run, from, words[i:])
		}
		p.cover(id, p.reported(r, from, from+m, n+i), fresh)
		i += m
		prev, hasPrev = key{words[i-1], wide}, true
	}
}

// append adds as many of the words as are new, at least the first, to the end of a run. It returns where the first
// lies; they reach to the end of the run.
func (p *partition) append(id uint32, words []uint64, wide bool, hashes []uint64) location {
	from := int(p.run(id).n)
	end := min(from+len(words), maxRun)
	p.extend(id, end)
	r := p.run(id)
	for o := from; o < end; {
		page := p.page(r, o)
		o += copy(page, words[o-from:])
	}
	for o := from; o < end; o++ {
		if !p.put(key{words[o-from], wide}, hashes[o-from], locate(id, o)) {
			p.truncate(r, o)
			break
		}
	}
	return locate(id, from)
}

// tailOf returns the run that ends with prev and can take a key of its kind, or 0.
func (p *partition) tailOf(wide bool, prev key, hasPrev bool) uint32 {
	if hasPrev && prev.wide == wide {
		if l, ok := p.find(prev); ok {
			if r := p.run(l.run()); l.offset() == int(r.n)-1 && int(r.n) < maxRun {
				return l.run()
			}
		}
	}
	return 0
}

func runFlags(wide bool) uint8 {
	if wide {
		return wideKey
	}
	return 0
}

// cover applies a reported span to a run. Blocks are fresh when nobody holds them yet.
func (p *partition) cover(id uint32, n span, fresh bool) {
	r := p.run(id)
	all := p.spansIn(r)
	lo, hi := spansOf(all, n.holder)
	from, to := int(n.from), int(n.to)
	if fresh || lo == hi || int(all[hi-1].to) <= from {
		p.admitBlocks(r, all, &n, from, to, fresh)
		if hi > lo {
			last := &all[hi-1]
			last.settle(p.confirms)
			if last.joins(&n) {
				last.to = n.to
				return
			}
		}
		p.insertSpan(id, hi, hi, append(p.scratch[:0], n))
		return
	}
	p.insertSpan(id, lo, hi, p.merge(r, all, all[lo:hi], n))
}

// admitBlocks counts blocks that the cache of s did not hold.
func (p *partition) admitBlocks(r *run, all []span, s *span, from, to int, fresh bool) {
	novel := to - from
	if !fresh {
		novel = uncovered(all, from, to)
	}
	r.live += uint16(novel)
	p.count(s.holder, to-from, novel)
	p.sum(r, from, to, s.holder, s.tier, 1)
}

// merge lays a reported span over a cache's spans of the run, and returns what comes of it. Where a
// span has later evidence it stays; where not it takes the report's state, but keeps its uses.
func (p *partition) merge(r *run, all, own []span, n span) []span {
	out := p.scratch[:0]
	at := int(n.from)
	gap := func(to int) {
		if at < to {
			p.admitBlocks(r, all, &n, at, to, false)
			out = appendSpan(out, n.cutFront(at).cutBack(to))
			at = to
		}
	}
	for _, s := range own {
		s.settle(p.confirms)
		if int(s.to) <= at {
			out = appendSpan(out, s)
			continue
		}
		gap(min(max(int(s.from), at), int(n.to)))
		if int(s.from) < at {
			out = appendSpan(out, s.cutBack(at))
			s = s.cutFront(at)
		}
		if end := min(int(s.to), int(n.to)); at < end {
			piece := s.cutBack(end)
			if n.evidence >= s.evidence {
				piece = n.cutFront(at).cutBack(end)
				piece.uses = s.uses
				p.retier(r, at, end, &s, n.tier)
			}
			out = appendSpan(out, piece)
			at = end
			if end == int(s.to) {
				continue
			}
			s = s.cutFront(end)
		}
		out = appendSpan(out, s)
	}
	gap(int(n.to))
	return out
}

// retier moves blocks of a span to another tier in the digest.
func (p *partition) retier(r *run, from, to int, s *span, tier index.Tier) {
	if s.tier != tier {
		p.sum(r, from, to, s.holder, s.tier, -1)
		p.sum(r, from, to, s.holder, tier, 1)
	}
}

// insertSpan replaces spans [lo, hi) of one cache, which may make the run too fragmented.
func (p *partition) insertSpan(id uint32, lo, hi int, with []span) {
	p.scratch = with[:0]
	p.holders[with[0].holder].spans += len(with) - (hi - lo)
	before := p.run(id).spanClass
	p.splice(id, lo, hi, with)
	if r := p.run(id); r.spanClass > before && r.spanClass > fragmentedClass {
		p.divide(id)
	}
}
