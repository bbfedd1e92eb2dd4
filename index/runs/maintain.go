package runs

import (
	"math"
	"sync"

	"github.com/inferencecache/inferencecache/index"
)

// sweepsPerTTL bounds how often a partition is searched for what has expired.
const sweepsPerTTL = 64

// stepBlocks bounds the blocks that one step of housekeeping evicts.
const stepBlocks = 8192

// upkeep is where housekeeping stands: a pass over all partitions for expiry and tidying, which also
// finds the tenants over their quota; then the quotas; then the cap. A step does a part of that.
type upkeep struct {
	mu      sync.Mutex
	running bool
	before  int // registry position that the pass has come down to
	listed  []*partition
	sweep   *sweep
	over    map[*tenant]struct{} // tenants to hold to their quota
	capped  bool                 // the cap has been looked at
	claims  []claim              // what is still to be planned
	victims []victim             // what is planned
	pinned  []*partition         // where the victims are
}

// removals sums what a step removed, to report it once per tenant.
type removals map[index.Removed]int

func (x *Index) remember(m removals, tenant string, why index.Removal, n int) {
	if n > 0 && !x.isReserved(tenant) {
		m[index.Removed{Tenant: tenant, Why: why, LFU: x.cfg.Limits(tenant).LFU}] += n
	}
}

// Maintain implements index.Index.
func (x *Index) Maintain(now index.Instant, report func(index.Removed)) (more bool) {
	u := &x.upkeep
	u.mu.Lock()
	sums := removals{}
	more = x.step(now, sums)
	u.mu.Unlock()
	for r, n := range sums {
		if r.Count = n; report != nil {
			report(r)
		}
	}
	return more
}

// step does the next part of housekeeping and reports whether there is another.
func (x *Index) step(now index.Instant, sums removals) bool {
	u := &x.upkeep
	if !u.running {
		u.running, u.capped, u.before, u.over = true, false, math.MaxInt, map[*tenant]struct{}{}
	}
	switch {
	case len(u.victims) > 0:
		x.evictSome(sums)
	case len(u.claims) > 0:
		x.plan()
	case u.sweep != nil:
		if !x.sweepStep(u.sweep, now, sums) {
			u.sweep = nil
		}
	case len(u.listed) > 0:
		x.visitNext(now)
	case u.before > 0:
		u.listed, u.before = x.list(u.before, u.listed[:0])
	case len(u.over) > 0:
		x.claimQuota()
	case !u.capped:
		u.capped = true
		x.claimCap()
	default:
		u.running = false
	}
	return u.running
}

// visitNext looks at listed partitions until one needs a sweep.
func (x *Index) visitNext(now index.Instant) {
	u := &x.upkeep
	for len(u.listed) > 0 && u.sweep == nil {
		p := u.listed[len(u.listed)-1]
		u.listed = u.listed[:len(u.listed)-1]
		t := p.scope.tenant
		l := x.cfg.Limits(t.name)
		if x.hasQuota(t.name, l) && t.prefixes.Load() > l.MaxPrefixes {
			u.over[t] = struct{}{}
		}
		u.sweep = p.due(now, l.Lifetime())
	}
}

// sweep is a walk over a partition that takes what has expired, joins spans and, if nothing pins the
// partition, cuts gaps out.
type sweep struct {
	walk   walk
	ttl    index.Instant
	oldest index.Instant
	tidy   bool // not an expiry; runs may be reshaped
}

// due returns the sweep that a partition needs, if any.
func (p *partition) due(now, ttl index.Instant) *sweep {
	p.mu.Lock()
	expired := !p.dead && now >= p.oldest && now-p.oldest >= ttl && (p.swept == 0 || now < p.swept || now-p.swept >= ttl/sweepsPerTTL)
	tidy := !p.dead && !expired && p.untidy && p.pins == 0
	if expired {
		p.oldest, p.swept = math.MaxUint32, now
	}
	if tidy {
		p.untidy = false
	}
	p.mu.Unlock()
	if !expired && !tidy {
		return nil
	}
	s := &sweep{ttl: ttl, oldest: math.MaxUint32, tidy: tidy}
	if tidy {
		s.walk = walk{p: p, next: 1}
	} else if !s.walk.begin(p) {
		return nil
	}
	return s
}

// sweepStep goes on with a sweep for one hold of the lock and reports whether it has more to do.
func (x *Index) sweepStep(s *sweep, now index.Instant, sums removals) bool {
	p := s.walk.p
	p.mu.Lock()
	removed := 0
	more := s.walk.step(func(id uint32) (cost int, again bool) {
		if s.tidy {
			return p.tidy(id), false
		}
		n, oldest, again := p.expire(id, now, s.ttl)
		removed += n
		s.oldest = min(s.oldest, oldest)
		return n, again
	})
	if !more && !s.tidy {
		p.oldest = min(p.oldest, s.oldest)
		p.pins--
	}
	x.close(p)
	x.remember(sums, p.key.Tenant, index.RemovedByTTL, removed)
	return more
}

// runCost bounds the pairs that one hold of the lock takes from a run, which may have thousands of caches.
const runCost = 8 * maxRun

// expire takes the spans of a run that have had no evidence for a TTL, joins what is left and returns
// its oldest evidence; or returns early, to be called again. It goes from the last span to the first,
// as taking the last moves no others.
func (p *partition) expire(id uint32, now, ttl index.Instant) (removed int, oldest index.Instant, again bool) {
	oldest = math.MaxUint32
	for i := int(p.run(id).spanCount) - 1; i >= 0; i-- {
		s := p.spansIn(p.run(id))[i]
		if seen := s.seen(p.confirms); now < seen || now-seen < ttl {
			oldest = min(oldest, seen)
			continue
		}
		if removed > runCost {
			return removed, oldest, true
		}
		removed += p.uncover(id, int(s.from), int(s.to), s.holder)
		p.dismiss(s.holder)
	}
	p.joinSpans(id)
	return removed, oldest, false
}

// tidy reshapes a run that was left as it was while the partition was pinned.
func (p *partition) tidy(id uint32) (cost int) {
	r := p.run(id)
	n := int(r.n)
	if p.pins > 0 {
		p.untidy = true
		return 0
	}
	if p.sparse(r) {
		p.compact(id)
		return n
	}
	if r.spanClass > fragmentedClass {
		p.divide(id)
		return n
	}
	return 0
}
