package reference

import (
	"maps"

	"github.com/inferencecache/inferencecache/index"
)

type tenantModel struct{ tenant, model string }

// scopeHolder is a holder in a scope; empty model or scheme stand for all.
type scopeHolder struct {
	scope  index.Scope
	holder index.Holder
}

// counts are running totals; an entry that reaches 0 is deleted.
type counts struct {
	total    index.Counts
	prefixes map[tenantModel]int64 // also under model ""
	byModel  map[string]int64
	held     map[scopeHolder]int64 // also under empty model, scheme, and both
	scopes   map[index.Scope]int64 // pairs
	tenants  map[string]int64      // pairs that count for the cap
}

func newCounts() counts {
	return counts{
		prefixes: map[tenantModel]int64{},
		byModel:  map[string]int64{},
		held:     map[scopeHolder]int64{},
		scopes:   map[index.Scope]int64{},
		tenants:  map[string]int64{},
	}
}

func add[K comparable](m map[K]int64, k K, n int64) {
	if m[k] += n; m[k] == 0 {
		delete(m, k)
	}
}

func (c *counts) addPrefix(p index.Partition, n int64, reserved bool) {
	add(c.prefixes, tenantModel{p.Tenant, p.Model}, n)
	if p.Model != "" {
		add(c.prefixes, tenantModel{p.Tenant, ""}, n)
	}
	if !reserved {
		add(c.byModel, p.Model, n)
		c.total.Prefixes += n
	}
}

func (c *counts) addPair(p index.Partition, h index.Holder, n int64, reserved bool) {
	for _, s := range views(p.Scope) {
		add(c.held, scopeHolder{s, h}, n)
	}
	add(c.scopes, p.Scope, n)
	if !reserved {
		add(c.tenants, p.Tenant, n)
		c.total.Pairs += n
	}
}

// views returns the distinct scopes that a pair of s counts in.
func views(s index.Scope) []index.Scope {
	all := []index.Scope{s}
	for _, v := range []index.Scope{{Tenant: s.Tenant, Model: s.Model}, {Tenant: s.Tenant, Scheme: s.Scheme}, {Tenant: s.Tenant}} {
		seen := false
		for _, a := range all {
			seen = seen || a == v
		}
		if !seen {
			all = append(all, v)
		}
	}
	return all
}

// Counts implements index.Index.
func (x *Index) Counts() index.Counts {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.counts.total
}

// PrefixesOf implements index.Index.
func (x *Index) PrefixesOf(tenant, model string) int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.counts.prefixes[tenantModel{tenant, model}]
}

// HeldBy implements index.Index.
func (x *Index) HeldBy(s index.Scope, h index.Holder) int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.counts.held[scopeHolder{s, h}]
}

// SchemeHeld implements index.Index.
func (x *Index) SchemeHeld(s index.Scope) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.counts.scopes[s] > 0
}

// PrefixesByModel implements index.Index.
func (x *Index) PrefixesByModel() map[string]int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return maps.Clone(x.counts.byModel)
}
