package status

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inferencecache/inferencecache/controller/fleet"
	"github.com/inferencecache/inferencecache/crds/admission"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// firstPolicies returns the policy that each namespace follows: the first by name.
func firstPolicies(policies []v1alpha1.CachePolicy) map[string]*v1alpha1.CachePolicy {
	first := map[string]*v1alpha1.CachePolicy{}
	for i := range policies {
		p := &policies[i]
		if f := first[p.Namespace]; f == nil || p.Name < f.Name {
			first[p.Namespace] = p
		}
	}
	return first
}

// policyStatus returns the status of a CachePolicy. first is the policy that its namespace follows, which
// it may be. Where no aggregator answers, what they had in force stays.
func policyStatus(p, first *v1alpha1.CachePolicy, v *fleet.View) v1alpha1.CachePolicyStatus {
	after := *p.Status.DeepCopy()
	set := func(c metav1.Condition) {
		c.ObservedGeneration = p.Generation
		meta.SetStatusCondition(&after.Conditions, c)
	}
	if after.ObservedGeneration != p.Generation {
		after.ObservedGeneration, after.InForceSince = p.Generation, nil
	}
	accepted := acceptance(p, first)
	set(accepted)
	if v.Answered() {
		after.Aggregators = policyAggregators(p, v)
	}
	inForce := v.Answered() && everywhere(after.Aggregators, p.Generation)
	switch {
	case accepted.Status != metav1.ConditionTrue:
		after.InForceSince = nil
		set(metav1.Condition{Type: v1alpha1.CachePolicyInForce, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotAccepted, Message: "see condition Accepted"})
	case !v.Answered():
		set(metav1.Condition{Type: v1alpha1.CachePolicyInForce, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNoAggregators, Message: noAggregator})
	case inForce:
		set(metav1.Condition{Type: v1alpha1.CachePolicyInForce, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonInForceEverywhere, Message: "every aggregator that answers applies this generation"})
	default:
		set(metav1.Condition{Type: v1alpha1.CachePolicyInForce, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPartlyInForce, Message: partlyInForce(p, v, after.Aggregators)})
	}
	if inForce && accepted.Status == metav1.ConditionTrue && after.InForceSince == nil {
		after.InForceSince = latest(after.Aggregators)
	}
	return after
}

func acceptance(p, first *v1alpha1.CachePolicy) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.CachePolicyAccepted, Status: metav1.ConditionFalse}
	errs := admission.ValidateCachePolicyUpdate(p)
	switch {
	case first != nil && first.Name != p.Name:
		c.Reason, c.Message = v1alpha1.ReasonDuplicatePolicy, fmt.Sprintf("the namespace follows CachePolicy %s, which comes first by name", first.Name)
	case len(errs) > 0:
		c.Reason, c.Message = v1alpha1.ReasonInvalidPolicy, errs.ToAggregate().Error()
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonAccepted, "the namespace follows this policy"
	}
	return c
}

// policyAggregators says what each aggregator applies of a policy. An aggregator that goes on applying a
// generation keeps its time.
func policyAggregators(p *v1alpha1.CachePolicy, v *fleet.View) []v1alpha1.PolicyAggregator {
	known := map[string]v1alpha1.PolicyAggregator{}
	for _, a := range p.Status.Aggregators {
		known[a.Name] = a
	}
	rows := make([]v1alpha1.PolicyAggregator, 0, len(v.Aggregators))
	for _, a := range v.Aggregators {
		row := v1alpha1.PolicyAggregator{Name: a.Name}
		if applied := a.Policy[p.Namespace]; applied.Name == p.Name && applied.Generation > 0 {
			row.Generation = applied.Generation
			since := metav1.NewTime(applied.Since.Truncate(timeUnit))
			row.Since = &since
		}
		if was, found := known[a.Name]; found && was.Generation == row.Generation && sameTime(was.Since, row.Since) {
			row = was
		}
		rows = append(rows, row)
	}
	return rows
}

func everywhere(rows []v1alpha1.PolicyAggregator, generation int64) bool {
	for _, a := range rows {
		if a.Generation != generation {
			return false
		}
	}
	return true
}

// latest returns when the last of the aggregators began.
func latest(rows []v1alpha1.PolicyAggregator) *metav1.Time {
	var last *metav1.Time
	for _, a := range rows {
		if last == nil || last.Before(a.Since) {
			last = a.Since
		}
	}
	return last
}

// maxNamed bounds the aggregators that a message names.
const maxNamed = 5

func partlyInForce(p *v1alpha1.CachePolicy, v *fleet.View, rows []v1alpha1.PolicyAggregator) string {
	var others []string
	for i, a := range v.Aggregators {
		switch applied, found := a.Policy[p.Namespace]; {
		case rows[i].Generation == p.Generation:
			continue
		case a.Policy == nil:
			others = append(others, a.Name+" does not say what it applies")
		case !found:
			others = append(others, a.Name+" applies none")
		case rows[i].Generation > 0:
			others = append(others, fmt.Sprintf("%s applies generation %d", a.Name, applied.Generation))
		default:
			others = append(others, fmt.Sprintf("%s applies what its source %s states", a.Name, applied.Source))
		}
	}
	if n := len(others) - maxNamed; n > 0 {
		others = append(others[:maxNamed], fmt.Sprintf("and %d more", n))
	}
	return strings.Join(others, "; ")
}

// timeUnit is what an API server keeps of a time.
const timeUnit = time.Second

// sameTime compares times as an API server stores them.
func sameTime(a, b *metav1.Time) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Truncate(timeUnit).Equal(b.Truncate(timeUnit)))
}
