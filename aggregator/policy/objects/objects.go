// Package objects says what CachePolicy and CacheTenant objects state, wherever they are read from.
package objects

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// Set returns what the objects state; with an error, what the sound ones do. Of several policies in a
// namespace the one with the smallest name counts, and of several quotas for one tenant id the one in the
// smallest namespace, then with the smallest name.
func Set(policies []*v1alpha1.CachePolicy, tenants []*v1alpha1.CacheTenant) (policy.Set, error) {
	set := policy.Set{Policies: map[string]policy.Spec{}, Origins: map[string]policy.Origin{}, Quotas: map[string]int64{}}
	var errs []error
	decided := map[string]bool{}
	for _, p := range sorted(policies) {
		if decided[p.Namespace] {
			continue
		}
		decided[p.Namespace] = true
		spec, err := specOf(&p.Spec)
		if err != nil {
			errs = append(errs, fmt.Errorf("CachePolicy %s/%s: %w", p.Namespace, p.Name, err))
			continue
		}
		set.Policies[p.Namespace] = spec
		set.Origins[p.Namespace] = policy.Origin{Name: p.Name, Generation: p.Generation, ResourceVersion: p.ResourceVersion}
	}
	for _, tenant := range sorted(tenants) {
		t := &tenant.Spec
		if _, taken := set.Quotas[t.TenantID]; taken || t.Quota == nil || t.Quota.MaxIndexEntries == nil {
			continue
		}
		set.Quotas[t.TenantID] = max(0, *t.Quota.MaxIndexEntries)
	}
	return set, errors.Join(errs...)
}

// sorted returns the objects by namespace, then name.
func sorted[T metav1.Object](objects []T) []T {
	return slices.SortedFunc(slices.Values(objects), func(a, b T) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
}

func specOf(s *v1alpha1.CachePolicySpec) (policy.Spec, error) {
	spec := policy.Spec{
		MinimumMatchedTokens: s.MinimumMatchedTokens,
		LFU:                  s.Eviction == v1alpha1.EvictionLFU,
		AffinitySeedBlocks:   number[int](s.AffinitySeedBlocks),
		AffinityChoices:      number[int](s.AffinityChoices),
	}
	if s.EvictionTTL != nil {
		spec.EvictionTTL = s.EvictionTTL.Duration
	}
	if s.MinimumPrefixTokens != nil {
		spec.MinimumPrefixTokens = int64(*s.MinimumPrefixTokens)
	}
	if s.LookupTimeoutMs != nil {
		spec.LookupTimeoutMs = int64(*s.LookupTimeoutMs)
	}
	if s.AffinityRouting != "" {
		enabled := s.AffinityRouting == v1alpha1.AffinityEnabled
		spec.AffinityRouting = &enabled
	}
	if s.AffinityPlacement != "" {
		rendezvous := s.AffinityPlacement == v1alpha1.PlacementRendezvous
		spec.Rendezvous = &rendezvous
	}
	if m := s.Strategy; m != nil {
		spec.EnableChainMatching, spec.RequireChain, spec.EnableTenantHot = m.EnableChainMatching, m.RequireChain, m.EnableTenantHot
	}
	floor, floorErr := decimal[float64]("routingFloorScore", s.RoutingFloorScore)
	minimum, minimumErr := decimal[float32]("minimumMatchedShare", s.MinimumMatchedShare)
	tolerance, toleranceErr := decimal[float32]("scoreTolerance", s.ScoreTolerance)
	spec.RoutingFloorScore, spec.MinimumMatchedShare, spec.ScoreTolerance = floor, minimum, tolerance
	if err := errors.Join(floorErr, minimumErr, toleranceErr); err != nil {
		return policy.Spec{}, err
	}
	return spec, spec.Check()
}

// decimal reads a number that is written as text; nil stays nil.
func decimal[F float32 | float64](name string, text *string) (*F, error) {
	if text == nil {
		return nil, nil
	}
	v, err := strconv.ParseFloat(*text, 64)
	if err != nil {
		return nil, fmt.Errorf("spec.%s: %q is not a decimal number", name, *text)
	}
	f := F(v)
	return &f, nil
}

// number converts a number; nil stays nil.
func number[To, From ~int | ~int32](n *From) *To {
	if n == nil {
		return nil
	}
	v := To(*n)
	return &v
}
