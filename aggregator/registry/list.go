package registry

import (
	"cmp"
	"slices"
	"time"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// Known is one cache of one model that something is known of, whatever schemes it serves.
type Known struct {
	Tenant, Model string
	Holder        index.Holder
	// Event is the last evidence that the cache held something; 0 if there is none.
	Event index.Instant
	// Certainty is the worst of what agents say of it.
	Certainty pb.ViewCertainty
}

// Known returns every cache, in no particular order.
func (r *Registry) Known() []Known {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]Known, 0, r.nCaches)
	for k, holders := range r.caches {
		for h, c := range holders {
			known := Known{Tenant: k.tenant, Model: k.model, Holder: h, Event: index.Instant(c.event.Load())}
			for _, m := range c.members {
				known.Certainty = max(known.Certainty, m.certainty)
			}
			out = append(out, known)
		}
	}
	return out
}

// View is one member of a scope.
type View struct {
	Holder    index.Holder
	Scheme    string
	Agent     string // that declared it; empty if none did
	Certainty pb.ViewCertainty
	Live      bool
}

// Views returns the members of every scope of a model, sorted by replica, rank and scheme.
func (r *Registry) Views(tenant, model string, now time.Time) []View {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []View
	ttl := r.config.TTL(tenant)
	for h, c := range r.caches[modelKey{tenant, model}] {
		for _, m := range c.members {
			out = append(out, View{Holder: h, Scheme: m.cell.scope.Scheme, Agent: m.agent, Certainty: m.certainty, Live: m.alive(now, ttl)})
		}
	}
	slices.SortFunc(out, func(a, b View) int { return cmp.Or(Compare(a.Holder, b.Holder), cmp.Compare(a.Scheme, b.Scheme)) })
	return out
}

// certainties counts the members that agents declared, by how far the agents trust their views.
func (r *Registry) certainties() map[pb.ViewCertainty]int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	counts := map[pb.ViewCertainty]int{}
	for _, c := range *r.scopes.Load() {
		for _, m := range c.members {
			if m.agent != "" {
				counts[m.certainty]++
			}
		}
	}
	return counts
}

// ClientVersions counts the caches with statistics by the client version that they report, model by model.
func (r *Registry) ClientVersions() map[Model]map[string]int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := map[Model]map[string]int{}
	for k, holders := range r.caches {
		for _, c := range holders {
			s := c.stats.Load()
			if s == nil || s.ClientVersion == "" {
				continue
			}
			at := Model{k.tenant, k.model}
			if out[at] == nil {
				out[at] = map[string]int{}
			}
			out[at][s.ClientVersion]++
		}
	}
	return out
}

// Model names a model of a tenant.
type Model struct{ Tenant, Model string }
