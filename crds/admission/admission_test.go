package admission_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/inferencecache/inferencecache/crds/admission"
	"github.com/inferencecache/inferencecache/crds/crdtest"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// object returns the valid object of a base.
func object[T any](t *testing.T, base string) *T {
	t.Helper()
	cases, err := crdtest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if c.Name == "base "+base {
			return decode[T](t, c.Object)
		}
	}
	t.Fatalf("no base %s", base)
	return nil
}

// expect compares findings with part of the only text wanted; "" wants none.
func expect(t *testing.T, errs field.ErrorList, want string) {
	t.Helper()
	switch {
	case want == "" && len(errs) == 0:
	case want != "" && len(errs) == 1 && strings.Contains(errs[0].Error(), want):
	default:
		t.Errorf("got %v, want %q", errs.ToAggregate(), want)
	}
}

func backend(t *testing.T, namespace, name, domain string) v1alpha1.CacheBackend {
	t.Helper()
	b := object[v1alpha1.CacheBackend](t, "hicache")
	b.Namespace, b.Name = namespace, name
	b.Spec.EngineSelector.MatchLabels = map[string]string{v1alpha1.LabelCacheDomain: domain}
	return *b
}

func TestADomainHasOneBackend(t *testing.T) {
	b := backend(t, "team-a", "b", "chat")
	for _, c := range []struct {
		name     string
		siblings []v1alpha1.CacheBackend
		want     string
	}{
		{"none other is accepted", nil, ""},
		{"itself does not count", []v1alpha1.CacheBackend{b}, ""},
		{"another domain is accepted", []v1alpha1.CacheBackend{backend(t, "team-a", "a", "code")}, ""},
		{"another namespace is accepted", []v1alpha1.CacheBackend{backend(t, "team-b", "a", "chat")}, ""},
		{"the same domain is refused", []v1alpha1.CacheBackend{backend(t, "team-a", "d", "chat"), backend(t, "team-a", "c", "chat")}, "CacheBackend c of this namespace selects domain chat already"},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, admission.ValidateCacheBackend(&b, c.siblings), c.want)
		})
	}
}

func TestAnUpdateOfABackend(t *testing.T) {
	valid := backend(t, "team-a", "b", "chat")
	rival := backend(t, "team-a", "a", "chat")
	invalid := *valid.DeepCopy()
	invalid.Spec.HiCache.Ratio = "0"
	worse := *invalid.DeepCopy()
	worse.Spec.HiCache.WritePolicy = "later"
	otherwiseInvalid := *invalid.DeepCopy()
	otherwiseInvalid.Spec.HiCache.Ratio = "-1"
	badSelector := *valid.DeepCopy()
	badSelector.Spec.EngineSelector.MatchLabels["app"] = "x"
	labelled := *invalid.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	moved := backend(t, "team-a", "b", "code")
	for _, c := range []struct {
		name     string
		old, new v1alpha1.CacheBackend
		siblings []v1alpha1.CacheBackend
		want     string
	}{
		{"may keep what was wrong before", invalid, labelled, nil, ""},
		{"may repair it", invalid, valid, nil, ""},
		{"may not add a violation", invalid, worse, nil, "spec.hiCache.writePolicy"},
		{"may not exchange one for another", invalid, otherwiseInvalid, nil, "spec.hiCache.ratio"},
		{"may not break a valid object", valid, invalid, nil, "spec.hiCache.ratio"},
		{"may not keep a bad selector", badSelector, badSelector, nil, "only the key"},
		{"may keep a shared domain", valid, valid, []v1alpha1.CacheBackend{rival}, ""},
		{"may leave a shared domain", valid, moved, []v1alpha1.CacheBackend{rival}, ""},
		{"may not enter a taken domain", moved, valid, []v1alpha1.CacheBackend{rival}, "selects domain chat already"},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, admission.ValidateCacheBackendUpdate(&c.new, &c.old, c.siblings), c.want)
		})
	}
}

func TestValidationLeavesTheObjectAlone(t *testing.T) {
	b := &v1alpha1.CacheBackend{}
	admission.ValidateCacheBackend(b, nil)
	admission.WarnCacheBackend(b)
	if b.Spec.Integration != nil || b.Spec.Type != "" {
		t.Errorf("object was changed to %+v", b.Spec)
	}
}

func TestANamespaceHasOnePolicy(t *testing.T) {
	policy := func(namespace, name string) v1alpha1.CachePolicy {
		return v1alpha1.CachePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	p := policy("team-a", "b")
	for _, c := range []struct {
		name     string
		siblings []v1alpha1.CachePolicy
		want     string
	}{
		{"the first is accepted", []v1alpha1.CachePolicy{p}, ""},
		{"one in another namespace is accepted", []v1alpha1.CachePolicy{policy("team-b", "a")}, ""},
		{"the second is refused, naming the smallest", []v1alpha1.CachePolicy{policy("team-a", "d"), policy("team-a", "c")}, "team-a has c"},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, admission.ValidateCachePolicy(&p, c.siblings), c.want) })
	}
	t.Run("a second that is there can be edited", func(t *testing.T) { expect(t, admission.ValidateCachePolicyUpdate(&p), "") })
}

func TestATenantIDIsUsedOnceInANamespace(t *testing.T) {
	tenant := func(namespace, name, id string) v1alpha1.CacheTenant {
		return v1alpha1.CacheTenant{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.CacheTenantSpec{TenantID: id}}
	}
	c, old := tenant("ops", "c", "team-a"), tenant("ops", "c", "team-b")
	taken := []v1alpha1.CacheTenant{tenant("ops", "b", "team-a"), tenant("ops", "a", "team-a"), c}
	free := []v1alpha1.CacheTenant{tenant("ops", "a", "team-b"), tenant("other", "a", "team-a"), c}
	expect(t, admission.ValidateCacheTenant(&c, free), "")
	expect(t, admission.ValidateCacheTenant(&c, taken), "CacheTenant a of this namespace has the id already")
	expect(t, admission.ValidateCacheTenantUpdate(&c, &old, taken), "has the id already")
	expect(t, admission.ValidateCacheTenantUpdate(&c, &old, free), "")
	expect(t, admission.ValidateCacheTenantUpdate(&c, &c, taken), "")
}

func TestWarnings(t *testing.T) {
	events, podLocal := object[v1alpha1.CacheBackend](t, "events"), object[v1alpha1.CacheBackend](t, "podlocal")
	events.Spec.EngineSelector = podLocal.Spec.EngineSelector
	change := func(b *v1alpha1.CacheBackend, by func(*v1alpha1.CacheBackend)) []string {
		b = b.DeepCopy()
		by(b)
		return admission.WarnCacheBackend(b)
	}
	tenant := object[v1alpha1.CacheTenant](t, "tenant")
	zero := tenant.DeepCopy()
	*zero.Spec.Quota.MaxIndexEntries = 0
	policy := object[v1alpha1.CachePolicy](t, "policy")
	used := func(id string) bool { return id == "team-a" }
	stranger := tenant.DeepCopy()
	stranger.Spec.TenantID = "team-z"
	twin := *tenant.DeepCopy()
	twin.Namespace, twin.Name = "ops", "t"
	own := *tenant.DeepCopy()
	own.Name += "-2" // refused where that is new, so that a warning would be one too many
	for _, c := range []struct {
		name string
		got  []string
		want string // part of the only warning; "" wants none
	}{
		{"no warning for a sound backend", change(podLocal, func(*v1alpha1.CacheBackend) {}), ""},
		{"no warning for events with a model", change(events, func(*v1alpha1.CacheBackend) {}), ""},
		{"events without a model", change(events, func(b *v1alpha1.CacheBackend) { b.Spec.Observation.ModelID = "" }), "modelID is not set"},
		{"events with overrides", change(events, func(b *v1alpha1.CacheBackend) {
			b.Spec.Integration.EngineOverrides = &v1alpha1.EngineOverrides{}
		}), "ignored in mode EventsOnly"},
		{"no selector", change(events, func(b *v1alpha1.CacheBackend) { b.Spec.EngineSelector = nil }), "selects no engine"},
		{"an annotation with another word", change(podLocal, func(b *v1alpha1.CacheBackend) {
			b.Annotations = map[string]string{v1alpha1.AnnotationRequireKVEvents: "False"}
		}), `only "false" has`},
		{"the engine's port", change(podLocal, func(b *v1alpha1.CacheBackend) { b.Spec.LMCache.PodLocal.Server.Port = 8000 }), "8000 is one that VLLM engines use"},
		{"a short host", change(podLocal, func(b *v1alpha1.CacheBackend) { b.Spec.RemoteStorage.Endpoint = "redis.team-b:1" }), "Service redis of namespace team-b"},
		{"a short host of the own namespace", change(podLocal, func(b *v1alpha1.CacheBackend) { b.Spec.RemoteStorage.Endpoint = "redis.team-a:1" }), ""},
		{"a policy where engines are", admission.WarnCachePolicy(policy, true), ""},
		{"a policy where no engines are", admission.WarnCachePolicy(policy, false), "team-a has no engines that report"},
		{"a tenant that reports", admission.WarnCacheTenant(tenant, used, nil), ""},
		{"a tenant that others do not have", admission.WarnCacheTenant(tenant, used, []v1alpha1.CacheTenant{*tenant, own, *stranger}), ""},
		{"a tenant that another namespace has", admission.WarnCacheTenant(tenant, used, []v1alpha1.CacheTenant{*tenant, twin}), "CacheTenant ops/t has the id"},
		{"a tenant that nothing reports as", admission.WarnCacheTenant(stranger, used, nil), `no namespace is called "team-z"`},
		{"a quota of nothing", admission.WarnCacheTenant(zero, used, nil), "keeps nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ok := len(c.got) == 0
			if c.want != "" {
				ok = len(c.got) == 1 && slices.ContainsFunc(c.got, func(w string) bool { return strings.Contains(w, c.want) })
			}
			if !ok {
				t.Errorf("got warnings %q, want %q", c.got, c.want)
			}
		})
	}
}
