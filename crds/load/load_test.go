package load_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/inferencecache/inferencecache/crds/crdtest"
	"github.com/inferencecache/inferencecache/crds/load"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

const policy = `apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: default, namespace: team-a}
spec: {eviction: LFU}
`

const tenant = `apiVersion: inferencecache.io/v1alpha1
kind: CacheTenant
metadata:
  name: team-a
  namespace: team-a
spec:
  tenantID: team-a
  quota:
    maxIndexEntries: 100
`

func TestAFolderOfFilesAndDocuments(t *testing.T) {
	objects, err := load.FS(fstest.MapFS{
		"b.yaml":        {Data: []byte("# two documents\n---\n" + policy + "---\n# nothing\n---\n" + tenant + "...\n")},
		"a.yml":         {Data: []byte(strings.ReplaceAll(policy, "team-a", "team-b"))},
		"c.JSON":        {Data: []byte(`{"apiVersion": "inferencecache.io/v1alpha1", "kind": "PromptTemplate", "metadata": {"name": "t", "namespace": "n"}, "spec": {"body": "b"}}`)},
		"notes.txt":     {Data: []byte("not read")},
		".hidden.yaml":  {Data: []byte("not read")},
		"sub.yaml/x":    {Data: []byte("not read")},
		"..data/x.yaml": {Data: []byte("not read")},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range objects.CachePolicies {
		got = append(got, p.Namespace+" "+string(p.Spec.Eviction)+" "+*p.Spec.RoutingFloorScore)
	}
	if diff := cmp.Diff([]string{"team-b LFU 0.1", "team-a LFU 0.1"}, got); diff != "" {
		t.Errorf("policies with defaults, in the order of files (-want +got):\n%s", diff)
	}
	if len(objects.CacheTenants) != 1 || *objects.CacheTenants[0].Spec.Quota.MaxIndexEntries != 100 || objects.CacheTenants[0].Spec.IsolationMode != "Fairness" {
		t.Errorf("tenants: %+v", objects.CacheTenants)
	}
	if len(objects.PromptTemplates) != 1 {
		t.Errorf("templates: %+v", objects.PromptTemplates)
	}
}

func TestProblemsNamePlaceAndCause(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"an unknown field", strings.Replace(tenant, "maxIndexEntries", "maxEntries", 1), `f.yaml:9 (document 1): CacheTenant team-a/team-a: unknown field "spec.quota.maxEntries"`},
		{"an unknown field of metadata", strings.Replace(policy, "name:", "nome: a, name:", 1), `unknown field "metadata.nome"`},
		{"a field in the wrong case", strings.Replace(policy, "eviction", "Eviction", 1), `unknown field "spec.Eviction"`},
		{"content of crypto", tenant + "  crypto: {key: a}\n", `f.yaml:10 (document 1): CacheTenant team-a/team-a: unknown field "spec.crypto.key"`},
		{"a field of the wrong type", strings.Replace(tenant, "100", "many", 1), `f.yaml:9 (document 1): CacheTenant team-a/team-a: spec.quota.maxIndexEntries: got string, want a whole number of type int64`},
		{"an object where text belongs", strings.Replace(tenant, "tenantID: team-a", "tenantID: {a: b}", 1), `f.yaml:7 (document 1): CacheTenant team-a/team-a: spec.tenantID: got object, want a text`},
		{"text where an object belongs", strings.Replace(policy, "{eviction: LFU}", "LFU", 1), `f.yaml:4 (document 1): CachePolicy team-a/default: spec: got string, want an object`},
		{"a number where text belongs", strings.Replace(policy, "eviction: LFU", "routingFloorScore: 0.1", 1), `spec.routingFloorScore: got number, want a text; put it in quotes`},
		{"a word where a truth value belongs", strings.Replace(policy, "{eviction: LFU}", "\n  strategy:\n    requireChain: yes", 1), `f.yaml:6 (document 1): CachePolicy team-a/default: spec.strategy.requireChain: got string, want true or false`},
		{"a bad duration", strings.Replace(policy, "{eviction: LFU}", "\n  eviction: LFU\n  evictionTTL: 30", 1), `f.yaml:6 (document 1): CachePolicy team-a/default: spec.evictionTTL: `},
		{"a broken rule", strings.Replace(policy, "LFU", "FIFO", 1), `f.yaml:4 (document 1): CachePolicy team-a/default: spec.eviction: Unsupported value: "FIFO"`},
		{"a key twice", policy + "spec: {}\n", `f.yaml:5 (document 1): key "spec" is there twice`},
		{"another version", strings.Replace(policy, "v1alpha1", "v1", 1), `f.yaml:1 (document 1): apiVersion is "inferencecache.io/v1", want inferencecache.io/v1alpha1`},
		{"no version", "kind: CachePolicy\n", `f.yaml:1 (document 1): apiVersion is missing`},
		{"another kind", strings.Replace(policy, "CachePolicy", "Deployment", 1), `f.yaml:2 (document 1): kind is "Deployment", want one of CacheBackend, CacheIndex`},
		{"a kind that is no text", strings.Replace(policy, "CachePolicy", "7", 1), `kind is not text`},
		{"no name", strings.Replace(policy, "name: default, ", "", 1), `metadata.name: Required`},
		{"no namespace", strings.Replace(policy, ", namespace: team-a", "", 1), `f.yaml:3 (document 1): CachePolicy default: metadata.namespace: Required`},
		{"an invalid name", strings.Replace(policy, "name: default", "name: A b", 1), `metadata.name: Invalid value: "A b"`},
		{"an invalid namespace", strings.Replace(policy, "namespace: team-a", "namespace: a.b", 1), `metadata.namespace: Invalid value: "a.b"`},
		{"a namespace of a kind without", "apiVersion: inferencecache.io/v1alpha1\nkind: CacheIndex\nmetadata: {name: cluster-default, namespace: a}\n", `metadata.namespace: Forbidden`},
		{"text", "hello\n", `f.yaml:1 (document 1): is not an object`},
		{"a list", "- a\n", `is not an object`},
		{"YAML that does not end", "a: [b\n", `(document 1): read YAML: did not find expected`},
		{"a merge key", "a: &a {b: c}\nd:\n  <<: *a\n", `f.yaml:3 (document 1): merge keys are not supported`},
		{"a key that is a list", "? [a]\n: b\n", `a key must be text`},
		{"binary data", "a: !!binary aGk=\n", `tag !!binary is not supported`},
		{"a number that JSON cannot hold", strings.Replace(tenant, "100", ".inf", 1), `CacheTenant team-a/team-a: write as JSON`},
		{"aliases that grow", bomb(), `holds more than`},
		{"aliases of a long text", "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a, ", 8) + "*a]\n", `bytes of text`},
		{"an alias of itself", "a: &a [*a]\n", `f.yaml:1 (document 1)`},
		{"deep nesting", strings.Repeat("[", 100) + strings.Repeat("]", 100), `nested more than 64 deep`},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects, err := load.File("f.yaml", []byte(c.file))
			var problems load.Problems
			if !errors.As(err, &problems) || len(problems) != 1 || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant one problem with %q", err, c.want)
			}
			if diff := cmp.Diff(load.Objects{}, objects); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

// bomb is an object of a few lines that its aliases make enormous.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 9; i++ {
		before := "*a" + string(rune('0'+i-1))
		b.WriteString("a" + string(rune('0'+i)) + ": &a" + string(rune('0'+i)) + " [" + strings.Repeat(before+", ", 8) + before + "]\n")
	}
	return b.String()
}

func TestAliasesAreWhatTheyStandFor(t *testing.T) {
	objects, err := load.File("f.yaml", []byte(strings.Replace(tenant, "  name: team-a\n  namespace: team-a", "  name: &t team-a\n  namespace: *t", 1)))
	if err != nil || len(objects.CacheTenants) != 1 || objects.CacheTenants[0].Namespace != "team-a" {
		t.Errorf("got %+v, %v", objects.CacheTenants, err)
	}
}

func TestABadDocumentLosesNoNeighbour(t *testing.T) {
	file := policy + "---\na: [b\n---\n" + strings.Replace(policy, "LFU", "FIFO", 1) + "--- # the last\n" + tenant
	objects, err := load.File("f.yaml", []byte(file))
	if len(objects.CachePolicies) != 1 || len(objects.CacheTenants) != 1 {
		t.Errorf("got %d policies and %d tenants, want those that are sound", len(objects.CachePolicies), len(objects.CacheTenants))
	}
	var problems load.Problems
	if !errors.As(err, &problems) || len(problems) != 2 {
		t.Fatalf("got problems %v, want 2", err)
	}
	if p := problems[0]; p.Document != 2 || p.Line < 5 || p.Line > 7 {
		t.Errorf("got document %d line %d, want 2 and one of its lines: %v", p.Document, p.Line, p)
	}
	if p := problems[1]; p.Document != 3 || p.Line != 10 || p.Object != "CachePolicy team-a/default" {
		t.Errorf("got document %d line %d object %s: %v", p.Document, p.Line, p.Object, p)
	}
}

func TestObjectsThatContradictEachOther(t *testing.T) {
	second := strings.Replace(policy, "name: default", "name: other", 1)
	sameID := strings.Replace(tenant, "name: team-a", "name: other", 1)
	for _, c := range []struct{ name, a, b, want string }{
		{"an object twice", tenant, tenant, "b.yaml:4 (document 1): CacheTenant team-a/team-a: is there already, in a.yaml line 1"},
		{"a second policy of a namespace", policy, second, "b.yaml:3 (document 1): CachePolicy team-a/other: metadata.namespace: Forbidden: a namespace has one CachePolicy, and team-a has default"},
		{"a tenant id twice", tenant, sameID, "b.yaml:7 (document 1): CacheTenant team-a/other: spec.tenantID: Invalid value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects, err := load.FS(fstest.MapFS{"a.yaml": {Data: []byte(c.a)}, "b.yaml": {Data: []byte(c.b)}})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %q", err, c.want)
			}
			if len(objects.CachePolicies)+len(objects.CacheTenants) != 1 {
				t.Errorf("got %+v, want the first object", objects)
			}
		})
	}
}

// The API server ignores a status that a client sends with an object.
func TestStatusIsDropped(t *testing.T) {
	objects, err := load.File("f.yaml", []byte(tenant+"status: {indexEntries: 7}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v1alpha1.CacheTenantStatus{}, objects.CacheTenants[0].Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestEveryCaseGetsItsVerdict(t *testing.T) {
	cases, err := crdtest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			data, err := yaml.Marshal(c.Object)
			if err != nil {
				t.Fatal(err)
			}
			_, err = load.File("f.yaml", data)
			refused := len(c.Refused) > 0 || c.Name == "content of crypto is refused"
			if (err != nil) != refused {
				t.Errorf("got error %v; want one: %t", err, refused)
			}
		})
	}
}

func TestAMountedConfigMap(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "..2026"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "..2026", "policy.yaml"), policy)
	link(t, "..2026", filepath.Join(dir, "..data"))
	link(t, "..data/policy.yaml", filepath.Join(dir, "policy.yaml"))
	objects, err := load.Folder(dir)
	if err != nil || len(objects.CachePolicies) != 1 {
		t.Errorf("got %+v, %v", objects, err)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	link(t, "nowhere", filepath.Join(dir, "broken.yaml"))
	write(t, filepath.Join(dir, "empty.yaml"), "")
	write(t, filepath.Join(dir, "good.yaml"), policy)
	write(t, filepath.Join(dir, "remark.yaml"), "# nothing yet\n")
	write(t, filepath.Join(dir, "large.yaml"), strings.Repeat("#", load.MaxFileBytes+1))
	objects, err := load.Folder(dir)
	if len(objects.CachePolicies) != 1 {
		t.Error("the good file was lost")
	}
	if strings.Contains(fmt.Sprint(err), "remark") {
		t.Errorf("got %v for a file with a comment alone", err)
	}
	for _, want := range []string{"broken.yaml: find file", "empty.yaml: is empty", "large.yaml: has more than 8388608 bytes"} {
		if want = filepath.Join(dir, want); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := load.Folder(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v for a folder that is not there", err)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, name string) {
	t.Helper()
	if err := os.Symlink(to, name); err != nil {
		t.Fatal(err)
	}
}

// FuzzFile looks for input that ends the process, and for accepted objects that are refused when they are
// written out and read again.
func FuzzFile(f *testing.F) {
	f.Add([]byte(policy + "---\n" + tenant))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte(bomb()))
	cases, err := crdtest.Cases()
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range cases {
		data, err := json.Marshal(c.Object)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := load.File("f.yaml", data)
		if err != nil {
			_ = err.Error()
		}
		text := dump(t, objects)
		again, err := load.File("again.yaml", text)
		if err != nil {
			t.Fatalf("read again: %v\n%s", err, text)
		}
		if diff := cmp.Diff(string(text), string(dump(t, again))); diff != "" {
			t.Errorf("read again (-want +got):\n%s", diff)
		}
	})
}

func dump(t *testing.T, o load.Objects) []byte {
	t.Helper()
	var text []byte
	add := func(object any) {
		data, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		text = append(append(text, "---\n"...), append(data, '\n')...)
	}
	for _, b := range o.CacheBackends {
		add(b)
	}
	for _, p := range o.CachePolicies {
		add(p)
	}
	for _, c := range o.CacheTenants {
		add(c)
	}
	for _, x := range o.CacheIndices {
		add(x)
	}
	for _, p := range o.PromptTemplates {
		add(p)
	}
	for _, p := range o.PDTopologies {
		add(p)
	}
	return text
}
