package runs

import (
	"fmt"
	"unsafe"

	"github.com/inferencecache/inferencecache/index"
)

// Sizes of the structs that memory is made of.
const (
	SizeOfRun     = unsafe.Sizeof(run{})
	SizeOfSpan    = unsafe.Sizeof(span{})
	SizeOfSegment = unsafe.Sizeof(segment{})
	SizeOfBucket  = unsafe.Sizeof(bucket{})
)

// Check returns the first broken invariant of an index that nobody writes to.
func Check(ix index.Index) error {
	x := ix.(*Index)
	x.mu.RLock()
	defer x.mu.RUnlock()
	var pairs, prefixes int64
	held := map[*tally]int64{}
	for _, p := range x.partitions {
		if err := p.check(held); err != nil {
			return fmt.Errorf("partition %v: %w", p.key, err)
		}
		if p.scope.totals != nil {
			pairs += p.pairs
			prefixes += p.prefixes
		}
	}
	for t, n := range held {
		if t.pairs.Load() != n {
			return fmt.Errorf("tally %d, want %d", t.pairs.Load(), n)
		}
	}
	if c := x.Counts(); c.Pairs != pairs || c.Prefixes != prefixes {
		return fmt.Errorf("counts %+v, want %d pairs, %d prefixes", c, pairs, prefixes)
	}
	if len(x.all) != len(x.partitions) {
		return fmt.Errorf("%d listed, %d known", len(x.all), len(x.partitions))
	}
	for i, p := range x.all {
		if p.position != i {
			return fmt.Errorf("partition at %d says %d", i, p.position)
		}
	}
	return nil
}

type recount struct {
	pairs, prefixes int64
	spans           []int
	held            []int64
	digests         []index.Digest
	keys            int
	used            [4]int // elements of runs, pages, lists, spans
}

func (p *partition) check(held map[*tally]int64) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	c := recount{spans: make([]int, len(p.holders)), held: make([]int64, len(p.holders)), digests: make([]index.Digest, len(p.holders))}
	c.used[0] = 1
	for id := uint32(1); int(id) < p.runCount(); id++ {
		if p.run(id).n > 0 {
			if err := p.checkRun(id, &c); err != nil {
				return fmt.Errorf("run %d: %w", id, err)
			}
		}
	}
	if p.pairs != c.pairs || p.prefixes != c.prefixes || p.pairs == 0 || p.dead {
		return fmt.Errorf("%d pairs, %d prefixes, dead %v; counted %+v", p.pairs, p.prefixes, p.dead, c)
	}
	buckets := 0
	for i := range p.table.segs {
		buckets += len(p.table.segs[i].buckets)
	}
	if p.table.size != buckets || p.counted != p.size() {
		return fmt.Errorf("%d buckets, counted %d; %d bytes, counted %d", p.table.size, buckets, p.size(), p.counted)
	}
	if p.table.used != c.keys {
		return fmt.Errorf("table holds %d keys, runs %d", p.table.used, c.keys)
	}
	for id := range p.holders {
		h := &p.holders[id]
		if h.pairs != c.held[id] || h.spans != c.spans[id] || h.digest != c.digests[id] {
			return fmt.Errorf("holder %+v; counted %d pairs, %d spans, %+v", h, c.held[id], c.spans[id], c.digests[id])
		}
		if (h.tally != nil) != (h.pairs > 0) {
			return fmt.Errorf("holder %+v is kept", h)
		}
		if h.tally != nil {
			held[h.tally] += h.pairs
		}
	}
	for i, got := range []int{unused(&p.runs), unused(&p.pages), unused(&p.lists), unused(&p.spans)} {
		if total := []int{p.runs.capacity(), p.pages.capacity(), p.lists.capacity(), p.spans.capacity()}[i]; got+c.used[i] != total ||
			c.used[i] != []int{p.runs.used, p.pages.used, p.lists.used, p.spans.used}[i] {
			return fmt.Errorf("slab %d: %d unused, %d used of %d", i, got, c.used[i], total)
		}
	}
	return nil
}

func unused[T any](s *slab[T]) int {
	n := 0
	if len(s.chunks) > 0 {
		n = len(s.chunks[s.last]) - s.tail
	}
	for c, free := range s.free {
		n += len(free) << c
	}
	return n
}

func (p *partition) checkRun(id uint32, c *recount) error {
	r := p.run(id)
	all := p.spansIn(r)
	c.used[0]++
	c.used[1] += (r.pageCount()-1)*pageLen + 1<<r.pageClass
	if r.pageCount() > 1 {
		c.used[2] += 1 << r.listClass
	}
	c.used[3] += 1 << r.spanClass
	c.keys += int(r.n)
	if len(all) == 0 || int(r.live) != int(r.n)-uncovered(all, 0, int(r.n)) {
		return fmt.Errorf("%+v with spans %+v", r, all)
	}
	c.prefixes += int64(r.live)
	for o := range int(r.n) {
		if l, ok := p.find(p.keyAt(r, o)); !ok || l != locate(id, o) {
			return fmt.Errorf("key %d of %d found at run %d, offset %d, %v", o, r.n, l.run(), l.offset(), ok)
		}
	}
	if p.sparse(r) && !p.untidy {
		return fmt.Errorf("%d of %d keys are left", r.live, r.n)
	}
	for i := range all {
		s := &all[i]
		if s.from >= s.to || s.to > r.n || i > 0 && (all[i-1].holder > s.holder || all[i-1].holder == s.holder && all[i-1].to > s.from) {
			return fmt.Errorf("span %d of %+v in a run of %d", i, all, r.n)
		}
		if s.seen(p.confirms) < p.oldest {
			return fmt.Errorf("span %+v is older than %d", s, p.oldest)
		}
		c.pairs += int64(s.to - s.from)
		c.held[s.holder] += int64(s.to - s.from)
		c.spans[s.holder]++
		for o := int(s.from); o < int(s.to) && !r.is(wideKey); o++ {
			c.digests[s.holder].Add(s.tier, p.wordAt(r, o), 1)
		}
	}
	return nil
}

// Runs returns how many runs an index has.
func Runs(ix index.Index) (n int) {
	for _, p := range ix.(*Index).partitions {
		for id := 1; id < p.runCount(); id++ {
			if p.run(uint32(id)).n > 0 {
				n++
			}
		}
	}
	return n
}
