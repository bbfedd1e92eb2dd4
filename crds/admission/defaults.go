package admission

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// DefaultCacheBackend fills the fields that are unset with what unset means; set ones stay.
func DefaultCacheBackend(b *v1alpha1.CacheBackend) {
	spec := &b.Spec
	set(&spec.Type, v1alpha1.BackendLMCache)
	point(&spec.Observation, v1alpha1.Observation{})
	point(&spec.Observation.FirstEventTimeout, metav1.Duration{Duration: 5 * time.Minute})
	point(&spec.Integration, v1alpha1.Integration{})
	set(&spec.Integration.Mode, v1alpha1.ModeOffload)
	set(&spec.Integration.Role, v1alpha1.RoleReadWrite)
	point(&spec.Integration.FailOpen, true)
	if spec.LMCache != nil && spec.LMCache.NodeLocal != nil {
		point(&spec.LMCache.NodeLocal.IdleRetentionSeconds, 300)
	}
}

// DefaultCachePolicy fills the fields that are unset with what unset means; set ones stay.
func DefaultCachePolicy(p *v1alpha1.CachePolicy) {
	spec := &p.Spec
	set(&spec.Eviction, v1alpha1.EvictionLRU)
	point(&spec.MinimumMatchedTokens, 64)
	point(&spec.RoutingFloorScore, "0.1")
	set(&spec.AffinityRouting, v1alpha1.AffinityEnabled)
	point(&spec.Strategy, v1alpha1.MatchStrategy{})
	point(&spec.Strategy.EnableChainMatching, true)
	point(&spec.Strategy.RequireChain, false)
	point(&spec.Strategy.EnableTenantHot, true)
}

// DefaultCacheTenant fills the fields that are unset with what unset means; set ones stay.
func DefaultCacheTenant(t *v1alpha1.CacheTenant) {
	set(&t.Spec.IsolationMode, v1alpha1.IsolationFairness)
}

func set[T comparable](value *T, unset T) {
	var zero T
	if *value == zero {
		*value = unset
	}
}

func point[T any](value **T, unset T) {
	if *value == nil {
		*value = &unset
	}
}
