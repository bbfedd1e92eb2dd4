package admission

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// ValidateCacheBackend reports what is wrong with a new CacheBackend. siblings are the CacheBackends of its
// namespace; it may be among them.
func ValidateCacheBackend(b *v1alpha1.CacheBackend, siblings []v1alpha1.CacheBackend) field.ErrorList {
	b = defaulted(b)
	return slices.Concat(selectorShape(b), domainOverlap(b, siblings), cacheBackend(b))
}

// ValidateCacheBackendUpdate reports what is wrong with a change from old to b. What was wrong before may
// stay, so that an object stored under older rules can still be labelled or repaired step by step. The
// shape of the selector is always judged, its overlap with siblings only where it changes.
func ValidateCacheBackendUpdate(b, old *v1alpha1.CacheBackend, siblings []v1alpha1.CacheBackend) field.ErrorList {
	b, old = defaulted(b), defaulted(old)
	errs := selectorShape(b)
	if cacheDomain(b) != cacheDomain(old) {
		errs = append(errs, domainOverlap(b, siblings)...)
	}
	return append(errs, newErrors(cacheBackend(b), cacheBackend(old))...)
}

// newErrors returns those of after that are not among before.
func newErrors(after, before field.ErrorList) field.ErrorList {
	known := make(map[string]bool, len(before))
	for _, err := range before {
		known[err.Error()] = true
	}
	return slices.DeleteFunc(after, func(err *field.Error) bool { return known[err.Error()] })
}

func defaulted(b *v1alpha1.CacheBackend) *v1alpha1.CacheBackend {
	b = b.DeepCopy()
	DefaultCacheBackend(b)
	return b
}

// cacheDomain returns the domain that b selects, "" where it selects none.
func cacheDomain(b *v1alpha1.CacheBackend) string {
	if b.Spec.EngineSelector == nil {
		return ""
	}
	return b.Spec.EngineSelector.MatchLabels[v1alpha1.LabelCacheDomain]
}

// selectsEngines says whether b has a selector that can match.
func selectsEngines(b *v1alpha1.CacheBackend) bool {
	return b.Spec.EngineSelector != nil && len(b.Spec.EngineSelector.MatchLabels) > 0
}

var matchLabelsPath = field.NewPath("spec", "engineSelector", "matchLabels")

func selectorShape(b *v1alpha1.CacheBackend) field.ErrorList {
	if !selectsEngines(b) {
		return nil
	}
	var c check
	labels := b.Spec.EngineSelector.MatchLabels
	domain, found := labels[v1alpha1.LabelCacheDomain]
	switch {
	case !found:
		c.required(true, matchLabelsPath, "needs the key "+v1alpha1.LabelCacheDomain)
	case domain == "":
		c.required(true, matchLabelsPath, v1alpha1.LabelCacheDomain+" needs a value")
	default:
		for _, problem := range validation.IsValidLabelValue(domain) {
			c.invalid(true, matchLabelsPath, domain, problem)
		}
	}
	for key := range labels {
		if key != v1alpha1.LabelCacheDomain {
			c.forbidden(true, matchLabelsPath, "only the key "+v1alpha1.LabelCacheDomain+" is allowed: with other keys a Pod could have several owners")
			break
		}
	}
	return c.errs
}

func domainOverlap(b *v1alpha1.CacheBackend, siblings []v1alpha1.CacheBackend) field.ErrorList {
	domain := cacheDomain(b)
	if domain == "" {
		return nil
	}
	owner := ""
	for i := range siblings {
		s := &siblings[i]
		if s.Namespace == b.Namespace && s.Name != b.Name && cacheDomain(s) == domain && (owner == "" || s.Name < owner) {
			owner = s.Name
		}
	}
	if owner == "" {
		return nil
	}
	return field.ErrorList{field.Forbidden(matchLabelsPath,
		fmt.Sprintf("CacheBackend %s of this namespace selects domain %s already: a Pod has one owner", owner, domain))}
}

// cacheBackend applies the rules that need nothing but the object, apart from those of the selector.
func cacheBackend(b *v1alpha1.CacheBackend) field.ErrorList {
	spec := field.NewPath("spec")
	return slices.Concat(
		backendName(b),
		kernelCheckMode(b),
		backendEnums(b, spec),
		modeRules(b, spec),
		hiCacheRules(b, spec),
		overrideRules(b, spec.Child("integration", "engineOverrides")),
		lmCacheRules(b, spec.Child("lmCache")),
		remoteStorageRules(b, spec.Child("remoteStorage")),
	)
}

// maxManagedName leaves room for a suffix in the 63 characters of a Service's name.
const maxManagedName = 57

func backendName(b *v1alpha1.CacheBackend) field.ErrorList {
	if b.Spec.RemoteStorage == nil || b.Spec.RemoteStorage.Ownership != v1alpha1.OwnershipManaged || b.Name == "" {
		return nil
	}
	if len(b.Name) <= maxManagedName && len(validation.IsDNS1035Label(b.Name)) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), b.Name, fmt.Sprintf(
		"with managed remote storage it names a Service too: at most %d lower-case letters, digits and '-', starting with a letter and not ending with '-'", maxManagedName))}
}

func kernelCheckMode(b *v1alpha1.CacheBackend) field.ErrorList {
	mode, found := b.Annotations[v1alpha1.AnnotationKernelCheck]
	modes := []string{v1alpha1.KernelCheckAuto, v1alpha1.KernelCheckReportOnly, v1alpha1.KernelCheckStrict, v1alpha1.KernelCheckOff}
	if !found || slices.Contains(modes, mode) {
		return nil
	}
	path := field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationKernelCheck)
	return field.ErrorList{field.NotSupported(path, mode, modes)}
}

func backendEnums(b *v1alpha1.CacheBackend, spec *field.Path) field.ErrorList {
	var c check
	s, i := &b.Spec, b.Spec.Integration
	integration := spec.Child("integration")
	c.add(oneOf(spec.Child("runtime"), s.Runtime, v1alpha1.RuntimeVLLM, v1alpha1.RuntimeSGLang))
	c.add(oneOf(spec.Child("type"), s.Type, v1alpha1.BackendLMCache, v1alpha1.BackendSGLangHiCache))
	c.add(oneOf(integration.Child("mode"), i.Mode, v1alpha1.ModeOffload, v1alpha1.ModeEventsOnly))
	c.add(oneOf(integration.Child("role"), i.Role, v1alpha1.RoleReadOnly, v1alpha1.RoleWriteOnly, v1alpha1.RoleReadWrite))
	c.invalid(i.Role == v1alpha1.RoleReadOnly || i.Role == v1alpha1.RoleWriteOnly, integration.Child("role"), i.Role,
		"must be ReadWrite: no supported connector moves blocks one way only")
	timeout := s.Observation.FirstEventTimeout
	c.invalid(timeout.Duration <= 0, spec.Child("observation", "firstEventTimeout"), timeout.Duration.String(), "must be longer than 0s")
	return c.errs
}

// modeRules are those between mode, type and the blocks that go with them.
func modeRules(b *v1alpha1.CacheBackend, spec *field.Path) field.ErrorList {
	var c check
	s := &b.Spec
	isLMCache := s.Type == v1alpha1.BackendLMCache
	eventsOnly := s.Integration.Mode == v1alpha1.ModeEventsOnly
	lmCache, storage := spec.Child("lmCache"), spec.Child("remoteStorage")
	c.invalid(eventsOnly && !isLMCache, spec.Child("integration", "mode"), s.Integration.Mode, "mode EventsOnly is for type LMCache only")
	c.forbidden(eventsOnly && s.RemoteStorage != nil, storage, "must be left out in mode EventsOnly: nothing would connect to it")
	c.forbidden(s.LMCache != nil && !isLMCache, lmCache, "is for type LMCache only")
	c.forbidden(s.LMCache != nil && eventsOnly, lmCache, "must be left out in mode EventsOnly, which wires no cache")
	c.required(s.LMCache == nil && isLMCache && s.Integration.Mode == v1alpha1.ModeOffload, lmCache,
		"is needed for type LMCache in mode Offload")
	c.required(s.LMCache != nil && s.LMCache.Topology == v1alpha1.TopologyNodeLocal && !selectsEngines(b), spec.Child("engineSelector"),
		"matchLabels is needed for topology NodeLocal: servers follow the selected engines")
	return c.errs
}

// decimal is what hiCache.ratio may look like; it keeps out the hexadecimal and named forms of ParseFloat.
var decimal = regexp.MustCompile(`^[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]{1,2})?$`)

func hiCacheRules(b *v1alpha1.CacheBackend, spec *field.Path) field.ErrorList {
	var c check
	s, path := &b.Spec, spec.Child("hiCache")
	isHiCache := s.Type == v1alpha1.BackendSGLangHiCache
	c.forbidden(s.HiCache != nil && !isHiCache, path, "is for type SGLangHiCache only")
	if isHiCache {
		c.required(s.HiCache == nil, path, "is needed for type SGLangHiCache")
		c.invalid(s.Runtime == v1alpha1.RuntimeVLLM, spec.Child("runtime"), s.Runtime,
			"type SGLangHiCache needs runtime SGLang; supported are VLLM with LMCache, SGLang with LMCache, SGLang with SGLangHiCache")
		c.required(!selectsEngines(b), spec.Child("engineSelector"), "matchLabels is needed for type SGLangHiCache: without engines there is no cache")
		c.invalid(!*s.Integration.FailOpen, spec.Child("integration", "failOpen"), false,
			"must be true for type SGLangHiCache: a cache inside the engine cannot fail apart from it")
		c.forbidden(s.RemoteStorage != nil, spec.Child("remoteStorage"), "must be left out for type SGLangHiCache, which uses none")
	}
	if s.HiCache != nil {
		c.add(hiCacheFields(s.HiCache, path))
	}
	return c.errs
}

func hiCacheFields(h *v1alpha1.HiCache, path *field.Path) field.ErrorList {
	var c check
	c.invalid((h.SizeGB != nil) == (h.Ratio != ""), path, "", "exactly one of sizeGB and ratio is required")
	c.add(atLeast(path.Child("sizeGB"), h.SizeGB, 1))
	ratio, err := strconv.ParseFloat(h.Ratio, 64)
	positive := err == nil && ratio > 0 && !math.IsInf(ratio, 0) && decimal.MatchString(h.Ratio)
	c.invalid(h.Ratio != "" && !positive, path.Child("ratio"), h.Ratio, `must be a finite decimal number above 0, such as "2.0"`)
	c.add(shortEnough(path.Child("ratio"), h.Ratio, maxRatioLength))
	c.add(oneOfOrUnset(path.Child("writePolicy"), h.WritePolicy, "write_back", "write_through", "write_through_selective"))
	c.add(oneOfOrUnset(path.Child("ioBackend"), h.IOBackend, "direct", "kernel", "kernel_ascend"))
	c.add(oneOfOrUnset(path.Child("memoryLayout"), h.MemoryLayout,
		"layer_first", "page_first", "page_first_direct", "page_first_kv_split", "page_head"))
	return c.errs
}

const maxRatioLength = 32
