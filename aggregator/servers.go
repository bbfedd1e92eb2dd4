package aggregator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

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

func newGRPCServer(draining context.Context, public pb.InferenceCacheServer, agents pb.CacheSyncServer,
	inspection pb.CacheInspectionServer,
) (*grpc.Server, *health.Server) {
	server := grpc.NewServer(
		grpc.ChainStreamInterceptor(endWith(draining)),
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.WaitForHandlers(true), // Stop returns when no handler uses the index any more
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	pb.RegisterInferenceCacheServer(server, public)
	pb.RegisterCacheSyncServer(server, agents)
	pb.RegisterCacheInspectionServer(server, inspection)
	state := health.NewServer()
	state.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	grpc_health_v1.RegisterHealthServer(server, state)
	reflection.Register(server)
	return server, state
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

func (a *Aggregator) serveHTTP() error {
	if err := a.http.Serve(a.httpAt); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}

// stop ends both servers. Readiness and health say so first, so that clients go elsewhere.
func (a *Aggregator) stop() error {
	a.log.Info("stopping", "at_most", stopTimeout)
	a.health.Shutdown()
	a.drain()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	a.stopGRPC(ctx)
	if err := a.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("stop HTTP: %w", err), a.http.Close())
	}
	a.log.Info("stopped")
	return nil
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

func newHTTPServer(a *Aggregator) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", a.ready)
	mux.Handle("GET /metrics", a.metrics.Handler())
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
	}
}

// ready says whether calls are taken, and how far the agents have brought the index.
func (a *Aggregator) ready(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-a.draining.Done():
		http.Error(w, "not ready: stopping", http.StatusServiceUnavailable)
	default:
		connected, complete := a.sync.Status()
		fmt.Fprintf(w, "ok\nagents connected: %d, of which have sent their whole table: %d\n", connected, complete)
	}
}
