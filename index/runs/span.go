package runs

import (
	"cmp"
	"math/bits"
	"sort"

	"github.com/inferencecache/inferencecache/index"
)

// span says that one cache holds the blocks [from, to) of a run, all in the same state. The spans of
// a run are ordered by holder and from, and do not overlap within a holder.
type span struct {
	holder   uint32
	evidence index.Instant
	// confirms is the holder's number of confirmations when evidence was last set; if there were
	// more since, the last of them counts too.
	confirms uint32
	start    int32 // prompt tokens in front of block from
	block    int32 // tokens of a block
	uses     uint32
	from, to uint16
	tier     index.Tier
}

// confirmation is what a holder's matching digests of one tier said last.
type confirmation struct {
	at index.Instant
	n  uint32
}

// confirmations are by tier, T1 and T2.
type confirmations [2]confirmation

// of returns the confirmations of a tier: none for those that no digest covers.
func (c *confirmations) of(t index.Tier) confirmation {
	if t != index.T1 && t != index.T2 {
		return confirmation{}
	}
	return c[t-1]
}

// seen returns the span's last evidence.
func (s *span) seen(c []confirmations) index.Instant {
	if last := c[s.holder].of(s.tier); s.confirms != last.n {
		return max(s.evidence, last.at)
	}
	return s.evidence
}

// settle makes evidence say what seen does.
func (s *span) settle(c []confirmations) {
	s.evidence, s.confirms = s.seen(c), c[s.holder].of(s.tier).n
}

// through returns the prompt tokens up to the end of the block at offset.
func (s *span) through(offset int) int32 {
	return index.TokensThrough(s.start, s.block, offset-int(s.from)+1)
}

// cutFront returns the part from offset on.
func (s span) cutFront(offset int) span {
	s.start = index.TokensThrough(s.start, s.block, offset-int(s.from))
	s.from = uint16(offset)
	return s
}

// cutBack returns the part up to offset.
func (s span) cutBack(offset int) span {
	s.to = uint16(offset)
	return s
}

// joins reports whether next, of the same holder and settled like s, continues s.
func (s *span) joins(next *span) bool {
	return s.to == next.from && s.tier == next.tier && s.evidence == next.evidence && s.uses == next.uses &&
		s.block == next.block && next.start == s.through(int(s.to)-1)
}

// appendSpan appends a settled span, joined to the last where it continues it.
func appendSpan(dst []span, s span) []span {
	if n := len(dst); n > 0 && dst[n-1].holder == s.holder && dst[n-1].joins(&s) {
		dst[n-1].to = s.to
		return dst
	}
	return append(dst, s)
}

// spansOf returns the range of a holder's spans.
func spansOf(all []span, holder uint32) (lo, hi int) {
	if len(all) > 8 {
		lo = sort.Search(len(all), func(i int) bool { return all[i].holder >= holder })
	}
	for lo < len(all) && all[lo].holder < holder {
		lo++
	}
	for hi = lo; hi < len(all) && all[hi].holder == holder; hi++ {
	}
	return lo, hi
}

// uncovered counts the blocks of [from, to) that no span covers.
func uncovered(all []span, from, to int) int {
	meets := false
	for i := range all {
		if s := &all[i]; int(s.from) < to && int(s.to) > from {
			if int(s.from) <= from && int(s.to) >= to {
				return 0
			}
			meets = true
		}
	}
	if !meets {
		return to - from
	}
	var covered [maxRun / 64]uint64
	for i := range all {
		for o := max(int(all[i].from), from); o < min(int(all[i].to), to); o++ {
			covered[o/64] |= 1 << (o % 64)
		}
	}
	n := to - from
	for _, w := range covered {
		n -= bits.OnesCount64(w)
	}
	return n
}

// held appends the maximal intervals that any span covers, in order.
func held(all []span, dst [][2]int) [][2]int {
	for i := range all {
		dst = append(dst, [2]int{int(all[i].from), int(all[i].to)})
	}
	sort.Slice(dst, func(i, j int) bool { return cmp.Less(dst[i][0], dst[j][0]) })
	n := 0
	for _, v := range dst {
		if n > 0 && v[0] <= dst[n-1][1] {
			dst[n-1][1] = max(dst[n-1][1], v[1])
			continue
		}
		dst[n] = v
		n++
	}
	return dst[:n]
}
