package admission_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/inferencecache/inferencecache/crds/admission"
	"github.com/inferencecache/inferencecache/crds/crdtest"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// decode reads an object as a typed client does.
func decode[T any](t *testing.T, object map[string]any) *T {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	typed := new(T)
	if err := json.Unmarshal(data, typed); err != nil {
		t.Fatal(err)
	}
	return typed
}

func validate(t *testing.T, object map[string]any) field.ErrorList {
	t.Helper()
	switch object["kind"] {
	case "CacheBackend":
		return admission.ValidateCacheBackend(decode[v1alpha1.CacheBackend](t, object), nil)
	case "CachePolicy":
		return admission.ValidateCachePolicy(decode[v1alpha1.CachePolicy](t, object), nil)
	case "CacheTenant":
		return admission.ValidateCacheTenant(decode[v1alpha1.CacheTenant](t, object), nil)
	case "CacheIndex":
		return admission.ValidateCacheIndex(decode[v1alpha1.CacheIndex](t, object))
	case "PromptTemplate":
		return admission.ValidatePromptTemplate(decode[v1alpha1.PromptTemplate](t, object))
	case "PDTopology":
		return admission.ValidatePDTopology(decode[v1alpha1.PDTopology](t, object))
	}
	t.Fatalf("unknown kind %v", object["kind"])
	return nil
}

func TestAdmissionJudges(t *testing.T) {
	cases, err := crdtest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			errs := validate(t, c.Object)
			fields := []string{}
			for _, err := range errs {
				fields = append(fields, err.Field)
			}
			slices.Sort(fields)
			if diff := cmp.Diff(append([]string{}, c.Refused...), fields); diff != "" {
				t.Errorf("refused fields (-want +got):\n%s%v", diff, errs.ToAggregate())
			}
			if len(errs) > 0 && !strings.Contains(errs.ToAggregate().Error(), c.Says) {
				t.Errorf("says %v; want it to say %q", errs.ToAggregate(), c.Says)
			}
		})
	}
}

func TestAdmissionFillsDefaults(t *testing.T) {
	all, err := crdtest.Defaults()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		t.Run(d.Name, func(t *testing.T) {
			var got, want any
			switch d.Given["kind"] {
			case "CacheBackend":
				b := decode[v1alpha1.CacheBackend](t, d.Given)
				admission.DefaultCacheBackend(b)
				got, want = b, decode[v1alpha1.CacheBackend](t, d.Stored)
			case "CachePolicy":
				p := decode[v1alpha1.CachePolicy](t, d.Given)
				admission.DefaultCachePolicy(p)
				got, want = p, decode[v1alpha1.CachePolicy](t, d.Stored)
			case "CacheTenant":
				c := decode[v1alpha1.CacheTenant](t, d.Given)
				admission.DefaultCacheTenant(c)
				got, want = c, decode[v1alpha1.CacheTenant](t, d.Stored)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
		})
	}
}
