package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const shutdownTimeout = 5 * time.Second

// serveHTTP answers probes and metrics until ctx ends.
func (a *Agent) serveHTTP(ctx context.Context) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		&collector{agent: a}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if a.opts.Discovery != nil {
		registry.MustRegister(a.opts.Discovery)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", a.readyz)
	mux.HandleFunc("GET /status", a.serveStatus)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}

	served := make(chan error, 1)
	go func() { served <- server.Serve(a.listener) }() // ends with Shutdown or Close below
	select {
	case err := <-served:
		return fmt.Errorf("serve http: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := server.Shutdown(stop)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if serving := <-served; !errors.Is(serving, http.ErrServerClosed) {
		err = errors.Join(err, serving)
	}
	return err
}

// readyz says whether the agent is of use: some aggregator has been told everything, and every
// engine is being followed. Engines that cannot be reached are waited for only a while, so that one
// of them does not keep the node's others out.
func (a *Agent) readyz(w http.ResponseWriter, _ *http.Request) {
	var missing []string
	inStep := 0
	links := a.uplinks.all()
	for _, u := range links {
		if u.InStep() {
			inStep++
		}
	}
	if inStep == 0 {
		missing = append(missing, "no aggregator has confirmed the whole table")
	}
	if !a.settled() {
		why := "the API server has not answered"
		if st := a.opts.Discovery.Status(); st.Error != "" {
			why = st.Error
		}
		missing = append(missing, "the pods of the node have not been listed yet: "+why)
	}
	for _, e := range a.following.now().engines {
		if !e.reached() && a.opts.Now().Sub(a.started) < reachGrace {
			missing = append(missing, fmt.Sprintf("engine %s has not been reached at %s", e.id, e.cfg.Events))
		}
	}
	if len(missing) > 0 {
		write(w, http.StatusServiceUnavailable, "not ready\n"+strings.Join(missing, "\n")+"\n")
		return
	}
	write(w, http.StatusOK, fmt.Sprintf("ok\naggregators in step: %d of %d\n", inStep, len(links)))
}

// write answers with plain text; a client that is gone is no error of ours.
func write(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}
