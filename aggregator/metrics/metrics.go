// Package metrics is what the aggregator shows on /metrics. Names that come from the network are
// bounded: a model or tenant past the bound, or one that only a caller named, counts as "other".
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/inferencecache/inferencecache/index"
)

// Sources of what is ingested, as the source label gives them.
const (
	SourceReport = "report"
	SourceEvent  = "event"
	SourceSync   = "sync"
)

// Metrics holds every series of the aggregator.
type Metrics struct {
	registry *prometheus.Registry

	// Up is 1 while the aggregator serves; TLS says whether its gRPC port is encrypted.
	Up, TLS prometheus.Gauge
	// Streams counts the agent streams that are open; Agents those known, by lease.
	Streams prometheus.Gauge
	Agents  *prometheus.GaugeVec // state: connected, absent, expired
	Deltas  prometheus.Counter
	// Confirms counts digests from agents by result: equal, different.
	Confirms *prometheus.CounterVec

	applied   *prometheus.CounterVec // source
	dropped   *prometheus.CounterVec // source, reason
	evictions *prometheus.CounterVec // algorithm, reason
	quota     *prometheus.CounterVec // tenant_id, reason
	tenants   *names

	lookups *lookups
	text    *text
}

// New returns the metrics of an aggregator with the given index.
func New(x index.Index) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		Up:       gauge("inferencecache_server_up", "1 while the aggregator serves."),
		TLS:      gauge("inferencecache_server_grpc_tls_enabled", "1 if the gRPC port is encrypted."),
		Streams:  gauge("inferencecache_sync_streams", "Open streams of agents."),
		Agents: gaugeVec("inferencecache_agents", "Agents by state: connected, absent (within the lease), expired (hidden).",
			"state"),
		Deltas: counter("inferencecache_sync_deltas_total", "Deltas applied from agents."),
		Confirms: counterVec("inferencecache_sync_confirms_total",
			"Digests from agents, by whether the index has the same: equal, different.", "result"),
		applied: counterVec("inferencecache_ingest_blocks_total",
			"Blocks stored or removed, by source: report, event, sync.", "source"),
		dropped: counterVec("inferencecache_ingest_dropped_total",
			"Entries, events and changes that were not applied, by source and reason.", "source", "reason"),
		evictions: counterVec("inferencecache_index_evictions_total",
			"Pairs of block and cache that left by housekeeping.", "algorithm", "reason"),
		quota: counterVec("inferencecache_tenant_evictions_total",
			"Distinct prefixes that left because their tenant was over its quota.", "tenant_id", "reason"),
		tenants: newNames(maxNames),
		lookups: newLookups(),
		text:    newText(),
	}
	m.registry.MustRegister(
		m.Up, m.TLS, m.Streams, m.Agents, m.Deltas, m.Confirms, m.applied, m.dropped, m.evictions, m.quota,
		m.text.available, m.text.why, m.text.calls, m.text.tokens, m.text.stages, m.text.render,
		m.lookups.calls, m.lookups.latency, newIndexCollector(x, m.lookups.models),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// Gatherer gives tests and other surfaces the series.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Applied counts blocks that were stored or removed.
func (m *Metrics) Applied(source string, blocks int) {
	if blocks > 0 {
		m.applied.WithLabelValues(source).Add(float64(blocks))
	}
}

// Dropped counts things that were not applied. reason is one of package contract's.
func (m *Metrics) Dropped(source, reason string, n int) {
	if n > 0 {
		m.dropped.WithLabelValues(source, reason).Add(float64(n))
	}
}

// Removed counts what housekeeping took out of the index.
func (m *Metrics) Removed(r index.Removed) {
	if r.Why == index.RemovedByQuota {
		m.quota.WithLabelValues(m.tenants.label(r.Tenant, true), string(r.Why)).Add(float64(r.Count))
		return
	}
	algorithm := "lru"
	if r.LFU {
		algorithm = "lfu"
	}
	m.evictions.WithLabelValues(algorithm, string(r.Why)).Add(float64(r.Count))
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}
