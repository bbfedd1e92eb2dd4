// Package runs is an index built for the memory hierarchy.
//
// Keys are positional, so consecutive blocks of a chain are kept as one run: their keys side by side,
// and for each cache the spans of the run that it holds in one state. A lookup finds its first block
// by hash and then compares memory; a block costs its 8-byte key and a slot of some 10 bytes in the
// hash table however many caches hold it, and a cache that holds a whole run costs one span of 32
// bytes. Runs, keys and spans lie in slabs without pointers.
//
// Everything of a partition is in one struct behind one lock, which writers hold for a batch at a time.
//
// # What bounds what
//
// A run has at most 2,048 blocks, so growing, cutting, joining and dropping one are short. A run with
// many spans of which few cross its middle is cut there, so lookups and changes pass over a few dozen
// spans, or as many as there are caches. Gaps are kept until three quarters of a run are gaps. A
// report over the border of two runs of one chain joins them.
//
// Expiry, the cap, quotas and clearing walk over the runs, whose state is so compact that no list by age
// is kept: 10 M pairs are some 20,000 runs. Evictions are planned on a copy of the spans concerned,
// outside of the lock, and checked again when they are carried out.
//
// Loading all slots of a batch ahead makes changes 1.5 times as fast at 10 M pairs. Loading a run's
// pages ahead of their comparison, and asking for huge pages, showed no gain and were left out.
package runs

import (
	"sync"

	"github.com/inferencecache/inferencecache/index"
)

// Index is a cache-state index of runs.
type Index struct {
	registry
	cfg    index.Config
	upkeep upkeep
}

// New returns an empty index.
func New(cfg index.Config) index.Index {
	x := &Index{cfg: cfg.WithDefaults()}
	x.reserved = cfg.Reserved
	x.partitions = map[index.Partition]*partition{}
	x.tenants = map[string]*tenant{}
	return x
}

func (x *Index) hasQuota(tenant string, l index.Limits) bool {
	return l.Quota && !x.isReserved(tenant)
}

// Store implements index.Index.
func (x *Index) Store(key index.Partition, h index.Holder, r index.Run, now index.Instant) {
	if l := x.cfg.Limits(key.Tenant); r.Keys.Len() == 0 || x.hasQuota(key.Tenant, l) && l.MaxPrefixes == 0 {
		return
	}
	r = r.Clean(now)
	prev, hasPrev := wordKey(r.Parent), r.HasParent
	for from := 0; from < r.Keys.Len(); from += batch {
		to := min(from+batch, r.Keys.Len())
		p := x.open(key)
		rep := report{
			holder: p.admit(h), tier: r.Tier, evidence: r.Evidence, start: r.StartTokens, block: r.BlockTokens,
			uses: p.scope.tenant.level.Load() + 1,
		}
		if len(r.Keys.Words) > 0 {
			words := r.Keys.Words[from:to]
			p.store(&rep, from, words, false, prev, hasPrev)
			prev, hasPrev = wordKey(words[len(words)-1]), true
		} else {
			prev = p.storeWide(&rep, from, r.Keys.Wide[from:to], prev, hasPrev)
			hasPrev = true
		}
		x.close(p)
	}
}

// storeWide stores byte strings, each stretch of one kind at once, and returns the last key.
func (p *partition) storeWide(r *report, n int, keys []string, prev key, hasPrev bool) key {
	for i := 0; i < len(keys); {
		wide := len(keys[i]) != 8
		words := make([]uint64, 0, len(keys)-i)
		for ; i < len(keys) && (len(keys[i]) != 8) == wide; i++ {
			words = append(words, p.admitKey(keys[i]).word)
		}
		p.store(r, n+i-len(words), words, wide, prev, hasPrev)
		prev, hasPrev = key{words[len(words)-1], wide}, true
	}
	return prev
}

// Remove implements index.Index.
func (x *Index) Remove(part index.Partition, h index.Holder, k index.Keys) (removed int) {
	for from := 0; from < k.Len(); from += batch {
		to := min(from+batch, k.Len())
		p := x.get(part)
		if p == nil {
			break
		}
		p.mu.Lock()
		if id := p.holderID(h); id != 0 {
			if len(k.Words) > 0 {
				removed += p.remove(id, k.Words[from:to], false)
			} else {
				removed += p.removeWide(id, k.Wide[from:to])
			}
			p.dismiss(id)
		}
		x.close(p)
	}
	return removed
}

func (p *partition) removeWide(id uint32, keys []string) (removed int) {
	for _, s := range keys {
		if k, ok := p.lookup(s); ok {
			removed += p.remove(id, []uint64{k.word}, k.wide)
		}
	}
	return removed
}

// Evict implements index.Index.
func (x *Index) Evict(e index.Evict) (removed int) {
	for _, p := range x.selected(e.Tenant, e.Model, "") {
		if p.key.Tenant == e.Tenant && p.key.Model == e.Model && (e.Adapter == "" || e.Adapter == p.key.Adapter) {
			p.mu.Lock()
			removed += p.evict(e.Replica, e.Key)
			x.close(p)
		}
	}
	return removed
}

// evict forgets a key for all ranks of a replica.
func (p *partition) evict(replica, name string) (removed int) {
	k, ok := p.lookup(name)
	if !ok {
		return 0
	}
	l, ok := p.find(k)
	if !ok {
		return 0
	}
	var ids []uint32
	for _, s := range p.spansIn(p.run(l.run())) {
		if o := l.offset(); int(s.from) <= o && o < int(s.to) && p.holders[s.holder].name.Replica == replica {
			ids = append(ids, s.holder)
		}
	}
	for _, id := range ids {
		removed += p.remove(id, []uint64{k.word}, k.wide)
		p.dismiss(id)
	}
	return removed
}

// Confirm implements index.Index.
func (x *Index) Confirm(key index.Partition, h index.Holder, d index.Digest, now index.Instant) [2]bool {
	p := x.get(key)
	if p == nil {
		return d.Equal(index.Digest{})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.holderID(h)
	if id == 0 {
		return d.Equal(index.Digest{})
	}
	equal := d.Equal(p.holders[id].digest)
	for i := range equal {
		if equal[i] {
			p.confirm(id, index.Tier(i+1), now)
		}
	}
	return equal
}

// confirm counts what a holder has in a tier as seen.
func (p *partition) confirm(id uint32, tier index.Tier, at index.Instant) {
	c := &p.confirms[id][tier-1]
	if at < c.at { // the clock was set back: not O(1), and rare
		p.confirmEach(id, tier, at)
		return
	}
	c.at = at
	c.n++
}

// confirmEach counts each span of a holder as seen at an instant before its last confirmation.
func (p *partition) confirmEach(id uint32, tier index.Tier, at index.Instant) {
	for i := 1; i < p.runCount(); i++ {
		all := p.spansIn(p.run(uint32(i)))
		lo, hi := spansOf(all, id)
		for j := lo; j < hi; j++ {
			if all[j].tier == tier {
				all[j].settle(p.confirms)
				all[j].evidence = max(all[j].evidence, at)
			}
		}
	}
}

// Clear implements index.Index.
func (x *Index) Clear(c index.Clear) (removed int) {
	for _, p := range x.selected(c.Tenant, c.Model, c.Scheme) {
		p.mu.RLock()
		var ids []uint32
		var names []index.Holder
		for h, id := range p.ids {
			if h.Replica == c.Replica && (c.Rank == nil || *c.Rank == h.Rank) {
				ids, names = append(ids, id), append(names, h)
			}
		}
		p.mu.RUnlock()
		for i, id := range ids {
			removed += x.clear(p, id, names[i])
		}
	}
	return removed
}

// clear forgets everything of one cache in a partition, a batch at a time.
func (x *Index) clear(p *partition, id uint32, h index.Holder) (removed int) {
	x.walk(p, func(run uint32) (int, bool) {
		if p.holderID(h) != id {
			return 0, false
		}
		n := p.uncover(run, 0, maxRun, id)
		removed += n
		p.dismiss(id)
		return n, p.holderID(h) == id
	})
	return removed
}

// scratchPool keeps what a lookup needs besides its result.
var scratchPool = sync.Pool{New: func() any { return new(scratch) }}

func wordKey(w uint64) key { return key{word: w} }

// admitKey returns the key of a byte string, a new one if it has none.
func (p *partition) admitKey(s string) key {
	if k, ok := p.lookup(s); ok {
		return k
	}
	return key{p.wide.admit(s), true}
}
