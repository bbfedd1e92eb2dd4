package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/inferencecache/inferencecache/hack/kube/kubetest"
)

// install applies what daemonset/base renders. What is installed is real but for the pods: no Kubernetes
// controller makes them, and the test runs the commands in their place.
func install(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(kubetest.Programs(t), "kustomize"), "build", "../../../daemonset/base").Output()
	if err != nil {
		t.Fatalf("render the manifests: %v", err)
	}
	c.Apply(t, out)
	c.AwaitCRDs(t)
}
