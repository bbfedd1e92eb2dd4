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

// join appends the run that starts at l to the one that ends with prev, if it is one chain and the spans
// of both are few, and returns where the key at l lies then. So pieces that arrived out of order, or were
// cut, come together when somebody reports the chain over their border. Half the spans at which a run
// is cut leaves room for cutting and joining not to alternate.
func (p *partition) join(prev key, l location) location {
	tail, ok := p.find(prev)
	if !ok || p.pins > 0 || tail.run() == l.run() {
		return l
	}
	a, b := p.run(tail.run()), p.run(l.run())
	front, n := int(a.n), int(a.n)+int(b.n)
	if tail.offset() != front-1 || n > maxRun || a.flags&wideKey != b.flags&wideKey ||
		a.spanCount+b.spanCount > 1<<fragmentedClass/2 {
		return l
	}
	if k, ok := b.parentKey(); ok && k != prev {
		return l
	}
	p.extend(tail.run(), n)
	for o := 0; o < n-front; {
		words := p.page(b, o)
		words = words[:copy(p.page(a, front+o), words)]
		for i, hash := range p.hashes(words, b.is(wideKey)) {
			p.table.move(hash, locate(l.run(), o+i), locate(tail.run(), front+o+i))
		}
		o += len(words)
	}
	p.joinLists(tail.run(), l.run(), front)
	a.live += b.live
	p.splice(l.run(), 0, int(b.spanCount), nil)
	p.freeRun(l.run())
	return locate(tail.run(), front)
}

// joinLists adds the spans of run b to those of run a, whose blocks are now in front of b's.
func (p *partition) joinLists(a, b uint32, front int) {
	x, y := p.spansIn(p.run(a)), p.spansIn(p.run(b))
	out := p.scratch[:0]
	for i, j := 0, 0; i < len(x) || j < len(y); {
		var s span
		if j == len(y) || i < len(x) && x[i].holder <= y[j].holder {
			s = x[i]
			i++
		} else {
			s = y[j]
			s.from += uint16(front)
			s.to += uint16(front)
			j++
		}
		s.settle(p.confirms)
		n := len(out)
		if out = appendSpan(out, s); len(out) == n {
			p.holders[s.holder].spans--
		}
	}
	p.scratch = out[:0]
	p.splice(a, 0, len(x), out)
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
