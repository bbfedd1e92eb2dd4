package folder

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/crds/load"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// setOf returns what the objects of a folder state. A namespace has one policy there; of several quotas
// for one tenant id the one with the smallest namespace counts, as in a cluster.
func setOf(objects load.Objects) (policy.Set, error) {
	set := policy.Set{Policies: map[string]policy.Spec{}, Quotas: map[string]int64{}}
	var errs []error
	for _, p := range objects.CachePolicies {
		spec, err := specOf(&p.Spec)
		if err != nil {
			errs = append(errs, fmt.Errorf("CachePolicy %s/%s: %w", p.Namespace, p.Name, err))
			continue
		}
		set.Policies[p.Namespace] = spec
	}
	tenants := slices.SortedFunc(slices.Values(objects.CacheTenants), func(a, b *v1alpha1.CacheTenant) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, tenant := range tenants {
		t := &tenant.Spec
		if _, taken := set.Quotas[t.TenantID]; taken || t.Quota == nil || t.Quota.MaxIndexEntries == nil {
			continue
		}
		set.Quotas[t.TenantID] = max(0, *t.Quota.MaxIndexEntries)
	}
	return set, errors.Join(errs...)
}

func specOf(s *v1alpha1.CachePolicySpec) (policy.Spec, error) {
	spec := policy.Spec{
		MinimumMatchedTokens: s.MinimumMatchedTokens,
		LFU:                  s.Eviction == v1alpha1.EvictionLFU,
	}
	if s.EvictionTTL != nil {
		spec.EvictionTTL = s.EvictionTTL.Duration
	}
	if s.MinimumPrefixTokens != nil {
		spec.MinimumPrefixTokens = int64(*s.MinimumPrefixTokens)
	}
	if s.RoutingFloorScore != nil {
		floor, err := strconv.ParseFloat(*s.RoutingFloorScore, 64)
		if err != nil {
			return policy.Spec{}, fmt.Errorf("spec.routingFloorScore: %q is not a decimal number", *s.RoutingFloorScore)
		}
		spec.RoutingFloorScore = &floor
	}
	if s.LookupTimeoutMs != nil {
		spec.LookupTimeoutMs = int64(*s.LookupTimeoutMs)
	}
	if s.AffinityRouting != "" {
		enabled := s.AffinityRouting == v1alpha1.AffinityEnabled
		spec.AffinityRouting = &enabled
	}
	if m := s.Strategy; m != nil {
		spec.EnableChainMatching, spec.RequireChain, spec.EnableTenantHot = m.EnableChainMatching, m.RequireChain, m.EnableTenantHot
	}
	return spec, nil
}
