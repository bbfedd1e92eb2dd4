package metrics

import "github.com/prometheus/client_golang/prometheus"

// Register adds the series of a part that counts by itself.
func (m *Metrics) Register(parts ...prometheus.Collector) { m.registry.MustRegister(parts...) }
