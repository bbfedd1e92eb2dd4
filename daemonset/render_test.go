package daemonset

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbac "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// program finds kustomize or helm: on PATH, else where hack/kube/install.sh puts it.
func program(t *testing.T, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	found, err := filepath.Glob(filepath.Join(cache, "inferencecache", "kube-*", name))
	if err != nil || len(found) == 0 {
		t.Skipf("no %s on PATH or in %s/inferencecache: hack/kube/install.sh builds it", name, cache)
	}
	return found[0]
}

// rendered runs a program and returns the objects that it prints, without annotations for the program itself.
func rendered(t *testing.T, path string, arguments ...string) map[objectName]map[string]any {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), path, arguments...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	if err := os.WriteFile(file, out, 0o600); err != nil {
		t.Fatal(err)
	}
	objects := map[objectName]map[string]any{}
	for _, document := range documents(t, file) {
		var o map[string]any
		if err := yaml.UnmarshalStrict(document, &o); err != nil {
			t.Fatalf("%s prints what is no object: %v\n%s", path, err, document)
		}
		if len(o) == 0 {
			continue // a comment
		}
		name, err := nameOf(o)
		if err != nil {
			t.Fatalf("%s: %v\n%s", path, err, document)
		}
		if _, twice := objects[name]; twice {
			t.Errorf("%s prints %v twice", path, name)
		}
		objects[name] = o
	}
	return objects
}

func nameOf(o map[string]any) (objectName, error) {
	metadata, ok := o["metadata"].(map[string]any)
	if !ok {
		return objectName{}, errors.New("an object without metadata")
	}
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		for name := range annotations {
			if strings.HasPrefix(name, "helm.sh/") {
				delete(annotations, name)
			}
		}
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	text := func(value any) string { s, _ := value.(string); return s }
	return objectName{text(o["kind"]), text(metadata["namespace"]), text(metadata["name"])}, nil
}

func TestTheChartRendersWhatKustomizeBuilds(t *testing.T) {
	kustomize, helm := program(t, "kustomize"), program(t, "helm")
	for folder, values := range map[string][]string{
		"base":                   nil,
		"overlays/tls":           {"--set", "tls.enabled=true"},
		"overlays/mtls":          {"--set", "tls.enabled=true,tls.mutual=true"},
		"overlays/observability": {"--set", "monitoring.enabled=true"},
		"overlays/gpu-nodes":     {"--values", "testdata/gpu-nodes.yaml"},
	} {
		t.Run(folder, func(t *testing.T) {
			want := rendered(t, kustomize, "build", folder)
			// The Namespace of a release is helm's --create-namespace, unless the chart is asked for it.
			got := rendered(t, helm, append([]string{
				"template", "inference-cache", "chart", "--namespace", "inference-cache-system", "--set", "namespace.create=true",
			}, values...)...)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kustomize (-) and the chart (+) differ:\n%s", diff)
			}
		})
	}
}

func TestTheChartInstallsIntoAnyNamespace(t *testing.T) {
	objects := rendered(t, program(t, "helm"), "template", "inference-cache", "chart", "--namespace", "elsewhere",
		"--set", "namespace.create=true,monitoring.enabled=true,tls.enabled=true,tls.mutual=true")
	for name, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if name.kind != "CustomResourceDefinition" && strings.Contains(string(text), "inference-cache-system") {
			t.Errorf("%v names inference-cache-system:\n%s", name, text)
		}
	}
}

func TestTheChartRefusesValuesThatDoNotExistOrContradict(t *testing.T) {
	helm := program(t, "helm")
	for value, want := range map[string]string{
		"agent.replicas=2":          "additional properties 'replicas' not allowed",
		"tls.mutual=true":           "/tls/enabled",
		"aggregator.warmUp=45":      "/aggregator/warmUp",
		"agent.maxUnavailable=0":    "/agent/maxUnavailable",
		"agent.extraArgs={log}":     "/agent/extraArgs/0",
		"aggregator.replicas=0":     "/aggregator/replicas",
		"image.pullPolicy=Sometime": "/image/pullPolicy",
	} {
		out, err := exec.CommandContext(t.Context(), helm, "template", "chart", "--set", value).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("--set %s: %v, want a refusal that names %s\n%s", value, err, want, out)
		}
	}
}

func TestWithCertManagerTheControllerIsGrantedWhatItsCodeAsksForThen(t *testing.T) {
	config, got := controllerConfig(), map[permission]bool{}
	config.CertDir = "certificates"
	for name, o := range rendered(t, program(t, "kustomize"), "build", "overlays/tls") {
		var role rbac.ClusterRole
		if (name.kind != "ClusterRole" && name.kind != "Role") || name.name != "inference-cache-controller" {
			continue
		}
		text, err := yaml.Marshal(o)
		if err == nil {
			err = yaml.Unmarshal(text, &role)
		}
		if err != nil {
			t.Fatal(err)
		}
		flatten(got, map[string]string{"ClusterRole": "cluster", "Role": "namespace"}[name.kind], role.Rules)
	}
	sameGrants(t, config, got)
}
