package fakeengine

import (
	"slices"

	"github.com/inferencecache/inferencecache/fingerprint"
)

// pool is the paged KV cache of one rank. Its owner serializes all calls.
//
// A block is in use (refs > 0) or in the free queue, never both. A free block keeps its entry, and with it
// its content, until it is taken for something else. Several blocks may share one entry: requests that
// compute the same block side by side do not merge.
type pool struct {
	blockSize int
	root      blockHash
	refs      []int32  // requests using each block
	entries   []*entry // what each block is cached as; nil if it is not
	free      *freeQueue
	cached    map[blockHash]*entry
	events    []event // happened, not yet taken
}

// entry is the cached content of one or more blocks.
type entry struct {
	hash        blockHash
	parent      blockHash // meaningful if index > 0
	fingerprint uint64    // content fingerprint, blind to adapter and salt
	tokens      []uint32
	id          identity
	index       int     // position in the request
	copies      []int32 // blocks under this hash, the oldest first; never empty
}

// link is one full block of a request's chain.
type link struct {
	hash        blockHash
	fingerprint uint64
}

// sequence is one request as the pool sees it.
type sequence struct {
	id     identity
	tokens []uint32 // the prompt and what was generated
	chain  []link   // one for each full block of tokens
	table  []int32  // blocks that hold the tokens, in order
	stored int      // leading blocks of the table that are cached
}

func newPool(blocks, blockSize int, root blockHash) *pool {
	return &pool{
		blockSize: blockSize,
		root:      root,
		refs:      make([]int32, blocks),
		entries:   make([]*entry, blocks),
		free:      newFreeQueue(blocks),
		cached:    make(map[blockHash]*entry),
	}
}

// usable is the number of blocks that requests can hold: all but the null block.
func (p *pool) usable() int { return len(p.refs) - 1 }

// used is the number of blocks that requests hold. A cached block that is free is not used.
func (p *pool) used() int { return p.usable() - p.free.size }

// blocksFor is the number of blocks that n tokens occupy.
func (p *pool) blocksFor(n int) int { return (n + p.blockSize - 1) / p.blockSize }

// admit reserves blocks for a sequence that has none: cached ones for its longest cached prefix, others
// for the rest. It returns the number of cached tokens, or false, changing nothing, if there is no room.
func (p *pool) admit(s *sequence) (cachedTokens int, ok bool) {
	p.extend(s)
	hit := p.match(s)
	idle := 0 // hits that leave the free queue and so cannot be taken for the rest
	for _, id := range hit {
		if p.refs[id] == 0 {
			idle++
		}
	}
	need := p.blocksFor(len(s.tokens)) - len(hit)
	if p.free.size-idle < need {
		return 0, false
	}
	for _, id := range hit {
		if p.refs[id] == 0 {
			p.free.remove(id)
		}
		p.refs[id]++
	}
	s.table, s.stored = hit, len(hit)
	p.take(s, need)
	p.store(s)
	return len(hit) * p.blockSize, true
}

// grow reserves blocks for tokens that were appended since. It returns false, changing nothing, if there
// is no room.
func (p *pool) grow(s *sequence) bool {
	need := p.blocksFor(len(s.tokens)) - len(s.table)
	if p.free.size < need {
		return false
	}
	p.extend(s)
	p.take(s, need)
	p.store(s)
	return true
}

// release gives the blocks of a sequence back, tail first, so that the head of its prefix is the last to
// be taken by others.
func (p *pool) release(s *sequence) {
	for _, id := range slices.Backward(s.table) {
		if p.refs[id]--; p.refs[id] == 0 {
			p.free.push(id)
		}
	}
	s.table, s.stored = nil, 0
}

// reset forgets everything cached. It returns false, changing nothing, while any block is in use.
func (p *pool) reset() bool {
	if p.used() > 0 {
		return false
	}
	clear(p.cached)
	clear(p.entries)
	p.events = append(p.events, event{kind: allCleared})
	return true
}

// takeEvents returns what happened since the last call, in order.
func (p *pool) takeEvents() []event {
	taken := p.events
	p.events = nil
	return taken
}

// extend brings the chain up to the full blocks of the tokens.
func (p *pool) extend(s *sequence) {
	for i := len(s.chain); i < len(s.tokens)/p.blockSize; i++ {
		tokens := p.span(s, i, i+1)
		parent := p.root
		print := fingerprint.Content(tokens)
		if i > 0 {
			parent = s.chain[i-1].hash
			print = fingerprint.Child(s.chain[i-1].fingerprint, print)
		}
		s.chain = append(s.chain, link{hashBlock(parent, tokens, s.id, i), print})
	}
}

// span returns the tokens of the blocks from and up to to.
func (p *pool) span(s *sequence, from, to int) []uint32 {
	return s.tokens[from*p.blockSize : to*p.blockSize : to*p.blockSize]
}

// match returns the blocks of the longest cached prefix. The last token is never taken from the cache:
// its logits are needed.
func (p *pool) match(s *sequence) []int32 {
	var hit []int32
	for _, l := range s.chain[:min(len(s.chain), (len(s.tokens)-1)/p.blockSize)] {
		e := p.cached[l.hash]
		if e == nil {
			break
		}
		hit = append(hit, e.copies[0])
	}
	return hit
}

// take appends n free blocks to the table, evicting what they still hold. There must be n.
func (p *pool) take(s *sequence, n int) {
	for range n {
		id := p.free.pop()
		p.evict(id)
		p.refs[id] = 1
		s.table = append(s.table, id)
	}
}

// evict forgets what a block is cached as, if anything.
func (p *pool) evict(id int32) {
	e := p.entries[id]
	if e == nil {
		return
	}
	p.entries[id] = nil
	e.copies = slices.DeleteFunc(e.copies, func(c int32) bool { return c == id })
	if len(e.copies) == 0 {
		delete(p.cached, e.hash)
	}
	p.events = append(p.events, event{kind: blockRemoved, hashes: []blockHash{e.hash}})
}

// store caches the full blocks of the table that are not cached yet, in one event.
func (p *pool) store(s *sequence) {
	from, to := s.stored, min(len(s.chain), len(s.table))
	if from >= to {
		return
	}
	ev := event{kind: blockStored, id: s.id, tokens: p.span(s, from, to), first: from}
	if from > 0 {
		ev.parent = &s.chain[from-1].hash
	}
	for i := from; i < to; i++ {
		p.insert(s, i)
		ev.hashes = append(ev.hashes, s.chain[i].hash)
	}
	s.stored = to
	p.events = append(p.events, ev)
}

// insert caches block i of a sequence, as one more copy if its hash is known.
func (p *pool) insert(s *sequence, i int) {
	l := s.chain[i]
	e := p.cached[l.hash]
	if e == nil {
		e = &entry{hash: l.hash, fingerprint: l.fingerprint, tokens: slices.Clone(p.span(s, i, i+1)), id: s.id, index: i}
		if i > 0 {
			e.parent = s.chain[i-1].hash
		}
		p.cached[l.hash] = e
	}
	e.copies = append(e.copies, s.table[i])
	p.entries[s.table[i]] = e
}
