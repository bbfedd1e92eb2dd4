// Package stats reads an engine's Prometheus page and turns it into the statistics that rank a
// replica: pressure, hit rate, cache use and offload counters.
package stats

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// Defaults and bounds.
const (
	DefaultInterval = 2 * time.Second
	// DefaultCeiling is the number of running and waiting requests that counts as saturated.
	DefaultCeiling = 256
	scrapeTimeout  = 5 * time.Second
	maxPage        = 32 << 20
	// staleAfter is how many failed scrapes in a row make the statistics unknown.
	staleAfter = 3
)

// Config describes one scraper.
type Config struct {
	Replica  string
	URL      string
	Scheme   string // hash scheme; one that begins with "sglang" selects SGLang's metric names
	Interval time.Duration
	Ceiling  int
	// Observe is called after each successful scrape with what the page says of the process.
	Observe func(Process)
	Client  *http.Client
	Log     *slog.Logger
}

// Process is what a metrics page says of the engine process itself.
type Process struct {
	// Started is when it started, in seconds since the Unix epoch; 0 if the page does not say.
	Started float64
	// Asleep says that it has given up its KV cache until it is woken.
	Asleep bool
	// GPUBlocks is the number of blocks in GPU memory over all ranks; 0 if the page does not say.
	GPUBlocks int
}

// Scraper polls one engine.
type Scraper struct {
	cfg    Config
	names  names
	latest atomic.Pointer[pb.ReplicaStats]
	window window
	// Failures counts scrapes that gave no statistics.
	Failures atomic.Uint64
}

// New returns a scraper; Run starts it.
func New(cfg Config) *Scraper {
	if cfg.Interval <= 0 {
		cfg.Interval = DefaultInterval
	}
	if cfg.Ceiling <= 0 {
		cfg.Ceiling = DefaultCeiling
	}
	if cfg.Client == nil {
		cfg.Client = &http.Client{Timeout: scrapeTimeout}
	}
	s := &Scraper{cfg: cfg, names: vllm}
	if strings.HasPrefix(cfg.Scheme, "sglang") {
		s.names = sglang
	}
	return s
}

// Latest returns the newest statistics, or nil while there are none to trust.
func (s *Scraper) Latest() *pb.ReplicaStats { return s.latest.Load() }

// Run polls until ctx ends. An engine that cannot be read is logged once, and once when it is back.
func (s *Scraper) Run(ctx context.Context) error {
	tick := time.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	for failed := 0; ; {
		stats, err := s.scrape(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			failed++
			s.Failures.Add(1)
			if failed == staleAfter {
				s.latest.Store(nil)
				s.cfg.Log.Error("engine statistics are stale", "event", "load_signal_stale",
					"replica", s.cfg.Replica, "url", s.cfg.URL, "error", err)
			}
		default:
			if failed >= staleAfter {
				s.cfg.Log.Info("engine statistics are back", "event", "load_signal_recovered", "replica", s.cfg.Replica)
			}
			failed = 0
			s.latest.Store(stats)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (s *Scraper) scrape(ctx context.Context) (*pb.ReplicaStats, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.cfg.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	resp, err := s.cfg.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("get metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get metrics: status %s", resp.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		return nil, fmt.Errorf("parse metrics: %w", err)
	}
	return s.read(page(families))
}

// process reads what the page says of the process. vLLM sleeps with one of several states at 1; only
// "awake" at 0 is common to its releases.
func (p page) process(n names) Process {
	started, _ := p.max("process_start_time_seconds")
	blocks := 0.0
	if f, ok := p[n.config]; ok {
		for _, m := range f.Metric {
			if v, err := strconv.ParseFloat(label(m, "num_gpu_blocks"), 64); err == nil && v > 0 {
				blocks += v
			}
		}
	}
	asleep := false
	if f, ok := p["vllm:engine_sleep_state"]; ok {
		for _, m := range f.Metric {
			asleep = asleep || (label(m, "sleep_state") == "awake" && valueOf(m) == 0)
		}
	}
	return Process{Started: started, Asleep: asleep, GPUBlocks: int(blocks)}
}

// read computes the statistics of one page. The load gauges are required: without them pressure
// would read as idle.
func (s *Scraper) read(p page) (*pb.ReplicaStats, error) {
	running, okRunning := p.sum(s.names.running...)
	waiting, okWaiting := p.sum(s.names.waiting...)
	if !okRunning || !okWaiting {
		return nil, fmt.Errorf("read metrics: %s or %s is missing or not finite", s.names.running[0], s.names.waiting[0])
	}
	stats := &pb.ReplicaStats{
		ReplicaId: s.cfg.Replica,
		Pressure:  float32(clamp01((running + waiting) / float64(s.cfg.Ceiling))),
		HitRate:   float32(s.hitRate(p)),
	}
	if use, ok := p.max(s.names.usage...); ok {
		stats.CacheMemoryBytes = int64(clamp01(use) * p.cacheBytes(s.names))
	}
	hits, _ := p.sum(s.names.t2Hits...)
	queries, _ := p.sum(s.names.t2Queries...)
	stats.T2HitTokens, stats.T2QueryTokens = int64(hits), int64(queries)
	if s.cfg.Observe != nil {
		s.cfg.Observe(p.process(s.names))
	}
	return stats, nil
}

// hitRate prefers counters, over the time since the last scrape, to a gauge of the last batch.
func (s *Scraper) hitRate(p page) float64 {
	hits, okHits := p.sum(s.names.hits...)
	queries, okQueries := p.sum(s.names.queries...)
	if okHits && okQueries {
		return s.window.rate(hits, queries)
	}
	rate, _ := p.max(s.names.hitGauge...)
	return clamp01(rate)
}

// window turns two counters into the ratio of their last increase. An engine that answered nothing
// since keeps its ratio; a counter that went back is a restart and starts over.
type window struct {
	hits, queries, ratio float64
	started              bool
}

func (w *window) rate(hits, queries float64) float64 {
	dh, dq := hits-w.hits, queries-w.queries
	fresh := !w.started || dh < 0 || dq < 0
	w.hits, w.queries, w.started = hits, queries, true
	switch {
	case fresh:
		w.ratio = 0
	case dq > 0:
		w.ratio = clamp01(dh / dq)
	}
	return w.ratio
}

func clamp01(x float64) float64 { return math.Min(1, math.Max(0, x)) }

// names are the metric names of one engine kind; of several the first one present is used.
type names struct {
	running, waiting, usage, hits, queries, hitGauge, t2Hits, t2Queries []string
	config                                                              string
}

var vllm = names{
	running:   []string{"vllm:num_requests_running"},
	waiting:   []string{"vllm:num_requests_waiting"},
	usage:     []string{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"},
	hits:      []string{"vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits_total"},
	queries:   []string{"vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries_total"},
	t2Hits:    []string{"vllm:external_prefix_cache_hits_total", "vllm:external_prefix_cache_hits"},
	t2Queries: []string{"vllm:external_prefix_cache_queries_total", "vllm:external_prefix_cache_queries"},
	config:    "vllm:cache_config_info",
}

var sglang = names{
	running:  []string{"sglang:num_running_reqs"},
	waiting:  []string{"sglang:num_queue_reqs"},
	usage:    []string{"sglang:token_usage"},
	hitGauge: []string{"sglang:cache_hit_rate"},
}

// page is one parsed metrics page.
type page map[string]*dto.MetricFamily

// sum adds the series of the first family present. Series split by priority are left out: they
// repeat the unsplit one. A value that is not finite makes the whole unusable.
func (p page) sum(names ...string) (total float64, ok bool) {
	for _, name := range names {
		f, present := p[name]
		if !present {
			continue
		}
		for _, m := range f.Metric {
			v := valueOf(m)
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return 0, false
			}
			if label(m, "priority") == "" {
				total += v
			}
		}
		return total, len(f.Metric) > 0
	}
	return 0, false
}

// max returns the largest finite value of the first family present.
func (p page) max(names ...string) (largest float64, ok bool) {
	for _, name := range names {
		f, present := p[name]
		if !present {
			continue
		}
		for _, m := range f.Metric {
			if v := valueOf(m); !math.IsNaN(v) && !math.IsInf(v, 0) && (!ok || v > largest) {
				largest, ok = v, true
			}
		}
		return largest, ok
	}
	return 0, false
}

// cacheBytes is the size of the KV cache when the engine states it in bytes, else 0.
func (p page) cacheBytes(n names) float64 {
	f, ok := p[n.config]
	if !ok {
		return 0
	}
	total := 0.0
	for _, m := range f.Metric {
		if bytes, err := strconv.ParseFloat(label(m, "kv_cache_memory_bytes"), 64); err == nil && bytes > 0 {
			total += bytes
		}
	}
	return total
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	default:
		return m.Untyped.GetValue()
	}
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
