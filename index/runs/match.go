package runs

import "github.com/inferencecache/inferencecache/index"

// scratch is what a lookup needs besides its result.
type scratch struct {
	partial []partial
	words   []uint64
	wides   []bool
}

// partial is a match under way. It is alive while the cache holds all blocks so far.
type partial struct {
	holder   uint32
	blocks   int32
	prefix   int32
	evidence index.Instant
	tier     index.Tier
	alive    bool
}

// Match implements index.Index.
func (x *Index) Match(q index.Query, dst []index.Match) []index.Match {
	n := q.Keys.Len()
	if n == 0 {
		return dst
	}
	p := x.get(q.Partition)
	if p == nil {
		return dst
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	if len(q.Keys.Words) == 0 {
		return p.matchWide(&q, dst)
	}
	l, ok := p.find(wordKey(q.Keys.Words[0]))
	if !ok {
		return dst
	}
	return p.matchWords(chain{words: q.Keys.Words}, l, q.NotBefore, dst)
}

// matchWide looks byte strings up as the numbers that stand for them; the first unknown one ends the
// chain.
func (p *partition) matchWide(q *index.Query, dst []index.Match) []index.Match {
	s := scratchPool.Get().(*scratch)
	defer scratchPool.Put(s)
	s.words, s.wides = s.words[:0], s.wides[:0]
	for _, name := range q.Keys.Wide {
		k, ok := p.lookup(name)
		if !ok {
			break
		}
		s.words, s.wides = append(s.words, k.word), append(s.wides, k.wide)
	}
	if len(s.words) == 0 {
		return dst
	}
	c := chain{words: s.words, wides: s.wides}
	l, ok := p.find(c.key(0))
	if !ok {
		return dst
	}
	return p.matchWords(c, l, q.NotBefore, dst)
}

// chain is the keys of a lookup. Without wides all of them are numbers.
type chain struct {
	words []uint64
	wides []bool
}

func (c *chain) key(i int) key { return key{c.words[i], c.wides != nil && c.wides[i]} }

// stretch returns the words from i on that are of the kind of the i-th.
func (c *chain) stretch(i int) []uint64 {
	end := len(c.words)
	if c.wides != nil {
		for end = i + 1; end < len(c.words) && c.wides[end] == c.wides[i]; end++ {
		}
	}
	return c.words[i:end]
}

// matchWords follows a chain from the location of its first key, run by run. Of each run it takes the
// blocks that agree with the chain, and of each cache alive the leading part of those that it holds;
// caches are met in the same order in each run.
func (p *partition) matchWords(c chain, l location, notBefore index.Instant, dst []index.Match) []index.Match {
	r := p.run(l.run())
	n := p.agree(r, l.offset(), c.stretch(0))
	if n == len(c.words) {
		return p.matchOne(r, l.offset(), n, notBefore, dst)
	}
	s := scratchPool.Get().(*scratch)
	defer scratchPool.Put(s)
	s.partial = p.begin(r, l.offset(), n, notBefore, s.partial[:0])
	for i := n; i < len(c.words); i += n {
		var ok bool
		if l, ok = p.find(c.key(i)); !ok {
			break
		}
		r = p.run(l.run())
		n = p.agree(r, l.offset(), c.stretch(i))
		if !p.proceed(r, l.offset(), n, notBefore, s.partial) {
			break
		}
	}
	for i := range s.partial {
		m := &s.partial[i]
		dst = append(dst, index.Match{
			Holder: p.holders[m.holder].name, Blocks: int(m.blocks), PrefixTokens: m.prefix, Tier: m.tier, Evidence: m.evidence,
		})
	}
	return dst
}

// matchOne is the lookup of a chain that lies in one run.
func (p *partition) matchOne(r *run, offset, n int, notBefore index.Instant, dst []index.Match) []index.Match {
	all := p.spansIn(r)
	for i := 0; i < len(all); {
		var m partial
		if i = p.leading(all, i, offset, offset+n, notBefore, &m); m.blocks > 0 {
			dst = append(dst, index.Match{
				Holder: p.holders[m.holder].name, Blocks: int(m.blocks), PrefixTokens: m.prefix, Tier: m.tier, Evidence: m.evidence,
			})
		}
	}
	return dst
}

// begin returns the matches of the first run of a chain.
func (p *partition) begin(r *run, offset, n int, notBefore index.Instant, dst []partial) []partial {
	all := p.spansIn(r)
	for i := 0; i < len(all); {
		var m partial
		if i = p.leading(all, i, offset, offset+n, notBefore, &m); m.blocks > 0 {
			m.alive = int(m.blocks) == n
			dst = append(dst, m)
		}
	}
	return dst
}

// proceed adds what the caches alive hold of one more run, and reports whether any still is.
func (p *partition) proceed(r *run, offset, n int, notBefore index.Instant, alive []partial) (any bool) {
	all := p.spansIn(r)
	i := 0
	for j := range alive {
		m := &alive[j]
		if !m.alive {
			continue
		}
		for i < len(all) && all[i].holder < m.holder {
			i++
		}
		m.alive = false
		if i == len(all) || all[i].holder != m.holder {
			continue
		}
		next := *m
		next.blocks = 0
		i = p.leading(all, i, offset, offset+n, notBefore, &next)
		if next.blocks == 0 {
			continue
		}
		m.alive = int(next.blocks) == n
		next.blocks += m.blocks
		next.alive = m.alive
		*m = next
		any = any || m.alive
	}
	return any
}

// leading passes over the spans of the cache at i and returns the index behind them. It sets in m
// what of [from, to) the cache holds from its first block on; the evidence and tier of a match that
// has some already go on from there.
func (p *partition) leading(all []span, i, from, to int, notBefore index.Instant, m *partial) int {
	holder := all[i].holder
	at := from
	first := m.holder == 0
	for ; i < len(all) && all[i].holder == holder; i++ {
		s := &all[i]
		if int(s.from) > at || int(s.to) <= at || at == to {
			continue
		}
		seen := s.seen(p.confirms)
		if seen < notBefore {
			to = at // what lies behind does not count
			continue
		}
		at = min(int(s.to), to)
		m.prefix = s.through(at - 1)
		m.tier = max(m.tier, s.tier)
		if first || seen < m.evidence {
			m.evidence, first = seen, false
		}
	}
	m.holder = holder
	m.blocks = int32(at - from)
	return i
}

// Credit implements index.Index.
func (x *Index) Credit(q index.Query, h index.Holder, blocks int) {
	if !x.cfg.Limits(q.Partition.Tenant).LFU {
		return
	}
	for from := 0; from < min(blocks, q.Keys.Len()); from += batch {
		p := x.get(q.Partition)
		if p == nil {
			return
		}
		p.mu.Lock()
		if id := p.holderID(h); id != 0 {
			for i, to := from, min(from+batch, blocks, q.Keys.Len()); i < to; {
				i += p.credit(q.Keys, i, to, id)
			}
		}
		x.close(p)
	}
}

// credit counts a use of the i-th key, and of those behind it that lie in the same run. It returns
// how many keys it has dealt with.
func (p *partition) credit(keys index.Keys, i, to int, id uint32) int {
	k, ok := key{}, true
	if len(keys.Words) > 0 {
		k.word = keys.Words[i]
	} else {
		k, ok = p.lookup(keys.Wide[i])
	}
	if !ok {
		return 1
	}
	l, ok := p.find(k)
	if !ok {
		return 1
	}
	n := 1
	if len(keys.Words) > 0 {
		n = p.agree(p.run(l.run()), l.offset(), keys.Words[i:to])
	}
	p.use(l.run(), l.offset(), l.offset()+n, id)
	return n
}

// use raises the use level of what a cache holds of [from, to).
func (p *partition) use(id uint32, from, to int, holder uint32) {
	all := p.spansIn(p.run(id))
	lo, hi := spansOf(all, holder)
	if lo == hi {
		return
	}
	floor := p.scope.tenant.level.Load()
	out := p.scratch[:0]
	for _, s := range all[lo:hi] {
		s.settle(p.confirms)
		a, b := max(int(s.from), from), min(int(s.to), to)
		if a >= b {
			out = appendSpan(out, s)
			continue
		}
		if int(s.from) < a {
			out = appendSpan(out, s.cutBack(a))
		}
		used := s.cutFront(a).cutBack(b)
		used.uses = max(used.uses, floor) + 1
		out = appendSpan(out, used)
		if int(s.to) > b {
			out = appendSpan(out, s.cutFront(b))
		}
	}
	p.insertSpan(id, lo, hi, out)
}
