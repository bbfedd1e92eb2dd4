package reference

import (
	"cmp"
	"slices"
	"strings"

	"github.com/inferencecache/inferencecache/index"
)

// candidate is what eviction may take: one pair or, for a quota, one prefix with all its holders.
type candidate struct {
	partition index.Partition
	key       string
	holder    index.Holder // for a pair
	level     uint32       // use level, 0 unless the tenant evicts by use
	evidence  index.Instant
	prefix    int32 // prompt tokens through the block
}

// compareRank orders by rank alone.
func compareRank(a, b *candidate) int {
	return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.evidence, b.evidence))
}

// Maintain implements index.Index. It does all that is due in one step.
func (x *Index) Maintain(now index.Instant, report func(index.Removed)) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.expire(now, report)
	for t, n := range x.tenantPrefixes() {
		l := x.cfg.Limits(t)
		if x.hasQuota(t, l) && n > l.MaxPrefixes {
			x.evictPrefixes(t, n-index.Floor(l.MaxPrefixes), report)
		}
	}
	if x.counts.total.Pairs > x.cfg.MaxPairs {
		x.evictPairs(index.Floor(x.cfg.MaxPairs), report)
	}
	return false
}

func (x *Index) hasQuota(tenant string, l index.Limits) bool {
	return l.Quota && !x.reserved(tenant)
}

func (x *Index) expire(now index.Instant, report func(index.Removed)) {
	expired := map[string]int{}
	for p, part := range x.parts {
		ttl := x.cfg.Limits(p.Tenant).Lifetime()
		for key, pre := range part.prefixes {
			for h, e := range pre.pairs {
				if now >= e.evidence && now-e.evidence >= ttl && x.removePair(p, h, key) {
					expired[p.Tenant]++
				}
			}
		}
	}
	for t, n := range expired {
		x.report(t, index.RemovedByTTL, n, report)
	}
}

func (x *Index) report(tenant string, why index.Removal, n int, report func(index.Removed)) {
	if n > 0 && report != nil && !x.reserved(tenant) {
		report(index.Removed{Tenant: tenant, Why: why, LFU: x.cfg.Limits(tenant).LFU, Count: n})
	}
}

func (x *Index) tenantPrefixes() map[string]int64 {
	m := map[string]int64{}
	for k, n := range x.counts.prefixes {
		if k.model == "" {
			m[k.tenant] = n
		}
	}
	return m
}

// evictPrefixes takes n whole prefixes from a tenant.
func (x *Index) evictPrefixes(tenant string, n int64, report func(index.Removed)) {
	all := x.candidates(tenant, nil)
	sortVictims(all)
	n = min(n, int64(len(all)))
	for _, c := range all[:n] {
		for h := range x.parts[c.partition].prefixes[c.key].pairs {
			x.removePair(c.partition, h, c.key)
		}
		x.raiseLevel(tenant, c.level)
	}
	x.report(tenant, index.RemovedByQuota, int(n), report)
}

// evictPairs brings the pairs down to target.
func (x *Index) evictPairs(target int64, report func(index.Removed)) {
	keep := fairShare(x.counts.tenants, target, strings.Compare)
	for t, k := range keep {
		if x.counts.tenants[t] <= k {
			continue
		}
		evicted := 0
		held := map[index.Holder]int64{}
		for sh, n := range x.counts.held {
			if sh.scope == (index.Scope{Tenant: t}) {
				held[sh.holder] = n
			}
		}
		for h, hk := range fairShare(held, k, compareHolder) {
			all := x.candidates(t, &h)
			sortVictims(all)
			for _, c := range all[:max(held[h]-hk, 0)] {
				x.removePair(c.partition, h, c.key)
				x.raiseLevel(t, c.level)
				evicted++
			}
		}
		x.report(t, index.RemovedByCap, evicted, report)
	}
}

func (x *Index) raiseLevel(tenant string, level uint32) {
	if x.counts.prefixes[tenantModel{tenant, ""}] > 0 {
		x.levels[tenant] = max(x.levels[tenant], level)
	}
}

func compareHolder(a, b index.Holder) int {
	return cmp.Or(strings.Compare(a.Replica, b.Replica), cmp.Compare(a.Rank, b.Rank))
}

// fairShare says how many each may keep so that they keep target in sum: the largest give first, down
// to a common level. Where that does not divide, the last in order keep one more.
func fairShare[K comparable](have map[K]int64, target int64, compare func(a, b K) int) map[K]int64 {
	type item struct {
		k K
		n int64
	}
	var items []item
	for k, n := range have {
		items = append(items, item{k, n})
	}
	slices.SortFunc(items, func(a, b item) int { return cmp.Or(cmp.Compare(a.n, b.n), compare(a.k, b.k)) })
	keep := map[K]int64{}
	for i, it := range items {
		k := min(it.n, target/int64(len(items)-i))
		keep[it.k] = k
		target -= k
	}
	return keep
}

// candidates lists the pairs of a holder in a tenant, or without a holder the tenant's prefixes, each
// with the highest rank of itself and all that is behind it.
func (x *Index) candidates(tenant string, h *index.Holder) []*candidate {
	lfu := x.cfg.Limits(tenant).LFU
	var all []*candidate
	for p, part := range x.parts {
		if p.Tenant != tenant {
			continue
		}
		byKey := map[string]*candidate{}
		for key, pre := range part.prefixes {
			for holder, e := range pre.pairs {
				if h != nil && holder != *h {
					continue
				}
				c := candidate{partition: p, key: key, holder: holder, evidence: e.evidence, prefix: e.prefix}
				if lfu {
					c.level = e.uses
				}
				if old := byKey[key]; old != nil {
					c.prefix = max(c.prefix, old.prefix)
					if compareRank(old, &c) > 0 {
						c.level, c.evidence = old.level, old.evidence
					}
				}
				byKey[key] = &c
			}
		}
		part.liftAncestors(byKey)
		for _, c := range byKey {
			all = append(all, c)
		}
	}
	return all
}

// liftAncestors raises every candidate to the rank of the highest candidate behind it. A walk ends
// where nothing changes, so a cycle of made-up parents ends too.
func (part *partition) liftAncestors(byKey map[string]*candidate) {
	for key := range byKey {
		for c := byKey[key]; ; {
			pre := part.prefixes[c.key]
			parent := byKey[pre.parent]
			if !pre.hasParent || parent == nil || compareRank(parent, c) >= 0 {
				break
			}
			parent.level, parent.evidence = c.level, c.evidence
			c = parent
		}
	}
}

// sortVictims puts the first to go first. What is equal in rank and depth is ordered by name, so
// that equal histories end equal.
func sortVictims(all []*candidate) {
	slices.SortFunc(all, func(a, b *candidate) int {
		return cmp.Or(compareRank(a, b), cmp.Compare(b.prefix, a.prefix),
			cmp.Compare(a.partition.Model, b.partition.Model), cmp.Compare(a.partition.Scheme, b.partition.Scheme),
			cmp.Compare(a.partition.Adapter, b.partition.Adapter), cmp.Compare(a.key, b.key))
	})
}
