// Package inspect gives operators a read-only view of what the index holds.
package inspect

import (
	"time"

	"google.golang.org/grpc"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// batchEntries is how many entries one message of a dump carries: about 100 KB.
const batchEntries = 512

// Service implements the CacheInspection service.
type Service struct {
	pb.UnimplementedCacheInspectionServer
	index index.Index
	now   func() time.Time
}

// New returns a Service over an index, whose entries are as old as now says.
func New(x index.Index, now func() time.Time) *Service { return &Service{index: x, now: now} }

// DumpIndex streams the selected entries. A slow reader holds up this call alone: entries are sent
// while the index is not locked.
func (s *Service) DumpIndex(req *pb.DumpIndexRequest, out grpc.ServerStreamingServer[pb.DumpIndexResponse]) error {
	now := index.At(s.now())
	batch := &pb.DumpIndexResponse{}
	var failed error
	flush := func() bool {
		if failed = out.Context().Err(); failed == nil {
			failed = out.Send(batch)
		}
		batch = &pb.DumpIndexResponse{Entries: batch.Entries[:0]}
		return failed == nil
	}
	filter := index.Filter{Tenant: req.GetTenantId(), Model: req.GetModelId(), Replica: req.GetReplicaId()}
	s.index.Dump(filter, func(e index.Entry) bool {
		if e.Partition.Tenant == contract.ReservedTenant {
			return out.Context().Err() == nil
		}
		batch.Entries = append(batch.Entries, entry(e, now))
		return len(batch.Entries) < batchEntries || flush()
	})
	if failed == nil && len(batch.Entries) > 0 {
		flush()
	}
	return failed
}

func entry(e index.Entry, now index.Instant) *pb.IndexEntry {
	age := int64(0)
	if now > e.Evidence {
		age = int64(now - e.Evidence)
	}
	return &pb.IndexEntry{
		TenantId:     e.Partition.Tenant,
		ModelId:      e.Partition.Model,
		HashScheme:   e.Partition.Scheme,
		AdapterId:    e.Partition.Adapter,
		ReplicaId:    e.Holder.Replica,
		Rank:         e.Holder.Rank,
		Tier:         contract.TierOut(e.Tier),
		Hash:         []byte(e.Key),
		Tokens:       e.Tokens,
		PrefixTokens: e.PrefixTokens,
		AgeSeconds:   age,
	}
}
