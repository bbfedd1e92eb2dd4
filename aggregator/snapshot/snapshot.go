// Package snapshot shows what an aggregator knows of each replica and tenant, in one JSON document.
package snapshot

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/aggregator/hot"
	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// Snapshot is the document.
type Snapshot struct {
	Replicas []Replica `json:"replicas"` // sorted by tenant, then id; null if there are none
	Tenants  []Tenant  `json:"tenants"`  // sorted by id; null if there are none
	// TotalPrefixes is the sum of the tenants' entries.
	TotalPrefixes int64 `json:"totalPrefixes"`
	// HotPrefixes counts those that lookups were answered with often, lately.
	HotPrefixes int64 `json:"hotPrefixes"`
	// Policy is what lookups follow, sorted by namespace; empty if no source names a tenant.
	Policy []Policy `json:"policy"`
	// Aggregator is the name of the process, in a cluster that of its Pod; left out if it has none.
	Aggregator string `json:"aggregator,omitempty"`
}

// Policy says where the policy of one tenant comes from.
type Policy struct {
	Namespace string `json:"namespace"` // the tenant id
	// Name, Generation and ResourceVersion are those of the CachePolicy; empty and 0 where there is none.
	Name            string `json:"name"`
	Source          string `json:"source"`
	Generation      int64  `json:"generation"`
	ResourceVersion string `json:"resourceVersion"`
	// Since is when this process first applied it.
	Since time.Time `json:"since"`
}

// Replica is one replica of one tenant, over all models and ranks.
type Replica struct {
	ReplicaID string `json:"replicaId"`
	Tenant    string `json:"tenant,omitempty"`
	// The last statistics, of the model that reported them last.
	CacheMemoryBytes int64   `json:"cacheMemoryBytes"`
	HitRate          float32 `json:"hitRate"`
	Pressure         float32 `json:"pressure"`
	// LastUpdate is when the statistics were reported, or the replica was said to be alive since; zero
	// without statistics.
	LastUpdate time.Time `json:"lastUpdate"`
	// PrefixCount is the number of blocks held.
	PrefixCount int64 `json:"prefixCount"`
	// LastEventAt is when one of them was last known to be held; zero without any.
	LastEventAt time.Time `json:"lastEventAt"`
	// StatsReported tells statistics of zero from none.
	StatsReported bool  `json:"statsReported,omitempty"`
	T2HitTokens   int64 `json:"t2HitTokens,omitempty"`
	T2QueryTokens int64 `json:"t2QueryTokens,omitempty"`
	// ClientVersion is that of the statistics.
	ClientVersion string `json:"clientVersion,omitempty"`
	// Certainty is the worst that agents say of one of its caches: exact, partial or uncertain.
	Certainty string `json:"certainty,omitempty"`
}

// Tenant is one tenant.
type Tenant struct {
	TenantID     string `json:"tenantId"`
	IndexEntries int64  `json:"indexEntries"` // distinct prefixes
	// HitRate is the mean of the replicas that reported statistics.
	HitRate         float32 `json:"hitRate"`
	HitRateReported bool    `json:"hitRateReported,omitempty"`
	// MemoryUsed is deprecated and always 0: memory is a replica's, not a tenant's.
	MemoryUsed int64 `json:"memoryUsed"`
}

// Source makes snapshots.
type Source struct {
	Index    index.Index
	Registry *registry.Registry
	Policies *policy.Store // nil says nothing of policies
	Hot      *hot.Counter  // nil counts nothing
	// Hidden is a tenant that is left out.
	Hidden string
	// Name is that of the process.
	Name string
}

// id names a row.
type id struct{ tenant, replica string }

// Take returns what is known now. Its cost grows with the replicas, not with what they hold.
func (s *Source) Take() *Snapshot {
	rows := map[id]*Replica{}
	row := func(i id) *Replica {
		if rows[i] == nil {
			rows[i] = &Replica{ReplicaID: i.replica, Tenant: i.tenant}
		}
		return rows[i]
	}
	prefixes := map[string]int64{}
	models := map[registry.Model]bool{}
	known := s.Registry.Known()
	for _, c := range known {
		if c.Tenant == s.Hidden {
			continue
		}
		models[registry.Model{Tenant: c.Tenant, Model: c.Model}] = true
		if held := s.Index.HeldBy(index.Scope{Tenant: c.Tenant, Model: c.Model}, c.Holder); held > 0 {
			row(id{c.Tenant, c.Holder.Replica}).addHeld(held, c.Event)
		}
	}
	for m := range models {
		if _, counted := prefixes[m.Tenant]; !counted {
			prefixes[m.Tenant] = s.Index.PrefixesOf(m.Tenant, "")
		}
		for _, stats := range s.Registry.Replicas(m.Tenant, m.Model) {
			row(id{m.Tenant, stats.Replica}).setStats(stats)
		}
	}
	worst := map[id]pb.ViewCertainty{}
	for _, c := range known {
		i := id{c.Tenant, c.Holder.Replica}
		worst[i] = max(worst[i], c.Certainty)
	}
	for i, r := range rows {
		r.Certainty = contract.CertaintyName(worst[i])
	}
	out := assemble(rows, prefixes)
	if s.Hot != nil {
		out.HotPrefixes = s.Hot.Total()
	}
	out.Policy, out.Aggregator = s.policy(), s.Name
	return out
}

func (s *Source) policy() []Policy {
	out := []Policy{}
	if s.Policies == nil {
		return out
	}
	for _, p := range s.Policies.InForce() {
		out = append(out, Policy{
			Namespace: p.Tenant, Name: p.Origin.Name, Source: p.Source,
			Generation: p.Origin.Generation, ResourceVersion: p.Origin.ResourceVersion, Since: p.Since.UTC(),
		})
	}
	return out
}

// setStats takes statistics over unless those of another model are newer.
func (r *Replica) setStats(s registry.ReplicaStats) {
	updated := s.Reported
	if s.Seen.After(updated) {
		updated = s.Seen
	}
	if r.StatsReported && updated.Before(r.LastUpdate) {
		return
	}
	r.StatsReported = true
	r.CacheMemoryBytes, r.HitRate, r.Pressure = s.MemoryBytes, s.HitRate, s.Pressure
	r.LastUpdate = updated.UTC()
	r.T2HitTokens, r.T2QueryTokens = s.T2HitTokens, s.T2QueryTokens
	r.ClientVersion = s.ClientVersion
}

// addHeld adds what one rank holds.
func (r *Replica) addHeld(n int64, event index.Instant) {
	r.PrefixCount += n
	if seen := event.Time().UTC(); event > 0 && seen.After(r.LastEventAt) {
		r.LastEventAt = seen
	}
}

func assemble(rows map[id]*Replica, prefixes map[string]int64) *Snapshot {
	out := &Snapshot{}
	type sum struct {
		hitRate  float64
		reported int
	}
	tenants := map[string]sum{}
	for tenant, n := range prefixes {
		if n > 0 {
			tenants[tenant] = sum{}
			out.TotalPrefixes += n
		}
	}
	for _, r := range rows {
		out.Replicas = append(out.Replicas, *r)
		t := tenants[r.Tenant]
		if r.StatsReported {
			t.hitRate += float64(r.HitRate)
			t.reported++
		}
		tenants[r.Tenant] = t
	}
	slices.SortFunc(out.Replicas, func(a, b Replica) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.ReplicaID, b.ReplicaID))
	})
	for _, name := range slices.Sorted(maps.Keys(tenants)) {
		t := Tenant{TenantID: name, IndexEntries: prefixes[name]}
		if n := tenants[name].reported; n > 0 {
			t.HitRateReported, t.HitRate = true, float32(tenants[name].hitRate/float64(n))
		}
		out.Tenants = append(out.Tenants, t)
	}
	return out
}
