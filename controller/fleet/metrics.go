package fleet

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count polls.
type Metrics struct {
	polls       *prometheus.CounterVec
	aggregators *prometheus.GaugeVec
	answered    prometheus.Gauge
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		polls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "inferencecache_controller_snapshot_polls_total",
			Help: "Aggregators asked for a snapshot, by result: ok, unreachable, refused (401 or 403), unusable (another answer).",
		}, []string{"result"}),
		aggregators: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "inferencecache_controller_aggregators",
			Help: "Aggregators of the last poll, by state: answering, failing.",
		}, []string{"state"}),
		answered: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "inferencecache_controller_last_snapshot_timestamp_seconds",
			Help: "When an aggregator answered last, in seconds since 1970; 0 if none has.",
		}),
	}
	for _, result := range []string{"ok", "unreachable", "refused", "unusable"} {
		m.polls.WithLabelValues(result)
	}
	registry.MustRegister(m.polls, m.aggregators, m.answered)
	return m
}

func (m *Metrics) note(answers []Answer) {
	failing := 0
	for _, a := range answers {
		m.polls.WithLabelValues(result(a.Err)).Inc()
		if a.Err != nil {
			failing++
		} else {
			m.answered.SetToCurrentTime()
		}
	}
	m.aggregators.WithLabelValues("answering").Set(float64(len(answers) - failing))
	m.aggregators.WithLabelValues("failing").Set(float64(failing))
}

func result(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &refused{}):
		return "refused"
	case errors.As(err, &unusable{}):
		return "unusable"
	default:
		return "unreachable"
	}
}
