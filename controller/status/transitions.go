package status

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// event is what is said of an object whose condition has changed.
type event struct{ kind, reason, message string }

// troubles are the reasons that are worth an Event when a condition takes them, and how serious they are.
var troubles = map[string]string{
	v1alpha1.ReasonDuplicateTenantID: corev1.EventTypeWarning,
	v1alpha1.ReasonOverEntryBudget:   corev1.EventTypeWarning,
	v1alpha1.ReasonDuplicatePolicy:   corev1.EventTypeWarning,
	v1alpha1.ReasonInvalidPolicy:     corev1.EventTypeWarning,
	v1alpha1.ReasonInForceEverywhere: corev1.EventTypeNormal,
}

// recoveries are the reasons that are worth an Event when they end a trouble.
var recoveries = map[string]bool{
	v1alpha1.ReasonObserved:     true,
	v1alpha1.ReasonWithinBudget: true,
	v1alpha1.ReasonAccepted:     true,
}

// transitions returns the Events for what changed between two lists of conditions: only a reason that is
// new counts, whatever its message says.
func transitions(before, after []metav1.Condition) []event {
	var events []event
	for _, c := range after {
		was := meta.FindStatusCondition(before, c.Type)
		if was != nil && was.Reason == c.Reason {
			continue
		}
		if kind, known := troubles[c.Reason]; known {
			events = append(events, event{kind, c.Reason, c.Message})
			continue
		}
		if was != nil && recoveries[c.Reason] && troubles[was.Reason] == corev1.EventTypeWarning {
			events = append(events, event{corev1.EventTypeNormal, c.Reason, c.Message})
		}
	}
	return events
}
