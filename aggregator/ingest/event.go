package ingest

import (
	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/aggregator/metrics"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// PublishEvent applies one event. Types that only a later version knows, and additions, which carry
// no hash scheme, are accepted and change nothing.
func (s *Service) PublishEvent(e *pb.CacheEvent) *pb.Ack {
	t := tally{}
	drop := s.dropper(metrics.SourceEvent, t)
	if e.GetTenantId() == contract.ReservedTenant {
		s.Metrics.Dropped(metrics.SourceEvent, contract.Reserved, 1)
		return t.ack()
	}
	switch e.GetType() {
	case pb.CacheEvent_PREFIX_EVICTED, pb.CacheEvent_REPLICA_UPDATED, pb.CacheEvent_ALL_CLEARED:
	default:
		return t.ack()
	}
	if reason := checkEvent(e); reason != "" {
		drop(reason, 1)
		return t.ack()
	}
	s.apply(e)
	return t.ack()
}

func checkEvent(e *pb.CacheEvent) string {
	if reason := contract.CheckNames(e.GetReplicaId(), e.GetTenantId(), e.GetModelId(), e.GetAdapterId()); reason != "" {
		return reason
	}
	if e.GetType() == pb.CacheEvent_PREFIX_EVICTED && len(e.GetPrefixHash()) == 0 {
		return contract.EmptyHash
	}
	return ""
}

func (s *Service) apply(e *pb.CacheEvent) {
	switch e.GetType() {
	case pb.CacheEvent_PREFIX_EVICTED:
		s.Metrics.Applied(metrics.SourceEvent, s.Index.Evict(index.Evict{
			Replica: e.GetReplicaId(), Tenant: e.GetTenantId(), Model: e.GetModelId(),
			Adapter: e.GetAdapterId(), Key: string(e.GetPrefixHash()),
		}))
	case pb.CacheEvent_ALL_CLEARED:
		s.Registry.ClearStats(e.GetTenantId(), e.GetModelId(), e.GetReplicaId())
		s.Metrics.Applied(metrics.SourceEvent, s.Index.Clear(index.Clear{
			Replica: e.GetReplicaId(), Tenant: e.GetTenantId(), Model: e.GetModelId(),
		}))
	case pb.CacheEvent_REPLICA_UPDATED:
		now := s.Now()
		at, _ := evidence(e.GetTimestampUs(), now, 0) // an old event says what was so then
		s.Registry.Seen(e.GetTenantId(), e.GetModelId(), e.GetReplicaId(), at, now)
	}
}
