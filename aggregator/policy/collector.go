package policy

import "github.com/prometheus/client_golang/prometheus"

// collector shows the state of a store's sources.
type collector struct {
	store                          *Store
	usable, read, failures, stated *prometheus.Desc
}

// Collector returns the metrics of the store's sources.
func (s *Store) Collector() prometheus.Collector {
	return &collector{
		store: s,
		usable: prometheus.NewDesc("inferencecache_policy_source_ok",
			"1 if the source's last state is in force, 0 if it could not be used and an earlier one is.", []string{"source"}, nil),
		read: prometheus.NewDesc("inferencecache_policy_source_read_timestamp_seconds",
			"When the source was last found good; 0 if it never was.", []string{"source"}, nil),
		failures: prometheus.NewDesc("inferencecache_policy_source_failures_total",
			"States of the source that could not be used.", []string{"source"}, nil),
		stated: prometheus.NewDesc("inferencecache_policy_source_objects",
			"Policies and quotas that the source states.", []string{"source", "kind"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.usable, c.read, c.failures, c.stated} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, s := range c.store.Status() {
		usable, read := 1.0, 0.0
		if s.Err != nil {
			usable = 0
		}
		if !s.Read.IsZero() {
			read = float64(s.Read.Unix())
		}
		gauge(c.usable, usable, s.Source)
		gauge(c.read, read, s.Source)
		gauge(c.stated, float64(s.Policies), s.Source, "policy")
		gauge(c.stated, float64(s.Quotas), s.Source, "quota")
		ch <- prometheus.MustNewConstMetric(c.failures, prometheus.CounterValue, float64(s.Failures), s.Source)
	}
}
