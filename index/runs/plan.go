package runs

import (
	"cmp"
	"slices"
	"sort"
)

// planSpans bounds the spans that one plan holds in memory (some 60 bytes each), except that one cache
// or one tenant's quota is always planned as a whole.
const planSpans = 1 << 19

// node is a piece of a run in one state, for one cache or, for a quota, whoever holds it.
type node struct {
	p        int32 // in the plan's partitions
	run      uint32
	holder   uint32
	claim    int32
	from, to uint16
	start    int32
	block    int32
	word     uint64
	rank     uint64 // of itself and all that is behind it in the same cache
	behind   location
	parent   int32 // node that holds the block in front, or -1
	children int32
}

func (n *node) through(offset int) int32 {
	s := span{from: n.from, start: n.start, block: n.block}
	return s.through(offset)
}

// planner finds the victims of claims on one tenant. It reads the partitions a batch at a time, then
// works on its copy: ranks rise from descendants to ancestors, the lowest ranks go first, and of
// equal ones the deepest blocks. Sorting is by pieces, not by blocks.
type planner struct {
	x          *Index
	lfu        bool
	claims     []claim
	partitions []*partition
	nodes      []node
}

// plan turns the next claims into victims.
func (x *Index) plan() {
	u := &x.upkeep
	n := x.claimsAtOnce()
	pl := planner{x: x, claims: u.claims[:n], lfu: x.cfg.Limits(u.claims[0].tenant.name).LFU}
	u.claims = u.claims[n:]
	for _, p := range x.selected(pl.claims[0].tenant.name, "", "") {
		pl.gather(p)
	}
	pl.lift()
	byClaim := make([][]int32, len(pl.claims))
	for i := range pl.nodes {
		c := pl.nodes[i].claim
		byClaim[c] = append(byClaim[c], int32(i))
	}
	for c := range byClaim {
		u.victims = append(u.victims, pl.choose(&pl.claims[c], byClaim[c])...)
	}
	u.pinned = pl.partitions
	if len(u.victims) == 0 {
		unpin(u.pinned)
		u.pinned = nil
	}
}

// claimsAtOnce returns how many claims, all of one tenant and kind, fit in a plan.
func (x *Index) claimsAtOnce() int {
	claims := x.upkeep.claims
	first := &claims[0]
	if first.quota {
		return 1
	}
	all := x.selected(first.tenant.name, "", "")
	n, spans := 0, 0
	for n < len(claims) && claims[n].tenant == first.tenant && !claims[n].quota {
		for _, p := range all {
			p.mu.RLock()
			spans += p.holders[p.holderID(claims[n].holder)].spans
			p.mu.RUnlock()
		}
		if n++; spans > planSpans {
			break
		}
	}
	return n
}

// gather copies what the claims may take from a partition, which stays pinned.
func (pl *planner) gather(p *partition) {
	var w walk
	if !w.begin(p) {
		return
	}
	at := int32(len(pl.partitions))
	pl.partitions = append(pl.partitions, p)
	p.mu.RLock()
	claimOf := map[uint32]int32{}
	for i := range pl.claims {
		if id := p.holderID(pl.claims[i].holder); id != 0 {
			claimOf[id] = int32(i)
		}
	}
	p.mu.RUnlock()
	first := len(pl.nodes)
	var paint *painter
	if pl.claims[0].quota {
		paint = &painter{}
	}
	for more := true; more; {
		p.mu.RLock()
		more = w.step(func(id uint32) (cost int, again bool) {
			if paint != nil {
				return pl.gatherPrefixes(p, at, id, paint), false
			}
			pl.gatherPairs(p, at, id, claimOf)
			return 0, false
		})
		p.mu.RUnlock()
	}
	pl.cut(first)
}

func (pl *planner) gatherPairs(p *partition, at int32, id uint32, claimOf map[uint32]int32) {
	r := p.run(id)
	all := p.spansIn(r)
	for i := range all {
		s := &all[i]
		if c, ok := claimOf[s.holder]; ok {
			pl.add(p, r, node{
				p: at, run: id, holder: s.holder, claim: c, from: s.from, to: s.to, start: s.start, block: s.block,
				rank: rank(s, p.confirms, pl.lfu),
			})
		}
	}
}

// add appends a node with what lies in front of it.
func (pl *planner) add(p *partition, r *run, n node) {
	n.word = p.wordAt(r, int(n.from))
	if n.from > 0 {
		n.behind = locate(n.run, int(n.from)-1)
	} else if k, ok := r.parentKey(); ok {
		n.behind, _ = p.find(k)
	}
	pl.nodes = append(pl.nodes, n)
}

// gatherPrefixes adds the pieces of a run that rank the same by their highest holder.
func (pl *planner) gatherPrefixes(p *partition, at int32, id uint32, paint *painter) (cost int) {
	r := p.run(id)
	all := p.spansIn(r)
	tops := paint.run(all, int(r.n), p.confirms, pl.lfu)
	for o := 0; o < len(tops); {
		if tops[o] < 0 {
			o++
			continue
		}
		s := &all[tops[o]]
		n := node{p: at, run: id, from: uint16(o), start: s.cutFront(o).start, block: s.block, rank: rank(s, p.confirms, pl.lfu)}
		for o++; o < len(tops) && tops[o] >= 0; o++ {
			next := &all[tops[o]]
			if next != s && (rank(next, p.confirms, pl.lfu) != n.rank || next.through(o) != n.through(o)) {
				break
			}
		}
		n.to = uint16(o)
		pl.add(p, r, n)
	}
	return int(r.n)
}

// painter finds for each block of a run the span that ranks highest.
type painter struct {
	order []int32
	tops  [maxRun]int32
	next  [maxRun + 1]uint16 // next block that is not painted, at or behind
}

func (pt *painter) run(all []span, n int, c []confirmations, lfu bool) []int32 {
	pt.order = pt.order[:0]
	for i := range all {
		pt.order = append(pt.order, int32(i))
	}
	slices.SortFunc(pt.order, func(a, b int32) int { return cmp.Compare(rank(&all[b], c, lfu), rank(&all[a], c, lfu)) })
	for o := range n {
		pt.tops[o], pt.next[o] = -1, uint16(o)
	}
	pt.next[n] = uint16(n)
	for _, i := range pt.order {
		for o := pt.free(int(all[i].from)); o < int(all[i].to); o = pt.free(o + 1) {
			pt.tops[o] = i
			pt.next[o] = uint16(o + 1)
		}
	}
	return pt.tops[:n]
}

func (pt *painter) free(o int) int {
	end := o
	for int(pt.next[end]) != end {
		end = int(pt.next[end])
	}
	for o != end {
		o, pt.next[o] = int(pt.next[o]), uint16(end)
	}
	return end
}

// find returns the node from first on that holds a location for a cache, or -1. Nodes are in the
// order of run, holder and offset.
func (pl *planner) find(first int, l location, holder uint32) int {
	nodes := pl.nodes[first:]
	i := sort.Search(len(nodes), func(i int) bool {
		n := &nodes[i]
		return cmp.Or(cmp.Compare(n.run, l.run()), cmp.Compare(n.holder, holder), cmp.Compare(int(n.to), l.offset()+1)) >= 0
	})
	if i < len(nodes) && nodes[i].run == l.run() && nodes[i].holder == holder && int(nodes[i].from) <= l.offset() {
		return first + i
	}
	return -1
}

// cut divides the nodes of one partition where another branches off, and links each to its parent.
func (pl *planner) cut(first int) {
	type point struct {
		node, offset int
	}
	var cuts []point
	for i := first; i < len(pl.nodes); i++ {
		n := &pl.nodes[i]
		if n.behind == 0 || n.from > 0 && n.behind.run() == n.run {
			continue
		}
		if j := pl.find(first, n.behind, n.holder); j >= 0 && n.behind.offset()+1 < int(pl.nodes[j].to) {
			cuts = append(cuts, point{j, n.behind.offset() + 1})
		}
	}
	slices.SortFunc(cuts, func(a, b point) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.offset, b.offset)) })
	cuts = slices.Compact(cuts)
	if len(cuts) > 0 {
		old := slices.Clone(pl.nodes[first:])
		pl.nodes = pl.nodes[:first]
		for i, n := range old {
			for len(cuts) > 0 && cuts[0].node == first+i {
				o := cuts[0].offset
				cuts = cuts[1:]
				front := n
				front.to = uint16(o)
				pl.nodes = append(pl.nodes, front)
				n.start, n.from, n.behind = n.through(o-1), uint16(o), locate(n.run, o-1)
				n.word = pl.keyOf(&n, o).word
			}
			pl.nodes = append(pl.nodes, n)
		}
	}
	for i := first; i < len(pl.nodes); i++ {
		n := &pl.nodes[i]
		n.parent = -1
		if n.behind != 0 {
			n.parent = int32(pl.find(first, n.behind, n.holder))
		}
	}
}

// lift raises each node to the highest rank behind it, leaves first. A cycle of made-up parents is
// left as it is.
func (pl *planner) lift() {
	for i := range pl.nodes {
		if parent := pl.nodes[i].parent; parent >= 0 {
			pl.nodes[parent].children++
		}
	}
	for i := range pl.nodes {
		for at := int32(i); pl.nodes[at].children == 0; {
			n := &pl.nodes[at]
			n.children = -1 // done
			if n.parent < 0 {
				break
			}
			parent := &pl.nodes[n.parent]
			parent.rank = max(parent.rank, n.rank)
			parent.children--
			at = n.parent
		}
	}
}

// choose returns the victims of a claim, the first to go first.
func (pl *planner) choose(c *claim, nodes []int32) []victim {
	slices.SortFunc(nodes, func(a, b int32) int { return cmp.Compare(pl.nodes[a].rank, pl.nodes[b].rank) })
	var out []victim
	need := c.amount
	for i := 0; i < len(nodes) && need > 0; {
		j, blocks := i, int64(0)
		for ; j < len(nodes) && pl.nodes[nodes[j]].rank == pl.nodes[nodes[i]].rank; j++ {
			blocks += int64(pl.nodes[nodes[j]].to - pl.nodes[nodes[j]].from)
		}
		first := len(out)
		if blocks <= need {
			for _, k := range nodes[i:j] {
				out = append(out, pl.victim(c, &pl.nodes[k], int(pl.nodes[k].from)))
			}
		} else {
			blocks = need
			out = pl.chooseDeepest(c, nodes[i:j], need, out)
		}
		slices.SortStableFunc(out[first:], func(a, b victim) int { return cmp.Compare(b.depth, a.depth) })
		need -= blocks
		i = j
	}
	return out
}

// chooseDeepest appends victims of nodes of equal rank: the need deepest blocks of them. Of those at
// the last depth some stay; names decide which, so that indexes of equal contents evict the same.
func (pl *planner) chooseDeepest(c *claim, nodes []int32, need int64, out []victim) []victim {
	deeper := func(depth int32) (n int64) {
		for _, k := range nodes {
			n += int64(int(pl.nodes[k].to) - pl.nodes[k].offsetBelow(depth))
		}
		return n
	}
	depth := int32(sort.Search(1<<31-1, func(d int) bool { return deeper(int32(d)) <= need }))
	rest := need - deeper(depth)
	level := pl.atDepth(nodes, depth)
	extra := map[int32]int{}
	for _, k := range level {
		n := &pl.nodes[k]
		take := min(int64(n.offsetBelow(depth)-n.offsetBelow(depth-1)), rest)
		extra[k] = int(take)
		rest -= take
	}
	for _, k := range nodes {
		n := &pl.nodes[k]
		if from := n.offsetBelow(depth) - extra[k]; from < int(n.to) {
			out = append(out, pl.victim(c, n, from))
		}
	}
	return out
}

// atDepth returns the nodes that have a block ending at depth, ordered by partition and that block's key.
func (pl *planner) atDepth(nodes []int32, depth int32) []int32 {
	names := map[int32]string{}
	var level []int32
	for _, k := range nodes {
		if n := &pl.nodes[k]; n.offsetBelow(depth-1) < n.offsetBelow(depth) {
			names[k] = pl.nameOf(n, n.offsetBelow(depth)-1)
			level = append(level, k)
		}
	}
	slices.SortFunc(level, func(a, b int32) int {
		p, q := &pl.partitions[pl.nodes[a].p].key, &pl.partitions[pl.nodes[b].p].key
		return cmp.Or(cmp.Compare(p.Model, q.Model), cmp.Compare(p.Scheme, q.Scheme), cmp.Compare(p.Adapter, q.Adapter),
			cmp.Compare(names[a], names[b]))
	})
	return level
}

// offsetBelow returns the first offset whose block ends more than depth tokens into the prompt.
func (n *node) offsetBelow(depth int32) int {
	return int(n.from) + sort.Search(int(n.to-n.from), func(i int) bool { return n.through(int(n.from)+i) > depth })
}

func (pl *planner) victim(c *claim, n *node, from int) victim {
	v := victim{
		p: pl.partitions[n.p], run: n.run, holder: n.holder, from: uint16(from), to: n.to, depth: n.through(int(n.to) - 1),
		word: n.word, name: c.holder, rank: n.rank, why: c.why(),
	}
	if from > int(n.from) {
		v.word = pl.keyOf(n, from).word
	}
	return v
}

// nameOf returns the bytes of keyOf.
func (pl *planner) nameOf(n *node, offset int) string {
	k := pl.keyOf(n, offset)
	p := pl.partitions[n.p]
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.bytes(k)
}

// keyOf returns the key at an offset of a node's run, or none when the run has become shorter. The lock
// is taken for each key: a long plan must not keep writers waiting, and readers behind them.
func (pl *planner) keyOf(n *node, offset int) key {
	p := pl.partitions[n.p]
	p.mu.RLock()
	defer p.mu.RUnlock()
	if r := p.run(n.run); offset < int(r.n) {
		return p.keyAt(r, offset)
	}
	return key{}
}
