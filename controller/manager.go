package controller

import (
	"fmt"
	"net/http"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// newScheme knows the kinds that are read and written.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, admissionregistrationv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("prepare the kinds of objects: %w", err)
		}
	}
	return scheme, nil
}

// newMapper knows where the kinds are found. Asking the API server would make it a condition of the start.
func newMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []struct {
		of           schema.GroupVersion
		name, plural string
		scope        meta.RESTScope
	}{
		{corev1.SchemeGroupVersion, "Namespace", "namespaces", meta.RESTScopeRoot},
		{corev1.SchemeGroupVersion, "Pod", "pods", meta.RESTScopeNamespace},
		{corev1.SchemeGroupVersion, "Secret", "secrets", meta.RESTScopeNamespace},
		{admissionregistrationv1.SchemeGroupVersion, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", meta.RESTScopeRoot},
		{admissionregistrationv1.SchemeGroupVersion, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", meta.RESTScopeRoot},
		{v1alpha1.GroupVersion, "CacheBackend", "cachebackends", meta.RESTScopeNamespace},
		{v1alpha1.GroupVersion, "CacheIndex", "cacheindices", meta.RESTScopeRoot},
		{v1alpha1.GroupVersion, "CachePolicy", "cachepolicies", meta.RESTScopeNamespace},
		{v1alpha1.GroupVersion, "CacheTenant", "cachetenants", meta.RESTScopeNamespace},
	} {
		mapper.AddSpecific(kind.of.WithKind(kind.name), kind.of.WithResource(kind.plural), kind.of.WithResource(strings.ToLower(kind.name)), kind.scope)
	}
	return mapper, nil
}

// newManager returns a manager that listens nowhere: addresses are bound by New, so that they are known.
func (c *Controller) newManager() (manager.Manager, error) {
	config := rest.AddUserAgent(rest.CopyConfig(c.config.Kubernetes), userAgent)
	if config.QPS == 0 {
		config.QPS, config.Burst = requestsPerSecond, 2*requestsPerSecond
	}
	lease := c.config.Lease
	if lease == 0 {
		lease = defaultLease
	}
	renew, retry := lease*2/3, lease*2/15 // the proportions that the library has by default
	shutdown := gracefulShutdown
	return manager.New(config, manager.Options{
		Scheme:                        c.scheme,
		MapperProvider:                newMapper,
		Logger:                        c.logger(),
		Cache:                         c.cacheOptions(),
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:        "0",
		LeaderElection:                c.config.LeaderElect,
		LeaderElectionID:              LeaseName,
		LeaderElectionNamespace:       c.config.Namespace,
		LeaderElectionReleaseOnCancel: true, // the process ends with the manager
		LeaseDuration:                 &lease,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
		GracefulShutdownTimeout:       &shutdown,
	})
}

// cacheOptions keep in memory only what is used: of Pods, those that can belong to a CacheBackend, and of
// them name, label and annotation; of Secrets and webhook configurations, the controller's own.
func (c *Controller) cacheOptions() cache.Options {
	named := func(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }
	inDomain, err := labels.NewRequirement(v1alpha1.LabelCacheDomain, selection.Exists, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	rotation := &c.config.Rotation
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: labels.NewSelector().Add(*inDomain), Transform: slimPod},
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{
				rotation.Secret.Namespace: {FieldSelector: named(rotation.Secret.Name)},
			}},
			&admissionregistrationv1.MutatingWebhookConfiguration{}:   {Field: named(rotation.Mutating)},
			&admissionregistrationv1.ValidatingWebhookConfiguration{}: {Field: named(rotation.Validating)},
		},
	}
}

// slimPod leaves of a Pod's metadata what tells whose it is.
func slimPod(object any) (any, error) {
	pod, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	slim := &metav1.PartialObjectMetadata{TypeMeta: pod.TypeMeta}
	slim.Namespace, slim.Name, slim.UID, slim.ResourceVersion = pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion
	slim.Labels = only(pod.Labels, v1alpha1.LabelCacheDomain)
	slim.Annotations = only(pod.Annotations, v1alpha1.AnnotationInjectedBy)
	return slim, nil
}

func only(all map[string]string, key string) map[string]string {
	if value, found := all[key]; found {
		return map[string]string{key: value}
	}
	return nil
}
