package manifests

import (
	"bytes"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inferencecache/inferencecache/hack/kube/kubetest"
)

const (
	root  = "../../../daemonset"
	base  = root + "/base"
	chart = root + "/chart"
	// namespace is where everything is installed.
	namespace = "inference-cache-system"
)

// charts are the ways to render the chart, by what they add. That it is the same as what kustomize builds is
// tested beside it.
var charts = map[string][]string{
	"as it is":           nil,
	"with TLS":           {"--set=tls.enabled=true"},
	"with mutual TLS":    {"--set=tls.enabled=true,tls.mutual=true"},
	"with observability": {"--set=monitoring.enabled=true"},
	"for GPU nodes":      {"--values=" + root + "/testdata/gpu-nodes.yaml"},
}

// folders returns the folders that kustomize builds: the base first, then every overlay.
func folders(t *testing.T) []string {
	t.Helper()
	all := []string{base}
	err := filepath.WalkDir(filepath.Join(root, "overlays"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "kustomization.yaml" {
			all = append(all, filepath.Dir(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// build renders a folder with kustomize.
func build(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	return render(t, "kustomize", "build", folder)
}

// template renders the chart with Helm.
func template(t *testing.T, args ...string) []*unstructured.Unstructured {
	t.Helper()
	args = append([]string{"template", "inference-cache", chart, "--namespace=" + namespace, "--set=namespace.create=true"}, args...)
	return render(t, "helm", args...)
}

func render(t *testing.T, program string, args ...string) []*unstructured.Unstructured {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(kubetest.Programs(t), program), args...)
	// Both read and write below the home folder: not the one of whoever runs the test.
	home := t.TempDir()
	command.Env = append(command.Environ(), "HOME="+home, "XDG_CACHE_HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
	var complaints bytes.Buffer
	command.Stderr = &complaints
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", program, strings.Join(args, " "), err, complaints.String())
	}
	objects, err := kubetest.Objects(out)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// name returns kind, namespace and name.
func name(object *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", object.GroupVersionKind().GroupKind(), object.GetNamespace(), object.GetName())
}

// ordered returns objects in an order in which they can be applied: what others live in or are of comes first.
func ordered(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	first := []string{"CustomResourceDefinition", "Namespace", "PriorityClass", "ServiceAccount"}
	rank := func(object *unstructured.Unstructured) int {
		if i := slices.Index(first, object.GetKind()); i >= 0 {
			return i
		}
		return len(first)
	}
	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return objects
}

// templates returns the pod templates among objects, by the name of their object.
func templates(objects []*unstructured.Unstructured) map[string]map[string]any {
	all := map[string]map[string]any{}
	for _, object := range objects {
		if template, found, _ := unstructured.NestedMap(object.Object, "spec", "template"); found && template["spec"] != nil {
			all[object.GetKind()+" "+object.GetName()] = template
		}
	}
	return all
}
