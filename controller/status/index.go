package status

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inferencecache/inferencecache/aggregator/snapshot"
	"github.com/inferencecache/inferencecache/controller/fleet"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// maxRows bounds the replicas and the tenants of a CacheIndex each, so that the object stays well below
// the 1.5 MiB that an API server stores.
const maxRows = 4000

// indexStatus returns the status of the CacheIndex: before itself, unless something other than a time
// changed. left says how many replicas and tenants are left out.
func indexStatus(before v1alpha1.CacheIndexStatus, v *fleet.View, now metav1.Time) (after v1alpha1.CacheIndexStatus, left int) {
	after.Replicas, left = indexReplicas(before.Replicas, v.Replicas)
	after.Tenants = indexTenants(v.Tenants)
	if n := len(after.Tenants) - maxRows; n > 0 {
		after.Tenants, left = after.Tenants[:maxRows], left+n
	}
	after.Prefixes.Summary = v1alpha1.PrefixSummary{Total: v.TotalPrefixes, Hot: v.HotPrefixes}
	after.ObservedServer = addresses(v)
	if before.LastUpdated != nil && sameIndex(before, after) {
		return before, left
	}
	after.LastUpdated = &now
	return after, left
}

// indexReplicas returns the replicas with statistics. A replica keeps its time while its figures stay.
func indexReplicas(before []v1alpha1.IndexReplica, replicas []snapshot.Replica) (rows []v1alpha1.IndexReplica, left int) {
	known := make(map[string]v1alpha1.IndexReplica, len(before))
	for _, r := range before {
		known[r.ID] = r
	}
	byID := make(map[string]v1alpha1.IndexReplica, len(replicas))
	for i := range replicas { // sorted by tenant: of two with an id, the larger tenant comes last
		if r := &replicas[i]; !r.LastUpdate.IsZero() {
			byID[r.ReplicaID] = indexReplica(r)
		}
	}
	rows = make([]v1alpha1.IndexReplica, 0, len(byID))
	for id, row := range byID {
		if was, found := known[id]; found && sameReplica(was, row) {
			row.LastUpdate = was.LastUpdate
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b v1alpha1.IndexReplica) int { return cmp.Compare(a.ID, b.ID) })
	if left = len(rows) - maxRows; left > 0 {
		return rows[:maxRows], left
	}
	return rows, 0
}

func indexReplica(r *snapshot.Replica) v1alpha1.IndexReplica {
	at := metav1.NewTime(r.LastUpdate)
	row := v1alpha1.IndexReplica{ID: r.ReplicaID, Tenant: r.Tenant, CacheMemoryBytes: r.CacheMemoryBytes, LastUpdate: &at}
	if r.StatsReported {
		hit := rate(float64(r.HitRate))
		row.HitRate, row.Pressure = &hit, rate(float64(r.Pressure))
	}
	return row
}

func indexTenants(tenants []snapshot.Tenant) []v1alpha1.IndexTenant {
	rows := make([]v1alpha1.IndexTenant, 0, len(tenants))
	for _, t := range tenants {
		row := v1alpha1.IndexTenant{ID: t.TenantID, IndexEntries: &t.IndexEntries}
		if t.HitRateReported {
			hit := rate(float64(t.HitRate))
			row.HitRate = &hit
		}
		rows = append(rows, row)
	}
	return rows
}

// addresses joins those of the aggregators that answered.
func addresses(v *fleet.View) string {
	all := make([]string, 0, len(v.Aggregators))
	for _, a := range v.Aggregators {
		all = append(all, a.Address)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

func sameIndex(a, b v1alpha1.CacheIndexStatus) bool {
	return a.Prefixes == b.Prefixes && a.ObservedServer == b.ObservedServer &&
		slices.EqualFunc(a.Replicas, b.Replicas, sameReplica) && slices.EqualFunc(a.Tenants, b.Tenants, sameTenant)
}

// sameReplica compares all but the time.
func sameReplica(a, b v1alpha1.IndexReplica) bool {
	return a.ID == b.ID && a.Tenant == b.Tenant && a.CacheMemoryBytes == b.CacheMemoryBytes &&
		a.Pressure == b.Pressure && same(a.HitRate, b.HitRate)
}

func sameTenant(a, b v1alpha1.IndexTenant) bool {
	return a.ID == b.ID && a.MemoryUsed == b.MemoryUsed && same(a.IndexEntries, b.IndexEntries) && same(a.HitRate, b.HitRate)
}

func same[T comparable](a, b *T) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// rate writes a share between 0 and 1. "0" is exactly none, which is a finding of its own: a smaller share
// than can be written is the smallest that can.
func rate(share float64) string {
	const scale = 1e4 // four digits: more would make noise a change
	share = min(1, max(0, share))
	rounded := math.Round(share*scale) / scale
	if share > 0 && rounded == 0 {
		rounded = 1 / scale
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
