package aggregator

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/aggregator/hot"
	"github.com/inferencecache/inferencecache/aggregator/ingest"
	"github.com/inferencecache/inferencecache/aggregator/lookup"
	"github.com/inferencecache/inferencecache/aggregator/prompts"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	"github.com/inferencecache/inferencecache/aggregator/sync"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// service implements the public contract over the parts that do the work.
type service struct {
	pb.UnimplementedInferenceCacheServer
	index    index.Index
	registry *registry.Registry
	lookup   *lookup.Service
	ingest   *ingest.Service
	prompts  *prompts.Service
	sync     *sync.Service
	hot      *hot.Counter
	now      func() time.Time
	version  string
}

// LookupRoute implements the InferenceCache service.
func (s *service) LookupRoute(ctx context.Context, req *pb.LookupRouteRequest) (*pb.LookupRouteResponse, error) {
	return s.lookup.LookupRoute(ctx, req), nil
}

// ReportCacheState implements the InferenceCache service.
func (s *service) ReportCacheState(updates grpc.ClientStreamingServer[pb.CacheStateUpdate, pb.Ack]) error {
	return s.ingest.ReportCacheState(updates)
}

// PublishEvent implements the InferenceCache service.
func (s *service) PublishEvent(_ context.Context, e *pb.CacheEvent) (*pb.Ack, error) {
	return s.ingest.PublishEvent(e), nil
}

// GetCacheState implements the InferenceCache service. What names no tenant or no model has no state.
func (s *service) GetCacheState(_ context.Context, req *pb.GetCacheStateRequest) (*pb.GetCacheStateResponse, error) {
	resp := &pb.GetCacheStateResponse{Summary: &pb.CacheSummary{}, AggregatorVersion: s.version}
	tenant, model := req.GetTenantId(), req.GetModelId()
	if tenant == "" || model == "" || tenant == contract.ReservedTenant {
		return resp, nil
	}
	resp.Summary.TotalPrefixes = s.index.PrefixesOf(tenant, model)
	resp.Summary.HotPrefixes = s.hot.Hot(tenant, model)
	for _, r := range s.registry.Replicas(tenant, model) {
		resp.Replicas = append(resp.Replicas, &pb.ReplicaStats{
			ReplicaId:        r.Replica,
			CacheMemoryBytes: r.MemoryBytes,
			HitRate:          r.HitRate,
			Pressure:         r.Pressure,
			ClientVersion:    r.ClientVersion,
			T2HitTokens:      r.T2HitTokens,
			T2QueryTokens:    r.T2QueryTokens,
		})
	}
	resp.Views = s.views(tenant, model)
	return resp, nil
}

func (s *service) views(tenant, model string) []*pb.CacheView {
	versions := s.sync.Versions()
	var out []*pb.CacheView
	for _, v := range s.registry.Views(tenant, model, s.now()) {
		out = append(out, &pb.CacheView{
			ReplicaId: v.Holder.Replica, Rank: v.Holder.Rank, HashScheme: v.Scheme, Certainty: v.Certainty,
			AgentId: v.Agent, AgentVersion: versions[v.Agent], Live: v.Live,
		})
	}
	return out
}

// RenderTemplate implements the InferenceCache service.
func (s *service) RenderTemplate(ctx context.Context, req *pb.RenderTemplateRequest) (*pb.RenderTemplateResponse, error) {
	return s.prompts.Render(ctx, req), nil
}

// LookupPDRoute is reserved.
func (s *service) LookupPDRoute(context.Context, *pb.LookupPDRouteRequest) (*pb.LookupPDRouteResponse, error) {
	return &pb.LookupPDRouteResponse{ReasonCode: contract.NoHint}, nil
}

// StreamCacheEvents is reserved.
func (s *service) StreamCacheEvents(*pb.StreamEventsRequest, grpc.ServerStreamingServer[pb.CacheEvent]) error {
	return nil
}

// StreamMetrics is reserved.
func (s *service) StreamMetrics(*pb.StreamMetricsRequest, grpc.ServerStreamingServer[pb.Metric]) error {
	return nil
}
