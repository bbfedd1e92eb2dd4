package admission

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

var specPath = field.NewPath("spec")

// ValidateCachePolicy reports what is wrong with a new CachePolicy. siblings are the CachePolicies of its
// namespace; it may be among them.
func ValidateCachePolicy(p *v1alpha1.CachePolicy, siblings []v1alpha1.CachePolicy) field.ErrorList {
	errs := ValidateCachePolicyUpdate(p)
	first := ""
	for i := range siblings {
		s := &siblings[i]
		if s.Namespace == p.Namespace && s.Name != p.Name && (first == "" || s.Name < first) {
			first = s.Name
		}
	}
	if first != "" {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "namespace"), fmt.Sprintf(
			"a namespace has one CachePolicy, and %s has %s: change that one", p.Namespace, first)))
	}
	return errs
}

// floorScore is what routingFloorScore may look like.
var floorScore = regexp.MustCompile(`^(0|[1-9][0-9]{0,7})(\.[0-9]{1,6})?$`)

// ValidateCachePolicyUpdate reports what is wrong with a changed CachePolicy. Its siblings do not matter:
// two that came to be together must still be editable.
func ValidateCachePolicyUpdate(p *v1alpha1.CachePolicy) field.ErrorList {
	p = p.DeepCopy()
	DefaultCachePolicy(p)
	var c check
	s := &p.Spec
	c.add(oneOf(specPath.Child("eviction"), s.Eviction, v1alpha1.EvictionLRU, v1alpha1.EvictionLFU))
	if s.EvictionTTL != nil {
		c.invalid(s.EvictionTTL.Duration <= 0, specPath.Child("evictionTTL"), s.EvictionTTL.Duration.String(),
			"must be longer than 0s; leave it out for the aggregator's default")
	}
	c.add(atLeast(specPath.Child("minimumPrefixTokens"), s.MinimumPrefixTokens, 0))
	c.add(atLeast(specPath.Child("minimumMatchedTokens"), s.MinimumMatchedTokens, 0))
	c.invalid(!floorScore.MatchString(*s.RoutingFloorScore), specPath.Child("routingFloorScore"), *s.RoutingFloorScore,
		`must be a plain decimal number such as "0.1", with at most 8 digits before and 6 after the point`)
	c.add(atLeast(specPath.Child("lookupTimeoutMs"), s.LookupTimeoutMs, 0))
	c.add(oneOf(specPath.Child("affinityRouting"), s.AffinityRouting, v1alpha1.AffinityEnabled, v1alpha1.AffinityDisabled))
	placement(&c, s)
	c.invalid(*s.Strategy.RequireChain && !*s.Strategy.EnableChainMatching, specPath.Child("strategy"), "",
		"requireChain needs enableChainMatching: with matching off, every request would be refused")
	return c.errs
}

// share is what a share of something may look like.
var share = regexp.MustCompile(`^(0(\.[0-9]{1,6})?|1(\.0{1,6})?)$`)

// maxAffinityChoices is the most places that affinity chooses from.
const maxAffinityChoices = 4

// placement checks where prompts go that no replica knows well.
func placement(c *check, s *v1alpha1.CachePolicySpec) {
	for name, value := range map[string]*string{"minimumMatchedShare": s.MinimumMatchedShare, "scoreTolerance": s.ScoreTolerance} {
		if value != nil {
			c.invalid(!share.MatchString(*value), specPath.Child(name), *value,
				`must be a plain decimal number from 0 to 1 such as "0.125", with at most 6 digits after the point`)
		}
	}
	c.add(atLeast(specPath.Child("affinitySeedBlocks"), s.AffinitySeedBlocks, 0))
	if s.AffinityChoices != nil {
		c.add(within(specPath.Child("affinityChoices"), *s.AffinityChoices, 0, maxAffinityChoices))
	}
	c.add(oneOfOrUnset(specPath.Child("affinityPlacement"), s.AffinityPlacement, v1alpha1.PlacementModulo, v1alpha1.PlacementRendezvous))
}

// ValidateCacheTenant reports what is wrong with a new CacheTenant. siblings are the CacheTenants of its
// namespace; it may be among them.
func ValidateCacheTenant(t *v1alpha1.CacheTenant, siblings []v1alpha1.CacheTenant) field.ErrorList {
	return append(cacheTenant(t), tenantIDOverlap(t, siblings)...)
}

// ValidateCacheTenantUpdate reports what is wrong with a change from old to t. Siblings matter only where
// the tenant id changes: two that came to be together must still be editable.
func ValidateCacheTenantUpdate(t, old *v1alpha1.CacheTenant, siblings []v1alpha1.CacheTenant) field.ErrorList {
	if t.Spec.TenantID == old.Spec.TenantID {
		return cacheTenant(t)
	}
	return ValidateCacheTenant(t, siblings)
}

func cacheTenant(t *v1alpha1.CacheTenant) field.ErrorList {
	t = t.DeepCopy()
	DefaultCacheTenant(t)
	var c check
	id := specPath.Child("tenantID")
	c.required(t.Spec.TenantID == "", id, "")
	c.invalid(t.Spec.TenantID == v1alpha1.TenantProbe, id, t.Spec.TenantID, "is reserved for the functional probe")
	c.add(oneOf(specPath.Child("isolationMode"), t.Spec.IsolationMode, v1alpha1.IsolationFairness))
	if q := t.Spec.Quota; q != nil {
		c.add(atLeast(specPath.Child("quota", "maxIndexEntries"), q.MaxIndexEntries, 0))
	}
	return c.errs
}

func tenantIDOverlap(t *v1alpha1.CacheTenant, siblings []v1alpha1.CacheTenant) field.ErrorList {
	first := ""
	for i := range siblings {
		s := &siblings[i]
		same := s.Namespace == t.Namespace && s.Name != t.Name && s.Spec.TenantID == t.Spec.TenantID
		if same && (first == "" || s.Name < first) {
			first = s.Name
		}
	}
	if first == "" || t.Spec.TenantID == "" {
		return nil
	}
	return field.ErrorList{field.Invalid(specPath.Child("tenantID"), t.Spec.TenantID, fmt.Sprintf(
		"CacheTenant %s of this namespace has the id already: an id has one quota", first))}
}

// ValidateCacheIndex reports what is wrong with a CacheIndex.
func ValidateCacheIndex(x *v1alpha1.CacheIndex) field.ErrorList {
	if x.Name == v1alpha1.CacheIndexName {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), x.Name,
		"the only CacheIndex is "+v1alpha1.CacheIndexName+": no other one is ever filled")}
}

// ValidatePromptTemplate reports what is wrong with a PromptTemplate, apart from the syntax of its body.
func ValidatePromptTemplate(t *v1alpha1.PromptTemplate) field.ErrorList {
	var c check
	c.required(t.Spec.Body == "", specPath.Child("body"), "")
	slots := specPath.Child("slots")
	c.add(namesOnce(slots, len(t.Spec.Slots), func(i int) string { return t.Spec.Slots[i].Name }))
	for i := range t.Spec.Slots {
		c.add(oneOf(slots.Index(i).Child("type"), t.Spec.Slots[i].Type, v1alpha1.SlotStable, v1alpha1.SlotMutable))
	}
	return c.errs
}

// Bounds of a PDTopology.
const (
	maxPools          = 64
	maxPoolNameLength = 253
)

// ValidatePDTopology reports what is wrong with a PDTopology.
func ValidatePDTopology(t *v1alpha1.PDTopology) field.ErrorList {
	var c check
	types := t.Spec.AcceleratorTypes
	known := make(map[string]bool, len(types))
	for i := range types {
		known[types[i].Name] = true
	}
	c.add(poolNames(specPath.Child("acceleratorTypes"), len(types), func(i int) string { return types[i].Name }))
	c.add(enginePools(specPath.Child("prefillPools"), t.Spec.PrefillPools, known))
	c.add(enginePools(specPath.Child("decodePools"), t.Spec.DecodePools, known))
	return c.errs
}

func enginePools(path *field.Path, pools []v1alpha1.EnginePool, accelerators map[string]bool) field.ErrorList {
	var c check
	c.add(poolNames(path, len(pools), func(i int) string { return pools[i].Name }))
	for i := range pools {
		p := &pools[i]
		c.add(atLeast(path.Index(i).Child("replicas"), p.Replicas, 0))
		c.invalid(p.AcceleratorType != "" && !accelerators[p.AcceleratorType], path.Index(i).Child("acceleratorType"), p.AcceleratorType,
			"must be the name of an entry of acceleratorTypes")
	}
	return c.errs
}

func poolNames(path *field.Path, n int, name func(int) string) field.ErrorList {
	var c check
	if n > maxPools {
		c.add(field.ErrorList{field.TooMany(path, n, maxPools)})
	}
	for i := range n {
		c.add(shortEnough(path.Index(i).Child("name"), name(i), maxPoolNameLength))
	}
	c.add(namesOnce(path, n, name))
	return c.errs
}

// namesOnce refuses entries without a name, and the second of two with the same.
func namesOnce(path *field.Path, n int, name func(int) string) field.ErrorList {
	var errs field.ErrorList
	seen := make(map[string]bool, n)
	for i := range n {
		switch {
		case name(i) == "":
			errs = append(errs, field.Required(path.Index(i).Child("name"), ""))
		case seen[name(i)]:
			errs = append(errs, field.Duplicate(path.Index(i), name(i)))
		}
		seen[name(i)] = true
	}
	return errs
}
