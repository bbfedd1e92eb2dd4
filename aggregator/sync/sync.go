// Package sync takes the block tables of node agents.
//
// An agent has one session, whatever streams it opens: the session remembers what was applied, so
// that a stream that breaks can be resumed by the next. When an agent has sent nothing for a lease its
// caches are hidden from lookups until it does; when it has no stream either, their entries are dropped
// after a further grace.
package sync

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inferencecache/inferencecache/aggregator/metrics"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	"github.com/inferencecache/inferencecache/aggregator/stream"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// Config is what a Service needs. Index, Registry, Metrics, Log and Stop are required.
type Config struct {
	Index    index.Index
	Registry *registry.Registry
	Metrics  *metrics.Metrics
	Log      *slog.Logger
	// BootID identifies this process to agents.
	BootID uint64
	// Version is that of this build, empty if unknown.
	Version string
	// Lease is how long an agent may be silent before its caches are hidden; default 30 s. It must be
	// several beats of the agents. Without a stream the caches are dropped ten leases later.
	Lease time.Duration
	// Stop, once closed, ends the streams that are open.
	Stop <-chan struct{}
	// Now tells the time; default time.Now.
	Now func() time.Time
}

const (
	defaultLease = 30 * time.Second
	// graceLeases is how many leases pass from hiding the caches of an agent to dropping them.
	graceLeases = 10
	// maxAgents bounds the sessions.
	maxAgents = 4096
)

// Service implements the CacheSync service.
type Service struct {
	pb.UnimplementedCacheSyncServer
	Config

	// Locks are taken in this order: a session's, a view's, this one.
	mu       sync.Mutex
	sessions map[string]*session // by agent id
	owners   map[cacheID]*view   // the view that was declared last, of any agent
}

// cacheID names one cache in one scope.
type cacheID struct {
	scope  index.Scope
	holder index.Holder
}

// New returns a Service.
func New(config Config) *Service {
	if config.Lease <= 0 {
		config.Lease = defaultLease
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Service{Config: config, sessions: map[string]*session{}, owners: map[cacheID]*view{}}
}

// Run watches the leases until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	ticker := time.NewTicker(min(time.Second, s.Lease/4))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			s.checkLeases()
		}
	}
}

// Sync serves one stream of an agent.
func (s *Service) Sync(agent grpc.BidiStreamingServer[pb.SyncRequest, pb.SyncResponse]) error {
	s.Metrics.Streams.Inc()
	defer s.Metrics.Streams.Dec()
	c := &connection{service: s, stream: agent, replaced: make(chan struct{}), refused: map[string]uint64{}}
	defer c.detach()
	err := stream.Receive(agent.Recv, s.Stop, c.replaced, c.handle)
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, stream.ErrReplaced):
		return errReplaced
	case errors.Is(err, stream.ErrStopped):
		return status.Error(codes.Unavailable, "the aggregator is shutting down")
	default:
		return err
	}
}

var errReplaced = status.Error(codes.Aborted, "a newer stream of the same agent has replaced this one")
