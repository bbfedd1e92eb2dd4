package fleet_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/inferencecache/inferencecache/aggregator/snapshot"
	"github.com/inferencecache/inferencecache/controller/fleet"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

// replica is one with statistics of a time and holdings of another.
func replica(id string, stats int, hitRate float32, held int64, events int) snapshot.Replica {
	return snapshot.Replica{
		ReplicaID: id, Tenant: "t", StatsReported: true, HitRate: hitRate, LastUpdate: at(stats), PrefixCount: held, LastEventAt: at(events),
	}
}

func answer(address string, replicas ...snapshot.Replica) fleet.Answer {
	return fleet.Answer{Address: address, Snapshot: &snapshot.Snapshot{Replicas: replicas}}
}

func TestReplicasOfSeveralAggregators(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers []fleet.Answer
		want    []snapshot.Replica
	}{
		{"none answer", []fleet.Answer{{Address: "a", Err: errors.New("gone")}}, nil},
		{
			"what one alone knows counts",
			[]fleet.Answer{answer("a", replica("p", 1, 0.5, 3, 1)), answer("b", replica("q", 1, 0.5, 4, 1))},
			[]snapshot.Replica{replica("p", 1, 0.5, 3, 1), replica("q", 1, 0.5, 4, 1)},
		},
		{
			"the newest report counts",
			[]fleet.Answer{answer("a", replica("p", 1, 0.5, 3, 1)), answer("b", replica("p", 2, 0.6, 4, 2))},
			[]snapshot.Replica{replica("p", 2, 0.6, 4, 2)},
		},
		{
			"statistics and holdings are each the newest",
			[]fleet.Answer{answer("a", replica("p", 9, 0.5, 3, 1)), answer("b", replica("p", 2, 0.6, 4, 2))},
			[]snapshot.Replica{replica("p", 9, 0.5, 4, 2)},
		},
		{
			"of two that are equally new, the larger counts",
			[]fleet.Answer{answer("a", replica("p", 1, 0.5, 3, 1)), answer("b", replica("p", 1, 0.4, 4, 1))},
			[]snapshot.Replica{replica("p", 1, 0.5, 4, 1)},
		},
		{
			"statistics count more than none",
			[]fleet.Answer{answer("a", snapshot.Replica{ReplicaID: "p", Tenant: "t"}), answer("b", replica("p", 1, 0, 0, 1))},
			[]snapshot.Replica{replica("p", 1, 0, 0, 1)},
		},
		{
			"the same id in two tenants is two replicas",
			[]fleet.Answer{answer("a", snapshot.Replica{ReplicaID: "p", Tenant: "u"}, snapshot.Replica{ReplicaID: "p", Tenant: "t"})},
			[]snapshot.Replica{{ReplicaID: "p", Tenant: "t"}, {ReplicaID: "p", Tenant: "u"}},
		},
		{"a replica without an id is left out", []fleet.Answer{answer("a", snapshot.Replica{Tenant: "t"})}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 2 {
				if diff := cmp.Diff(c.want, fleet.Merge(c.answers).Replicas, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("replicas (-want +got):\n%s", diff)
				}
				slices.Reverse(c.answers)
			}
		})
	}
}

func TestTenantsOfSeveralAggregators(t *testing.T) {
	a, b := answer("a", replica("p", 1, 0.2, 1, 1), replica("q", 1, 0.4, 1, 1)), answer("b")
	a.Snapshot.Tenants = []snapshot.Tenant{{TenantID: "t", IndexEntries: 5, HitRate: 0.9, HitRateReported: true}}
	b.Snapshot.Tenants = []snapshot.Tenant{{TenantID: "t", IndexEntries: 7}, {TenantID: "u", IndexEntries: 2}}
	b.Snapshot.HotPrefixes = 3
	v := fleet.Merge([]fleet.Answer{a, b})
	want := []snapshot.Tenant{{TenantID: "t", IndexEntries: 7, HitRate: 0.3, HitRateReported: true}, {TenantID: "u", IndexEntries: 2}}
	if diff := cmp.Diff(want, v.Tenants, cmpopts.EquateApprox(0, 1e-6)); diff != "" {
		t.Errorf("tenants (-want +got):\n%s", diff)
	}
	if v.TotalPrefixes != 9 || v.HotPrefixes != 3 {
		t.Errorf("%d prefixes, %d hot", v.TotalPrefixes, v.HotPrefixes)
	}
	if got := v.Tenant("x"); got.IndexEntries != 0 || got.TenantID != "x" {
		t.Errorf("unknown tenant %+v", got)
	}
	if got := v.Tenant("u"); got.IndexEntries != 2 {
		t.Errorf("known tenant %+v", got)
	}
}

func TestAggregatorsHaveNames(t *testing.T) {
	named := func(address, name string) fleet.Answer {
		return fleet.Answer{Address: address, Snapshot: &snapshot.Snapshot{Aggregator: name, Policy: []snapshot.Policy{{Namespace: "t", Name: "p"}}}}
	}
	v := fleet.Merge([]fleet.Answer{named("10.0.0.3:1", "c"), named("10.0.0.1:1", "twin"), named("10.0.0.2:1", "twin"), named("10.0.0.4:1", ""), {Address: "x", Err: errors.New("gone")}})
	var names []string
	for _, a := range v.Aggregators {
		names = append(names, a.Name)
		if a.Policy["t"].Name != "p" {
			t.Errorf("policy %v of %s", a.Policy, a.Name)
		}
	}
	if diff := cmp.Diff([]string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.4:1", "c"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if len(v.Failed) != 1 || !v.Answered() {
		t.Errorf("failed %v", v.Failed)
	}
}

// What the aggregators say together depends neither on their order nor on how often one is heard.
func TestMergeDoesNotDependOnOrder(t *testing.T) {
	row := rapid.Custom(func(t *rapid.T) snapshot.Replica {
		small := rapid.IntRange(0, 2)
		r := replica(fmt.Sprint(small.Draw(t, "id")), small.Draw(t, "stats"), float32(small.Draw(t, "rate"))/2, int64(small.Draw(t, "held")), small.Draw(t, "events"))
		r.StatsReported = rapid.Bool().Draw(t, "reported")
		r.T2QueryTokens = int64(small.Draw(t, "queried"))
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		var answers []fleet.Answer
		for i := range rapid.IntRange(1, 4).Draw(t, "aggregators") {
			answers = append(answers, answer(fmt.Sprint(i), rapid.SliceOfNDistinct(row, 0, 3, func(r snapshot.Replica) string { return r.ReplicaID }).Draw(t, "replicas")...))
		}
		want := fleet.Merge(answers).Replicas
		again := append(slices.Clone(answers), answers...)
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)).Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
		if diff := cmp.Diff(want, fleet.Merge(again).Replicas); diff != "" {
			t.Fatalf("replicas (-want +got):\n%s", diff)
		}
	})
}
