package runs

const (
	// fragmentedClass is the class of span counts from which on a run is looked at when it grows.
	fragmentedClass = 5
	// minGap is the length of gaps that compaction cuts out: a shorter one costs less, at 18 bytes
	// a block, than the run that a cut adds.
	minGap = 4
)

// sparse reports whether so few of a run's blocks are held that at least one gap is worth a cut.
func (p *partition) sparse(r *run) bool { return int(r.live)*minGap < int(r.n) }

// divide cuts a run with many spans in the middle if most of them lie on one side, so that the spans
// of a run, which lookups and changes pass over, stay few. Spans that cross the middle are the mark
// of many holders rather than of fragments.
func (p *partition) divide(id uint32) {
	if p.pins > 0 {
		p.untidy = true
		return
	}
	r := p.run(id)
	middle := int(r.n) / 2
	if middle == 0 {
		return
	}
	crossing := 0
	all := p.spansIn(r)
	for i := range all {
		if int(all[i].from) < middle && int(all[i].to) > middle {
			crossing++
		}
	}
	if crossing > len(all)/4 {
		return
	}
	p.carve(id, middle, int(r.n))
	p.keepFront(id, middle)
}

// carve moves the keys [from, to) of a run and what is held of them into a new run. The old run keeps
// its spans and keys; the caller drops them.
func (p *partition) carve(id uint32, from, to int) {
	flags := p.run(id).flags & wideKey
	fresh := p.newRun(flags)
	p.extend(fresh, to-from)
	old, r := p.run(id), p.run(fresh)
	for o := from; o < to; {
		words := p.page(old, o)
		words = words[:min(len(words), to-o)]
		words = words[:copy(p.page(r, o-from), words)]
		for i, hash := range p.hashes(words, r.is(wideKey)) {
			p.table.move(hash, locate(id, o+i), locate(fresh, o+i-from))
		}
		o += len(words)
	}
	if from > 0 {
		r.setParent(p.keyAt(old, from-1))
	} else if k, ok := old.parentKey(); ok {
		r.setParent(k)
	}
	var spans []span
	for _, s := range p.spansIn(old) {
		a, b := max(int(s.from), from), min(int(s.to), to)
		if a >= b {
			continue
		}
		s = s.cutFront(a).cutBack(b)
		s.from -= uint16(from)
		s.to -= uint16(from)
		spans = append(spans, s)
		p.holders[s.holder].spans++
	}
	r.live = uint16(to - from - uncovered(spans, 0, to-from))
	p.splice(fresh, 0, 0, spans)
}

// keepFront drops what carve moved from the end of a run.
func (p *partition) keepFront(id uint32, n int) {
	r := p.run(id)
	var kept []span
	for _, s := range p.spansIn(r) {
		if int(s.from) < n {
			kept = append(kept, s.cutBack(min(int(s.to), n)))
		} else {
			p.holders[s.holder].spans--
		}
	}
	p.splice(id, 0, int(r.spanCount), kept)
	p.truncate(r, n)
	r.live = uint16(n - uncovered(kept, 0, n))
}

// compact cuts the larger gaps out of a run, each piece becoming a run of its own.
func (p *partition) compact(id uint32) {
	if p.pins > 0 {
		p.untidy = true
		return
	}
	r := p.run(id)
	n, end := int(r.n), 0
	pieces := held(p.spansIn(r), nil)
	for i := 0; i < len(pieces); {
		from, to := pieces[i][0], pieces[i][1]
		for i++; i < len(pieces) && pieces[i][0]-to < minGap; i++ {
			to = pieces[i][1]
		}
		p.forget(id, end, from)
		p.carve(id, from, to)
		end = to
	}
	p.forget(id, end, n)
	r = p.run(id)
	for _, s := range p.spansIn(r) {
		p.holders[s.holder].spans--
	}
	p.splice(id, 0, int(r.spanCount), nil)
	p.freeRun(id)
}

// joinSpans joins the spans of a run that have come to agree.
func (p *partition) joinSpans(id uint32) {
	r := p.run(id)
	all := p.spansIn(r)
	n := 0
	for i := range all {
		s := all[i]
		s.settle(p.confirms)
		if n > 0 && all[n-1].holder == s.holder && all[n-1].joins(&s) {
			all[n-1].to = s.to
			p.holders[s.holder].spans--
			continue
		}
		all[n] = s
		n++
	}
	if n < len(all) {
		p.splice(id, n, len(all), nil)
	}
}
