package controller_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/inferencecache/inferencecache/crds/crdtest"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// judged are the kinds that have webhooks.
var judged = []string{"CacheBackend", "CachePolicy", "CacheTenant"}

// loosen has the schema of a kind accept anything, so that webhooks alone refuse.
func (w *world) loosen(t *testing.T, loose bool) {
	t.Helper()
	if !loose {
		w.InstallCRDs(t)
	}
	for _, resource := range []string{"cachebackends", "cachepolicies", "cachetenants"} {
		definition := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}
		definition.SetName(resource + ".inferencecache.io")
		w.get(t, definition)
		if loose {
			versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
			versions[0].(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
			if err := unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"); err != nil {
				t.Fatal(err)
			}
			if err := w.Update(t.Context(), definition); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The API server serves the new schema a moment later.
	odd := object(t, "base policy")
	unstructured.RemoveNestedField(odd.Object, "spec")
	eventually(t, "the API server follows the new schemas", func() error {
		err := w.Create(t.Context(), odd.DeepCopy(), client.DryRunAll)
		if refused := err != nil && strings.Contains(err.Error(), "spec: Required value"); refused == loose {
			return errors.New("the old schema is still served")
		}
		return nil
	})
}

// object returns one of the table by its name.
func object(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	cases, err := crdtest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if c.Name == name {
			return &unstructured.Unstructured{Object: c.Object}
		}
	}
	t.Fatalf("no object %q", name)
	return nil
}

// typed returns an object of the table as its type.
func typed[T any](t *testing.T, name string) *T {
	t.Helper()
	out := new(T)
	if err := convert(object(t, name).Object, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// fieldsOf returns the fields that an API server refuses, sorted.
func fieldsOf(err error) []string {
	var status apierrors.APIStatus
	fields := []string{}
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			fields = append(fields, cause.Field)
		}
	}
	slices.Sort(fields)
	return fields
}

func TestKubeWebhooks(t *testing.T) {
	w := newWorld(t)
	broken := typed[v1alpha1.CacheBackend](t, "base hicache")
	broken.Name, broken.Spec.HiCache.Ratio, broken.Spec.HiCache.SizeGB = "stored-before", "zero", nil
	broken.Spec.EngineSelector.MatchLabels[v1alpha1.LabelCacheDomain] = "stored-before"
	w.loosen(t, true)
	w.create(t, broken)

	p := w.start(t)
	if code, body := page(t, p.HealthAddr(), "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz %d %s", code, body)
	}
	if code, body := page(t, p.HealthAddr(), "/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz %d %s before anything leads to the webhooks", code, body)
	}
	w.install(t, p)
	p.awaitReady(t)

	t.Run("webhooks alone refuse every violation in one answer", func(t *testing.T) { w.judgeCases(t, true) })
	t.Run("what was wrong before may stay", func(t *testing.T) { w.updateBroken(t, broken) })
	w.loosen(t, false)
	t.Run("webhooks and schema together", func(t *testing.T) { w.judgeCases(t, false) })
	t.Run("defaults", func(t *testing.T) { w.defaults(t) })
	t.Run("a field of the wrong type is the schema's to refuse", func(t *testing.T) {
		policy := object(t, "base policy")
		if err := unstructured.SetNestedField(policy.Object, "many", "spec", "minimumPrefixTokens"); err != nil {
			t.Fatal(err)
		}
		err := w.Create(t.Context(), policy, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), `spec.minimumPrefixTokens: Invalid value: "string"`) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("neighbours", func(t *testing.T) { w.neighbours(t) })
	t.Run("warnings", func(t *testing.T) { w.warn(t) })
	t.Run("answers are counted", func(t *testing.T) {
		for _, answer := range []string{"allowed", "refused"} {
			if n := p.metric(t, `inferencecache_controller_admissions_total{answer="`+answer+`",kind="CacheBackend",verb="validate"}`); n == "" {
				t.Errorf("no answer %s of CacheBackend", answer)
			}
		}
	})
}

// judgeCases has the API server judge the objects of the table without storing them. Where the schema is
// loose the webhooks alone answer, and must find exactly what the table says.
func (w *world) judgeCases(t *testing.T, loose bool) {
	cases, err := crdtest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		o := &unstructured.Unstructured{Object: c.Object}
		if !slices.Contains(judged, o.GetKind()) || (o.GetName() == "" && o.GetGenerateName() == "") {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			err := w.Create(t.Context(), o, client.DryRunAll)
			byWebhook := loose || len(c.Schema) == 0
			switch {
			case len(c.Refused) == 0 && byWebhook:
				if err != nil {
					t.Errorf("is refused: %v", err)
				}
			case err == nil || !apierrors.IsInvalid(err):
				t.Errorf("got %v, want it refused as invalid", err)
			case byWebhook:
				if diff := cmp.Diff(c.Refused, fieldsOf(err)); diff != "" {
					t.Errorf("refused fields (-want +got):\n%s%v", diff, err)
				}
				if !strings.Contains(err.Error(), c.Says) {
					t.Errorf("says %v; want it to say %q", err, c.Says)
				}
			}
		})
	}
}

func (w *world) updateBroken(t *testing.T, broken *v1alpha1.CacheBackend) {
	w.get(t, broken)
	labelled := broken.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	if err := w.Update(t.Context(), labelled, client.DryRunAll); err != nil {
		t.Errorf("a label is refused: %v", err)
	}
	worse := broken.DeepCopy()
	worse.Spec.HiCache.WritePolicy = "later"
	err := w.Update(t.Context(), worse, client.DryRunAll)
	if diff := cmp.Diff([]string{"spec.hiCache.writePolicy"}, fieldsOf(err)); diff != "" {
		t.Errorf("refused fields (-want +got):\n%s%v", diff, err)
	}
	kept := broken.DeepCopy()
	kept.Finalizers = []string{"example.com/hold"}
	if err := w.Update(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	if err := w.Delete(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	w.get(t, kept)
	kept.Finalizers = nil
	if err := w.Update(t.Context(), kept); err != nil {
		t.Errorf("an object that is being deleted is not let go: %v", err)
	}
}

func (w *world) defaults(t *testing.T) {
	all, err := crdtest.Defaults()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		o := &unstructured.Unstructured{Object: d.Given}
		if !slices.Contains(judged, o.GetKind()) {
			continue
		}
		t.Run(d.Name, func(t *testing.T) {
			switch err := w.Create(t.Context(), o, client.DryRunAll); {
			case apierrors.IsInvalid(err):
				return // it shows defaults that no valid object has
			case err != nil:
				t.Fatal(err)
			}
			if diff := cmp.Diff(d.Stored["spec"], o.Object["spec"]); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
		})
	}
}

// neighbours are refused because of what is stored already.
func (w *world) neighbours(t *testing.T) {
	first, policy, tenant := typed[v1alpha1.CacheBackend](t, "base hicache"), typed[v1alpha1.CachePolicy](t, "base policy"), typed[v1alpha1.CacheTenant](t, "base tenant")
	w.create(t, first, policy, tenant)
	refused := func(o client.Object, says string) {
		t.Helper()
		o.SetName("second")
		o.SetResourceVersion("")
		o.SetUID("")
		err := w.Create(t.Context(), o, client.DryRunAll)
		if err == nil || !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want it to say %q", err, says)
		}
		o.SetNamespace("team-b")
		if err := w.Create(t.Context(), o, client.DryRunAll); err != nil {
			t.Errorf("the same in another namespace: %v", err)
		}
	}
	refused(first.DeepCopy(), "CacheBackend "+first.Name+" of this namespace selects domain")
	refused(policy.DeepCopy(), "a namespace has one CachePolicy, and team-a has "+policy.Name)
	refused(tenant.DeepCopy(), "CacheTenant "+tenant.Name+" of this namespace has the id already")
	for _, o := range []client.Object{first, policy, tenant} { // none is in its own way
		o.SetLabels(map[string]string{"a": "b"})
		if err := w.Update(t.Context(), o); err != nil {
			t.Error(err)
		}
	}
}

func (w *world) warn(t *testing.T) {
	w.create(t, &v1alpha1.CacheTenant{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "b"}, Spec: v1alpha1.CacheTenantSpec{TenantID: "b"}})
	w.report(t, "reporting")
	tenant := func(id string) client.Object {
		return &v1alpha1.CacheTenant{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "w"}, Spec: v1alpha1.CacheTenantSpec{TenantID: id}}
	}
	policy := func(namespace string) client.Object {
		return &v1alpha1.CachePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "w"}}
	}
	events := typed[v1alpha1.CacheBackend](t, "base events")
	events.Name, events.Spec.Observation = "w", nil
	events.Spec.EngineSelector = &v1alpha1.EngineSelector{MatchLabels: map[string]string{v1alpha1.LabelCacheDomain: "w"}}
	w.Namespace(t, "reporting")
	for _, c := range []struct {
		name   string
		object client.Object
		want   string // part of the only warning; "" wants none
	}{
		{"a tenant id that is a namespace", tenant("team-b"), ""},
		{"a tenant id that reports", tenant("reporting"), ""},
		{"a tenant id that nothing has", tenant("nobody"), `no namespace is called "nobody"`},
		{"a tenant id that can be no name", tenant("No Body/.."), `no namespace is called "No Body/.."`},
		{"a tenant id of another namespace", tenant("b"), "CacheTenant b/b has the id"},
		{"a policy where engines report", policy("reporting"), ""},
		{"a policy where none do", policy("team-b"), "namespace team-b has no engines that report"},
		{"events without a model", events, "modelID is not set"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.warnings.take()
			if err := w.Create(t.Context(), c.object, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			got := w.warnings.take()
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
				t.Errorf("warnings %q, want %q", got, c.want)
			}
		})
	}
}

// report writes into the CacheIndex that a tenant reports.
func (w *world) report(t *testing.T, id string) {
	t.Helper()
	index := &v1alpha1.CacheIndex{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.CacheIndexName}}
	eventually(t, "there is a CacheIndex", func() error { return w.Get(t.Context(), client.ObjectKeyFromObject(index), index) })
	index.Status.Tenants = []v1alpha1.IndexTenant{{ID: id}}
	if err := w.Status().Update(t.Context(), index); err != nil {
		t.Fatal(err)
	}
}
