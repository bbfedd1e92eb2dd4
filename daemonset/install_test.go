package daemonset

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// install is what daemonset/base applies.
type install struct {
	objects     []runtime.Object
	workloads   []workload
	services    []*core.Service
	budgets     []*policy.PodDisruptionBudget
	networks    []*network.NetworkPolicy
	roles       []*rbac.ClusterRole
	bindings    []*rbac.ClusterRoleBinding
	local       []*rbac.Role
	localBound  []*rbac.RoleBinding
	mutating    []*admission.MutatingWebhookConfiguration
	validating  []*admission.ValidatingWebhookConfiguration
	definitions []*extensions.CustomResourceDefinition
}

// workload is a DaemonSet or a Deployment.
type workload struct {
	name     string
	selector map[string]string
	template core.PodTemplateSpec
}

func (w workload) container() *core.Container { return &w.template.Spec.Containers[0] }

// component is the last element of the image's name, and the command's folder below cmd.
func (w workload) component() string { return w.template.Labels["app.kubernetes.io/component"] }

// readBase decodes what the kustomization of the folder names, and refuses fields that do not exist.
func readBase(t *testing.T) *install {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, extensions.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer()
	i := &install{}
	for _, path := range resources(t, "base") {
		for _, document := range documents(t, path) {
			object, _, err := decoder.Decode(document, nil, nil)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			i.add(object)
		}
	}
	return i
}

func (i *install) add(object runtime.Object) {
	i.objects = append(i.objects, object)
	switch o := object.(type) {
	case *apps.DaemonSet:
		i.workloads = append(i.workloads, workload{o.Name, o.Spec.Selector.MatchLabels, o.Spec.Template})
	case *apps.Deployment:
		i.workloads = append(i.workloads, workload{o.Name, o.Spec.Selector.MatchLabels, o.Spec.Template})
	case *core.Service:
		i.services = append(i.services, o)
	case *policy.PodDisruptionBudget:
		i.budgets = append(i.budgets, o)
	case *network.NetworkPolicy:
		i.networks = append(i.networks, o)
	case *rbac.ClusterRole:
		i.roles = append(i.roles, o)
	case *rbac.ClusterRoleBinding:
		i.bindings = append(i.bindings, o)
	case *rbac.Role:
		i.local = append(i.local, o)
	case *rbac.RoleBinding:
		i.localBound = append(i.localBound, o)
	case *admission.MutatingWebhookConfiguration:
		i.mutating = append(i.mutating, o)
	case *admission.ValidatingWebhookConfiguration:
		i.validating = append(i.validating, o)
	case *extensions.CustomResourceDefinition:
		i.definitions = append(i.definitions, o)
	}
}

// workload returns the one that runs a component.
func (i *install) workload(t *testing.T, component string) workload {
	t.Helper()
	for _, w := range i.workloads {
		if w.component() == component {
			return w
		}
	}
	t.Fatalf("no workload of component %s", component)
	return workload{}
}

func (i *install) service(t *testing.T, name string) *core.Service {
	t.Helper()
	for _, s := range i.services {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no Service %s", name)
	return nil
}

// resources lists the files that a kustomization names, through those of other folders.
func resources(t *testing.T, folder string) []string {
	t.Helper()
	var kustomization struct {
		Resources []string `json:"resources"`
	}
	content, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, &kustomization); err != nil {
		t.Fatalf("%s: %v", folder, err)
	}
	var files []string
	for _, name := range kustomization.Resources {
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); err != nil {
			t.Fatal(err)
		} else if info.IsDir() {
			files = append(files, resources(t, path)...)
			continue
		}
		files = append(files, path)
	}
	return files
}

// documents splits a file of YAML.
func documents(t *testing.T, path string) [][]byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	reader := utilyaml.NewYAMLReader(newBuffered(content))
	var all [][]byte
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if len(bytes.TrimSpace(document)) > 0 {
			all = append(all, document)
		}
	}
}

func TestEveryFileOfAFolderIsNamedInItsKustomization(t *testing.T) {
	for _, folder := range []string{"base", "../crds/manifests"} {
		kustomized := folder
		if folder != "base" {
			kustomized = filepath.Dir(folder)
		}
		named := resources(t, kustomized)
		files, err := fs.Glob(os.DirFS(folder), "*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if path := filepath.Join(folder, f); f != "kustomization.yaml" && !slices.Contains(named, path) {
				t.Errorf("%s is in no kustomization", path)
			}
		}
	}
}

func TestEveryKindIsInstalled(t *testing.T) {
	i := readBase(t)
	var kinds []string
	for _, d := range i.definitions {
		kinds = append(kinds, d.Spec.Names.Kind)
	}
	slices.Sort(kinds)
	want := []string{"CacheBackend", "CacheIndex", "CachePolicy", "CacheTenant", "PDTopology", "PromptTemplate"}
	if !slices.Equal(kinds, want) {
		t.Errorf("kinds installed: %v, want %v", kinds, want)
	}
}

func TestNamesOfTheClusterArePrefixed(t *testing.T) {
	for _, o := range readBase(t).objects {
		name := named(t, o)
		if name.namespace != "" || strings.HasPrefix(name.name, "inference-cache") || strings.HasSuffix(name.name, ".inferencecache.io") {
			continue
		}
		t.Errorf("%s %s belongs to the whole cluster and is not called inference-cache-*", name.kind, name.name)
	}
}

func TestEverythingElseIsInOneNamespace(t *testing.T) {
	for _, o := range readBase(t).objects {
		if n := named(t, o); n.namespace != "" && n.namespace != "inference-cache-system" {
			t.Errorf("%s %s is in namespace %s", n.kind, n.name, n.namespace)
		}
	}
}
