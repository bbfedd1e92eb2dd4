package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "inferencecache.io", Version: "v1alpha1"}

// AddToScheme makes the kinds of this package known to a scheme. It returns no error; the result is there
// for runtime.SchemeBuilder.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&CacheBackend{}, &CacheBackendList{},
		&CachePolicy{}, &CachePolicyList{},
		&CacheTenant{}, &CacheTenantList{},
		&CacheIndex{}, &CacheIndexList{},
		&PromptTemplate{}, &PromptTemplateList{},
		&PDTopology{}, &PDTopologyList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
