package controller

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	libraries "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Bounds of what a caller of the HTTP servers may take.
const (
	readTimeout    = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
)

// serve has the manager serve a handler.
func (c *Controller) serve(name string, at net.Listener, handler http.Handler) error {
	shutdown := gracefulShutdown
	return c.manager.Add(&manager.Server{
		Name:     name,
		Listener: at,
		Server: &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: readTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          slog.NewLogLogger(c.config.Log.Handler(), slog.LevelDebug), // a caller's trouble
		},
		ShutdownTimeout: &shutdown,
	})
}

// healthPages answer whether the process lives, and whether the API server can use it.
func (c *Controller) healthPages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := c.ready(r.Context()); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// metricsPage has the controller's own metrics and those of the libraries of Kubernetes.
func (c *Controller) metricsPage() http.Handler {
	mux := http.NewServeMux()
	all := prometheus.Gatherers{c.registry, libraries.Registry}
	mux.Handle("GET /metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{}))
	return mux
}
