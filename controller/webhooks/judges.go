package webhooks

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rules "github.com/inferencecache/inferencecache/crds/admission"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

func (w *Webhooks) backend(ctx context.Context, b, old *v1alpha1.CacheBackend) (field.ErrorList, []string, error) {
	var siblings v1alpha1.CacheBackendList
	if err := w.reader.List(ctx, &siblings, client.InNamespace(b.Namespace)); err != nil {
		return nil, nil, fmt.Errorf("list the CacheBackends of namespace %s: %w", b.Namespace, err)
	}
	warnings := rules.WarnCacheBackend(b)
	if old != nil {
		return rules.ValidateCacheBackendUpdate(b, old, siblings.Items), warnings, nil
	}
	return rules.ValidateCacheBackend(b, siblings.Items), warnings, nil
}

func (w *Webhooks) policy(ctx context.Context, p, old *v1alpha1.CachePolicy) (field.ErrorList, []string, error) {
	if old != nil {
		return rules.ValidateCachePolicyUpdate(p), w.warnPolicy(ctx, p), nil
	}
	var siblings v1alpha1.CachePolicyList
	if err := w.reader.List(ctx, &siblings, client.InNamespace(p.Namespace)); err != nil {
		return nil, nil, fmt.Errorf("list the CachePolicies of namespace %s: %w", p.Namespace, err)
	}
	return rules.ValidateCachePolicy(p, siblings.Items), w.warnPolicy(ctx, p), nil
}

func (w *Webhooks) warnPolicy(ctx context.Context, p *v1alpha1.CachePolicy) []string {
	reports, err := w.reportingTenants(ctx)
	if err != nil {
		w.log.Debug("find out which tenants report; the author is not warned", "error", err)
		return nil
	}
	return rules.WarnCachePolicy(p, reports[p.Namespace])
}

func (w *Webhooks) tenant(ctx context.Context, t, old *v1alpha1.CacheTenant) (field.ErrorList, []string, error) {
	var all v1alpha1.CacheTenantList // of all namespaces: an id has one quota in the whole cluster
	if err := w.reader.List(ctx, &all); err != nil {
		return nil, nil, fmt.Errorf("list the CacheTenants: %w", err)
	}
	warnings := w.warnTenant(ctx, t, all.Items)
	if old != nil {
		return rules.ValidateCacheTenantUpdate(t, old, all.Items), warnings, nil
	}
	return rules.ValidateCacheTenant(t, all.Items), warnings, nil
}

func (w *Webhooks) warnTenant(ctx context.Context, t *v1alpha1.CacheTenant, all []v1alpha1.CacheTenant) []string {
	used, err := w.tenantIsUsed(ctx, t.Spec.TenantID)
	if err != nil {
		w.log.Debug("find out whether a tenant id is used; the author is not warned", "error", err)
		used = true
	}
	return rules.WarnCacheTenant(t, func(string) bool { return used }, all)
}

// tenantIsUsed says whether a tenant id is the name of a namespace, or reports to an aggregator.
func (w *Webhooks) tenantIsUsed(ctx context.Context, id string) (bool, error) {
	reports, err := w.reportingTenants(ctx)
	if err != nil || reports[id] {
		return reports[id], err
	}
	if len(validation.IsDNS1123Label(id)) > 0 {
		return false, nil // no namespace can be called that
	}
	namespace := metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err = w.reader.Get(ctx, client.ObjectKey{Name: id}, &namespace)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// reportingTenants returns the tenants that the aggregators know of, as the status writer has seen them.
func (w *Webhooks) reportingTenants(ctx context.Context) (map[string]bool, error) {
	var index v1alpha1.CacheIndex
	err := w.reader.Get(ctx, client.ObjectKey{Name: v1alpha1.CacheIndexName}, &index)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read CacheIndex %s: %w", v1alpha1.CacheIndexName, err)
	}
	tenants := map[string]bool{}
	for _, t := range index.Status.Tenants {
		tenants[t.ID] = true
	}
	return tenants, nil
}
