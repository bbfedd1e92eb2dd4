package metrics

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/reference"
)

// read returns the series of a metric: label values, in the order of their names, to value. Of a
// histogram it gives the number of observations.
func read(t *testing.T, m *Metrics, name string) map[string]float64 {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, s := range f.GetMetric() {
			key := ""
			for _, l := range s.GetLabel() {
				key += "/" + l.GetValue()
			}
			series[key] = s.GetCounter().GetValue() + s.GetGauge().GetValue() + float64(s.GetHistogram().GetSampleCount())
		}
	}
	return series
}

func want(t *testing.T, m *Metrics, name string, series map[string]float64) {
	t.Helper()
	if got := read(t, m, name); !maps.Equal(got, series) {
		t.Errorf("%s: got %v, want %v", name, got, series)
	}
}

func TestNamesPastTheBoundShareOneSeries(t *testing.T) {
	m := New(reference.New(index.Config{}))
	for i := range 2 * maxNames {
		m.Lookup(fmt.Sprint("model-", i), true, "NO_HINT", false, time.Millisecond)
		m.Lookup(fmt.Sprint("made-up-", i), false, "NO_HINT", false, time.Millisecond)
		m.Removed(index.Removed{Tenant: fmt.Sprint("tenant-", i), Why: index.RemovedByQuota, Count: 1})
	}
	for _, name := range []string{
		"inferencecache_lookup_route_calls_total", "inferencecache_lookup_route_latency_seconds", "inferencecache_tenant_evictions_total",
	} {
		if n := len(read(t, m, name)); n != maxNames+1 {
			t.Errorf("%s has %d series, want %d and one for the rest", name, n, maxNames)
		}
	}
}

func TestIndexEntriesOfADrainedModelAreZero(t *testing.T) {
	x := reference.New(index.Config{})
	m := New(x)
	p, h := index.Partition{Scope: index.Scope{Tenant: "t", Model: "m", Scheme: "vllm"}}, index.Holder{Replica: "a"}
	run := index.Run{Keys: index.Keys{Words: []uint64{1, 2}}, BlockTokens: 16, Tier: index.T1, Evidence: 1}
	x.Store(p, h, run, 1)
	want(t, m, "inferencecache_index_entries", map[string]float64{"/m": 2})
	want(t, m, "inferencecache_index_pairs", map[string]float64{"": 2})
	x.Remove(p, h, run.Keys)
	want(t, m, "inferencecache_index_entries", map[string]float64{"/m": 0})
}

func TestEvictionsAreLabelledAsTheContractStates(t *testing.T) {
	m := New(reference.New(index.Config{}))
	m.Removed(index.Removed{Tenant: "t", Why: index.RemovedByCap, LFU: true, Count: 2})
	m.Removed(index.Removed{Tenant: "t", Why: index.RemovedByTTL, Count: 3})
	m.Removed(index.Removed{Tenant: "t", Why: index.RemovedByQuota, Count: 5})
	want(t, m, "inferencecache_index_evictions_total", map[string]float64{"/lfu/cap": 2, "/lru/ttl": 3})
	want(t, m, "inferencecache_tenant_evictions_total", map[string]float64{"/over_entries/t": 5})
}
