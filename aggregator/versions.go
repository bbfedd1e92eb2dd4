package aggregator

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/inferencecache/inferencecache/aggregator/registry"
	"github.com/inferencecache/inferencecache/aggregator/sync"
)

const (
	// maxVersions bounds the versions that have a series of their own; the rarest count as "other".
	maxVersions = 16
	// unknownVersion stands for those that do not say theirs.
	unknownVersion = "unknown"
)

// versions shows which versions of agents, and of the engines' cache libraries, there are, and says so where
// replicas of one model disagree.
type versions struct {
	registry *registry.Registry
	sync     *sync.Service
	log      *slog.Logger
	said     map[registry.Model]string // the disagreement that was logged last
	agents   *prometheus.Desc
	clients  *prometheus.Desc
}

func newVersions(r *registry.Registry, s *sync.Service, log *slog.Logger) *versions {
	return &versions{
		registry: r, sync: s, log: log, said: map[registry.Model]string{},
		agents: prometheus.NewDesc("inferencecache_agent_versions",
			"Agents by the version of their build. More than one series above 0 is a roll-out, or a skew.", []string{"version"}, nil),
		clients: prometheus.NewDesc("inferencecache_client_versions",
			"Caches with statistics by the client version that these state.", []string{"version"}, nil),
	}
}

// look logs each new disagreement about the client version among the caches of a model. Different versions
// of a cache library may keep blocks that the other cannot read.
func (v *versions) look() {
	disagree := map[registry.Model]string{}
	for model, counts := range v.registry.ClientVersions() {
		if len(counts) < 2 {
			continue
		}
		disagree[model] = strings.Join(slices.Sorted(maps.Keys(counts)), ", ")
		if disagree[model] != v.said[model] {
			v.log.Warn("replicas of one model report different client versions", "tenant", model.Tenant, "model", model.Model,
				"versions", bounded(disagree[model]))
		}
	}
	v.said = disagree
}

// bounded cuts what is logged.
func bounded(s string) string {
	const most = 1024
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// Describe implements prometheus.Collector.
func (v *versions) Describe(ch chan<- *prometheus.Desc) {
	ch <- v.agents
	ch <- v.clients
}

// Collect implements prometheus.Collector.
func (v *versions) Collect(ch chan<- prometheus.Metric) {
	agents, clients := map[string]int{}, map[string]int{}
	for _, version := range v.sync.Versions() {
		agents[cmp.Or(version, unknownVersion)]++
	}
	for _, counts := range v.registry.ClientVersions() {
		for version, n := range counts {
			clients[version] += n
		}
	}
	for desc, counts := range map[*prometheus.Desc]map[string]int{v.agents: agents, v.clients: clients} {
		for version, n := range commonest(counts) {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), version)
		}
	}
}

// commonest keeps the most frequent versions and adds the others up.
func commonest(counts map[string]int) map[string]int {
	if len(counts) <= maxVersions {
		return counts
	}
	order := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	out := map[string]int{}
	for i, version := range order {
		name := version
		if i >= maxVersions {
			name = "other"
		}
		out[name] += counts[version]
	}
	return out
}
