package objects_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/policy/objects"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

func policyOf(namespace, name string, spec v1alpha1.CachePolicySpec) *v1alpha1.CachePolicy {
	return &v1alpha1.CachePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
}

func tenantOf(namespace, name, id string, most *int64) *v1alpha1.CacheTenant {
	return &v1alpha1.CacheTenant{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.CacheTenantSpec{TenantID: id, Quota: &v1alpha1.TenantQuota{MaxIndexEntries: most}},
	}
}

func TestEveryFieldOfACachePolicyIsTaken(t *testing.T) {
	set, err := objects.Set([]*v1alpha1.CachePolicy{policyOf("a", "p", v1alpha1.CachePolicySpec{
		Eviction: v1alpha1.EvictionLFU, EvictionTTL: &metav1.Duration{Duration: time.Hour},
		MinimumPrefixTokens: new(int32(128)), MinimumMatchedTokens: new(int32(0)),
		RoutingFloorScore: new("0.25"), LookupTimeoutMs: new(int32(5)), AffinityRouting: v1alpha1.AffinityDisabled,
		MinimumMatchedShare: new("0.125"), ScoreTolerance: new("0.05"),
		AffinitySeedBlocks: new(int32(8)), AffinityChoices: new(int32(2)), AffinityPlacement: v1alpha1.PlacementRendezvous,
		Strategy: &v1alpha1.MatchStrategy{EnableChainMatching: new(true), RequireChain: new(true), EnableTenantHot: new(false)},
	})}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Spec{
		LFU: true, EvictionTTL: time.Hour, MinimumPrefixTokens: 128, MinimumMatchedTokens: new(int32(0)),
		RoutingFloorScore: new(0.25), LookupTimeoutMs: 5, AffinityRouting: new(false),
		MinimumMatchedShare: new(float32(0.125)), ScoreTolerance: new(float32(0.05)),
		AffinitySeedBlocks: new(8), AffinityChoices: new(2), Rendezvous: new(true),
		EnableChainMatching: new(true), RequireChain: new(true), EnableTenantHot: new(false),
	}
	if diff := cmp.Diff(want, set.Policies["a"]); diff != "" {
		t.Error(diff)
	}
}

func TestAnEmptyCachePolicyStatesNothing(t *testing.T) {
	set, err := objects.Set([]*v1alpha1.CachePolicy{policyOf("a", "p", v1alpha1.CachePolicySpec{})}, nil)
	if err != nil || set.Policies["a"] != (policy.Spec{}) {
		t.Errorf("spec %+v, error %v", set.Policies["a"], err)
	}
}

func TestOfSeveralObjectsTheFirstByNameCounts(t *testing.T) {
	set, err := objects.Set(
		[]*v1alpha1.CachePolicy{
			policyOf("a", "z", v1alpha1.CachePolicySpec{}),
			policyOf("a", "b", v1alpha1.CachePolicySpec{Eviction: v1alpha1.EvictionLFU}),
		},
		[]*v1alpha1.CacheTenant{
			tenantOf("b", "t", "id", new(int64(1))), tenantOf("a", "z", "id", new(int64(2))),
			tenantOf("a", "b", "id", new(int64(3))), tenantOf("a", "a", "id", nil),
		})
	if err != nil || !set.Policies["a"].LFU || set.Origins["a"].Name != "b" || set.Quotas["id"] != 3 {
		t.Errorf("set %+v, error %v", set, err)
	}
}

func TestANumberThatIsNoneIsAnErrorOfItsObjectAlone(t *testing.T) {
	set, err := objects.Set([]*v1alpha1.CachePolicy{
		policyOf("a", "p", v1alpha1.CachePolicySpec{ScoreTolerance: new("some")}),
		policyOf("b", "p", v1alpha1.CachePolicySpec{}),
	}, nil)
	if err == nil || !strings.Contains(err.Error(), `CachePolicy a/p: spec.scoreTolerance: "some" is not a decimal number`) {
		t.Errorf("error %v", err)
	}
	if _, sound := set.Policies["b"]; !sound || len(set.Policies) != 1 {
		t.Errorf("policies %+v", set.Policies)
	}
}
