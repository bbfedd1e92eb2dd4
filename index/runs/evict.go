package runs

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/inferencecache/inferencecache/index"
)

// claim is an amount to take: pairs of one cache in a tenant or, without a holder, whole prefixes of
// the tenant.
type claim struct {
	tenant *tenant
	holder index.Holder
	quota  bool
	amount int64
}

func (c *claim) why() index.Removal {
	if c.quota {
		return index.RemovedByQuota
	}
	return index.RemovedByCap
}

// claimQuota turns tenants over their quota into claims.
func (x *Index) claimQuota() {
	u := &x.upkeep
	for t := range u.over {
		delete(u.over, t)
		l := x.cfg.Limits(t.name)
		if n := t.prefixes.Load(); x.hasQuota(t.name, l) && n > l.MaxPrefixes {
			u.claims = append(u.claims, claim{tenant: t, quota: true, amount: n - index.Floor(l.MaxPrefixes)})
			return
		}
	}
}

// claimCap turns what is over the cap into claims: on the tenants that hold most, and in them on the
// caches that hold most.
func (x *Index) claimCap() {
	target, over := x.capTarget()
	if !over {
		return
	}
	have := map[*tenant]int64{}
	var some []*partition
	for at := math.MaxInt; at > 0; {
		some, at = x.list(at, some[:0])
		for _, p := range some {
			if t := p.scope.tenant; !x.isReserved(t.name) {
				have[t] = t.pairs.Load()
			}
		}
	}
	byName := func(a, b *tenant) int { return strings.Compare(a.name, b.name) }
	for t, keep := range fairShare(have, target, byName) {
		if have[t] > keep {
			x.claimTenant(t, keep)
		}
	}
}

// capTarget says how many pairs may stay, and whether the index is over its cap in pairs or bytes. A
// pair is taken to cost what pairs cost now.
func (x *Index) capTarget() (target int64, over bool) {
	pairs, bytes := x.pairs.Load(), x.bytes.Load()
	target = pairs
	if pairs > x.cfg.MaxPairs {
		target, over = index.Floor(x.cfg.MaxPairs), true
	}
	if most := x.cfg.MaxBytes; most > 0 && bytes > most {
		fraction := float64(index.Floor(most)) / float64(bytes)
		target, over = min(target, int64(fraction*float64(pairs))), true
	}
	return target, over
}

func (x *Index) claimTenant(t *tenant, target int64) {
	have := map[index.Holder]int64{}
	x.mu.RLock()
	for _, s := range t.scopes {
		s.addHeld(have)
	}
	x.mu.RUnlock()
	for h, keep := range fairShare(have, target, compareHolders) {
		if have[h] > keep {
			x.upkeep.claims = append(x.upkeep.claims, claim{tenant: t, holder: h, amount: have[h] - keep})
		}
	}
}

func compareHolders(a, b index.Holder) int {
	return cmp.Or(strings.Compare(a.Replica, b.Replica), cmp.Compare(a.Rank, b.Rank))
}

// fairShare says how many each may keep so that all keep target together: who has most gives first,
// down to a common level. Where that does not divide, the last in order keep one more.
func fairShare[K comparable](have map[K]int64, target int64, compare func(a, b K) int) map[K]int64 {
	order := make([]K, 0, len(have))
	for k := range have {
		order = append(order, k)
	}
	slices.SortFunc(order, func(a, b K) int { return cmp.Or(cmp.Compare(have[a], have[b]), compare(a, b)) })
	keep := make(map[K]int64, len(have))
	for i, k := range order {
		keep[k] = min(have[k], target/int64(len(order)-i))
		target -= keep[k]
	}
	return keep
}

// victim is a piece of a run that a plan takes from one cache, or from all for a quota.
type victim struct {
	p        *partition
	run      uint32
	holder   uint32 // 0 for all
	from, to uint16
	depth    int32 // prompt tokens through the last block
	word     uint64
	name     index.Holder
	rank     uint64 // no span that has come to rank higher is taken
	why      index.Removal
}

// evictSome takes planned victims, a batch per hold of a lock, until a step's worth has gone. What has
// changed since it was planned stays.
func (x *Index) evictSome(sums removals) {
	u := &x.upkeep
	for taken := 0; taken < stepBlocks && len(u.victims) > 0; {
		p := u.victims[0].p
		lfu := x.cfg.Limits(p.key.Tenant).LFU
		removed := map[index.Removal]int{}
		p.mu.Lock()
		for cost := 0; cost < stepCost && len(u.victims) > 0 && u.victims[0].p == p; {
			v := &u.victims[0]
			n, pairs, again := p.take(v, lfu)
			removed[v.why] += n
			cost += 8 + pairs
			taken += 1 + pairs
			if !again {
				u.victims = u.victims[1:]
			}
		}
		x.close(p)
		for why, n := range removed {
			x.remember(sums, p.key.Tenant, why, n)
		}
	}
	if len(u.victims) == 0 {
		u.victims = nil
		unpin(u.pinned)
		u.pinned = nil
	}
}

// unpin ends the pinning of partitions between a plan and its end.
func unpin(all []*partition) {
	for _, p := range all {
		p.mu.Lock()
		p.pins--
		p.mu.Unlock()
	}
}

// take evicts a victim unless it has changed. It returns how many pairs, or for a quota prefixes, went,
// the pairs gone, and whether it has to be called again for the rest.
func (p *partition) take(v *victim, lfu bool) (n, pairs int, again bool) {
	before := p.prefixes
	for _, id := range p.holdersOf(v, lfu) {
		if again = pairs > runCost; again {
			break
		}
		pairs += p.uncover(v.run, int(v.from), int(v.to), id)
		p.dismiss(id)
	}
	if pairs > 0 && lfu {
		level := &p.scope.tenant.level
		level.Store(max(level.Load(), uint32(v.rank>>32)))
	}
	if v.why == index.RemovedByQuota {
		return int(before - p.prefixes), pairs, again
	}
	return pairs, pairs, again
}

// holdersOf returns the caches that a victim is taken from: none when it is no longer what was planned.
func (p *partition) holdersOf(v *victim, lfu bool) (ids []uint32) {
	if p.dead || int(v.run) >= p.runCount() {
		return nil
	}
	r := p.run(v.run)
	if r.n < v.to || p.wordAt(r, int(v.from)) != v.word {
		return nil
	}
	for _, s := range p.spansIn(r) {
		if v.holder != 0 && (s.holder != v.holder || p.holders[s.holder].name != v.name) || s.from >= v.to || s.to <= v.from {
			continue
		}
		if rank(&s, p.confirms, lfu) > v.rank {
			return nil
		}
		if len(ids) == 0 || ids[len(ids)-1] != s.holder {
			ids = append(ids, s.holder)
		}
	}
	slices.Reverse(ids) // taking the last spans moves no others
	return ids
}

// rank orders spans for eviction: the lowest goes first.
func rank(s *span, c []confirmations, lfu bool) uint64 {
	r := uint64(s.seen(c))
	if lfu {
		r |= uint64(s.uses) << 32
	}
	return r
}
