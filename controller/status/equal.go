package status

import "k8s.io/apimachinery/pkg/api/equality"

// equal compares as the API server stores: an empty list is none, and times are instants.
func equal[T any](a, b T) bool { return equality.Semantic.DeepEqual(a, b) }
