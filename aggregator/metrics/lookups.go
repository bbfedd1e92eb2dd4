package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lookups counts LookupRoute.
type lookups struct {
	calls   *prometheus.CounterVec
	latency *prometheus.HistogramVec
	models  *names
}

func newLookups() *lookups {
	return &lookups{
		calls: counterVec("inferencecache_lookup_route_calls_total",
			"Calls of LookupRoute by reason code and whether the answer named a replica.", "model", "reason_code", "hint_used"),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "inferencecache_lookup_route_latency_seconds",
			Help:    "Time that LookupRoute took inside the aggregator.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1},
		}, []string{"model"}),
		models: newNames(maxNames),
	}
}

// Lookup counts one LookupRoute. known says that a producer named the model.
func (m *Metrics) Lookup(model string, known bool, reason string, hint bool, latency time.Duration) {
	label := m.lookups.models.label(model, known)
	m.lookups.calls.WithLabelValues(label, reason, strconv.FormatBool(hint)).Inc()
	m.lookups.latency.WithLabelValues(label).Observe(latency.Seconds())
}
