// Package crds holds the CustomResourceDefinitions of group inferencecache.io. The Go types they are
// generated from are in package v1alpha1.
package crds

import "embed"

// Manifests holds one YAML file for each kind, as manifests/inferencecache.io_cachebackends.yaml.
//
//go:embed manifests/*.yaml
var Manifests embed.FS
