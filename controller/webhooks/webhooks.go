// Package webhooks answers the API server's questions about CacheBackend, CachePolicy and CacheTenant
// objects that are to be stored. What it answers is decided in package crds/admission; what it adds is what
// only the cluster knows: the other objects, and which namespaces and tenants there are.
package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	rules "github.com/inferencecache/inferencecache/crds/admission"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// patience bounds the questions to the API server for one answer. It is below the 10 s that the API
// server itself waits.
const patience = 8 * time.Second

// Webhooks answers for one cluster.
type Webhooks struct {
	// reader asks the API server itself: what another object was a moment ago is no basis for a refusal.
	reader  client.Reader
	scheme  *runtime.Scheme
	metrics *Metrics
	log     *slog.Logger
}

// New returns Webhooks that read through reader, which should not be a cache. The kinds of group
// inferencecache.io must be known to scheme.
func New(reader client.Reader, scheme *runtime.Scheme, metrics *Metrics, log *slog.Logger) *Webhooks {
	return &Webhooks{reader: reader, scheme: scheme, metrics: metrics, log: log}
}

// Handlers returns the webhooks by path.
func (w *Webhooks) Handlers() map[string]http.Handler {
	handlers := map[string]http.Handler{}
	add := func(verb, kind string, hook *admission.Webhook) {
		hook.Handler = w.metrics.counted(verb, kind, hook.Handler)
		handlers["/"+verb+"-inferencecache-io-v1alpha1-"+strings.ToLower(kind)] = hook
	}
	add("mutate", backendKind, defaulting(w.scheme, rules.DefaultCacheBackend))
	add("mutate", policyKind, defaulting(w.scheme, rules.DefaultCachePolicy))
	add("mutate", tenantKind, defaulting(w.scheme, rules.DefaultCacheTenant))
	add("validate", backendKind, validating(w, w.backend))
	add("validate", policyKind, validating(w, w.policy))
	add("validate", tenantKind, validating(w, w.tenant))
	return handlers
}

const (
	backendKind = "CacheBackend"
	policyKind  = "CachePolicy"
	tenantKind  = "CacheTenant"
)

// defaulter fills defaults in.
type defaulter[T runtime.Object] func(T)

// Default implements admission.Defaulter.
func (d defaulter[T]) Default(_ context.Context, object T) error {
	d(object)
	return nil
}

// defaulting returns a webhook that fills defaults in. An object that has no spec, or cannot be read, it
// leaves as it is: the schema, which comes next, says best what is wrong with it.
func defaulting[T runtime.Object](scheme *runtime.Scheme, fill func(T)) *admission.Webhook {
	hook := admission.WithDefaulter(scheme, defaulter[T](fill))
	inner := hook.Handler
	hook.Handler = admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		if !hasSpec(request.Object.Raw) {
			return admission.Allowed("there is nothing to fill in")
		}
		response := inner.Handle(ctx, request)
		if !response.Allowed && response.Result != nil && response.Result.Code == http.StatusBadRequest {
			return admission.Allowed("the object cannot be read, which the schema refuses")
		}
		return response
	})
	return hook
}

func hasSpec(raw []byte) bool {
	var object struct {
		Spec json.RawMessage `json:"spec"`
	}
	return json.Unmarshal(raw, &object) == nil && object.Spec != nil
}

// judge decides about an object; old is nil for a new one. An error says that it cannot decide.
type judge[T client.Object] func(ctx context.Context, object, old T) (field.ErrorList, []string, error)

// validator gives a judge what it decides about.
type validator[T client.Object] struct {
	judge judge[T]
	log   *slog.Logger
	none  T
}

func validating[T client.Object](w *Webhooks, j judge[T]) *admission.Webhook {
	return admission.WithValidator(w.scheme, &validator[T]{judge: j, log: w.log})
}

// ValidateCreate implements admission.Validator.
func (v *validator[T]) ValidateCreate(ctx context.Context, object T) (admission.Warnings, error) {
	return v.validate(ctx, object, v.none)
}

// ValidateUpdate implements admission.Validator. An object that is being deleted is let go whatever it
// holds: only its finalizers can change.
func (v *validator[T]) ValidateUpdate(ctx context.Context, old, object T) (admission.Warnings, error) {
	if object.GetDeletionTimestamp() != nil {
		return nil, nil
	}
	return v.validate(ctx, object, old)
}

// ValidateDelete implements admission.Validator. Nothing keeps an object from being deleted.
func (v *validator[T]) ValidateDelete(context.Context, T) (admission.Warnings, error) {
	return nil, nil
}

func (v *validator[T]) validate(ctx context.Context, object, old T) (admission.Warnings, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if object.GetNamespace() == "" {
		object.SetNamespace(request.Namespace) // a typed client may leave it to the path
	}
	errs, warnings, err := v.judge(ctx, object, old)
	if err != nil {
		v.log.Error("decide about an object; it is refused", "kind", request.Kind.Kind, "namespace", request.Namespace, "name", request.Name, "error", err)
		return nil, apierrors.NewInternalError(fmt.Errorf("compare with the other objects: %w", err))
	}
	if len(errs) > 0 {
		kind := v1alpha1.GroupVersion.WithKind(request.Kind.Kind).GroupKind()
		return warnings, apierrors.NewInvalid(kind, nameOf(object, request.AdmissionRequest), errs)
	}
	return warnings, nil
}

// nameOf returns the name by which the author knows the object.
func nameOf(object client.Object, request admissionv1.AdmissionRequest) string {
	for _, name := range []string{object.GetName(), request.Name, object.GetGenerateName()} {
		if name != "" {
			return name
		}
	}
	return ""
}
