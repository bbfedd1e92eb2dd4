package kinds

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inferencecache/inferencecache/crds/crdtest"
	"github.com/inferencecache/inferencecache/hack/kube/kubetest"
)

func TestKubeKinds(t *testing.T) {
	c := kubetest.Start(t)
	c.InstallCRDs(t)
	for _, namespace := range []string{"team-a", "b"} { // those of the cases and of the defaults
		c.Namespace(t, namespace)
	}
	t.Run("defaults", func(t *testing.T) { testDefaults(t, c) })
	t.Run("rules", func(t *testing.T) { testRules(t, c) })
	applySamples(t, c)
	t.Run("columns", func(t *testing.T) { testColumns(t, c) })
	t.Run("status", func(t *testing.T) { testStatus(t, c) })
	t.Run("explain", func(t *testing.T) { testExplain(t, c) })
}

func testDefaults(t *testing.T, c *kubetest.Cluster) {
	defaults, err := crdtest.Defaults()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range defaults {
		t.Run(d.Name, func(t *testing.T) {
			read, err := createAndRead(t, c, d.Given)
			if apierrors.IsInvalid(err) {
				t.Skip("the object lacks more than what has defaults; see the defaults of whole objects")
			}
			if err != nil {
				t.Fatal(err)
			}
			read.Object["metadata"] = map[string]any{"name": read.GetName(), "namespace": read.GetNamespace()}
			if diff := cmp.Diff(d.Stored, read.Object); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
		})
	}
	for base, tc := range map[string]struct { // of objects that are otherwise whole
		without []string
		want    map[string]any
	}{
		"base events": {[]string{"spec.type", "spec.allowCrossNamespace", "spec.observation", "spec.integration.role", "spec.integration.failOpen"}, map[string]any{
			"spec.type": "LMCache", "spec.allowCrossNamespace": false, "spec.observation.firstEventTimeout": "5m",
			"spec.integration.role": "ReadWrite", "spec.integration.failOpen": true,
		}},
		"base podlocal": {[]string{"spec.observation.firstEventTimeout", "spec.integration"}, map[string]any{
			"spec.observation.firstEventTimeout": "5m",
			"spec.integration.mode":              "Offload", "spec.integration.role": "ReadWrite", "spec.integration.failOpen": true,
		}},
		"base nodelocal": {[]string{"spec.integration.mode", "spec.lmCache.nodeLocal.idleRetentionSeconds"}, map[string]any{
			"spec.integration.mode": "Offload", "spec.lmCache.nodeLocal.idleRetentionSeconds": int64(300),
		}},
	} {
		t.Run("of "+base, func(t *testing.T) {
			object := caseNamed(t, base).Object
			for _, path := range tc.without {
				crdtest.Apply(object, map[string]any{path: nil})
			}
			read, err := createAndRead(t, c, object)
			if err != nil {
				t.Fatal(err)
			}
			for path, value := range tc.want {
				got, _, err := unstructured.NestedFieldNoCopy(read.Object, strings.Split(path, ".")...)
				if got != value || err != nil {
					t.Errorf("%s is %v, %v; want %v", path, got, err, value)
				}
			}
		})
	}
}

func caseNamed(t *testing.T, name string) crdtest.Case {
	t.Helper()
	cases, err := crdtest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(cases, func(c crdtest.Case) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no case %q", name)
	}
	return cases[i]
}

// createAndRead stores an object, reads it back and deletes it.
func createAndRead(t *testing.T, c *kubetest.Cluster, given map[string]any) (*unstructured.Unstructured, error) {
	t.Helper()
	object := &unstructured.Unstructured{Object: given}
	objects, err := c.Resource(object)
	if err != nil {
		t.Fatal(err)
	}
	created, err := objects.Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return nil, err
	}
	read, err := objects.Get(t.Context(), created.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return read, objects.Delete(t.Context(), created.GetName(), metav1.DeleteOptions{})
}

// rulesNotChecked is what the API server adds where it refuses the shape of an object: rules are judged only
// for one whose shape is right.
const rulesNotChecked = "some validation rules were not checked"

func testRules(t *testing.T, c *kubetest.Cluster) {
	cases, err := crdtest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range cases {
		t.Run(tc.Name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: tc.Object}
			objects, err := c.Resource(object)
			if err != nil {
				t.Fatal(err)
			}
			_, err = objects.Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				t.Log(err) // what a user reads
			}
			want, got := append([]string{}, tc.Schema...), refusedFields(t, err)
			if err != nil && strings.Contains(err.Error(), rulesNotChecked) {
				got = slices.DeleteFunc(got, func(field string) bool { return field == "<nil>" })
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("refused fields (-want +got):\n%s%v", diff, err)
			}
		})
	}
}

// refusedFields returns the fields that an answer of the API server finds fault with, in order.
func refusedFields(t *testing.T, err error) []string {
	t.Helper()
	fields := []string{}
	if err == nil {
		return fields
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		t.Fatalf("not refused as invalid: %v", err)
	}
	for _, cause := range status.Status().Details.Causes {
		fields = append(fields, cause.Field)
	}
	slices.Sort(fields)
	return fields
}

// samples are one object of each kind, with a status as its controller writes it.
const samples = `
apiVersion: inferencecache.io/v1alpha1
kind: CacheBackend
metadata: {name: chat, namespace: team-a}
spec: {runtime: VLLM, observation: {modelID: llama}, integration: {mode: EventsOnly}}
status:
  matchedEnginePods: 2
  indexParticipation: {prefixCount: 40, lastEventAt: "2020-01-01T00:00:00Z"}
  conditions: [{type: Ready, status: "True", reason: KVEventsObserved, message: "", lastTransitionTime: "2020-01-01T00:00:00Z"}]
---
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: default, namespace: team-a}
spec: {eviction: LFU}
---
apiVersion: inferencecache.io/v1alpha1
kind: CacheTenant
metadata: {name: team-a, namespace: team-a}
spec: {tenantID: team-a, quota: {maxIndexEntries: 100}}
status: {indexEntries: 40}
---
apiVersion: inferencecache.io/v1alpha1
kind: CacheIndex
metadata: {name: cluster-default}
status: {lastUpdated: "2020-01-01T00:00:00Z", prefixes: {summary: {total: 40, hot: 3}}}
---
apiVersion: inferencecache.io/v1alpha1
kind: PromptTemplate
metadata: {name: support, namespace: team-a}
spec: {body: Hello}
status: {templateRevision: a1b2}
---
apiVersion: inferencecache.io/v1alpha1
kind: PDTopology
metadata: {name: pd, namespace: team-a}
spec: {prefillPools: [{name: prefill}], decodePools: [{name: decode}]}
`

// applySamples stores the samples, each with its status.
func applySamples(t *testing.T, c *kubetest.Cluster) {
	t.Helper()
	objects, err := kubetest.Objects([]byte(samples))
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		stored, err := c.ApplyObject(t.Context(), object, metav1.ApplyOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if stored.Object["status"] != nil && object.Object["status"] != nil {
			t.Errorf("%s: a write of the object sets its status to %v", object.GetKind(), stored.Object["status"])
		}
		if object.Object["status"] == nil {
			continue
		}
		stored.Object["status"] = object.Object["status"]
		resource, err := c.Resource(object)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := resource.UpdateStatus(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("update the status of %s: %v", object.GetKind(), err)
		}
	}
}

func testColumns(t *testing.T, c *kubetest.Cluster) {
	old := regexp.MustCompile(`\b\d+y\d+d\b`) // the age of 2020, which grows
	for short, want := range map[string]string{
		"cb":   "NAME TYPE READY MATCHED REMOTE PREFIXES LASTEVENT AGE\nchat LMCache True 2 40 OLD NEW",
		"cpol": "NAME EVICTION AGE\ndefault LFU NEW",
		"ct":   "NAME TENANT ENTRIES QUOTA ISOLATION AGE\nteam-a team-a 40 100 Fairness NEW",
		"ci":   "NAME PREFIXES CHANGED AGE\ncluster-default 40 OLD NEW",
		"pt":   "NAME REVISION AGE\nsupport a1b2 NEW",
		"pdt":  "NAME PREFILL DECODE AGE\npd prefill decode NEW",
	} {
		t.Run(short, func(t *testing.T) {
			table := old.ReplaceAllString(c.Kubectl(t, "get", "-n", "team-a", short), "OLD")
			table = regexp.MustCompile(`\b\d+s\b`).ReplaceAllString(table, "NEW")
			var got []string
			for line := range strings.Lines(table) {
				got = append(got, strings.Join(strings.Fields(line), " "))
			}
			if diff := cmp.Diff(strings.Split(want, "\n"), got); diff != "" {
				t.Errorf("kubectl get %s (-want +got):\n%s", short, diff)
			}
		})
	}
}

func testStatus(t *testing.T, c *kubetest.Cluster) {
	tenant := &unstructured.Unstructured{}
	tenant.SetAPIVersion("inferencecache.io/v1alpha1")
	tenant.SetKind("CacheTenant")
	tenant.SetNamespace("team-a")
	tenants, err := c.Resource(tenant)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := tenants.Get(t.Context(), "team-a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changed := stored.DeepCopy()
	for value, path := range map[int64][]string{7: {"status", "indexEntries"}, 8: {"spec", "quota", "maxIndexEntries"}} {
		if err := unstructured.SetNestedField(changed.Object, value, path...); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("of an update of the status the spec is left alone", func(t *testing.T) {
		updated, err := tenants.UpdateStatus(t.Context(), changed, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(stored.Object["spec"], updated.Object["spec"]); diff != "" {
			t.Errorf("spec (-before +after):\n%s", diff)
		}
		if updated.GetGeneration() != stored.GetGeneration() {
			t.Errorf("generation %d became %d: the status counts as a change of the spec", stored.GetGeneration(), updated.GetGeneration())
		}
		changed.SetResourceVersion(updated.GetResourceVersion())
	})
	t.Run("of an update of the object the status is left alone", func(t *testing.T) {
		if err := unstructured.SetNestedField(changed.Object, int64(9), "status", "indexEntries"); err != nil {
			t.Fatal(err)
		}
		updated, err := tenants.Update(t.Context(), changed, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if entries, _, err := unstructured.NestedInt64(updated.Object, "status", "indexEntries"); entries != 7 || err != nil {
			t.Errorf("index entries %d, %v; want the 7 of the status", entries, err)
		}
	})
}

func testExplain(t *testing.T, c *kubetest.Cluster) {
	for path, want := range map[string]string{
		"cpol.spec.eviction": "enum: LRU, LFU",
		"ct.spec.tenantID":   "-required-",
		"cb.spec.runtime":    "enum: VLLM, SGLang",
	} {
		kind, field, _ := strings.Cut(path, ".")
		parent, name := field[:strings.LastIndex(field, ".")], field[strings.LastIndex(field, ".")+1:]
		if got := c.Kubectl(t, "explain", kind+"."+parent); !strings.Contains(got, name) || !strings.Contains(got, want) {
			t.Errorf("kubectl explain %s.%s has no %s with %q:\n%s", kind, parent, name, want, got)
		}
	}
}
