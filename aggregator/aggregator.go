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

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"k8s.io/client-go/rest"

	"github.com/inferencecache/inferencecache/aggregator/hot"
	"github.com/inferencecache/inferencecache/aggregator/metrics"
	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/probe"
	"github.com/inferencecache/inferencecache/aggregator/prompts"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	"github.com/inferencecache/inferencecache/aggregator/snapshot"
	"github.com/inferencecache/inferencecache/aggregator/sync"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/runs"
	"github.com/inferencecache/inferencecache/tlsconfig"
)

// Config is how an aggregator is set up.
type Config struct {
	// Name tells it from others in /snapshot: the name of its Pod, in a cluster. It may be empty.
	Name string
	// GRPCAddress and HTTPAddress are host:port to listen on.
	GRPCAddress, HTTPAddress string
	// BlockSize is the engines' block size in tokens where no engine has shown one; more than 0.
	BlockSize int32
	// MaxIndexEntries bounds the pairs of block and cache; 0 means the index's default.
	MaxIndexEntries int64
	// MaxIndexBytes bounds the memory of the index; 0 means that the entries alone are bounded.
	MaxIndexBytes int64
	// AgentLease is how long an agent may be away before its caches are hidden; 0 means 30 s.
	AgentLease time.Duration
	// ExpectedAgents is how many agents must have sent their whole table before /readyz says yes. With 0
	// it is those that are connected when WarmUp has passed since the start.
	ExpectedAgents int
	WarmUp         time.Duration
	// PolicyDir is a folder of CachePolicy, CacheTenant and PromptTemplate manifests, which is followed;
	// empty means none.
	PolicyDir string
	// PolicyCluster is the Kubernetes cluster whose CachePolicy, CacheTenant and PromptTemplate objects are
	// followed; nil means none.
	PolicyCluster *rest.Config
	// Policy, if not nil, decides in place of all sources of policy.
	Policy policy.For
	// Tokenizer says how text is turned into token ids.
	Tokenizer Tokenizer
	// TenantNamespaceKey keys the tenant_namespace of RenderTemplate; empty means that there is none.
	TenantNamespaceKey []byte
	// Ranking is the constants of the score and of placement; nil means DefaultRanking.
	Ranking *Ranking
	// Admin is how /snapshot, /policy and /probe are served.
	Admin Admin
	// TLS encrypts the gRPC port; nil leaves it in the clear.
	TLS *tlsconfig.Source
	// HotPrefixUses is how many answers lately make a prefix hot; 0 means hot.DefaultUses.
	HotPrefixUses uint32
	// Version is that of this build, which agents and operators are told; empty is unknown.
	Version string
	// Now tells the time by which entries age and leases run out; nil means time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Aggregator is one process's worth of servers, index and housekeeping.
type Aggregator struct {
	log      *slog.Logger
	now      func() time.Time
	version  string
	index    index.Index
	registry *registry.Registry
	metrics  *metrics.Metrics
	sync     *sync.Service
	versions *versions
	hot      *hot.Counter
	models   *models
	prompts  *prompts.Store // nil if it has no source

	policies  *policy.Store
	followed  []follower // sources that change by themselves
	policyOf  policy.For
	snapshots *snapshot.Source
	tls       *tlsconfig.Source // nil if the gRPC port is in the clear

	grpc     *grpc.Server
	health   *health.Server
	http     *http.Server
	admin    *http.Server // nil if it is not served
	grpcAt   net.Listener
	httpAt   net.Listener
	adminAt  net.Listener
	warmUp   warmUp
	draining context.Context // ends when the stop begins; streams end with it
	drain    context.CancelFunc
}

// New reads the policy folder and listens on the addresses. Run must be called, and closes them.
func New(config Config) (*Aggregator, error) {
	if config.BlockSize <= 0 {
		return nil, fmt.Errorf("engine block size is %d, must be more than 0", config.BlockSize)
	}
	if config.MaxIndexBytes < 0 {
		return nil, fmt.Errorf("max index bytes is %d, must not be negative", config.MaxIndexBytes)
	}
	if config.MaxIndexEntries < 0 {
		return nil, fmt.Errorf("max index entries is %d, must not be negative", config.MaxIndexEntries)
	}
	if err := config.Admin.check(); err != nil {
		return nil, err
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	a := &Aggregator{log: config.Log, now: config.Now, version: config.Version, policies: newPolicies(config), tls: config.TLS}
	a.warmUp.expected, a.warmUp.deadline = config.ExpectedAgents, a.now().Add(config.WarmUp)
	a.draining, a.drain = context.WithCancel(context.Background())
	if err := a.readPolicies(config); err != nil {
		return nil, err
	}
	if err := a.listen(config); err != nil {
		return nil, err
	}
	if err := a.build(config); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

// listen binds the addresses that are served, all or none.
func (a *Aggregator) listen(config Config) error {
	for _, at := range []struct {
		what, address string
		listener      *net.Listener
	}{
		{"gRPC", config.GRPCAddress, &a.grpcAt},
		{"HTTP", config.HTTPAddress, &a.httpAt},
		{"snapshots, policies and probes", config.Admin.Address, &a.adminAt},
	} {
		if at.address == "" && at.listener == &a.adminAt {
			continue
		}
		var err error
		var lc net.ListenConfig
		if *at.listener, err = lc.Listen(context.Background(), "tcp", at.address); err != nil { // does not wait
			return errors.Join(fmt.Errorf("listen for %s: %w", at.what, err), a.close())
		}
	}
	return nil
}

// close closes the addresses that are bound.
func (a *Aggregator) close() error {
	var errs []error
	for _, l := range []net.Listener{a.grpcAt, a.httpAt, a.adminAt} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

// build makes the parts and joins them.
func (a *Aggregator) build(config Config) error {
	a.policyOf = withProbe(a.policies.For)
	limits := a.policies.Limits
	if config.Policy != nil {
		a.policyOf = withProbe(config.Policy)
		limits = func(tenant string) index.Limits {
			p := config.Policy(tenant)
			return index.Limits{TTL: p.TTL, LFU: p.LFU}
		}
	}
	a.index = newIndex(index.Config{
		MaxPairs: config.MaxIndexEntries, MaxBytes: config.MaxIndexBytes, Reserved: probe.Tenant, Limits: limits,
	})
	a.metrics = metrics.New(a.index)
	a.metrics.Register(a.policies.Collector())
	a.hot = hot.New(config.HotPrefixUses, a.now())
	a.models = newModels(config.Tokenizer, a.metrics, a.log)
	a.registry = registry.New(registry.Config{TTL: func(tenant string) time.Duration { return a.policyOf(tenant).TTL }})
	a.snapshots = &snapshot.Source{
		Index: a.index, Registry: a.registry, Policies: a.policies, Hot: a.hot, Hidden: probe.Tenant, Name: config.Name,
	}
	a.sync = sync.New(sync.Config{
		Index: a.index, Registry: a.registry, Metrics: a.metrics, Log: a.log,
		BootID: rand.Uint64(), Version: a.version, Now: a.now, Lease: config.AgentLease, Stop: a.draining.Done(),
	})
	a.versions = newVersions(a.registry, a.sync, a.log)
	a.metrics.Register(a.versions, a.registry.Collector(), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "inferencecache_hot_prefixes", Help: "Distinct prefixes that lookups were answered with often, lately.",
	}, func() float64 { return float64(a.hot.Total()) }))
	a.http = newHTTPServer(a.publicPages())
	if config.Admin.Address != "" {
		a.admin = a.newAdminServer(config)
	}
	return a.buildGRPC(config)
}

// newIndex is the one place that chooses the implementation.
func newIndex(c index.Config) index.Index { return runs.New(c) }

// GRPCAddr and HTTPAddr are what the aggregator listens on.
func (a *Aggregator) GRPCAddr() string { return a.grpcAt.Addr().String() }

// HTTPAddr is the address of /healthz, /readyz and /metrics.
func (a *Aggregator) HTTPAddr() string { return a.httpAt.Addr().String() }

// AdminAddr is the address of /snapshot, /policy and /probe, empty if they are not served.
func (a *Aggregator) AdminAddr() string {
	if a.adminAt == nil {
		return ""
	}
	return a.adminAt.Addr().String()
}

// Run serves until ctx ends, then stops: no new calls, those in flight finish, open streams are told
// to go elsewhere. It returns when everything has ended.
func (a *Aggregator) Run(ctx context.Context) error {
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return a.serveGRPC() })
	work.Go(func() error { return serveHTTP(a.http, a.httpAt) })
	if a.admin != nil {
		work.Go(func() error { return serveHTTP(a.admin, a.adminAt) })
	}
	for _, f := range a.followed {
		work.Go(func() error { return f.Run(ctx) })
	}
	if a.tls != nil {
		work.Go(func() error { return a.tls.Run(ctx) })
	}
	work.Go(func() error { return a.models.run(ctx) })
	work.Go(func() error { return a.sync.Run(ctx) })
	work.Go(func() error { return a.maintain(ctx) })
	work.Go(func() error {
		<-ctx.Done()
		return a.stop()
	})
	a.health.SetServingStatus("", grpc_health_v1.HealthCheckResponse_SERVING)
	a.metrics.Up.Set(1)
	a.log.Info("serving", "grpc", a.GRPCAddr(), "tls", a.tls != nil, "http", a.HTTPAddr(), "admin", a.AdminAddr())
	err := work.Wait()
	a.metrics.Up.Set(0)
	return errors.Join(err, a.models.close())
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
		a.registry.Expire(a.now())
		a.versions.look()
		a.hot.Age(a.now())
		for a.index.Maintain(index.At(a.now()), a.metrics.Removed) && ctx.Err() == nil {
		}
	}
}
