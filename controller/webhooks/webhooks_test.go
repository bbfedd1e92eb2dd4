package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// cut is a connection to an API server that is gone, for lists or for single objects.
type cut struct{ lists, objects bool }

func (c cut) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return gone(c.objects)
}

func (c cut) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return gone(c.lists)
}

func gone(is bool) error {
	if is {
		return errors.New("connection refused")
	}
	return nil
}

// ask has a webhook answer a request.
func ask(t *testing.T, reader client.Reader, path, operation, kind, object, old string) (*admissionv1.AdmissionResponse, *prometheus.Registry) {
	t.Helper()
	scheme, registry := runtime.NewScheme(), prometheus.NewRegistry()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	handler := New(reader, scheme, NewMetrics(registry), slog.New(slog.DiscardHandler)).Handlers()[path]
	if handler == nil {
		t.Fatalf("nothing is served at %s", path)
	}
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "u", Operation: admissionv1.Operation(operation), Namespace: "a", Kind: metav1.GroupVersionKind{Group: "inferencecache.io", Version: "v1alpha1", Kind: kind},
			Object: raw(object), OldObject: raw(old),
		},
	}
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	if err := json.Unmarshal(answer.Body.Bytes(), &review); err != nil || review.Response == nil {
		t.Fatalf("answer %s, %v", answer.Body, err)
	}
	return review.Response, registry
}

func raw(text string) runtime.RawExtension {
	if text == "" {
		return runtime.RawExtension{}
	}
	return runtime.RawExtension{Raw: []byte(text)}
}

const (
	validPolicy = `{"apiVersion":"inferencecache.io/v1alpha1","kind":"CachePolicy","metadata":{"name":"p"},"spec":{}}`
	validTenant = `{"apiVersion":"inferencecache.io/v1alpha1","kind":"CacheTenant","metadata":{"name":"t"},"spec":{"tenantID":"a"}}`
	badBackend  = `{"apiVersion":"inferencecache.io/v1alpha1","kind":"CacheBackend","metadata":{"name":"b"},"spec":{"runtime":"TGI"}}`
	goingAway   = `{"apiVersion":"inferencecache.io/v1alpha1","kind":"CacheBackend","metadata":{"name":"b","deletionTimestamp":"2026-01-02T03:04:05Z"},"spec":{"runtime":"TGI"}}`
)

func TestAnswers(t *testing.T) {
	const mutate, validate = "/mutate-inferencecache-io-v1alpha1-", "/validate-inferencecache-io-v1alpha1-"
	for _, c := range []struct {
		name                               string
		reader                             client.Reader
		path, operation, kind, object, old string
		allowed                            bool
		says                               string
		counts                             string // as answer
	}{
		{"defaults are filled in", cut{}, mutate + "cachepolicy", "CREATE", "CachePolicy", validPolicy, "", true, "", "allowed"},
		{"without a spec there is nothing to fill in", cut{}, mutate + "cachepolicy", "CREATE", "CachePolicy", `{"metadata":{"name":"p"}}`, "", true, "", "allowed"},
		{"a wrong type is left to the schema", cut{}, mutate + "cachepolicy", "CREATE", "CachePolicy", `{"spec":{"minimumPrefixTokens":"many"}}`, "", true, "", "allowed"},
		{"a valid object is accepted", cut{}, validate + "cachetenant", "CREATE", "CacheTenant", validTenant, "", true, "", "allowed"},
		{"an invalid one is refused with its name", cut{}, validate + "cachebackend", "CREATE", "CacheBackend", badBackend, "", false, `CacheBackend.inferencecache.io "b" is invalid`, "refused"},
		{"one that cannot be compared is refused", cut{lists: true}, validate + "cachetenant", "CREATE", "CacheTenant", validTenant, "", false, "compare with the other objects", "error"},
		{"a backend too", cut{lists: true}, validate + "cachebackend", "CREATE", "CacheBackend", badBackend, "", false, "compare with the other objects", "error"},
		{"a policy too", cut{lists: true}, validate + "cachepolicy", "CREATE", "CachePolicy", validPolicy, "", false, "compare with the other objects", "error"},
		{"a change of a policy needs no comparison", cut{lists: true}, validate + "cachepolicy", "UPDATE", "CachePolicy", validPolicy, validPolicy, true, "", "allowed"},
		{"what a warning needs is no reason to refuse", cut{objects: true}, validate + "cachetenant", "CREATE", "CacheTenant", validTenant, "", true, "", "allowed"},
		{"nor for a policy", cut{objects: true}, validate + "cachepolicy", "CREATE", "CachePolicy", validPolicy, "", true, "", "allowed"},
		{"one that is being deleted is let go", cut{lists: true}, validate + "cachebackend", "UPDATE", "CacheBackend", goingAway, goingAway, true, "", "allowed"},
		{"a deletion is not kept up", cut{lists: true}, validate + "cachebackend", "DELETE", "CacheBackend", "", badBackend, true, "", "allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, registry := ask(t, c.reader, c.path, c.operation, c.kind, c.object, c.old)
			message := ""
			if got.Result != nil {
				message = got.Result.Message
			}
			if got.Allowed != c.allowed || !strings.Contains(message, c.says) {
				t.Errorf("allowed %v, %q; want %v, %q", got.Allowed, message, c.allowed, c.says)
			}
			if filled := strings.Contains(string(got.Patch), `"/spec/eviction"`); filled != strings.HasPrefix(c.name, "defaults") {
				t.Errorf("patch %s", got.Patch)
			}
			verb := strings.Split(strings.TrimPrefix(c.path, "/"), "-")[0]
			text := "# HELP inferencecache_controller_admissions_total Answers of the webhooks, by verb (mutate, validate), kind and answer: allowed, refused, error (the controller could not decide).\n" +
				"# TYPE inferencecache_controller_admissions_total counter\n" +
				`inferencecache_controller_admissions_total{answer="` + c.counts + `",kind="` + c.kind + `",verb="` + verb + "\"} 1\n"
			if err := testutil.GatherAndCompare(registry, strings.NewReader(text)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPathsAreThoseOfTheContract(t *testing.T) {
	handlers := New(nil, runtime.NewScheme(), NewMetrics(prometheus.NewRegistry()), nil).Handlers()
	if len(handlers) != 6 {
		t.Errorf("%d webhooks", len(handlers))
	}
	for _, verb := range []string{"mutate", "validate"} {
		for _, kind := range []string{"cachebackend", "cachepolicy", "cachetenant"} {
			if handlers["/"+verb+"-inferencecache-io-v1alpha1-"+kind] == nil {
				t.Errorf("no webhook to %s a %s", verb, kind)
			}
		}
	}
}
