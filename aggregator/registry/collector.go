package registry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// collector shows how far agents trust their views.
type collector struct {
	registry *Registry
	views    *prometheus.Desc
}

// Collector returns the metrics of the registry.
func (r *Registry) Collector() prometheus.Collector {
	return &collector{r, prometheus.NewDesc("inferencecache_views",
		"Caches that agents declared, by how far their view of them can be trusted: exact, partial, uncertain; unknown where an agent does not say.",
		[]string{"certainty"}, nil)}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { ch <- c.views }

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	counts := c.registry.certainties()
	for certainty := range pb.ViewCertainty_VIEW_CERTAINTY_UNCERTAIN + 1 {
		name := contract.CertaintyName(certainty)
		if name == "" {
			name = "unknown"
		}
		ch <- prometheus.MustNewConstMetric(c.views, prometheus.GaugeValue, float64(counts[certainty]), name)
	}
}
