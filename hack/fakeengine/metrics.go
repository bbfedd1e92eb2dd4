package fakeengine

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxLoRASets bounds the label sets of lora_requests_info: every combination of running and waiting
// adapters that was seen is one.
const maxLoRASets = 256

// metrics collects vLLM's metrics from the ranks at each scrape, under vLLM's names and labels.
type metrics struct {
	engine   *Engine
	registry *prometheus.Registry

	usage, running, waiting     *prometheus.Desc
	queries, hits               *prometheus.Desc
	extQueries, extHits         *prometheus.Desc
	prompt, generation, preempt *prometheus.Desc
	sleep, config               *prometheus.Desc
	lora                        *prometheus.Desc

	mu       sync.Mutex
	loraSeen map[[2]string]time.Time // running and waiting adapters to when they were last seen
}

func newMetrics(e *Engine) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("vllm:"+name, help, append(labels, "engine", "model_name"), nil)
	}
	m := &metrics{
		engine:     e,
		registry:   prometheus.NewRegistry(),
		usage:      desc("kv_cache_usage_perc", "Share of KV blocks held by requests, 0 to 1; cached free blocks count as free."),
		running:    desc("num_requests_running", "Requests running."),
		waiting:    desc("num_requests_waiting", "Requests waiting."),
		queries:    desc("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache."),
		hits:       desc("prefix_cache_hits_total", "Prompt tokens found in the prefix cache."),
		extQueries: desc("external_prefix_cache_queries_total", "Prompt tokens looked up in a connector; there is none."),
		extHits:    desc("external_prefix_cache_hits_total", "Prompt tokens found in a connector; there is none."),
		prompt:     desc("prompt_tokens_total", "Prompt tokens processed."),
		generation: desc("generation_tokens_total", "Tokens generated."),
		preempt:    desc("num_preemptions_total", "Requests preempted for want of blocks."),
		sleep:      desc("engine_sleep_state", "1 for the state that the engine is in.", "sleep_state"),
		config: prometheus.NewDesc("vllm:cache_config_info", "Cache configuration as labels.",
			[]string{
				"block_size", "cache_dtype", "enable_prefix_caching", "engine",
				"num_gpu_blocks", "num_gpu_blocks_override", "prefix_caching_hash_algo",
			}, nil),
		lora: prometheus.NewDesc("vllm:lora_requests_info",
			"Unix time in seconds at which these adapters were last seen running and waiting.",
			[]string{"max_lora", "running_lora_adapters", "waiting_lora_adapters"}, nil),
		loraSeen: make(map[[2]string]time.Time),
	}
	m.registry.MustRegister(m)
	if e.cfg.Ranks == 1 { // with several, vLLM serves from several processes and leaves it out
		m.registry.MustRegister(startTime())
	}
	return m
}

// startTime is the start of the engine, which tells a restart. An engine stands for a process, so it is not
// the start of this process.
func startTime() prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "process_start_time_seconds",
		Help: "Start time of the engine in seconds since the Unix epoch.",
	})
	g.Set(float64(time.Now().UnixMicro()) / 1e6)
	return g
}

// Describe sends nothing: the label sets are known at the scrape only.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect reads every rank once.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	var running, waiting []string
	for _, r := range m.engine.ranks {
		s := r.snapshot()
		m.collectRank(out, strconv.Itoa(r.index), s)
		running = append(running, s.runningLoRA...)
		waiting = append(waiting, s.waitingLoRA...)
	}
	if len(m.engine.cfg.Adapters) > 0 {
		m.collectLoRA(out, running, waiting)
	}
}

func (m *metrics) collectRank(out chan<- prometheus.Metric, engine string, s snapshot) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, v, append(labels, engine, m.engine.cfg.Model)...)
	}
	send(m.usage, prometheus.GaugeValue, s.usage)
	send(m.running, prometheus.GaugeValue, float64(s.running))
	send(m.waiting, prometheus.GaugeValue, float64(s.waiting))
	send(m.queries, prometheus.CounterValue, float64(s.stats.queries))
	send(m.hits, prometheus.CounterValue, float64(s.stats.hits))
	send(m.extQueries, prometheus.CounterValue, 0)
	send(m.extHits, prometheus.CounterValue, 0)
	send(m.prompt, prometheus.CounterValue, float64(s.stats.prompt))
	send(m.generation, prometheus.CounterValue, float64(s.stats.generation))
	send(m.preempt, prometheus.CounterValue, float64(s.stats.preemptions))
	send(m.sleep, prometheus.GaugeValue, 1, "awake")
	send(m.sleep, prometheus.GaugeValue, 0, "weights_offloaded")
	send(m.sleep, prometheus.GaugeValue, 0, "discard_all")

	cfg := &m.engine.cfg
	blocks := strconv.Itoa(cfg.Blocks)
	total := strconv.Itoa(cfg.Blocks * cfg.Ranks) // vLLM reports the sum over all ranks for each
	out <- prometheus.MustNewConstMetric(m.config, prometheus.GaugeValue, 1,
		strconv.Itoa(cfg.BlockSize), "auto", "True", engine, total, blocks, "sha256")
}

// collectLoRA stamps the present set of adapters. Older sets remain, as in vLLM: the newest stamp tells
// which holds.
func (m *metrics) collectLoRA(out chan<- prometheus.Metric, running, waiting []string) {
	names := func(list []string) string {
		slices.Sort(list)
		return strings.Join(slices.Compact(list), ",")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	set := [2]string{names(running), names(waiting)}
	if _, known := m.loraSeen[set]; !known && len(m.loraSeen) >= maxLoRASets {
		clear(m.loraSeen)
	}
	m.loraSeen[set] = time.Now()
	for set, seen := range m.loraSeen {
		out <- prometheus.MustNewConstMetric(m.lora, prometheus.GaugeValue, float64(seen.UnixMicro())/1e6,
			strconv.Itoa(len(m.engine.cfg.Adapters)), set[0], set[1])
	}
}

// snapshot is the state of a rank at one moment.
type snapshot struct {
	stats                    stats
	usage                    float64
	running, waiting         int
	runningLoRA, waitingLoRA []string
}

func (r *rank) snapshot() snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return snapshot{
		stats:       r.stats,
		usage:       float64(r.pool.used()) / float64(r.pool.usable()),
		running:     len(r.running),
		waiting:     len(r.waiting),
		runningLoRA: adaptersOf(r.running),
		waitingLoRA: adaptersOf(r.waiting),
	}
}

func adaptersOf(tasks []*task) []string {
	var names []string
	for _, t := range tasks {
		if t.seq.id.lora != "" {
			names = append(names, t.seq.id.lora)
		}
	}
	return names
}
