package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

func TestEveryKindIsKnownToTheScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"CacheBackend", "CachePolicy", "CacheTenant", "CacheIndex", "PromptTemplate", "PDTopology"} {
		for _, name := range []string{kind, kind + "List"} {
			if _, err := scheme.New(v1alpha1.GroupVersion.WithKind(name)); err != nil {
				t.Error(err)
			}
		}
	}
}

// What readers of a status must see even when it is 0, and what must not be there until it is known.
func TestWhatAStatusWritesOut(t *testing.T) {
	for _, c := range []struct {
		name   string
		object any
		want   string
	}{
		{"an empty index", v1alpha1.CacheIndexStatus{ObservedServer: "a"}, `{"prefixes":{"summary":{"total":0,"hot":0}},"observedServer":"a"}`},
		{"a tenant without entries", v1alpha1.IndexTenant{ID: "a", IndexEntries: new(int64)}, `{"id":"a","indexEntries":0,"memoryUsed":0}`},
		{"a tenant not observed", v1alpha1.IndexTenant{ID: "a"}, `{"id":"a","memoryUsed":0}`},
		{"a backend without prefixes", v1alpha1.IndexParticipation{}, `{"prefixCount":0}`},
		{"a Pod without server", v1alpha1.EnginePodCoverage{Name: "a"}, `{"name":"a","ready":false,"covered":false}`},
		{"an object without status", v1alpha1.CacheIndex{}, `{"metadata":{}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := json.Marshal(c.object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("JSON (-want +got):\n%s", diff)
			}
		})
	}
}
