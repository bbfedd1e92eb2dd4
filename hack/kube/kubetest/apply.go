package kubetest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/inferencecache/inferencecache/crds"
)

// fieldManager owns the fields that Apply sets.
const fieldManager = "kubetest"

// Apply applies every object of YAML documents, in order, as kubectl apply --server-side does for an
// administrator. Objects without a namespace go to "default".
func (c *Cluster) Apply(t testing.TB, manifests ...[]byte) {
	t.Helper()
	for _, manifest := range manifests {
		objects, err := Objects(manifest)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			if _, err := c.ApplyObject(t.Context(), object, metav1.ApplyOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// ApplyObject applies an object and returns it as stored.
func (c *Cluster) ApplyObject(ctx context.Context, object *unstructured.Unstructured, options metav1.ApplyOptions) (*unstructured.Unstructured, error) {
	resource, err := c.Resource(object)
	if err != nil {
		return nil, err
	}
	options.FieldManager, options.Force = fieldManager, true
	stored, err := resource.Apply(ctx, object.GetName(), object, options)
	if err != nil {
		return nil, fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return stored, nil
}

// Resource returns a client for objects of this one's kind in this one's namespace.
func (c *Cluster) Resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		c.mapper.Reset() // it may be a new one
		mapping, err = c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("find the resource of %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return c.dynamic.Resource(mapping.Resource), nil
	}
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return c.dynamic.Resource(mapping.Resource).Namespace(namespace), nil
}

// Objects returns the objects of YAML documents.
func Objects(manifest []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read YAML documents: %w", err)
		}
		var object unstructured.Unstructured
		if err := sigsyaml.Unmarshal(document, &object.Object); err != nil {
			return nil, fmt.Errorf("decode object %d: %w", len(objects)+1, err)
		}
		if len(object.Object) > 0 { // else only comments
			objects = append(objects, &object)
		}
	}
}

// InstallCRDs applies the project's CustomResourceDefinitions, and returns when objects of them can be made.
func (c *Cluster) InstallCRDs(t testing.TB) {
	t.Helper()
	files, err := fs.Glob(crds.Manifests, "manifests/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		manifest, err := crds.Manifests.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c.Apply(t, manifest)
	}
	c.AwaitCRDs(t)
}

// AwaitCRDs waits until objects of every CustomResourceDefinition of the cluster can be made.
func (c *Cluster) AwaitCRDs(t testing.TB) {
	t.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}
	definitions, err := c.Resource(definition)
	if err != nil {
		t.Fatal(err)
	}
	c.await(t, "the CustomResourceDefinitions to be established", func(ctx context.Context) (bool, error) {
		list, err := definitions.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, definition := range list.Items {
			if served, err := c.served(ctx, &definition); !served {
				return false, err
			}
		}
		return true, nil
	})
}

// served reports whether objects of a definition can be listed.
func (c *Cluster) served(ctx context.Context, definition *unstructured.Unstructured) (bool, error) {
	kind, _, err := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	group, _, err2 := unstructured.NestedString(definition.Object, "spec", "group")
	versions, _, err3 := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err := errors.Join(err, err2, err3); err != nil {
		return false, err
	}
	for _, version := range versions {
		object := &unstructured.Unstructured{}
		object.SetAPIVersion(group + "/" + version.(map[string]any)["name"].(string))
		object.SetKind(kind)
		resource, err := c.Resource(object)
		if meta.IsNoMatchError(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if _, err := resource.List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			if apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) {
				return false, nil // not served yet
			}
			return false, err
		}
	}
	return true, nil
}

// Kubectl runs kubectl as an administrator and returns what it prints; that it fails, fails the test.
func (c *Cluster) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := c.TryKubectl(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TryKubectl is Kubectl where a failure is of interest: the error has what kubectl says of it.
func (c *Cluster) TryKubectl(t testing.TB, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(c.programs, "kubectl"), append([]string{"--kubeconfig", c.Kubeconfig(t)}, args...)...)
	command.Env = append(command.Environ(), "HOME="+c.dir) // where it keeps what it discovers
	var errors bytes.Buffer
	command.Stderr = &errors
	out, err := command.Output()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, errors.String())
	}
	return string(out), nil
}
