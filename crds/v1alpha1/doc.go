// Package v1alpha1 holds the Kubernetes API types of group inferencecache.io, version v1alpha1.
//
// The manifests in crds/manifests and the page docs/crds.md are generated from these types. What a rule
// can say about one object alone is in the schema, so that it holds whichever client writes the object;
// what needs other objects, annotations or the namespace is in package admission.
//
// +kubebuilder:object:generate=true
// +groupName=inferencecache.io
package v1alpha1
