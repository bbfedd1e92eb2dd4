package status

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/inferencecache/inferencecache/aggregator/snapshot"
	"github.com/inferencecache/inferencecache/controller/fleet"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

var (
	names   = rapid.SampledFrom([]string{"a", "b", "c"})
	figures = rapid.SampledFrom([]int64{0, 1, 2, 100, -1, math.MaxInt64})
	shares  = rapid.SampledFrom([]float32{0, 0.5, 1, -1, math.MaxFloat32})
)

// views are those of up to three aggregators, any of which may not answer.
func views(t *rapid.T) *fleet.View {
	var answers []fleet.Answer
	for i := range rapid.IntRange(0, 3).Draw(t, "aggregators") {
		a := fleet.Answer{Address: fmt.Sprint(i)}
		if rapid.Bool().Draw(t, "fails") {
			a.Err = errors.New("gone")
		} else {
			a.Snapshot = snapshots(t)
		}
		answers = append(answers, a)
	}
	return fleet.Merge(answers)
}

func snapshots(t *rapid.T) *snapshot.Snapshot {
	s := &snapshot.Snapshot{Aggregator: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "name")}
	seconds := rapid.IntRange(0, 3)
	for range rapid.IntRange(0, 3).Draw(t, "replicas") {
		s.Replicas = append(s.Replicas, snapshot.Replica{
			ReplicaID: names.Draw(t, "id"), Tenant: names.Draw(t, "tenant"), StatsReported: rapid.Bool().Draw(t, "stats"),
			LastUpdate: at(seconds.Draw(t, "updated")).Time, LastEventAt: at(seconds.Draw(t, "event")).Time,
			PrefixCount: figures.Draw(t, "held"), HitRate: shares.Draw(t, "hits"), Pressure: shares.Draw(t, "pressure"),
			T2HitTokens: figures.Draw(t, "t2 hits"), T2QueryTokens: figures.Draw(t, "t2 asked"),
		})
	}
	for range rapid.IntRange(0, 2).Draw(t, "tenants") {
		s.Tenants = append(s.Tenants, snapshot.Tenant{TenantID: names.Draw(t, "tenant"), IndexEntries: figures.Draw(t, "entries")})
	}
	for range rapid.IntRange(0, 2).Draw(t, "policies") {
		s.Policy = append(s.Policy, snapshot.Policy{
			Namespace: names.Draw(t, "namespace"), Name: names.Draw(t, "policy"), Source: "cluster",
			Generation: rapid.Int64Range(0, 2).Draw(t, "generation"), Since: at(seconds.Draw(t, "since")).Time,
		})
	}
	return s
}

// Whatever aggregators say, in whatever order: figures are none that the schema refuses, a second look at the
// same changes nothing and says nothing, and what nobody reports stays.
func TestStatusesSettle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		metrics := NewMetrics(prometheus.NewRegistry())
		mine := tenant("a", "t", "a", rapid.SampledFrom([]int64{-1, 0, 1, 100}).Draw(t, "quota"))
		other := tenant(names.Draw(t, "other namespace"), "u", names.Draw(t, "other id"), 1)
		owner := quotaOwners([]v1alpha1.CacheTenant{mine, other})[mine.Spec.TenantID]
		p := policy("a", 1)
		b := []v1alpha1.CacheBackend{backend("a", "x", "chat")}
		pods := func(namespace, name string) metav1.Object {
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{v1alpha1.LabelCacheDomain: "chat"}}}
		}
		var index v1alpha1.CacheIndexStatus
		for range rapid.IntRange(1, 5).Draw(t, "polls") {
			v := views(t)
			before := mine.Status
			mine.Status = tenantStatus(&mine, owner, v)
			p.Status = policyStatus(&p, &p, v)
			if !v.Answered() && !same(before.IndexEntries, mine.Status.IndexEntries) {
				t.Fatalf("nobody answers, and entries go from %v to %v", before.IndexEntries, mine.Status.IndexEntries)
			}
			if mine.Status.IndexEntries != nil && *mine.Status.IndexEntries < 0 {
				t.Fatalf("%d entries", *mine.Status.IndexEntries)
			}
			again := tenantStatus(&mine, owner, v)
			if !equal(mine.Status, again) || len(transitions(mine.Status.Conditions, again.Conditions)) > 0 {
				t.Fatalf("a second look at a tenant: %v, then %v", mine.Status, again)
			}
			if again := policyStatus(&p, &p, v); !equal(p.Status, again) {
				t.Fatalf("a second look at a policy: %v, then %v", p.Status, again)
			}
			if !v.Answered() {
				continue
			}
			index, _ = indexStatus(index, v, *at(10))
			if again, _ := indexStatus(index, v, *at(20)); !equal(index, again) {
				t.Fatalf("a second look at the index: %v, then %v", index, again)
			}
			all := sharesOf(b, v.Replicas, pods)
			b[0].Status.IndexParticipation = participation(b[0].Status.IndexParticipation, all[keyOf(&b[0])])
			if is := b[0].Status.IndexParticipation; is != nil && (is.PrefixCount < 0 || participation(is, all[keyOf(&b[0])]) != is) {
				t.Fatalf("a second look at a backend with %v", is)
			}
			metrics.t2.note(all)
		}
	})
}
