package status

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inferencecache/inferencecache/aggregator/snapshot"
	"github.com/inferencecache/inferencecache/controller/fleet"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

var (
	t0     = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	nobody = fleet.Merge([]fleet.Answer{{Address: "10.0.0.1:8081", Err: errors.New("gone")}})
)

func at(seconds int) *metav1.Time {
	t := metav1.NewTime(t0.Add(time.Duration(seconds) * time.Second))
	return &t
}

func pointer[T any](v T) *T { return &v }

// viewOf is that of aggregators 10.0.0.1, 10.0.0.2 and so on.
func viewOf(snapshots ...snapshot.Snapshot) *fleet.View {
	var answers []fleet.Answer
	for i := range snapshots {
		answers = append(answers, fleet.Answer{Address: "10.0.0." + string(rune('1'+i)) + ":8081", Snapshot: &snapshots[i]})
	}
	return fleet.Merge(answers)
}

// conditions renders type=status/reason of each condition.
func conditions(list []metav1.Condition) string {
	var all []string
	for _, c := range list {
		all = append(all, c.Type+"="+string(c.Status)+"/"+c.Reason)
	}
	return strings.Join(all, " ")
}

func tenant(namespace, name, id string, quota int64) v1alpha1.CacheTenant {
	t := v1alpha1.CacheTenant{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 2}, Spec: v1alpha1.CacheTenantSpec{TenantID: id}}
	if quota >= 0 {
		t.Spec.Quota = &v1alpha1.TenantQuota{MaxIndexEntries: &quota}
	}
	return t
}

func TestStatusOfATenant(t *testing.T) {
	holds := func(n int64) *fleet.View {
		return viewOf(snapshot.Snapshot{Tenants: []snapshot.Tenant{{TenantID: "team-a", IndexEntries: n}}})
	}
	observed := tenant("a", "t", "team-a", 5)
	observed.Status = tenantStatus(&observed, &observed, holds(9))
	first := tenant("a", "s", "team-a", 5)
	for _, c := range []struct {
		name    string
		tenant  v1alpha1.CacheTenant
		others  []v1alpha1.CacheTenant
		view    *fleet.View
		want    string
		entries *int64
	}{
		{"within its quota", tenant("a", "t", "team-a", 5), nil, holds(5), "Ready=True/Observed QuotaExceeded=False/WithinBudget", pointer(int64(5))},
		{"over its quota", tenant("a", "t", "team-a", 5), nil, holds(6), "Ready=True/Observed QuotaExceeded=True/OverEntryBudget", pointer(int64(6))},
		{"a quota of nothing", tenant("a", "t", "team-a", 0), nil, holds(1), "Ready=True/Observed QuotaExceeded=True/OverEntryBudget", pointer(int64(1))},
		{"no quota", tenant("a", "t", "team-a", -1), nil, holds(6), "Ready=True/Observed QuotaExceeded=False/NoQuota", pointer(int64(6))},
		{"an id that nothing has", tenant("a", "t", "team-b", 5), nil, holds(6), "Ready=True/Observed QuotaExceeded=False/WithinBudget", pointer(int64(0))},
		{"a duplicate of one with a quota", tenant("a", "t", "team-a", 5), []v1alpha1.CacheTenant{first}, holds(6), "Ready=False/DuplicateTenantID QuotaExceeded=False/NotEffective", pointer(int64(6))},
		{"a duplicate without a quota of its own", tenant("a", "t", "team-a", -1), []v1alpha1.CacheTenant{first}, holds(6), "Ready=False/DuplicateTenantID QuotaExceeded=False/NotEffective", pointer(int64(6))},
		{"the first of two with a quota", tenant("a", "a", "team-a", 5), []v1alpha1.CacheTenant{first}, holds(6), "Ready=True/Observed QuotaExceeded=True/OverEntryBudget", pointer(int64(6))},
		{"one of two without a quota", tenant("b", "t", "team-a", -1), []v1alpha1.CacheTenant{tenant("a", "t", "team-a", -1)}, holds(6), "Ready=True/Observed QuotaExceeded=False/NoQuota", pointer(int64(6))},
		{"nobody answers, ever", tenant("a", "t", "team-a", 5), nil, nobody, "Ready=Unknown/NoAggregators QuotaExceeded=Unknown/NoAggregators", nil},
		{"nobody answers any more", observed, nil, nobody, "Ready=Unknown/NoAggregators QuotaExceeded=True/OverEntryBudget", pointer(int64(9))},
	} {
		t.Run(c.name, func(t *testing.T) {
			owner := quotaOwners(append(c.others, c.tenant))[c.tenant.Spec.TenantID]
			got := tenantStatus(&c.tenant, owner, c.view)
			if text := conditions(got.Conditions); text != c.want || !same(got.IndexEntries, c.entries) || got.ObservedGeneration != 2 {
				t.Errorf("got %s with %v, want %s", text, got, c.want)
			}
			c.tenant.Status = got
			if again := tenantStatus(&c.tenant, owner, c.view); !equal(got, again) {
				t.Errorf("a second look differs (-first +second):\n%s", cmp.Diff(got, again))
			}
		})
	}
}

func policy(name string, generation int64) v1alpha1.CachePolicy {
	return v1alpha1.CachePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Generation: generation}}
}

// applies is an aggregator that applies a policy of namespace a since some seconds after t0.
func applies(name string, generation int64, since int) snapshot.Snapshot {
	return snapshot.Snapshot{Policy: []snapshot.Policy{{Namespace: "a", Name: name, Source: "cluster", Generation: generation, Since: at(since).Time.Add(time.Millisecond)}}}
}

func TestStatusOfAPolicy(t *testing.T) {
	none := snapshot.Snapshot{Policy: []snapshot.Policy{}}
	pushed := snapshot.Snapshot{Policy: []snapshot.Policy{{Namespace: "a", Source: "push"}}}
	invalid := policy("p", 3)
	invalid.Spec.RoutingFloorScore = pointer("-1")
	inForce := policy("p", 3)
	inForce.Status = policyStatus(&inForce, &inForce, viewOf(applies("p", 3, 1), applies("p", 3, 2)))
	changed := *inForce.DeepCopy()
	changed.Generation = 4
	for _, c := range []struct {
		name    string
		policy  v1alpha1.CachePolicy
		others  []v1alpha1.CachePolicy
		view    *fleet.View
		want    string
		since   *metav1.Time
		message string // part of that of InForce
	}{
		{"in force everywhere", policy("p", 3), nil, viewOf(applies("p", 3, 1), applies("p", 3, 2)), "Accepted=True/Accepted InForce=True/InForceEverywhere", at(2), ""},
		{"in force in part", policy("p", 3), nil, viewOf(applies("p", 3, 1), applies("p", 2, 2)), "Accepted=True/Accepted InForce=False/PartlyInForce", nil, "10.0.0.2:8081 applies generation 2"},
		{"one has none", policy("p", 3), nil, viewOf(applies("p", 3, 1), none), "Accepted=True/Accepted InForce=False/PartlyInForce", nil, "10.0.0.2:8081 applies none"},
		{"one has another source", policy("p", 3), nil, viewOf(pushed), "Accepted=True/Accepted InForce=False/PartlyInForce", nil, "applies what its source push states"},
		{"one has another policy", policy("p", 3), nil, viewOf(applies("q", 3, 1)), "Accepted=True/Accepted InForce=False/PartlyInForce", nil, "applies what its source cluster states"},
		{"one does not say", policy("p", 3), nil, viewOf(snapshot.Snapshot{}), "Accepted=True/Accepted InForce=False/PartlyInForce", nil, "does not say what it applies"},
		{"nobody answers, ever", policy("p", 3), nil, nobody, "Accepted=True/Accepted InForce=Unknown/NoAggregators", nil, ""},
		{"nobody answers any more", inForce, nil, nobody, "Accepted=True/Accepted InForce=Unknown/NoAggregators", at(2), ""},
		{"an aggregator that restarted does not move the time", inForce, nil, viewOf(applies("p", 3, 9), applies("p", 3, 2)), "Accepted=True/Accepted InForce=True/InForceEverywhere", at(2), ""},
		{"a new generation begins anew", changed, nil, viewOf(applies("p", 3, 1), applies("p", 4, 5)), "Accepted=True/Accepted InForce=False/PartlyInForce", nil, ""},
		{"a duplicate", policy("p", 3), []v1alpha1.CachePolicy{policy("o", 1)}, viewOf(applies("o", 1, 1)), "Accepted=False/DuplicatePolicy InForce=False/NotAccepted", nil, ""},
		{"the first of two", policy("p", 3), []v1alpha1.CachePolicy{policy("q", 1)}, viewOf(applies("p", 3, 1)), "Accepted=True/Accepted InForce=True/InForceEverywhere", at(1), ""},
		{"one stored before a rule", invalid, nil, viewOf(applies("p", 3, 1)), "Accepted=False/InvalidPolicy InForce=False/NotAccepted", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := firstPolicies(append(c.others, c.policy))["a"]
			got := policyStatus(&c.policy, first, c.view)
			if text := conditions(got.Conditions); text != c.want {
				t.Errorf("got %s, want %s", text, c.want)
			}
			if !equal(got.InForceSince, c.since) || got.ObservedGeneration != c.policy.Generation {
				t.Errorf("in force since %v, want %v, generation %d", got.InForceSince, c.since, got.ObservedGeneration)
			}
			if !strings.Contains(got.Conditions[1].Message, c.message) {
				t.Errorf("message %q, want %q", got.Conditions[1].Message, c.message)
			}
			c.policy.Status = got
			if again := policyStatus(&c.policy, first, c.view); !equal(got, again) {
				t.Errorf("a second look differs (-first +second):\n%s", cmp.Diff(got, again))
			}
		})
	}
}

func TestAPolicyNamesItsAggregators(t *testing.T) {
	p := policy("p", 3)
	got := policyStatus(&p, &p, viewOf(applies("p", 3, 1), snapshot.Snapshot{Aggregator: "server-0"})).Aggregators
	want := []v1alpha1.PolicyAggregator{{Name: "10.0.0.1:8081", Generation: 3, Since: at(1)}, {Name: "server-0"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("aggregators (-want +got):\n%s", diff)
	}
}

func TestStatusOfTheIndex(t *testing.T) {
	s := snapshot.Snapshot{
		Replicas: []snapshot.Replica{
			{ReplicaID: "p", Tenant: "a", StatsReported: true, HitRate: 0.5, Pressure: 0.25, CacheMemoryBytes: 7, LastUpdate: at(1).Time},
			{ReplicaID: "p", Tenant: "b", StatsReported: true, HitRate: 0, LastUpdate: at(2).Time},
			{ReplicaID: "silent", Tenant: "a"},
		},
		Tenants: []snapshot.Tenant{{TenantID: "a", IndexEntries: 3}},
	}
	got, left := indexStatus(v1alpha1.CacheIndexStatus{}, viewOf(s, snapshot.Snapshot{}), *at(10))
	want := v1alpha1.CacheIndexStatus{
		Replicas: []v1alpha1.IndexReplica{{ID: "p", Tenant: "b", HitRate: pointer("0"), Pressure: "0", LastUpdate: at(2)}},
		Tenants: []v1alpha1.IndexTenant{
			{ID: "a", IndexEntries: pointer(int64(3)), HitRate: pointer("0.5")},
			{ID: "b", IndexEntries: pointer(int64(0)), HitRate: pointer("0")},
		},
		Prefixes:       v1alpha1.IndexPrefixes{Summary: v1alpha1.PrefixSummary{Total: 3}},
		ObservedServer: "10.0.0.1:8081,10.0.0.2:8081",
		LastUpdated:    at(10),
	}
	if diff := cmp.Diff(want, got); diff != "" || left != 0 {
		t.Errorf("status (-want +got):\n%s%d left out", diff, left)
	}

	s.Replicas[1].LastUpdate = at(3).Time
	if again, _ := indexStatus(got, viewOf(s, snapshot.Snapshot{}), *at(11)); !equal(got, again) {
		t.Errorf("a time alone is a difference (-first +second):\n%s", cmp.Diff(got, again))
	}
	s.Tenants[0].IndexEntries = 4
	changed, _ := indexStatus(got, viewOf(s, snapshot.Snapshot{}), *at(12))
	if !changed.LastUpdated.Equal(at(12)) || !changed.Replicas[0].LastUpdate.Equal(at(2)) {
		t.Errorf("a change of a tenant gives times %v and %v of a replica that did not change", changed.LastUpdated, changed.Replicas[0].LastUpdate)
	}
	s.Replicas[1].HitRate = 1
	changed, _ = indexStatus(changed, viewOf(s, snapshot.Snapshot{}), *at(13))
	if !changed.Replicas[0].LastUpdate.Equal(at(3)) {
		t.Errorf("a replica that changed has time %v", changed.Replicas[0].LastUpdate)
	}
}

func TestTheIndexIsBounded(t *testing.T) {
	var s snapshot.Snapshot
	for i := range maxRows + 10 {
		id := strings.Repeat("x", 1+i%200) + string(rune('0'+i%10)) + strings.Repeat("y", i/200)
		s.Replicas = append(s.Replicas, snapshot.Replica{ReplicaID: id, Tenant: id, LastUpdate: t0})
	}
	got, left := indexStatus(v1alpha1.CacheIndexStatus{}, viewOf(s), *at(0))
	if len(got.Replicas) != maxRows || len(got.Tenants) != maxRows || left != 20 {
		t.Errorf("%d replicas, %d tenants, %d left out", len(got.Replicas), len(got.Tenants), left)
	}
}

func TestRates(t *testing.T) {
	for share, want := range map[float64]string{
		0: "0", 1: "1", 0.5: "0.5", 0.123456: "0.1235", 0.00001: "0.0001", 1.5: "1", -1: "0", 0.99999: "1",
	} {
		if got := rate(share); got != want {
			t.Errorf("%v is %q, want %q", share, got, want)
		}
	}
}

func backend(namespace, name, domain string) v1alpha1.CacheBackend {
	b := v1alpha1.CacheBackend{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if domain != "" {
		b.Spec.EngineSelector = &v1alpha1.EngineSelector{MatchLabels: map[string]string{v1alpha1.LabelCacheDomain: domain}}
	}
	return b
}

func TestAPodBelongsToABackend(t *testing.T) {
	backends := []v1alpha1.CacheBackend{backend("a", "c2", "chat"), backend("a", "c1", "chat"), backend("a", "code", "code"), backend("b", "chat", "chat"), backend("a", "none", "")}
	for _, c := range []struct {
		name, injectedBy, domain, want string
	}{
		{"by the annotation", "a/code", "", "code"},
		{"by the annotation, whatever the label", "a/code", "chat", "code"},
		{"by the selector, first by name", "", "chat", "c1"},
		{"nobody's: neither", "", "", ""},
		{"nobody's: no such domain", "", "music", ""},
		{"nobody's: what injected it is gone", "a/gone", "chat", ""},
		{"nobody's: injected from another namespace", "b/chat", "chat", ""},
		{"nobody's: an annotation that is no reference", "chat", "chat", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", Labels: map[string]string{}, Annotations: map[string]string{}}}
			if c.domain != "" {
				pod.Labels[v1alpha1.LabelCacheDomain] = c.domain
			}
			if c.injectedBy != "" {
				pod.Annotations[v1alpha1.AnnotationInjectedBy] = c.injectedBy
			}
			got := ""
			if b := ownersOf(backends).of(pod); b != nil {
				got = b.Name
			}
			if got != c.want {
				t.Errorf("belongs to %q, want %q", got, c.want)
			}
		})
	}
}

func TestParticipation(t *testing.T) {
	pod := func(namespace, name string) metav1.Object {
		if strings.HasPrefix(name, "gone") {
			return nil
		}
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{v1alpha1.LabelCacheDomain: "chat"}}}
	}
	backends := []v1alpha1.CacheBackend{backend("a", "chat", "chat"), backend("a", "idle", "idle")}
	replicas := []snapshot.Replica{
		{ReplicaID: "p", Tenant: "a", PrefixCount: 3, LastEventAt: at(1).Time, StatsReported: true, HitRate: 0.5, T2HitTokens: 1, T2QueryTokens: 4},
		{ReplicaID: "q", Tenant: "a", PrefixCount: 4, LastEventAt: at(2).Time, StatsReported: true, HitRate: 0, T2HitTokens: 1, T2QueryTokens: 4},
		{ReplicaID: "r", Tenant: "a", PrefixCount: 5},
		{ReplicaID: "gone", Tenant: "a", PrefixCount: 100},
		{ReplicaID: "p", Tenant: "b", PrefixCount: 100},
	}
	shares := sharesOf(backends, replicas, pod)
	got := participation(nil, shares[keyOf(&backends[0])])
	want := &v1alpha1.IndexParticipation{PrefixCount: 12, LastEventAt: at(2), HitRate: pointer("0.25"), T2HitRate: pointer("0.25")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("participation (-want +got):\n%s", diff)
	}
	if got := participation(nil, shares[keyOf(&backends[1])]); got != nil {
		t.Errorf("one that never reported has %v", got)
	}
	drained := participation(got, &share{})
	if diff := cmp.Diff(&v1alpha1.IndexParticipation{LastEventAt: at(2)}, drained); diff != "" {
		t.Errorf("drained (-want +got):\n%s", diff)
	}
	replicas[0].LastEventAt = at(9).Time
	if again := participation(got, sharesOf(backends, replicas, pod)[keyOf(&backends[0])]); again != got {
		t.Errorf("a time alone is a difference: %v", again)
	}
}

func TestTransitions(t *testing.T) {
	with := func(reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: "X", Reason: reason, Message: message}}
	}
	for _, c := range []struct {
		name          string
		before, after []metav1.Condition
		want          []event
	}{
		{"nothing new", with("OverEntryBudget", "m"), with("OverEntryBudget", "n"), nil},
		{"all is well from the start", nil, with("Observed", "m"), nil},
		{"a trouble from the start", nil, with("DuplicateTenantID", "m"), []event{{"Warning", "DuplicateTenantID", "m"}}},
		{"a trouble", with("WithinBudget", "m"), with("OverEntryBudget", "n"), []event{{"Warning", "OverEntryBudget", "n"}}},
		{"a recovery", with("OverEntryBudget", "m"), with("WithinBudget", "n"), []event{{"Normal", "WithinBudget", "n"}}},
		{"a policy comes into force", with("PartlyInForce", "m"), with("InForceEverywhere", "n"), []event{{"Normal", "InForceEverywhere", "n"}}},
		{"nobody can tell", with("WithinBudget", "m"), with("NoAggregators", "n"), nil},
		{"somebody can tell again", with("NoAggregators", "m"), with("Observed", "n"), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, transitions(c.before, c.after), cmpopts.EquateEmpty(), cmp.AllowUnexported(event{})); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
