package admission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// WarnCacheBackend says what in a valid CacheBackend will not do what its author expects.
func WarnCacheBackend(b *v1alpha1.CacheBackend) []string {
	b = defaulted(b)
	var w warnings
	s := &b.Spec
	eventsOnly := s.Integration.Mode == v1alpha1.ModeEventsOnly
	w.add(eventsOnly && s.Observation.ModelID == "",
		"spec.observation.modelID is not set: in mode EventsOnly, engines whose command line does not name the model stay out of the index")
	w.add(eventsOnly && s.Integration.EngineOverrides != nil,
		"spec.integration.engineOverrides is ignored in mode EventsOnly, which adds nothing to the engine")
	w.add(!selectsEngines(b), "spec.engineSelector.matchLabels is not set: the object selects no engine")
	w.exactly(b, v1alpha1.AnnotationRequireKVEvents, "false")
	w.exactly(b, v1alpha1.AnnotationSkipFunctionalProbe, "true")
	if s.LMCache != nil && s.LMCache.PodLocal != nil {
		w.enginePort(s.Runtime, s.LMCache.PodLocal.Server.Port)
	}
	if s.RemoteStorage != nil {
		w.shortHost(s.RemoteStorage.Endpoint, b.Namespace)
	}
	return w
}

// WarnCachePolicy says what in a valid CachePolicy will not do what its author expects. hasEngines says
// whether engines of its namespace report.
func WarnCachePolicy(p *v1alpha1.CachePolicy, hasEngines bool) []string {
	var w warnings
	w.add(!hasEngines, fmt.Sprintf("namespace %s has no engines that report: a policy applies to the tenant that its namespace is", p.Namespace))
	return w
}

// WarnCacheTenant says what in a valid CacheTenant will not do what its author expects. used says whether
// a tenant id is that of a namespace, or of a replica that reports. others are the CacheTenants of all
// namespaces; t may be among them.
func WarnCacheTenant(t *v1alpha1.CacheTenant, used func(tenantID string) bool, others []v1alpha1.CacheTenant) []string {
	var w warnings
	id := t.Spec.TenantID
	w.add(!used(id), fmt.Sprintf("no namespace is called %q and nothing reports as that tenant: replicas found by the node agent report as their namespace", id))
	if o := sameTenantElsewhere(t, others); o != nil {
		w.add(true, fmt.Sprintf("CacheTenant %s/%s has the id %q too: of several quotas, that of the first by namespace and name is in force", o.Namespace, o.Name, id))
	}
	quota := t.Spec.Quota
	w.add(quota != nil && quota.MaxIndexEntries != nil && *quota.MaxIndexEntries == 0,
		"spec.quota.maxIndexEntries is 0, which keeps nothing of the tenant; leave it out for no limit")
	return w
}

// sameTenantElsewhere returns the first object of another namespace with the tenant id of t, nil if there is
// none.
func sameTenantElsewhere(t *v1alpha1.CacheTenant, others []v1alpha1.CacheTenant) *v1alpha1.CacheTenant {
	var first *v1alpha1.CacheTenant
	for i := range others {
		o := &others[i]
		if o.Spec.TenantID == t.Spec.TenantID && o.Namespace != t.Namespace &&
			(first == nil || o.Namespace < first.Namespace || o.Namespace == first.Namespace && o.Name < first.Name) {
			first = o
		}
	}
	return first
}

type warnings []string

func (w *warnings) add(applies bool, text string) {
	if applies {
		*w = append(*w, text)
	}
}

// exactly warns of an annotation that counts only with one value and has another.
func (w *warnings) exactly(b *v1alpha1.CacheBackend, annotation, value string) {
	got, found := b.Annotations[annotation]
	w.add(found && got != value, fmt.Sprintf("annotation %s is %q and has no effect: only %q has", annotation, got, value))
}

// enginePort warns of a server port that the engine beside it has unless it is told otherwise.
func (w *warnings) enginePort(runtime v1alpha1.EngineRuntime, port int32) {
	taken := map[v1alpha1.EngineRuntime][]int32{
		v1alpha1.RuntimeVLLM:   {5558, 8000},
		v1alpha1.RuntimeSGLang: {5558, 30000},
	}
	w.add(slices.Contains(taken[runtime], port), fmt.Sprintf(
		"spec.lmCache.podLocal.server.port %d is one that %s engines use in the same Pod by default, for requests or for KV event replay", port, runtime))
}

// shortHost warns of a host that cluster DNS completes to a Service of another namespace.
func (w *warnings) shortHost(endpoint, namespace string) {
	host, _ := splitHostPort(endpoint)
	labels := strings.Split(strings.ToLower(host), ".")
	w.add(len(labels) == 2 && labels[1] != namespace && endpoint != "", fmt.Sprintf(
		"spec.remoteStorage.endpoint: cluster DNS takes %s for Service %s of namespace %s where there is one; end the host with a dot to mean the name itself",
		host, labels[0], labels[len(labels)-1]))
}
