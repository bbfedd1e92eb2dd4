package fakeengine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	shutdownTime  = 5 * time.Second
	headerTimeout = 10 * time.Second
	rankHeader    = "X-data-parallel-rank"
)

// serveHTTP serves until ctx ends, then lets calls in flight end.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }() // ends with Shutdown or Close below
	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	err := srv.Shutdown(limit)
	if err != nil {
		err = errors.Join(fmt.Errorf("stop HTTP: %w", err), srv.Close())
	}
	if stopped := <-failed; !errors.Is(stopped, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve HTTP: %w", stopped))
	}
	return err
}

func (e *Engine) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/completions", e.serveCompletion)
	mux.HandleFunc("GET /v1/models", e.serveModels)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /reset_prefix_cache", e.serveReset)
	mux.HandleFunc("GET /kv_event_sources", e.serveSources)
	mux.HandleFunc("GET /debug/held", e.serveHeld)
	mux.Handle("GET /metrics", promhttp.HandlerFor(e.metrics.registry, promhttp.HandlerOpts{}))
	return mux
}

type modelCard struct {
	ID      string  `json:"id"`
	Object  string  `json:"object"`
	OwnedBy string  `json:"owned_by"`
	Root    string  `json:"root"`
	Parent  *string `json:"parent"` // the base model of an adapter
}

// serveModels lists the base model, then the adapters in the order of their ids.
func (e *Engine) serveModels(w http.ResponseWriter, _ *http.Request) {
	base := e.cfg.Model
	cards := []modelCard{{ID: base, Object: "model", OwnedBy: "fakeengine", Root: base}}
	for _, name := range e.adapters() {
		cards = append(cards, modelCard{ID: name, Object: "model", OwnedBy: "fakeengine", Root: name, Parent: &base})
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": cards})
}

func (e *Engine) adapters() []string {
	names := make([]string, 0, len(e.cfg.Adapters))
	for name := range e.cfg.Adapters {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return e.cfg.Adapters[a] - e.cfg.Adapters[b] })
	return names
}

// serveReset answers 409 while requests are in progress. A rank without any is emptied even then.
func (e *Engine) serveReset(w http.ResponseWriter, _ *http.Request) {
	if !e.Reset() {
		writeJSON(w, http.StatusConflict, map[string]any{
			"success": false, "error": "blocks are in use; try again when no request is in progress",
		})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"success": true})
}

type eventSource struct {
	EnableKVCacheEvents bool    `json:"enable_kv_cache_events"`
	Publisher           string  `json:"publisher"`
	Endpoint            string  `json:"endpoint"`
	ReplayEndpoint      *string `json:"replay_endpoint"`
	BufferSteps         int     `json:"buffer_steps"`
	HWM                 int     `json:"hwm"`
	MaxQueueSize        int     `json:"max_queue_size"`
	Topic               string  `json:"topic"`
}

// serveSources lists the sockets in the form of vLLM 0.31.0 and later: an object keyed by rank.
func (e *Engine) serveSources(w http.ResponseWriter, _ *http.Request) {
	sources := make(map[string]eventSource, len(e.ranks))
	for i := range e.ranks {
		s := eventSource{
			EnableKVCacheEvents: true,
			Publisher:           "zmq",
			Endpoint:            e.addrs.Events[i],
			BufferSteps:         e.cfg.BufferSteps,
			HWM:                 e.cfg.HighWaterMark,
			MaxQueueSize:        publishQueue,
			Topic:               e.cfg.Topic,
		}
		if len(e.addrs.Replay) > 0 {
			s.ReplayEndpoint = &e.addrs.Replay[i]
		}
		sources[strconv.Itoa(i)] = s
	}
	writeJSON(w, http.StatusOK, sources)
}

// serveHeld streams what the pools hold, one JSON object a line: blocks, or with ?form=fingerprints the
// content fingerprints of the unsalted ones.
func (e *Engine) serveHeld(w http.ResponseWriter, req *http.Request) {
	form := req.URL.Query().Get("form")
	if form != "" && form != "blocks" && form != "fingerprints" {
		writeError(w, badRequest("form: %q is unknown; want blocks or fingerprints", form))
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	for _, r := range e.ranks {
		var err error
		if form == "fingerprints" {
			err = encodeLines(enc, r.fingerprints())
		} else {
			err = encodeLines(enc, r.held(e.cfg.HashForm == HashBytes))
		}
		if err != nil {
			e.log.Debug("stream held blocks", "err", err) // the client has gone
			return
		}
	}
	if err := out.Flush(); err != nil {
		e.log.Debug("stream held blocks", "err", err)
	}
}

func encodeLines[T any](enc *json.Encoder, lines []T) error {
	for i := range lines {
		if err := enc.Encode(&lines[i]); err != nil {
			return err
		}
	}
	return nil
}

// MarshalJSON writes the fingerprints as 16 hex digits each.
func (f RankFingerprints) MarshalJSON() ([]byte, error) {
	digits := make([]string, len(f.Fingerprints))
	for i, p := range f.Fingerprints {
		digits[i] = fmt.Sprintf("%016x", p)
	}
	return json.Marshal(struct {
		Rank         int      `json:"rank"`
		LoRA         string   `json:"lora"`
		Fingerprints []string `json:"fingerprints"`
	}{f.Rank, f.LoRA, digits})
}

// writeError answers in the form of the OpenAI API.
func writeError(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable
	if refused, ok := errors.AsType[*RequestError](err); ok {
		status = refused.Status
	}
	writeJSON(w, status, map[string]any{"error": map[string]any{
		"message": err.Error(), "type": http.StatusText(status), "code": status,
	}})
}

// writeJSON answers with a value that always encodes; a write error means that the client has gone.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
