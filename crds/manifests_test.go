package crds_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"

	"github.com/inferencecache/inferencecache/crds"
	"github.com/inferencecache/inferencecache/crds/admission"
	"github.com/inferencecache/inferencecache/crds/crdtest"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

func manifestFiles(t *testing.T) []string {
	t.Helper()
	files, err := fs.Glob(crds.Manifests, "manifests/*.yaml")
	if err != nil || len(files) != 6 {
		t.Fatalf("got files %v, %v; want those of six kinds", files, err)
	}
	return files
}

func schemas(t *testing.T) map[string]kindSchema {
	t.Helper()
	all := map[string]kindSchema{}
	for _, file := range manifestFiles(t) {
		s := loadSchema(t, file)
		all[s.kind] = s
	}
	return all
}

func TestNamesAndColumns(t *testing.T) {
	type shape struct {
		Scope, Plural, Short string
		Columns              []string // of the plain table
	}
	want := map[string]shape{
		"CacheBackend":   {"Namespaced", "cachebackends", "cb", []string{"Type", "Ready", "Matched", "Remote", "Prefixes", "LastEvent", "Age"}},
		"CachePolicy":    {"Namespaced", "cachepolicies", "cpol", []string{"Eviction", "Age"}},
		"CacheTenant":    {"Namespaced", "cachetenants", "ct", []string{"Tenant", "Entries", "Quota", "Isolation", "Age"}},
		"CacheIndex":     {"Cluster", "cacheindices", "ci", []string{"Prefixes", "Changed", "Age"}},
		"PromptTemplate": {"Namespaced", "prompttemplates", "pt", []string{"Revision", "Age"}},
		"PDTopology":     {"Namespaced", "pdtopologies", "pdt", []string{"Prefill", "Decode", "Age"}},
	}
	got := map[string]shape{}
	for _, file := range manifestFiles(t) {
		crd := loadDefinition(t, file)
		s := shape{Scope: string(crd.Spec.Scope), Plural: crd.Spec.Names.Plural, Short: strings.Join(crd.Spec.Names.ShortNames, " ")}
		columns := crd.Spec.AdditionalPrinterColumns
		if columns == nil {
			columns = crd.Spec.Versions[0].AdditionalPrinterColumns
		}
		for _, c := range columns {
			if c.Priority == 0 {
				s.Columns = append(s.Columns, c.Name)
			}
		}
		got[crd.Spec.Names.Kind] = s
		if crd.Spec.Group != "inferencecache.io" || crd.Spec.Versions[0].Name != "v1alpha1" {
			t.Errorf("%s: group %s, version %s", file, crd.Spec.Group, crd.Spec.Versions[0].Name)
		}
		if crd.Spec.Subresources == nil || crd.Spec.Subresources.Status == nil {
			t.Errorf("%s has no status subresource", file)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}

func TestTheAPIServerAcceptsEveryDefinition(t *testing.T) {
	for _, file := range manifestFiles(t) {
		t.Run(file, func(t *testing.T) {
			for _, err := range definitionErrors(t, file) {
				t.Error(err)
			}
		})
	}
}

// Client-side apply keeps the whole object in an annotation of at most 256 KiB.
func TestEveryDefinitionCanBeApplied(t *testing.T) {
	for _, file := range manifestFiles(t) {
		data, err := fs.ReadFile(crds.Manifests, file)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 250<<10 {
			t.Errorf("%s has %d bytes: kubectl apply would refuse it", file, len(data))
		}
	}
}

func TestTheSchemaJudges(t *testing.T) {
	all := schemas(t)
	cases, err := crdtest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{} // details of all findings
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			errs := all[c.Object["kind"].(string)].admit(t, c.Object)
			fields := []string{}
			for _, err := range errs {
				fields = append(fields, err.Field)
				said[err.Detail] = true
			}
			slices.Sort(fields)
			if diff := cmp.Diff(append([]string{}, c.Schema...), fields); diff != "" {
				t.Errorf("refused fields (-want +got):\n%s%v", diff, errs.ToAggregate())
			}
		})
	}
	for kind, s := range all {
		for _, rule := range s.messages {
			if !said[rule] {
				t.Errorf("no case breaks the rule of %s: %s", kind, rule)
			}
		}
	}
}

func TestTheSchemaFillsDefaults(t *testing.T) {
	all := schemas(t)
	defaults, err := crdtest.Defaults()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range defaults {
		t.Run(d.Name, func(t *testing.T) {
			all[d.Given["kind"].(string)].admit(t, d.Given)
			if diff := cmp.Diff(d.Stored, d.Given); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEveryDefaultIsShown(t *testing.T) {
	defaults, err := crdtest.Defaults()
	if err != nil {
		t.Fatal(err)
	}
	for kind, s := range schemas(t) {
		for _, path := range defaultPaths(s.structural) {
			shown := slices.ContainsFunc(defaults, func(d crdtest.Defaulted) bool {
				_, given, _ := unstructured.NestedFieldNoCopy(d.Given, path...)
				_, stored, _ := unstructured.NestedFieldNoCopy(d.Stored, path...)
				return d.Given["kind"] == kind && !given && stored
			})
			if !shown {
				t.Errorf("no object shows the default of %s of a %s", strings.Join(path, "."), kind)
			}
		}
	}
}

// defaultPaths lists the fields that a schema fills. Lists are left out, as they hold Kubernetes' own types; so are
// empty texts, which those have too.
func defaultPaths(s *structural.Structural) (paths [][]string) {
	for name, field := range s.Properties {
		if field.Default.Object != nil && field.Default.Object != "" {
			paths = append(paths, []string{name})
		}
		for _, below := range defaultPaths(&field) {
			paths = append(paths, append([]string{name}, below...))
		}
	}
	return paths
}

// Changes of several cases are put together, where the order in which rules are broken must not matter.
func TestWhatAdmissionAcceptsTheSchemaAcceptsToo(t *testing.T) {
	all := schemas(t)
	cases, err := crdtest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	bases := map[string]map[string]any{}
	changes := map[string][]crdtest.Case{} // by base
	for _, c := range cases {
		switch {
		case c.Base == "":
			bases[strings.TrimPrefix(c.Name, "base ")] = c.Object
		case len(c.Refused) > 0 || len(c.Schema) == 0: // types cannot say the rest: an unknown or missing field
			changes[c.Base] = append(changes[c.Base], c)
		}
	}
	names := slices.Sorted(maps.Keys(bases))
	rapid.Check(t, func(r *rapid.T) {
		base := rapid.SampledFrom(names).Draw(r, "base")
		object := runtime.DeepCopyJSON(bases[base])
		for _, c := range rapid.SliceOfN(rapid.SampledFrom(changes[base]), 1, 4).Draw(r, "changes") {
			crdtest.Apply(object, c.Set)
		}
		accepted := len(judge(r, object)) == 0
		if errs := all[object["kind"].(string)].admit(t, object); accepted && len(errs) > 0 {
			r.Errorf("admission accepts what the schema refuses: %v", errs.ToAggregate())
		}
	})
}

// judge returns what admission refuses of an object.
func judge(r *rapid.T, object map[string]any) field.ErrorList {
	data, err := json.Marshal(object)
	if err != nil {
		r.Fatal(err)
	}
	switch object["kind"] {
	case "CacheBackend":
		return judgeAs(r, data, func(b *v1alpha1.CacheBackend) field.ErrorList { return admission.ValidateCacheBackend(b, nil) })
	case "CachePolicy":
		return judgeAs(r, data, admission.ValidateCachePolicyUpdate)
	case "CacheTenant":
		return judgeAs(r, data, func(c *v1alpha1.CacheTenant) field.ErrorList { return admission.ValidateCacheTenant(c, nil) })
	case "CacheIndex":
		return judgeAs(r, data, admission.ValidateCacheIndex)
	case "PromptTemplate":
		return judgeAs(r, data, admission.ValidatePromptTemplate)
	case "PDTopology":
		return judgeAs(r, data, admission.ValidatePDTopology)
	}
	r.Fatalf("unknown kind %v", object["kind"])
	return nil
}

func judgeAs[T any](r *rapid.T, data []byte, validate func(*T) field.ErrorList) field.ErrorList {
	object := new(T)
	if err := json.Unmarshal(data, object); err != nil {
		r.Fatal(err)
	}
	return validate(object)
}

// The API server refuses an object whose rules cost too much, so the largest one must not.
func TestTheLargestObjectsAreJudgedWithinBudget(t *testing.T) {
	texts := func(text string) []any { return slices.Repeat([]any{text}, 64) }
	pools, types := make([]any, 64), make([]any, 64)
	for i := range pools {
		name := strings.Repeat("x", 251) + fmt.Sprintf("%02d", i)
		pools[i] = map[string]any{"name": name, "acceleratorType": strings.Repeat("x", 251) + "63"}
		types[i] = map[string]any{"name": name}
	}
	all := schemas(t)
	cases, err := crdtest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for base, changes := range map[string]map[string]any{
		"base podlocal": {"spec.integration.engineOverrides": map[string]any{
			"args":         texts("--" + strings.Repeat("a_", 2047)),
			"suppressArgs": texts("--" + strings.Repeat("a_", 2047)),
			"suppressEnv":  texts(strings.Repeat("A", 4096)),
		}},
		"base topology": {"spec": map[string]any{"prefillPools": pools, "decodePools": pools, "acceleratorTypes": types}},
	} {
		i := slices.IndexFunc(cases, func(c crdtest.Case) bool { return c.Name == base })
		object := cases[i].Object
		crdtest.Apply(object, changes)
		if errs := all[object["kind"].(string)].admit(t, object); len(errs) > 0 {
			t.Errorf("%s: %.500v", base, errs.ToAggregate())
		}
	}
}
