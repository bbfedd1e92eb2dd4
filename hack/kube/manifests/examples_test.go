package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inferencecache/inferencecache/hack/kube/kubetest"
)

// fenced is a block of YAML in a document.
var fenced = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// testExamples asks the API server whether it would take every object that the documents show.
func testExamples(t *testing.T, c *kubetest.Cluster) {
	files, err := filepath.Glob("../../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("documents: %v, %v", files, err)
	}
	total := 0
	for _, file := range append(files, "../../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var examples []*unstructured.Unstructured
		for _, block := range fenced.FindAllSubmatch(text, -1) {
			examples = append(examples, whole(block[1])...)
		}
		if len(examples) > 0 {
			t.Run(filepath.Base(file), func(t *testing.T) { dryRun(t, c, examples) })
			total += len(examples)
		}
	}
	if total == 0 {
		t.Error("no document shows an object")
	}
}

// whole returns the objects of a block that are for the API server: not parts of one, nor configuration.
func whole(block []byte) []*unstructured.Unstructured {
	objects, err := kubetest.Objects(block)
	if err != nil {
		return nil // not of objects
	}
	var all []*unstructured.Unstructured
	for _, object := range objects {
		if object.GetAPIVersion() != "" && object.GetName() != "" && object.GetKind() != "Kustomization" {
			object.SetNamespace(strings.ToLower(object.GetNamespace())) // capitals stand for the reader's own
			all = append(all, object)
		}
	}
	return all
}
