// Package daemonset holds no code: its folders are the install, as kustomize base, components, overlays and
// Helm chart, and its tests check that they say what the binaries and the documents say.
package daemonset
