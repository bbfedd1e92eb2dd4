// Package manifests tests what daemonset/ installs: that a real API server takes every object of each kustomize
// folder, of the Helm chart and of the examples in docs/, that Pod Security admits every pod, and that each
// ServiceAccount may do what its program needs and little else.
package manifests
