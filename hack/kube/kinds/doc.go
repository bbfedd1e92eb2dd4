// Package kinds tests the kinds of group inferencecache.io as a real API server serves them: defaults, rules,
// columns and the status subresource. Package crds tests the same tables without one.
package kinds
