package fleet

import (
	"cmp"
	"maps"
	"slices"

	"github.com/inferencecache/inferencecache/aggregator/snapshot"
)

// View is what the aggregators that answered say together.
type View struct {
	// Aggregators are those that answered, sorted by name; names differ.
	Aggregators []Aggregator
	// Failed are the answers that are none, sorted by address.
	Failed []Answer

	Replicas []snapshot.Replica // sorted by tenant, then id; pairs differ, ids are not empty
	Tenants  []snapshot.Tenant  // sorted by id; ids differ
	// TotalPrefixes is the sum of the tenants' entries.
	TotalPrefixes, HotPrefixes int64
}

// Aggregator is one that answered.
type Aggregator struct {
	// Name is that of its Pod, or its address where it has none of its own.
	Name, Address string
	// Policy is what it applies, by namespace; nil if it does not say.
	Policy map[string]snapshot.Policy
}

// Answered says whether there is anything to go by.
func (v *View) Answered() bool { return len(v.Aggregators) > 0 }

// Tenant returns what is known of a tenant; nothing is known of one without entries and replicas.
func (v *View) Tenant(id string) snapshot.Tenant {
	i, found := slices.BinarySearchFunc(v.Tenants, id, func(t snapshot.Tenant, id string) int { return cmp.Compare(t.TenantID, id) })
	if !found {
		return snapshot.Tenant{TenantID: id}
	}
	return v.Tenants[i]
}

// Merge makes one view of several answers. All aggregators are told the same, sooner or later, so they
// differ in what has just happened or in what one has not heard of. What one knows of counts: replicas and
// tenants are the union. A replica that several know has the newest statistics and the newest holdings, a
// tenant the largest count, since counts of distinct entries cannot be added up.
func Merge(answers []Answer) *View {
	v := &View{}
	rows, entries := map[replicaKey]snapshot.Replica{}, map[string]int64{}
	for _, a := range answers {
		if a.Err != nil {
			v.Failed = append(v.Failed, a)
			continue
		}
		v.Aggregators = append(v.Aggregators, aggregatorOf(a))
		v.HotPrefixes = max(v.HotPrefixes, a.Snapshot.HotPrefixes)
		for _, r := range a.Snapshot.Replicas {
			if r.ReplicaID == "" {
				continue
			}
			key := replicaKey{r.Tenant, r.ReplicaID}
			if known, found := rows[key]; found {
				r = newest(known, r)
			}
			rows[key] = r
		}
		for _, t := range a.Snapshot.Tenants {
			entries[t.TenantID] = max(entries[t.TenantID], t.IndexEntries)
		}
	}
	v.Replicas = slices.SortedFunc(maps.Values(rows), func(a, b snapshot.Replica) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.ReplicaID, b.ReplicaID))
	})
	v.addTenants(entries)
	v.nameAggregators()
	return v
}

type replicaKey struct{ tenant, id string }

func aggregatorOf(a Answer) Aggregator {
	out := Aggregator{Name: cmp.Or(a.Snapshot.Aggregator, a.Address), Address: a.Address}
	if a.Snapshot.Policy != nil {
		out.Policy = make(map[string]snapshot.Policy, len(a.Snapshot.Policy))
		for _, p := range a.Snapshot.Policy {
			out.Policy[p.Namespace] = p
		}
	}
	return out
}

// newest takes statistics and holdings, each, from where they are newer; of two that are equally new, the
// larger, so that the order of the answers does not matter.
func newest(a, b snapshot.Replica) snapshot.Replica {
	if c := cmp.Or(
		cmpBool(a.StatsReported, b.StatsReported), a.LastUpdate.Compare(b.LastUpdate),
		cmp.Compare(a.T2QueryTokens, b.T2QueryTokens), cmp.Compare(a.T2HitTokens, b.T2HitTokens),
		cmp.Compare(a.CacheMemoryBytes, b.CacheMemoryBytes), cmp.Compare(a.HitRate, b.HitRate), cmp.Compare(a.Pressure, b.Pressure),
	); c < 0 {
		held, at := a.PrefixCount, a.LastEventAt
		a = b
		a.PrefixCount, a.LastEventAt = held, at
	}
	if cmp.Or(b.LastEventAt.Compare(a.LastEventAt), cmp.Compare(b.PrefixCount, a.PrefixCount)) > 0 {
		a.PrefixCount, a.LastEventAt = b.PrefixCount, b.LastEventAt
	}
	return a
}

func cmpBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// addTenants makes the tenants of their counts and of the replicas.
func (v *View) addTenants(entries map[string]int64) {
	rates, reported := map[string]float64{}, map[string]int{}
	for _, r := range v.Replicas {
		entries[r.Tenant] = max(0, entries[r.Tenant]) // a tenant without entries is one too
		if r.StatsReported {
			rates[r.Tenant] += float64(r.HitRate)
			reported[r.Tenant]++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(entries)) {
		t := snapshot.Tenant{TenantID: id, IndexEntries: entries[id]}
		if n := reported[id]; n > 0 {
			t.HitRateReported, t.HitRate = true, float32(rates[id]/float64(n))
		}
		v.Tenants = append(v.Tenants, t)
		v.TotalPrefixes += t.IndexEntries
	}
}

// nameAggregators sorts the aggregators by name. Those whose name another has too go by their address.
func (v *View) nameAggregators() {
	count := map[string]int{}
	for _, a := range v.Aggregators {
		count[a.Name]++
	}
	for i := range v.Aggregators {
		if a := &v.Aggregators[i]; count[a.Name] > 1 {
			a.Name = a.Address
		}
	}
	slices.SortFunc(v.Aggregators, func(a, b Aggregator) int { return cmp.Compare(a.Name, b.Name) })
}
