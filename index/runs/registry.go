package runs

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/inferencecache/inferencecache/index"
)

// registry knows all partitions and keeps the totals. Locks are taken in the order registry,
// partition, scope.
type registry struct {
	reserved string

	mu         sync.RWMutex
	partitions map[index.Partition]*partition
	all        []*partition // the same, in no order; each knows its position
	tenants    map[string]*tenant

	pairs, prefixes atomic.Int64 // without the reserved tenant
	bytes           atomic.Int64 // with it

	recent recent
}

// recent remembers the partitions that were asked for last, so that most calls need neither the lock nor
// the map, half of what a lookup costs that finds nothing. It names no partition that is dropped: entries
// are set under the registry's read lock and cleared under its write lock.
type recent [64]atomic.Pointer[partition]

// of returns where a partition's entry is.
func (r *recent) of(key *index.Partition) *atomic.Pointer[partition] {
	h := uint(0)
	for _, s := range [...]string{key.Tenant, key.Model, key.Scheme, key.Adapter} {
		if h = h*5 + uint(len(s)); s != "" {
			h += uint(s[len(s)-1])
		}
	}
	return &r[h%uint(len(r))]
}

// tenant exists while it has a scope.
type tenant struct {
	name   string
	scopes map[index.Scope]*scope
	level  atomic.Uint32 // the highest use level that eviction has taken

	pairs, prefixes atomic.Int64
}

// scope exists while it has a partition.
type scope struct {
	key        index.Scope
	tenant     *tenant
	totals     *registry // nil in the reserved tenant
	partitions map[*partition]struct{}
	prefixes   atomic.Int64

	mu      sync.Mutex
	holders map[index.Holder]*tally
}

func (s *scope) count(pairs, prefixes int64) {
	if pairs != 0 {
		s.tenant.pairs.Add(pairs)
		if s.totals != nil {
			s.totals.pairs.Add(pairs)
		}
	}
	if prefixes != 0 {
		s.prefixes.Add(prefixes)
		s.tenant.prefixes.Add(prefixes)
		if s.totals != nil {
			s.totals.prefixes.Add(prefixes)
		}
	}
}

// join returns the tally of a cache for one more partition.
func (s *scope) join(h index.Holder) *tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.holders[h]
	if t == nil {
		t = &tally{}
		s.holders[h] = t
	}
	t.refs++
	return t
}

func (s *scope) leave(h index.Holder, t *tally) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.refs--; t.refs == 0 {
		delete(s.holders, h)
	}
}

func (s *scope) heldBy(h index.Holder) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.holders[h]; t != nil {
		return t.pairs.Load()
	}
	return 0
}

// addHeld adds what each cache holds in the scope.
func (s *scope) addHeld(sums map[index.Holder]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h, t := range s.holders {
		sums[h] += t.pairs.Load()
	}
}

func (g *registry) isReserved(tenant string) bool { return g.reserved != "" && tenant == g.reserved }

// get returns a partition, or nil.
func (g *registry) get(key index.Partition) *partition {
	entry := g.recent.of(&key)
	if p := entry.Load(); p != nil && p.key == key {
		return p
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	p := g.partitions[key]
	if p != nil {
		entry.Store(p)
	}
	return p
}

// open returns a partition locked for writing, a new one if there is none.
func (g *registry) open(key index.Partition) *partition {
	for {
		p := g.get(key)
		if p == nil {
			p = g.add(key)
		}
		p.mu.Lock()
		if !p.dead {
			return p
		}
		p.mu.Unlock()
	}
}

func (g *registry) add(key index.Partition) *partition {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.partitions[key]; p != nil {
		return p
	}
	t := g.tenants[key.Tenant]
	if t == nil {
		t = &tenant{name: key.Tenant, scopes: map[index.Scope]*scope{}}
		g.tenants[key.Tenant] = t
	}
	s := t.scopes[key.Scope]
	if s == nil {
		s = &scope{key: key.Scope, tenant: t, partitions: map[*partition]struct{}{}, holders: map[index.Holder]*tally{}}
		if !g.isReserved(key.Tenant) {
			s.totals = g
		}
		t.scopes[key.Scope] = s
	}
	p := newPartition(key, s)
	s.partitions[p] = struct{}{}
	g.partitions[key] = p
	p.position = len(g.all)
	g.all = append(g.all, p)
	return p
}

// dropEmpty forgets a partition if it holds nothing, and the names that only it used.
func (g *registry) dropEmpty(p *partition) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead || p.pairs > 0 {
		return
	}
	p.dead = true
	g.bytes.Add(-p.counted)
	delete(g.partitions, p.key)
	g.recent.of(&p.key).CompareAndSwap(p, nil)
	last := g.all[len(g.all)-1]
	g.all[p.position], last.position = last, p.position
	g.all[len(g.all)-1] = nil
	g.all = g.all[:len(g.all)-1]
	s := p.scope
	delete(s.partitions, p)
	if len(s.partitions) == 0 {
		delete(s.tenant.scopes, s.key)
	}
	if len(s.tenant.scopes) == 0 {
		delete(g.tenants, s.tenant.name)
	}
}

// close ends a batch of changes to a partition.
func (g *registry) close(p *partition) {
	empty := p.pairs == 0
	p.flush()
	if n := p.size(); n != p.counted && !p.dead {
		g.bytes.Add(n - p.counted)
		p.counted = n
	}
	p.mu.Unlock()
	if empty {
		g.dropEmpty(p)
	}
}

// listBatch bounds the partitions listed under one hold of the registry's lock.
const listBatch = 1024

// list returns some partitions in front of position before, and the position to go on from. A pass
// from the largest position down to 0 meets every partition that stays: one only ever moves to a
// smaller position.
func (g *registry) list(before int, dst []*partition) ([]*partition, int) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	end := min(before, len(g.all))
	start := max(0, end-listBatch)
	return append(dst, g.all[start:end]...), start
}

// selected returns the partitions that a filter takes, in no order; empty strings take all.
func (g *registry) selected(tenant, model, scheme string) []*partition {
	var all []*partition
	take := func(s index.Scope) bool {
		return (model == "" || s.Model == model) && (scheme == "" || s.Scheme == scheme)
	}
	if tenant != "" {
		g.mu.RLock()
		defer g.mu.RUnlock()
		if t := g.tenants[tenant]; t != nil {
			for _, s := range t.scopes {
				if take(s.key) {
					for p := range s.partitions {
						all = append(all, p)
					}
				}
			}
		}
		return all
	}
	var some []*partition
	for at := math.MaxInt; at > 0; {
		some, at = g.list(at, some[:0])
		for _, p := range some {
			if take(p.key.Scope) {
				all = append(all, p)
			}
		}
	}
	return all
}

// Bytes returns the memory in use, by estimate: what MaxBytes bounds.
func (x *Index) Bytes() int64 { return x.bytes.Load() }

// Counts implements index.Index.
func (x *Index) Counts() index.Counts {
	return index.Counts{Pairs: x.pairs.Load(), Prefixes: x.prefixes.Load()}
}

// PrefixesOf implements index.Index. It adds up the scopes of the tenant.
func (x *Index) PrefixesOf(tenant, model string) int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	t := x.tenants[tenant]
	if t == nil {
		return 0
	}
	if model == "" {
		return t.prefixes.Load()
	}
	n := int64(0)
	for _, s := range t.scopes {
		if s.key.Model == model {
			n += s.prefixes.Load()
		}
	}
	return n
}

// HeldBy implements index.Index. It adds up the scopes of the tenant unless s names one.
func (x *Index) HeldBy(s index.Scope, h index.Holder) (n int64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	t := x.tenants[s.Tenant]
	if t == nil {
		return 0
	}
	if sc := t.scopes[s]; sc != nil && s.Model != "" && s.Scheme != "" {
		return sc.heldBy(h)
	}
	for _, sc := range t.scopes {
		if (s.Model == "" || sc.key.Model == s.Model) && (s.Scheme == "" || sc.key.Scheme == s.Scheme) {
			n += sc.heldBy(h)
		}
	}
	return n
}

// SchemeHeld implements index.Index.
func (x *Index) SchemeHeld(s index.Scope) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if t := x.tenants[s.Tenant]; t != nil {
		if sc := t.scopes[s]; sc != nil {
			return sc.prefixes.Load() > 0
		}
	}
	return false
}

// PrefixesByModel implements index.Index.
func (x *Index) PrefixesByModel() map[string]int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	sums := map[string]int64{}
	for _, t := range x.tenants {
		if x.isReserved(t.name) {
			continue
		}
		for _, s := range t.scopes {
			if n := s.prefixes.Load(); n > 0 {
				sums[s.key.Model] += n
			}
		}
	}
	return sums
}
