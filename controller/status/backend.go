package status

import (
	"math"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inferencecache/inferencecache/aggregator/snapshot"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// share is what the index knows of the replicas of one CacheBackend.
type share struct {
	replicas        int
	prefixes        int64
	lastEvent       metav1.Time
	hits            float64 // sum of the hit rates of those that report
	reporting       int
	t2Hits, t2Query int64
}

func (s *share) add(r *snapshot.Replica) {
	s.replicas++
	s.prefixes = sum(s.prefixes, r.PrefixCount)
	if at := metav1.NewTime(r.LastEventAt); !r.LastEventAt.IsZero() && s.lastEvent.Before(&at) {
		s.lastEvent = at
	}
	if r.StatsReported {
		s.hits += min(1, max(0, float64(r.HitRate)))
		s.reporting++
	}
	s.t2Hits, s.t2Query = sum(s.t2Hits, r.T2HitTokens), sum(s.t2Query, r.T2QueryTokens)
}

// sum adds a figure from outside to one that is not negative: it takes a negative one for 0, and ends at the
// largest there is.
func sum(a, b int64) int64 {
	return a + min(max(0, b), math.MaxInt64-a)
}

// t2HitRate returns the share of tokens found below the GPU; false where none was asked for.
func (s *share) t2HitRate() (float64, bool) {
	if s.t2Query == 0 {
		return 0, false
	}
	return min(1, float64(s.t2Hits)/float64(s.t2Query)), true
}

// participation returns what the index knows of a CacheBackend: before itself, unless something other than
// a time changed, and nil until a replica of it has reported.
func participation(before *v1alpha1.IndexParticipation, s *share) *v1alpha1.IndexParticipation {
	if s.replicas == 0 && before == nil {
		return nil
	}
	after := &v1alpha1.IndexParticipation{PrefixCount: s.prefixes}
	if !s.lastEvent.IsZero() {
		after.LastEventAt = &s.lastEvent
	} else if before != nil {
		after.LastEventAt = before.LastEventAt // what is gone has been there
	}
	if s.reporting > 0 {
		hit := rate(s.hits / float64(s.reporting))
		after.HitRate = &hit
	}
	if share, known := s.t2HitRate(); known {
		text := rate(share)
		after.T2HitRate = &text
	}
	unchanged := before != nil && before.PrefixCount == after.PrefixCount && same(before.HitRate, after.HitRate) &&
		same(before.T2HitRate, after.T2HitRate) && (before.LastEventAt == nil) == (after.LastEventAt == nil)
	if unchanged {
		return before
	}
	return after
}

// owners finds the CacheBackend that a Pod belongs to.
type owners map[string][]*v1alpha1.CacheBackend // by namespace

func ownersOf(backends []v1alpha1.CacheBackend) owners {
	all := owners{}
	for i := range backends {
		b := &backends[i]
		all[b.Namespace] = append(all[b.Namespace], b)
	}
	return all
}

// of returns the owner of a Pod, nil if it has none: the one that injected it, also where that is gone or
// in another namespace, which makes the Pod nobody's; without one the first by name whose selector matches.
func (o owners) of(pod metav1.Object) *v1alpha1.CacheBackend {
	if by := pod.GetAnnotations()[v1alpha1.AnnotationInjectedBy]; by != "" {
		namespace, name, _ := strings.Cut(by, "/")
		for _, b := range o[pod.GetNamespace()] {
			if b.Namespace == namespace && b.Name == name {
				return b
			}
		}
		return nil
	}
	domain := pod.GetLabels()[v1alpha1.LabelCacheDomain]
	var first *v1alpha1.CacheBackend
	for _, b := range o[pod.GetNamespace()] {
		if selects(b, domain) && (first == nil || b.Name < first.Name) {
			first = b
		}
	}
	return first
}

func selects(b *v1alpha1.CacheBackend, domain string) bool {
	return domain != "" && b.Spec.EngineSelector != nil && b.Spec.EngineSelector.MatchLabels[v1alpha1.LabelCacheDomain] == domain
}

// sharesOf adds the replicas up by CacheBackend. podOf returns the Pod that a replica is, nil if there is
// none.
func sharesOf(backends []v1alpha1.CacheBackend, replicas []snapshot.Replica, podOf func(namespace, name string) metav1.Object) map[types.NamespacedName]*share {
	all := make(map[types.NamespacedName]*share, len(backends))
	for i := range backends {
		all[keyOf(&backends[i])] = &share{}
	}
	find := ownersOf(backends)
	for i := range replicas {
		r := &replicas[i]
		if len(find[r.Tenant]) == 0 {
			continue
		}
		pod := podOf(r.Tenant, r.ReplicaID)
		if pod == nil {
			continue
		}
		if owner := find.of(pod); owner != nil {
			all[keyOf(owner)].add(r)
		}
	}
	return all
}

func keyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
