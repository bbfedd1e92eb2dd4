// Package aggregator answers LookupRoute from what agents and other producers report.
package aggregator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/aggregator/ingest"
	"github.com/inferencecache/inferencecache/aggregator/inspect"
	"github.com/inferencecache/inferencecache/aggregator/lookup"
	"github.com/inferencecache/inferencecache/aggregator/metrics"
	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/rank"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	"github.com/inferencecache/inferencecache/aggregator/sync"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/runs"
)

// Config is how an aggregator is set up.
type Config struct {
	// GRPCAddress and HTTPAddress are host:port to listen on.
	GRPCAddress, HTTPAddress string
	// BlockSize is the engines' block size in tokens where no engine has shown one; more than 0.
	BlockSize int32
	// MaxIndexEntries bounds the pairs of block and cache; 0 means the index's default.
	MaxIndexEntries int64
	// AgentLease is how long an agent may be away before its caches are hidden; 0 means 30 s.
	AgentLease time.Duration
	// Policy gives each tenant's policy; nil means the default for all.
	Policy policy.For
	Log    *slog.Logger
}

// Aggregator is one process's worth of servers, index and housekeeping.
type Aggregator struct {
	log      *slog.Logger
	index    index.Index
	registry *registry.Registry
	metrics  *metrics.Metrics
	sync     *sync.Service

	grpc     *grpc.Server
	health   *health.Server
	http     *http.Server
	grpcAt   net.Listener
	httpAt   net.Listener
	draining context.Context // ends when the stop begins; streams end with it
	drain    context.CancelFunc
}

// New listens on both addresses. Run must be called, and closes them.
func New(config Config) (*Aggregator, error) {
	if config.BlockSize <= 0 {
		return nil, fmt.Errorf("engine block size is %d, must be more than 0", config.BlockSize)
	}
	if config.MaxIndexEntries < 0 {
		return nil, fmt.Errorf("max index entries is %d, must not be negative", config.MaxIndexEntries)
	}
	a := &Aggregator{log: config.Log}
	a.draining, a.drain = context.WithCancel(context.Background())
	if err := a.listen(config); err != nil {
		return nil, err
	}
	a.build(config)
	return a, nil
}

func (a *Aggregator) listen(config Config) (err error) {
	ctx := context.Background() // listening does not wait
	var lc net.ListenConfig
	if a.grpcAt, err = lc.Listen(ctx, "tcp", config.GRPCAddress); err != nil {
		return fmt.Errorf("listen for gRPC: %w", err)
	}
	if a.httpAt, err = lc.Listen(ctx, "tcp", config.HTTPAddress); err != nil {
		return errors.Join(fmt.Errorf("listen for HTTP: %w", err), a.grpcAt.Close())
	}
	return nil
}

// build makes the parts and joins them.
func (a *Aggregator) build(config Config) {
	policyOf := config.Policy
	if policyOf == nil {
		policyOf = policy.Same(policy.Default())
	}
	ttl := func(tenant string) time.Duration { return policyOf(tenant).TTL }
	a.index = newIndex(index.Config{
		MaxPairs: config.MaxIndexEntries,
		Reserved: contract.ReservedTenant,
		Limits: func(tenant string) index.Limits {
			p := policyOf(tenant)
			return index.Limits{TTL: p.TTL, LFU: p.LFU}
		},
	})
	a.metrics = metrics.New(a.index)
	a.registry = registry.New(registry.Config{TTL: ttl})
	a.sync = sync.New(sync.Config{
		Index: a.index, Registry: a.registry, Metrics: a.metrics, Log: a.log,
		BootID: rand.Uint64(), Lease: config.AgentLease, Stop: a.draining.Done(),
	})
	a.grpc, a.health = newGRPCServer(a.draining, &service{
		index: a.index, registry: a.registry,
		lookup: lookup.New(lookup.Config{
			Index: a.index, Registry: a.registry, Policy: policyOf, Rank: rank.Default(),
			Metrics: a.metrics, BlockSize: config.BlockSize,
		}),
		ingest: ingest.New(ingest.Config{
			Index: a.index, Registry: a.registry, Policy: policyOf, Metrics: a.metrics, Stop: a.draining.Done(),
		}),
	}, a.sync, inspect.New(a.index))
	a.http = newHTTPServer(a)
}

// newIndex is the one place that chooses the implementation.
func newIndex(c index.Config) index.Index { return runs.New(c) }

// GRPCAddr and HTTPAddr are what the aggregator listens on.
func (a *Aggregator) GRPCAddr() string { return a.grpcAt.Addr().String() }

// HTTPAddr is the address of /healthz, /readyz and /metrics.
func (a *Aggregator) HTTPAddr() string { return a.httpAt.Addr().String() }

// Run serves until ctx ends, then stops: no new calls, those in flight finish, open streams are told
// to go elsewhere. It returns when everything has ended.
func (a *Aggregator) Run(ctx context.Context) error {
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return a.serveGRPC() })
	work.Go(func() error { return a.serveHTTP() })
	work.Go(func() error { return a.sync.Run(ctx) })
	work.Go(func() error { return a.maintain(ctx) })
	work.Go(func() error {
		<-ctx.Done()
		return a.stop()
	})
	a.health.SetServingStatus("", grpc_health_v1.HealthCheckResponse_SERVING)
	a.metrics.Up.Set(1)
	a.log.Info("serving", "grpc", a.GRPCAddr(), "http", a.HTTPAddr())
	err := work.Wait()
	a.metrics.Up.Set(0)
	return err
}

// maintainEvery is how often housekeeping looks whether something is due.
const maintainEvery = time.Second

// maintain expires and evicts, in steps that the index bounds, and forgets members that no report
// names any more.
func (a *Aggregator) maintain(ctx context.Context) error {
	ticker := time.NewTicker(maintainEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		a.registry.Expire(time.Now())
		for a.index.Maintain(index.At(time.Now()), a.metrics.Removed) && ctx.Err() == nil {
		}
	}
}
