package stats

import (
	"fmt"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// names are the metric names of one engine kind; of several the first one present is used.
type names struct {
	running, waiting, usage, hits, queries, hitGauge, t2Hits, t2Queries []string
	config                                                              string
	rank                                                                string // label that tells data-parallel ranks apart
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
	rank:      "engine",
}

var sglang = names{
	running:  []string{"sglang:num_running_reqs"},
	waiting:  []string{"sglang:num_queue_reqs"},
	usage:    []string{"sglang:token_usage"},
	hits:     []string{sglangCached},
	queries:  []string{"sglang:prompt_tokens_total"},
	hitGauge: []string{"sglang:cache_hit_rate"},
	rank:     "dp_rank",
}

// sglangCached counts prompt tokens found in the cache, by the label cache_source.
const sglangCached = "sglang:cached_tokens_total"

// read computes the statistics of each rank. Of a page that does not tell ranks apart each has an equal
// part of the load and the same rates, and the first has all that is counted in tokens and bytes, so that
// sums over ranks are right.
func (s *Scraper) read(p page) ([]*pb.ReplicaStats, error) {
	ranks := s.cfg.Ranks
	split, ok := p.byRank(s.names, ranks, s.cfg.FirstRank)
	share := 1
	if !ok {
		split, share = slices.Repeat([]page{p}, ranks), ranks
	}
	all := make([]*pb.ReplicaStats, ranks)
	for r, part := range split {
		stats, err := s.readRank(r, part, share)
		if err != nil {
			return nil, err
		}
		if share > 1 && r > 0 {
			stats.CacheMemoryBytes, stats.T2HitTokens, stats.T2QueryTokens = 0, 0, 0
		}
		all[r] = stats
	}
	if s.cfg.Observe != nil {
		s.cfg.Observe(process(p, split, s.names))
	}
	return all, nil
}

// readRank computes the statistics of one rank; its page speaks of share ranks. The load gauges are
// required: without them pressure would read as idle.
func (s *Scraper) readRank(rank int, p page, share int) (*pb.ReplicaStats, error) {
	running, okRunning := p.sum(s.names.running...)
	waiting, okWaiting := p.sum(s.names.waiting...)
	if !okRunning || !okWaiting {
		return nil, fmt.Errorf("read metrics: %s or %s is missing or not finite", s.names.running[0], s.names.waiting[0])
	}
	stats := &pb.ReplicaStats{
		ReplicaId: s.cfg.Replica,
		Pressure:  float32(clamp01((running + waiting) / float64(s.cfg.Ceiling*share))),
		HitRate:   float32(s.hitRate(rank, p)),
	}
	if use, ok := p.max(s.names.usage...); ok {
		stats.CacheMemoryBytes = int64(clamp01(use) * p.cacheBytes(s.names))
	}
	hits, queries := p.tier2(s.names)
	stats.T2HitTokens, stats.T2QueryTokens = int64(hits), int64(queries)
	return stats, nil
}

// hitRate prefers counters, over the time since the last scrape, to a gauge of the last batch.
func (s *Scraper) hitRate(rank int, p page) float64 {
	hits, okHits := p.sum(s.names.hits...)
	queries, okQueries := p.sum(s.names.queries...)
	if okHits && okQueries {
		return s.windows[rank].rate(hits, queries)
	}
	rate, _ := p.max(s.names.hitGauge...)
	return clamp01(rate)
}

// tier2 returns the tokens served by, and asked of, host memory. SGLang asks it for what the GPU lacks.
func (p page) tier2(n names) (hits, queries float64) {
	if len(n.t2Hits) > 0 {
		hits, _ = p.sum(n.t2Hits...)
		queries, _ = p.sum(n.t2Queries...)
		return hits, queries
	}
	hits, hasHost := p.labelled(sglangCached, "cache_source", "host")
	device, hasDevice := p.labelled(sglangCached, "cache_source", "device")
	prompt, ok := p.sum(n.queries...)
	if !hasHost || !hasDevice || !ok {
		return 0, 0
	}
	return hits, math.Max(0, prompt-device)
}

// cacheBytes is the size of the KV cache when the engine states it in bytes, else 0.
func (p page) cacheBytes(n names) (total float64) {
	for _, bytes := range p.configured(n, "kv_cache_memory_bytes") {
		total += bytes
	}
	return total
}

// process reads what the page says of the process, and of each rank's part.
func process(p page, ranks []page, n names) Process {
	started, _ := p.max("process_start_time_seconds")
	out := Process{Started: started}
	for _, part := range ranks {
		out.Ranks = append(out.Ranks, Rank{Asleep: part.asleep(), GPUBlocks: part.gpuBlocks(n)})
	}
	return out
}

// asleep reads the sleep state. vLLM sleeps with one of several states at 1; only "awake" at 0 is common
// to its releases.
func (p page) asleep() bool {
	f, ok := p["vllm:engine_sleep_state"]
	return ok && slices.ContainsFunc(f.Metric, func(m *dto.Metric) bool {
		return label(m, "sleep_state") == "awake" && valueOf(m) == 0
	})
}

// gpuBlocks is the most blocks that a rank of this page can have. With several ranks vLLM states the sum
// over all of them in each series; a number that was set by hand is that of one rank.
func (p page) gpuBlocks(n names) int {
	stated := append(p.configured(n, "num_gpu_blocks"), 0)
	most := slices.Max(stated)
	if set := p.configured(n, "num_gpu_blocks_override"); len(set) > 0 && most > 0 {
		most = min(most, slices.Max(set))
	}
	return int(math.Min(most, math.MaxInt32))
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
