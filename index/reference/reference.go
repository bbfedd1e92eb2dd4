// Package reference is the plain implementation of an index: maps behind one lock, each method
// written the obvious way. It is what faster implementations are checked against.
package reference

import (
	"encoding/binary"
	"sync"

	"github.com/inferencecache/inferencecache/index"
)

// Index is a cache-state index in maps.
type Index struct {
	cfg index.Config

	mu     sync.RWMutex
	parts  map[index.Partition]*partition
	levels map[string]uint32 // per tenant the highest use level evicted so far
	counts counts
}

// partition holds the prefixes of one partition by key bytes.
type partition struct {
	prefixes map[string]*prefix
	digests  map[index.Holder]*index.Digest
}

// prefix is one block key with its holders; it has at least one.
type prefix struct {
	parent    string // key of the block in front, once a report has named it
	hasParent bool
	pairs     map[index.Holder]*pair
}

// pair is one block in one cache.
type pair struct {
	tier           index.Tier
	tokens, prefix int32
	evidence       index.Instant
	uses           uint32
}

// New returns an empty index.
func New(cfg index.Config) index.Index {
	return &Index{
		cfg:    cfg.WithDefaults(),
		parts:  map[index.Partition]*partition{},
		levels: map[string]uint32{},
		counts: newCounts(),
	}
}

// Store implements index.Index.
func (x *Index) Store(p index.Partition, h index.Holder, r index.Run, now index.Instant) {
	if l := x.cfg.Limits(p.Tenant); r.Keys.Len() == 0 || x.hasQuota(p.Tenant, l) && l.MaxPrefixes == 0 {
		return
	}
	r = r.Clean(now)
	x.mu.Lock()
	defer x.mu.Unlock()
	part := x.parts[p]
	if part == nil {
		part = &partition{prefixes: map[string]*prefix{}, digests: map[index.Holder]*index.Digest{}}
		x.parts[p] = part
	}
	parent, hasParent := word(r.Parent), r.HasParent
	for i := range r.Keys.Len() {
		key := keyAt(r.Keys, i)
		pre := part.prefixes[key]
		if pre == nil {
			pre = &prefix{pairs: map[index.Holder]*pair{}}
			part.prefixes[key] = pre
			x.counts.addPrefix(p, 1, x.reserved(p.Tenant))
		}
		if !pre.hasParent && hasParent {
			pre.parent, pre.hasParent = parent, true
		}
		x.storePair(p, part, h, key, pre, pair{
			tier: r.Tier, tokens: r.BlockTokens, evidence: r.Evidence,
			prefix: index.TokensThrough(r.StartTokens, r.BlockTokens, i+1),
		})
		parent, hasParent = key, true
	}
}

func (x *Index) storePair(p index.Partition, part *partition, h index.Holder, key string, pre *prefix, n pair) {
	old := pre.pairs[h]
	switch {
	case old == nil:
		n.uses = x.levels[p.Tenant] + 1
		x.counts.addPair(p, h, 1, x.reserved(p.Tenant))
	case n.evidence < old.evidence:
		return
	default:
		n.uses = old.uses
		part.digest(h, old.tier, key, -1)
	}
	part.digest(h, n.tier, key, 1)
	pre.pairs[h] = &n
}

// removePair forgets one pair, and its prefix and partition when nothing is left of them.
func (x *Index) removePair(p index.Partition, h index.Holder, key string) bool {
	part := x.parts[p]
	if part == nil || part.prefixes[key] == nil {
		return false
	}
	pre := part.prefixes[key]
	old := pre.pairs[h]
	if old == nil {
		return false
	}
	part.digest(h, old.tier, key, -1)
	delete(pre.pairs, h)
	x.counts.addPair(p, h, -1, x.reserved(p.Tenant))
	if len(pre.pairs) == 0 {
		delete(part.prefixes, key)
		x.counts.addPrefix(p, -1, x.reserved(p.Tenant))
	}
	if len(part.prefixes) == 0 {
		delete(x.parts, p)
	}
	if x.counts.prefixes[tenantModel{p.Tenant, ""}] == 0 {
		delete(x.levels, p.Tenant)
	}
	return true
}

// Remove implements index.Index.
func (x *Index) Remove(p index.Partition, h index.Holder, k index.Keys) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for i := range k.Len() {
		if x.removePair(p, h, keyAt(k, i)) {
			n++
		}
	}
	return n
}

// Evict implements index.Index.
func (x *Index) Evict(e index.Evict) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for p, part := range x.parts {
		if p.Tenant != e.Tenant || p.Model != e.Model || e.Adapter != "" && p.Adapter != e.Adapter || part.prefixes[e.Key] == nil {
			continue
		}
		for h := range part.prefixes[e.Key].pairs {
			if h.Replica == e.Replica && x.removePair(p, h, e.Key) {
				n++
			}
		}
	}
	return n
}

// Clear implements index.Index.
func (x *Index) Clear(c index.Clear) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for p, part := range x.parts {
		if c.Tenant != "" && p.Tenant != c.Tenant || c.Model != "" && p.Model != c.Model || c.Scheme != "" && p.Scheme != c.Scheme {
			continue
		}
		for key, pre := range part.prefixes {
			for h := range pre.pairs {
				if h.Replica == c.Replica && (c.Rank == nil || h.Rank == *c.Rank) && x.removePair(p, h, key) {
					n++
				}
			}
		}
	}
	return n
}

// Confirm implements index.Index.
func (x *Index) Confirm(p index.Partition, h index.Holder, d index.Digest, now index.Instant) [2]bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	part := x.parts[p]
	if part == nil {
		return d.Equal(index.Digest{})
	}
	var have index.Digest
	if sums := part.digests[h]; sums != nil {
		have = *sums
	}
	equal := d.Equal(have)
	for _, pre := range part.prefixes {
		e := pre.pairs[h]
		if e != nil && (e.tier == index.T1 && equal[0] || e.tier == index.T2 && equal[1]) {
			e.evidence = max(e.evidence, now)
		}
	}
	return equal
}

// digest keeps the sums of a holder, which exist while it holds anything that counts in them.
func (part *partition) digest(h index.Holder, t index.Tier, key string, delta int) {
	if len(key) != 8 {
		return
	}
	d := part.digests[h]
	if d == nil {
		d = &index.Digest{}
		part.digests[h] = d
	}
	d.Add(t, binary.BigEndian.Uint64([]byte(key)), delta)
	if *d == (index.Digest{}) {
		delete(part.digests, h)
	}
}

// Match implements index.Index.
func (x *Index) Match(q index.Query, dst []index.Match) []index.Match {
	x.mu.RLock()
	defer x.mu.RUnlock()
	part := x.parts[q.Partition]
	if part == nil || q.Keys.Len() == 0 {
		return dst
	}
	first := part.prefixes[keyAt(q.Keys, 0)]
	if first == nil {
		return dst
	}
	for h := range first.pairs {
		if m := part.match(q, h); m.Blocks > 0 {
			dst = append(dst, m)
		}
	}
	return dst
}

func (part *partition) match(q index.Query, h index.Holder) index.Match {
	m := index.Match{Holder: h}
	for i := range q.Keys.Len() {
		pre := part.prefixes[keyAt(q.Keys, i)]
		if pre == nil {
			return m
		}
		e := pre.pairs[h]
		if e == nil || e.evidence < q.NotBefore {
			return m
		}
		if i == 0 {
			m.Evidence = e.evidence
		}
		m.Blocks++
		m.PrefixTokens = e.prefix
		m.Tier = max(m.Tier, e.tier)
		m.Evidence = min(m.Evidence, e.evidence)
	}
	return m
}

// Credit implements index.Index.
func (x *Index) Credit(q index.Query, h index.Holder, blocks int) {
	if !x.cfg.Limits(q.Partition.Tenant).LFU {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	part := x.parts[q.Partition]
	if part == nil {
		return
	}
	for i := range min(blocks, q.Keys.Len()) {
		if pre := part.prefixes[keyAt(q.Keys, i)]; pre != nil && pre.pairs[h] != nil {
			e := pre.pairs[h]
			e.uses = max(e.uses, x.levels[q.Partition.Tenant]) + 1
		}
	}
}

func (x *Index) reserved(tenant string) bool { return x.cfg.Reserved != "" && tenant == x.cfg.Reserved }

// keyAt returns the bytes of the i-th key.
func keyAt(k index.Keys, i int) string {
	if len(k.Words) > 0 {
		return word(k.Words[i])
	}
	return k.Wide[i]
}

func word(w uint64) string {
	return string(binary.BigEndian.AppendUint64(nil, w))
}
