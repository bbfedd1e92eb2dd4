package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/reference"
)

func TestNamesPastTheBoundShareOneSeries(t *testing.T) {
	m := New(reference.New(index.Config{}))
	for i := range 2 * maxNames {
		m.Lookup(fmt.Sprint("model-", i), true, "NO_HINT", false, time.Millisecond)
		m.Lookup(fmt.Sprint("made-up-", i), false, "NO_HINT", false, time.Millisecond)
		m.Removed(index.Removed{Tenant: fmt.Sprint("tenant-", i), Why: index.RemovedByQuota, Count: 1})
	}
	for name, n := range map[string]int{
		"inferencecache_lookup_route_calls_total":     testutil.CollectAndCount(m.lookups.calls),
		"inferencecache_lookup_route_latency_seconds": testutil.CollectAndCount(m.lookups.latency),
		"inferencecache_tenant_evictions_total":       testutil.CollectAndCount(m.quota),
	} {
		if n != maxNames+1 {
			t.Errorf("%s has %d series, want %d and one for the rest", name, n, maxNames)
		}
	}
}

func TestIndexEntriesOfADrainedModelAreZero(t *testing.T) {
	x := reference.New(index.Config{})
	m := New(x)
	p, h := index.Partition{Scope: index.Scope{Tenant: "t", Model: "m", Scheme: "vllm"}}, index.Holder{Replica: "a"}
	run := index.Run{Keys: index.Keys{Words: []uint64{1, 2}}, BlockTokens: 16, Tier: index.T1, Evidence: 1}
	check := func(n int) {
		t.Helper()
		want := fmt.Sprintf(`
# HELP inferencecache_index_entries Distinct prefixes in the index, over all tenants.
# TYPE inferencecache_index_entries gauge
inferencecache_index_entries{model="m"} %d
`, n)
		if err := testutil.GatherAndCompare(m.Gatherer(), strings.NewReader(want), "inferencecache_index_entries"); err != nil {
			t.Error(err)
		}
	}
	x.Store(p, h, run, 1)
	check(2)
	x.Remove(p, h, run.Keys)
	check(0)
}

func TestEvictionsAreLabelledAsTheContractStates(t *testing.T) {
	m := New(reference.New(index.Config{}))
	m.Removed(index.Removed{Tenant: "t", Why: index.RemovedByCap, LFU: true, Count: 2})
	m.Removed(index.Removed{Tenant: "t", Why: index.RemovedByTTL, Count: 3})
	m.Removed(index.Removed{Tenant: "t", Why: index.RemovedByQuota, Count: 5})
	want := `
# HELP inferencecache_index_evictions_total Pairs of block and cache that left by housekeeping.
# TYPE inferencecache_index_evictions_total counter
inferencecache_index_evictions_total{algorithm="lfu",reason="cap"} 2
inferencecache_index_evictions_total{algorithm="lru",reason="ttl"} 3
# HELP inferencecache_tenant_evictions_total Distinct prefixes that left because their tenant was over its quota.
# TYPE inferencecache_tenant_evictions_total counter
inferencecache_tenant_evictions_total{reason="over_entries",tenant_id="t"} 5
`
	if err := testutil.GatherAndCompare(m.Gatherer(), strings.NewReader(want),
		"inferencecache_index_evictions_total", "inferencecache_tenant_evictions_total"); err != nil {
		t.Error(err)
	}
}
