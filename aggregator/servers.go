package aggregator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/inferencecache/inferencecache/aggregator/inspect"
	"github.com/inferencecache/inferencecache/aggregator/probe"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

const (
	// maxMessageBytes bounds one gRPC message from a client.
	maxMessageBytes = 16 << 20
	// maxStreams bounds the calls in flight on one connection; more wait at the client.
	maxStreams = 1024
	// stopTimeout bounds the wait for calls in flight. After it connections are cut.
	stopTimeout = 10 * time.Second
)

// buildGRPC makes the gRPC server and registers what it serves.
func (a *Aggregator) buildGRPC(config Config) error {
	options := []grpc.ServerOption{
		grpc.ChainStreamInterceptor(endWith(a.draining)),
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.WaitForHandlers(true), // Stop returns when no handler uses the index any more
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	if a.tls != nil {
		encryption, err := a.tls.Server()
		if err != nil {
			return fmt.Errorf("encrypt the gRPC port: %w", err)
		}
		options = append(options, grpc.Creds(credentials.NewTLS(encryption)))
		a.countTLS()
	}
	a.grpc, a.health = grpc.NewServer(options...), health.NewServer()
	pb.RegisterInferenceCacheServer(a.grpc, a.newService(config, a.metrics, a.hot))
	pb.RegisterCacheSyncServer(a.grpc, a.sync)
	pb.RegisterCacheInspectionServer(a.grpc, inspect.New(probe.Hide(a.index), a.now))
	a.health.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	grpc_health_v1.RegisterHealthServer(a.grpc, a.health)
	reflection.Register(a.grpc)
	return nil
}

func (a *Aggregator) countTLS() {
	a.metrics.TLS.Set(1)
	a.metrics.Register(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "inferencecache_server_tls_certificate_expiry_timestamp_seconds",
			Help: "When the certificate in use ends.",
		}, func() float64 { return float64(a.tls.Expires().Unix()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "inferencecache_server_tls_reload_failures_total",
			Help: "Changes of the TLS files that could not be used.",
		}, func() float64 { return float64(a.tls.Failures()) }),
	)
}

// endWith ends the context of every stream when ctx ends. Streams that watch something for ever, such
// as those of the health service, would otherwise hold up a graceful stop.
func endWith(ctx context.Context) grpc.StreamServerInterceptor {
	return func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		streamCtx, cancel := context.WithCancel(s.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return handler(srv, &endingStream{s, streamCtx})
	}
}

type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *endingStream) Context() context.Context { return s.ctx }

func (a *Aggregator) serveGRPC() error {
	if err := a.grpc.Serve(a.grpcAt); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve gRPC: %w", err)
	}
	return nil
}

func serveHTTP(server *http.Server, at net.Listener) error {
	if err := server.Serve(at); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}

// stop ends the servers. Readiness and health say so first, so that clients go elsewhere.
func (a *Aggregator) stop() error {
	a.log.Info("stopping", "at_most", stopTimeout)
	a.health.Shutdown()
	a.drain()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	a.stopGRPC(ctx)
	var errs []error
	for _, server := range []*http.Server{a.admin, a.http} {
		if server == nil {
			continue
		}
		if err := server.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop HTTP: %w", err), server.Close())
		}
	}
	a.log.Info("stopped")
	return errors.Join(errs...)
}

// stopGRPC waits for calls in flight until ctx ends, then cuts them off.
func (a *Aggregator) stopGRPC(ctx context.Context) {
	stopped := make(chan struct{})
	go func() { // waited for below
		defer close(stopped)
		a.grpc.GracefulStop()
	}()
	select {
	case <-stopped:
	case <-ctx.Done():
		a.log.Warn("calls are still in flight, cutting them off")
		a.grpc.Stop()
		<-stopped
	}
}

// publicPages are those of --http-bind-address.
func (a *Aggregator) publicPages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", a.ready)
	mux.Handle("GET /metrics", a.metrics.Handler())
	return mux
}

func newHTTPServer(pages http.Handler) *http.Server {
	return &http.Server{
		Handler:           pages,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
	}
}

// ready says whether calls are taken, how far the agents have brought the index, and what policy comes
// from. Sources that cannot be used are no reason to send calls elsewhere: what they stated before is
// in force.
func (a *Aggregator) ready(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-a.draining.Done():
		http.Error(w, "not ready: stopping", http.StatusServiceUnavailable)
		return
	default:
	}
	if missing := a.models.missing(); missing != "" {
		http.Error(w, "not ready: "+missing, http.StatusServiceUnavailable)
		return
	}
	connected, complete, behind := a.sync.Status()
	if missing := a.warmUp.missing(a.now(), connected, complete, behind); missing != "" {
		http.Error(w, "not ready: "+missing, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintf(w, "ok\nagents connected: %d, of which have sent their whole table: %d\n", connected, complete)
	for _, source := range a.policies.Status() {
		fmt.Fprintf(w, "policy source %s: %s\n", source.Source, source)
	}
}
