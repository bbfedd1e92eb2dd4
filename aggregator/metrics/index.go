package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/inferencecache/inferencecache/index"
)

// indexCollector reads the index's totals when it is scraped.
type indexCollector struct {
	index   index.Index
	models  *names
	entries *prometheus.Desc
	pairs   *prometheus.Desc

	mu   sync.Mutex
	seen map[string]struct{} // labels given before: a model that drained is shown as 0
}

func newIndexCollector(x index.Index, models *names) *indexCollector {
	return &indexCollector{
		index:  x,
		models: models,
		entries: prometheus.NewDesc("inferencecache_index_entries",
			"Distinct prefixes in the index, over all tenants.", []string{"model"}, nil),
		pairs: prometheus.NewDesc("inferencecache_index_pairs",
			"Pairs of block and cache in the index: what --max-index-entries bounds.", nil, nil),
		seen: map[string]struct{}{},
	}
}

// Describe implements prometheus.Collector.
func (c *indexCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.entries
	ch <- c.pairs
}

// Collect implements prometheus.Collector.
func (c *indexCollector) Collect(ch chan<- prometheus.Metric) {
	for label, n := range c.byLabel() {
		ch <- prometheus.MustNewConstMetric(c.entries, prometheus.GaugeValue, float64(n), label)
	}
	ch <- prometheus.MustNewConstMetric(c.pairs, prometheus.GaugeValue, float64(c.index.Counts().Pairs))
}

func (c *indexCollector) byLabel() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries := map[string]int64{}
	for label := range c.seen {
		entries[label] = 0
	}
	for model, n := range c.index.PrefixesByModel() {
		label := c.models.label(model, true)
		entries[label] += n
		c.seen[label] = struct{}{}
	}
	return entries
}
