package status

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// Metrics count what is written and show what CacheBackends gain.
type Metrics struct {
	writes *prometheus.CounterVec
	t2     *t2Metrics
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "inferencecache_controller_status_writes_total",
			Help: "Statuses patched, by kind and result: ok, stale (the object had changed; tried again), error.",
		}, []string{"kind", "result"}),
		t2: newT2Metrics(),
	}
	registry.MustRegister(m.writes, m.t2.rate, m.t2.queries)
	return m
}

// t2Metrics show how the caches below the GPU serve each CacheBackend.
type t2Metrics struct {
	rate    *prometheus.GaugeVec
	queries *prometheus.CounterVec
	asked   map[types.NamespacedName]int64 // tokens asked for until now, of the CacheBackends that are shown
}

func newT2Metrics() *t2Metrics {
	return &t2Metrics{
		rate: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "inferencecache_backend_t2_hit_rate",
			Help: "Share of the tokens asked of the cache below the GPU that it had, by CacheBackend (namespace/name); none until one was asked for.",
		}, []string{"backend"}),
		queries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "inferencecache_backend_t2_query_tokens_total",
			Help: "Tokens asked of the cache below the GPU since this process began to write statuses, by CacheBackend (namespace/name).",
		}, []string{"backend"}),
		asked: map[types.NamespacedName]int64{},
	}
}

// note takes the shares of all CacheBackends that there are. Those without replicas, and those that are
// gone, are shown no longer.
func (m *t2Metrics) note(shares map[types.NamespacedName]*share) {
	for key := range m.asked {
		if s := shares[key]; s == nil || s.replicas == 0 {
			m.rate.DeleteLabelValues(key.String())
			m.queries.DeleteLabelValues(key.String())
			delete(m.asked, key)
		}
	}
	for key, s := range shares {
		hitRate, known := s.t2HitRate()
		if !known {
			continue
		}
		m.rate.WithLabelValues(key.String()).Set(hitRate)
		counter := m.queries.WithLabelValues(key.String())
		// A replica that restarts, or goes, makes the sum smaller: what follows counts from there.
		if before, shown := m.asked[key]; shown && s.t2Query > before {
			counter.Add(float64(s.t2Query - before))
		}
		m.asked[key] = s.t2Query
	}
}
