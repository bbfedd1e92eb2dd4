package status

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inferencecache/inferencecache/controller/fleet"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// quotaOwners returns, by tenant id, the object whose quota is in force: of those with one, the first by
// namespace, then name.
func quotaOwners(tenants []v1alpha1.CacheTenant) map[string]*v1alpha1.CacheTenant {
	owners := map[string]*v1alpha1.CacheTenant{}
	for i := range tenants {
		t := &tenants[i]
		if _, limited := quotaOf(t); !limited {
			continue
		}
		if o := owners[t.Spec.TenantID]; o == nil || before(t, o) {
			owners[t.Spec.TenantID] = t
		}
	}
	return owners
}

func before(a, b metav1.Object) bool {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName())) < 0
}

func quotaOf(t *v1alpha1.CacheTenant) (most int64, limited bool) {
	if q := t.Spec.Quota; q != nil && q.MaxIndexEntries != nil {
		return *q.MaxIndexEntries, true
	}
	return 0, false
}

// tenantStatus returns the status of a CacheTenant. owner is the object whose quota for its tenant id is in
// force, nil if none has a quota. Where no aggregator answers, the figures stay.
func tenantStatus(t, owner *v1alpha1.CacheTenant, v *fleet.View) v1alpha1.CacheTenantStatus {
	after := *t.Status.DeepCopy()
	after.ObservedGeneration = t.Generation
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&after.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: t.Generation,
		})
	}
	duplicate := owner != nil && (owner.Namespace != t.Namespace || owner.Name != t.Name)
	if v.Answered() {
		entries := v.Tenant(t.Spec.TenantID).IndexEntries
		after.IndexEntries = &entries
	}
	switch {
	case duplicate:
		set(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDuplicateTenantID,
			fmt.Sprintf("the quota of CacheTenant %s/%s for the same tenant id is in force", owner.Namespace, owner.Name))
	case !v.Answered():
		set(v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonNoAggregators, noAggregator)
	default:
		set(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonObserved, "the aggregators report what the tenant holds")
	}
	setQuotaExceeded(t, duplicate, after.IndexEntries, set)
	return after
}

// noAggregator is the message of conditions that nobody can tell.
const noAggregator = "no aggregator answers; what was known before stays"

func setQuotaExceeded(t *v1alpha1.CacheTenant, duplicate bool, entries *int64, set func(kind string, status metav1.ConditionStatus, reason, message string)) {
	most, limited := quotaOf(t)
	kind := v1alpha1.CacheTenantQuotaExceeded
	switch {
	case duplicate:
		set(kind, metav1.ConditionFalse, v1alpha1.ReasonNotEffective, "the quota of another CacheTenant is in force")
	case !limited:
		set(kind, metav1.ConditionFalse, v1alpha1.ReasonNoQuota, "spec.quota.maxIndexEntries is not set")
	case entries == nil:
		set(kind, metav1.ConditionUnknown, v1alpha1.ReasonNoAggregators, "no aggregator has answered yet")
	case *entries > most:
		set(kind, metav1.ConditionTrue, v1alpha1.ReasonOverEntryBudget, fmt.Sprintf("the tenant holds more than %d entries; those beyond are evicted", most))
	default:
		set(kind, metav1.ConditionFalse, v1alpha1.ReasonWithinBudget, fmt.Sprintf("the tenant holds at most %d entries", most))
	}
}
