// Package registry knows which caches serve each scope: those that an agent declared, and those that
// a public report named not long ago. Members are known also while they hold nothing; otherwise the
// first warm cache of a scope would attract every miss.
//
// Lookups read immutable snapshots, which are made anew when they are asked for after a change.
package registry

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
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

	mu sync.RWMutex // guards everything below, and the fields of cells, caches and members
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
	// stale says that the snapshot is behind the members. Whoever asks for it next makes a new one, so
	// that a thousand changes in a row cost one.
	stale   atomic.Bool
	asOf    time.Time // of the last change
	members map[index.Holder]*member
}

// cache is one cache of one model. Its statistics hold for every scheme.
type cache struct {
	stats    atomic.Pointer[Stats]
	event    atomic.Uint32 // index.Instant of the last evidence that it holds something; 0 if there is none
	members  []*member     // one per scope that it serves
	reported time.Time     // of the last report of statistics; zero if there is none
	seen     time.Time     // of the last event that said that the replica is alive; zero if there is none
}

// member is one cache in one scope.
type member struct {
	cell      *cell
	holder    index.Holder
	cache     *cache
	agent     string           // the agent that declared it; empty if none did
	live      bool             // whether that agent's lease is good
	certainty pb.ViewCertainty // what that agent says of it
	reported  time.Time        // of the last public report; zero if there is none
	sizes     []int32          // block sizes seen, at most maxBlockSizes
	shown     bool             // whether it is in the snapshot made last
}

// alive says whether a member counts. ttl is that of its tenant.
func (m *member) alive(now time.Time, ttl time.Duration) bool {
	return m.agent != "" && m.live || recent(m.reported, now, ttl)
}

// recent says whether a report still counts.
func recent(reported, now time.Time, ttl time.Duration) bool {
	return !reported.IsZero() && now.Sub(reported) < ttl
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

// Members returns the live members of a scope; never nil. It takes a lock only where a change has come
// since it was asked last.
func (r *Registry) Members(s index.Scope) *Members {
	c := (*r.scopes.Load())[s]
	if c == nil {
		return &noMembers
	}
	if c.stale.Load() {
		r.rebuild(c)
	}
	return c.snapshot.Load()
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
	m, err := r.admitLocked(s, h)
	if err != nil {
		return err
	}
	if m.agent == "" {
		r.countAgentLocked(s, +1)
	}
	m.agent, m.live, m.certainty = agent, true, pb.ViewCertainty_VIEW_CERTAINTY_UNSPECIFIED
	m.cell.change(now)
	return nil
}

// Leave takes back what Join said, if the agent still has the cache.
func (r *Registry) Leave(s index.Scope, h index.Holder, agent string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.ownedLocked(s, h, agent)
	if m == nil {
		return
	}
	m.agent, m.live, m.certainty = "", false, pb.ViewCertainty_VIEW_CERTAINTY_UNSPECIFIED
	r.countAgentLocked(s, -1)
	if !m.alive(now, r.config.TTL(s.Tenant)) {
		m.cache.reported = time.Time{} // the engine is gone, and its statistics with it
		r.removeLocked(m)
	}
	m.cell.change(now)
	if len(m.cell.members) == 0 {
		r.dropScopes(s)
	}
}

// SetLive shows a cache to lookups, or hides it, as its agent's lease comes and goes.
func (r *Registry) SetLive(s index.Scope, h index.Holder, agent string, live bool, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.ownedLocked(s, h, agent); m != nil && m.live != live {
		m.live = live
		m.cell.change(now)
	}
}

// SetCertainty notes how far the agent that has a cache trusts its own view of it.
func (r *Registry) SetCertainty(s index.Scope, h index.Holder, agent string, certainty pb.ViewCertainty) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.ownedLocked(s, h, agent); m != nil {
		m.certainty = certainty
	}
}

// ownedLocked returns the member that an agent has; nil if it has none.
func (r *Registry) ownedLocked(s index.Scope, h index.Holder, agent string) *member {
	c := (*r.scopes.Load())[s]
	if c == nil || c.members[h] == nil || c.members[h].agent != agent {
		return nil
	}
	return c.members[h]
}

// Learn notes that a member has blocks of a size in tokens.
func (r *Registry) Learn(s index.Scope, h index.Holder, blockTokens int32, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := (*r.scopes.Load())[s]
	if c != nil && c.members[h] != nil && c.members[h].learn(blockTokens) {
		c.change(now)
	}
}

// Report makes a cache a member for a TTL from now, as named by a public report. blockTokens is a
// block size that the report shows, 0 for none. The error is contract.ErrTooManyNames.
func (r *Registry) Report(s index.Scope, h index.Holder, blockTokens int32, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, err := r.admitLocked(s, h)
	if err != nil {
		return err
	}
	m.reported = now
	if m.learn(blockTokens) || !m.shown {
		m.cell.change(now)
	}
	return nil
}

// Seen says that a replica was alive at a time: every scope of the model that still knows it by public
// reports keeps it for a TTL from then.
func (r *Registry) Seen(tenant, model, replica string, at, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ttl := r.config.TTL(tenant)
	for h, c := range r.caches[modelKey{tenant, model}] {
		if h.Replica != replica {
			continue
		}
		c.seen = later(c.seen, at)
		if !c.reported.IsZero() {
			c.reported = later(c.reported, at)
		}
		for _, m := range c.members {
			if recent(m.reported, now, ttl) {
				m.reported = later(m.reported, at)
			}
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Heard says that there was evidence, at a time, that a cache holds something.
func (r *Registry) Heard(tenant, model string, h index.Holder, at index.Instant) {
	r.mu.RLock()
	c := r.caches[modelKey{tenant, model}][h]
	r.mu.RUnlock()
	if c == nil {
		return
	}
	for {
		last := c.event.Load()
		if last >= uint32(at) || c.event.CompareAndSwap(last, uint32(at)) {
			return
		}
	}
}

// Expire forgets the members whose last public report no longer counts.
func (r *Registry) Expire(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var empty []index.Scope
	for s, c := range *r.scopes.Load() {
		r.expireLocked(c, now)
		if len(c.members) == 0 {
			empty = append(empty, s)
		}
	}
	r.dropScopes(empty...)
	for k, holders := range r.caches {
		ttl := r.config.TTL(k.tenant)
		for h, c := range holders {
			if len(c.members) == 0 && !recent(c.reported, now, ttl) {
				r.forgetLocked(k, h)
			}
		}
	}
}

// expireLocked looks at the members of one scope, by the TTL of now.
func (r *Registry) expireLocked(c *cell, now time.Time) {
	ttl := r.config.TTL(c.scope.Tenant)
	for _, m := range c.members {
		alive := m.alive(now, ttl)
		if alive != m.shown {
			c.change(now)
		}
		if !alive && m.agent == "" {
			r.removeLocked(m)
		}
	}
}

// admitLocked returns the member that a cache is in a scope, a new one if need be.
func (r *Registry) admitLocked(s index.Scope, h index.Holder) (*member, error) {
	scopes := *r.scopes.Load()
	c := scopes[s]
	if c != nil && c.members[h] != nil {
		return c.members[h], nil
	}
	if r.members >= r.config.MaxMembers || c == nil && len(scopes) >= r.config.MaxScopes {
		return nil, contract.ErrTooManyNames
	}
	owner, err := r.cacheLocked(modelKey{s.Tenant, s.Model}, h)
	if err != nil {
		return nil, err
	}
	if c == nil {
		c = &cell{scope: s, members: map[index.Holder]*member{}}
		c.snapshot.Store(&noMembers)
		r.replaceScopes(func(m map[index.Scope]*cell) { m[s] = c })
	}
	m := &member{cell: c, holder: h, cache: owner}
	c.members[h] = m
	owner.members = append(owner.members, m)
	r.members++
	return m, nil
}

// removeLocked takes a member out of its cell, whose change is the caller's to note.
func (r *Registry) removeLocked(m *member) {
	delete(m.cell.members, m.holder)
	r.members--
	m.cache.members = slices.DeleteFunc(m.cache.members, func(other *member) bool { return other == m })
	if len(m.cache.members) == 0 && m.cache.reported.IsZero() {
		r.forgetLocked(modelKey{m.cell.scope.Tenant, m.cell.scope.Model}, m.holder)
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
