package e2e

import (
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// warnings collects what the API server warns of.
type warnings struct {
	mu  sync.Mutex
	all []string
}

var _ rest.WarningHandler = (*warnings)(nil)

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// testAdmission asks the controller's webhooks, through the API server, what no schema can tell: how objects go
// together.
func testAdmission(t *testing.T, s *system) {
	warned := &warnings{}
	config := s.Config()
	config.WarningHandler = warned
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	create := func(namespace, name, tenantID string) error {
		tenant := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"tenantID": tenantID}}}
		tenant.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("CacheTenant"))
		tenant.SetName(name)
		_, err := client.Resource(v1alpha1.GroupVersion.WithResource("cachetenants")).Namespace(namespace).
			Create(t.Context(), tenant, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	if err := create("team-a", "another", "team-a"); err == nil || !strings.Contains(err.Error(), "spec.tenantID") {
		t.Errorf("a second CacheTenant of an id in a namespace: %v, want a refusal that names spec.tenantID", err)
	}
	if err := create("team-a", "nobody", "nobody"); err != nil {
		t.Error(err)
	}
	if text := strings.Join(warned.all, "\n"); !strings.Contains(text, `no namespace is called "nobody"`) {
		t.Errorf("for a tenant that nobody is, the API server warns %q", text)
	}
}
