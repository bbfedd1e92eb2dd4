package policy

import (
	"maps"
	"math"
	"reflect"
	"time"
)

// Spec is a policy as an operator states it. What is nil or empty has its default.
type Spec struct {
	// EvictionTTL is Policy.TTL; not more than 0 is the default.
	EvictionTTL time.Duration
	// MinimumPrefixTokens is off when not more than 0.
	MinimumPrefixTokens int64
	// MinimumMatchedTokens and RoutingFloorScore are off when they are given and not more than 0.
	MinimumMatchedTokens *int32
	RoutingFloorScore    *float64
	// LookupTimeoutMs is off when not more than 0.
	LookupTimeoutMs int64
	AffinityRouting *bool
	LFU             bool
	// How prompts are matched.
	EnableChainMatching, RequireChain, EnableTenantHot *bool
	// Where prompts go that no cache knows well; see rank.Placement.
	MinimumMatchedShare, ScoreTolerance *float32
	AffinitySeedBlocks, AffinityChoices *int
	Rendezvous                          *bool
}

// Limits on durations. The index counts whole seconds, and a lookup is over long before an hour.
const (
	MinTTL           = time.Second
	MaxTTL           = 10 * 365 * 24 * time.Hour
	MaxLookupTimeout = time.Hour
)

// Resolve returns the policy that the spec means, given the default. Whether its placement is in range
// is for Check to say.
func (s Spec) Resolve(base Policy) *Policy {
	p := base
	if s.EvictionTTL > 0 {
		p.TTL = min(MaxTTL, max(MinTTL, s.EvictionTTL))
	}
	if s.MinimumPrefixTokens > 0 {
		p.MinimumPrefixTokens = s.MinimumPrefixTokens
	}
	if s.MinimumMatchedTokens != nil {
		p.MinimumMatchedTokens = max(0, *s.MinimumMatchedTokens)
	}
	if s.RoutingFloorScore != nil {
		p.RoutingFloorScore = float32(min(math.MaxFloat32, max(0, *s.RoutingFloorScore)))
	}
	if s.LookupTimeoutMs > 0 {
		p.LookupTimeout = time.Duration(min(s.LookupTimeoutMs, MaxLookupTimeout.Milliseconds())) * time.Millisecond
	}
	p.LFU = s.LFU
	override(&p.Affinity, s.AffinityRouting)
	override(&p.ChainMatching, s.EnableChainMatching)
	override(&p.RequireChain, s.RequireChain)
	override(&p.TenantHot, s.EnableTenantHot)
	override(&p.MinimumMatchedShare, s.MinimumMatchedShare)
	override(&p.ScoreTolerance, s.ScoreTolerance)
	override(&p.AffinitySeedBlocks, s.AffinitySeedBlocks)
	override(&p.AffinityChoices, s.AffinityChoices)
	override(&p.Rendezvous, s.Rendezvous)
	return &p
}

func override[T any](into, from *T) {
	if from != nil {
		*into = *from
	}
}

// Check names the first field that no policy can have.
func (s Spec) Check() error { return s.Resolve(Policy{}).Placement.Check() }

// Set is everything that one source states. It must not change once a Feed has it.
type Set struct {
	// Policies are by tenant id, which is a namespace.
	Policies map[string]Spec
	// Origins are the objects that the policies are read from, by tenant id; nil where there are no objects.
	Origins map[string]Origin
	// Quotas are the most distinct prefixes of a tenant, by tenant id; 0 keeps nothing.
	Quotas map[string]int64
}

// Origin is one state of the object that a policy is read from.
type Origin struct {
	Name            string
	Generation      int64  // changes with what the object asks for; 0 in a file
	ResourceVersion string // changes with its status too; empty in a file
}

// InForce says where a tenant's policy comes from.
type InForce struct {
	Tenant, Source string
	Origin         Origin
	// Since is when this store first applied it: this spec, from this source, of this generation.
	Since time.Time
}

// snapshot is what all sources together mean. It is immutable.
type snapshot struct {
	policies map[string]*Policy
	quotas   map[string]int64
	specs    map[string]Spec
	inForce  map[string]InForce
}

// snapshotLocked lays what the sources state over each other, the later over the earlier.
func (s *Store) snapshotLocked(now time.Time) *snapshot {
	out := &snapshot{policies: map[string]*Policy{}, quotas: map[string]int64{}, specs: map[string]Spec{}, inForce: map[string]InForce{}}
	for _, f := range s.feeds {
		maps.Copy(out.specs, f.set.Policies)
		maps.Copy(out.quotas, f.set.Quotas)
		for tenant := range f.set.Policies {
			out.inForce[tenant] = InForce{Tenant: tenant, Source: f.status.Source, Origin: f.set.Origins[tenant], Since: now}
		}
	}
	before := s.current.Load()
	for tenant, spec := range out.specs {
		out.policies[tenant] = spec.Resolve(s.base)
		is, was := out.inForce[tenant], before.inForce[tenant]
		if is.same(was) && reflect.DeepEqual(spec, before.specs[tenant]) {
			is.Since = was.Since
			out.inForce[tenant] = is
		}
	}
	return out
}

// same says whether both are one object in one generation, or from one source without objects.
func (f InForce) same(o InForce) bool {
	return f.Source == o.Source && f.Origin.Name == o.Origin.Name && f.Origin.Generation == o.Origin.Generation
}
