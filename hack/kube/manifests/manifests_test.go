package manifests

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inferencecache/inferencecache/hack/kube/kubetest"
)

func TestKubeManifests(t *testing.T) {
	c := kubetest.Start(t)
	c.InstallCRDs(t)
	c.Namespace(t, namespace)
	for _, folder := range folders(t) {
		t.Run("dry run of "+filepath.Base(folder), func(t *testing.T) { dryRun(t, c, build(t, folder)) })
	}
	for name, values := range charts {
		t.Run("dry run of the chart "+name, func(t *testing.T) { dryRun(t, c, template(t, values...)) })
	}
	t.Run("examples in the documents", func(t *testing.T) { testExamples(t, c) })
	t.Run("applied", func(t *testing.T) { testApplied(t, c) })
	t.Run("pod security", func(t *testing.T) {
		for _, folder := range folders(t) {
			admitPods(t, c, build(t, folder))
		}
		for _, values := range charts {
			admitPods(t, c, template(t, values...))
		}
	})
	t.Run("roles", func(t *testing.T) { testRoles(t, c) })
}

// testApplied applies what kustomize builds, the same again, as an upgrade does, and what Helm renders: each time
// the API server must store the same.
func testApplied(t *testing.T, c *kubetest.Cluster) {
	first := map[string]map[string]any{} // by name
	for _, objects := range [][]*unstructured.Unstructured{build(t, base), build(t, base), template(t)} {
		for _, object := range ordered(objects) {
			stored, err := c.ApplyObject(t.Context(), object, metav1.ApplyOptions{})
			if err != nil {
				t.Error(err)
				continue
			}
			content := maps.Clone(stored.Object)
			delete(content, "metadata")
			delete(content, "status")
			before, known := first[name(object)]
			if !known {
				first[name(object)] = content
				continue
			}
			if diff := cmp.Diff(before, content); diff != "" {
				t.Errorf("%s (-at first +now):\n%s", name(object), diff)
			}
		}
		c.AwaitCRDs(t)
	}
}

// dryRun asks the API server whether it would take objects. Kinds that it does not know, such as those of
// cert-manager, are made known with an open schema: of them only the frame is checked.
func dryRun(t *testing.T, c *kubetest.Cluster, objects []*unstructured.Unstructured) {
	if len(objects) == 0 {
		t.Fatal("nothing is rendered")
	}
	for _, object := range ordered(objects) {
		if _, err := c.Resource(object); meta.IsNoMatchError(err) {
			introduce(t, c, object)
		}
		if object.GetNamespace() != "" {
			c.Namespace(t, object.GetNamespace())
		}
		_, err := c.ApplyObject(t.Context(), object, metav1.ApplyOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Errorf("%s: %v", name(object), err)
		}
	}
}

// introduce makes the kind of an object known to the API server.
func introduce(t *testing.T, c *kubetest.Cluster, object *unstructured.Unstructured) {
	t.Helper()
	kind := object.GroupVersionKind()
	plural := strings.ToLower(kind.Kind) + "s"
	scope := "Namespaced"
	if object.GetNamespace() == "" {
		scope = "Cluster"
	}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata": map[string]any{
			"name":        plural + "." + kind.Group,
			"annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, for a test"},
		},
		"spec": map[string]any{
			"group": kind.Group,
			"scope": scope,
			"names": map[string]any{"kind": kind.Kind, "plural": plural},
			"versions": []any{map[string]any{
				"name": kind.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	if _, err := c.ApplyObject(t.Context(), definition, metav1.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	c.AwaitCRDs(t)
}

// admitPods asks the API server whether it would take a pod of each template. Templates themselves are
// taken whatever they hold: Pod Security only warns of them.
func admitPods(t *testing.T, c *kubetest.Cluster, objects []*unstructured.Unstructured) {
	t.Helper()
	all := templates(objects)
	if len(all) == 0 {
		t.Fatal("no object makes pods")
	}
	for owner, template := range all {
		pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod"}}
		pod.Object["metadata"], pod.Object["spec"] = template["metadata"], template["spec"]
		pod.SetName("a")
		pod.SetNamespace(namespace)
		pods, err := c.Resource(pod)
		if err != nil {
			t.Fatal(err)
		}
		options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
		if _, err := pods.Create(t.Context(), pod, options); err != nil {
			t.Errorf("pod of %s: %v", owner, err)
		}
		// The same pod as root must be refused, or nothing was checked.
		if err := unstructured.SetNestedField(pod.Object, int64(0), "spec", "securityContext", "runAsUser"); err != nil {
			t.Fatal(err)
		}
		if _, err := pods.Create(t.Context(), pod, options); !apierrors.IsForbidden(err) {
			t.Errorf("pod of %s as root: %v; want it refused by Pod Security", owner, err)
		}
	}
}
