// Package registry knows which caches serve each scope: those that an agent declared, and those that
// a public report named not long ago. Members are known also while they hold nothing; otherwise the
// first warm cache of a scope would attract every miss.
//
// Lookups read immutable snapshots and take no lock.
package registry

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/index"
)

// Config bounds a registry. A field that is not set has its default.
type Config struct {
	// MaxScopes bounds the distinct scopes; default 4096.
	MaxScopes int
	// MaxMembers bounds the members of all scopes together, and the caches with statistics; default
	// 65536.
	MaxMembers int
	// TTL is how long a public report keeps its replica a member; default index.DefaultTTL for
	// every tenant. It must not block.
	TTL func(tenant string) time.Duration
}

func (c Config) withDefaults() Config {
	if c.MaxScopes <= 0 {
		c.MaxScopes = 4096
	}
	if c.MaxMembers <= 0 {
		c.MaxMembers = 65536
	}
	if c.TTL == nil {
		c.TTL = func(string) time.Duration { return index.DefaultTTL }
	}
	return c
}

// Registry is the membership of all scopes. All methods may be called from any goroutine.
type Registry struct {
	config Config

	// scopes is copied when a scope comes or goes. What changes inside a scope replaces only the
	// snapshot that its cell points to.
	scopes atomic.Pointer[map[index.Scope]*cell]

	mu sync.RWMutex // guards everything below, and the fields of cells and caches
	// caches holds each known cache by model, whatever schemes it serves.
	caches  map[modelKey]map[index.Holder]*cache
	nCaches int
	members int
	// agentTenants and agentModels count the members that agents declared.
	agentTenants map[string]int
	agentModels  map[modelKey]int
}

type modelKey struct{ tenant, model string }

// cell is one scope.
type cell struct {
	scope    index.Scope
	snapshot atomic.Pointer[Members]
	members  map[index.Holder]*member
}

// cache is one cache of one model. Its statistics hold for every scheme.
type cache struct {
	stats   atomic.Pointer[Stats]
	members []*member // one per scope that it serves
	until   time.Time // when its last public report of statistics stops counting
}

// member is one cache in one scope.
type member struct {
	cache *cache
	agent string    // the agent that declared it; empty if none did
	live  bool      // whether that agent's lease is good
	until time.Time // when the last public report stops counting
	sizes []int32   // block sizes seen, at most maxBlockSizes
}

func (m *member) alive(now time.Time) bool {
	return m.agent != "" && m.live || now.Before(m.until)
}

// New returns an empty registry.
func New(config Config) *Registry {
	r := &Registry{
		config:       config.withDefaults(),
		caches:       map[modelKey]map[index.Holder]*cache{},
		agentTenants: map[string]int{},
		agentModels:  map[modelKey]int{},
	}
	r.scopes.Store(&map[index.Scope]*cell{})
	return r
}

// Members returns the live members of a scope; never nil. It takes no lock.
func (r *Registry) Members(s index.Scope) *Members {
	if c := (*r.scopes.Load())[s]; c != nil {
		return c.snapshot.Load()
	}
	return &noMembers
}

// Declared says whether an agent declared any cache of the tenant, and of the model.
func (r *Registry) Declared(tenant, model string) (tenantKnown, modelKnown bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.agentTenants[tenant] > 0, r.agentModels[modelKey{tenant, model}] > 0
}

// Join makes a cache a member as declared by an agent, whose lease is good. The last agent to
// declare a cache has it. The error is contract.ErrTooManyNames.
func (r *Registry) Join(s index.Scope, h index.Holder, agent string, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, m, err := r.admitLocked(s, h)
	if err != nil {
		return err
	}
	if m.agent == "" {
		r.countAgentLocked(s, +1)
	}
	m.agent, m.live = agent, true
	c.rebuild(now)
	return nil
}

// Leave takes back what Join said, if the agent still has the cache.
func (r *Registry) Leave(s index.Scope, h index.Holder, agent string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := (*r.scopes.Load())[s]
	if c == nil || c.members[h] == nil || c.members[h].agent != agent {
		return
	}
	m := c.members[h]
	m.agent, m.live = "", false
	r.countAgentLocked(s, -1)
	if !m.alive(now) {
		m.cache.until = time.Time{} // the engine is gone, and its statistics with it
		r.removeLocked(c, h)
	}
	c.rebuild(now)
	if len(c.members) == 0 {
		r.dropScopes(s)
	}
}

// SetLive shows a cache to lookups, or hides it, as its agent's lease comes and goes.
func (r *Registry) SetLive(s index.Scope, h index.Holder, agent string, live bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := (*r.scopes.Load())[s]
	if c == nil || c.members[h] == nil || c.members[h].agent != agent || c.members[h].live == live {
		return
	}
	c.members[h].live = live
	c.rebuild(now)
}

// Learn notes that a member has blocks of a size in tokens.
func (r *Registry) Learn(s index.Scope, h index.Holder, blockTokens int32, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := (*r.scopes.Load())[s]
	if c != nil && c.members[h] != nil && c.members[h].learn(blockTokens) {
		c.rebuild(now)
	}
}

// Report makes a cache a member for a TTL from now, as named by a public report. blockTokens is a
// block size that the report shows, 0 for none. The error is contract.ErrTooManyNames.
func (r *Registry) Report(s index.Scope, h index.Holder, blockTokens int32, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, m, err := r.admitLocked(s, h)
	if err != nil {
		return err
	}
	was := m.alive(now)
	m.until = now.Add(r.config.TTL(s.Tenant))
	if m.learn(blockTokens) || !was {
		c.rebuild(now)
	}
	return nil
}

// Seen says that a replica is alive: every scope of the model that knows it by public reports keeps
// it for another TTL.
func (r *Registry) Seen(tenant, model, replica string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	until := now.Add(r.config.TTL(tenant))
	for h, c := range r.caches[modelKey{tenant, model}] {
		if h.Replica != replica {
			continue
		}
		if !c.until.IsZero() {
			c.until = until
		}
		for _, m := range c.members {
			if now.Before(m.until) {
				m.until = until
			}
		}
	}
}

// Expire forgets the members whose last public report no longer counts.
func (r *Registry) Expire(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var empty []index.Scope
	for s, c := range *r.scopes.Load() {
		changed := false
		for h, m := range c.members {
			if m.agent == "" && !m.alive(now) {
				r.removeLocked(c, h)
				changed = true
			}
		}
		if changed || c.snapshot.Load().publicUntil(now) {
			c.rebuild(now)
		}
		if len(c.members) == 0 {
			empty = append(empty, s)
		}
	}
	r.dropScopes(empty...)
	for k, holders := range r.caches {
		for h, c := range holders {
			if len(c.members) == 0 && !now.Before(c.until) {
				r.forgetLocked(k, h)
			}
		}
	}
}

// admitLocked returns the cell and the member of a cache, new ones if need be.
func (r *Registry) admitLocked(s index.Scope, h index.Holder) (*cell, *member, error) {
	scopes := *r.scopes.Load()
	c := scopes[s]
	if c != nil && c.members[h] != nil {
		return c, c.members[h], nil
	}
	if r.members >= r.config.MaxMembers || c == nil && len(scopes) >= r.config.MaxScopes {
		return nil, nil, contract.ErrTooManyNames
	}
	owner, err := r.cacheLocked(modelKey{s.Tenant, s.Model}, h)
	if err != nil {
		return nil, nil, err
	}
	if c == nil {
		c = &cell{scope: s, members: map[index.Holder]*member{}}
		c.snapshot.Store(&noMembers)
		r.replaceScopes(func(m map[index.Scope]*cell) { m[s] = c })
	}
	m := &member{cache: owner}
	c.members[h] = m
	owner.members = append(owner.members, m)
	r.members++
	return c, m, nil
}

// removeLocked takes a member out of its cell. The caller rebuilds.
func (r *Registry) removeLocked(c *cell, h index.Holder) {
	m := c.members[h]
	delete(c.members, h)
	r.members--
	m.cache.members = slices.DeleteFunc(m.cache.members, func(other *member) bool { return other == m })
	if len(m.cache.members) == 0 && m.cache.until.IsZero() {
		r.forgetLocked(modelKey{c.scope.Tenant, c.scope.Model}, h)
	}
}

func (r *Registry) dropScopes(scopes ...index.Scope) {
	if len(scopes) == 0 {
		return
	}
	r.replaceScopes(func(m map[index.Scope]*cell) {
		for _, s := range scopes {
			delete(m, s)
		}
	})
}

func (r *Registry) replaceScopes(change func(map[index.Scope]*cell)) {
	scopes := maps.Clone(*r.scopes.Load())
	change(scopes)
	r.scopes.Store(&scopes)
}

func (r *Registry) countAgentLocked(s index.Scope, delta int) {
	k := modelKey{s.Tenant, s.Model}
	if r.agentTenants[s.Tenant] += delta; r.agentTenants[s.Tenant] == 0 {
		delete(r.agentTenants, s.Tenant)
	}
	if r.agentModels[k] += delta; r.agentModels[k] == 0 {
		delete(r.agentModels, k)
	}
}

// cacheLocked returns the record of a cache, a new one if need be.
func (r *Registry) cacheLocked(k modelKey, h index.Holder) (*cache, error) {
	if c := r.caches[k][h]; c != nil {
		return c, nil
	}
	if r.nCaches >= r.config.MaxMembers {
		return nil, contract.ErrTooManyNames
	}
	if r.caches[k] == nil {
		r.caches[k] = map[index.Holder]*cache{}
	}
	c := &cache{}
	r.caches[k][h] = c
	r.nCaches++
	return c, nil
}

func (r *Registry) forgetLocked(k modelKey, h index.Holder) {
	delete(r.caches[k], h)
	r.nCaches--
	if len(r.caches[k]) == 0 {
		delete(r.caches, k)
	}
}
