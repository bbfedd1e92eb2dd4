package status

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
)

func TestT2Metrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry).t2
	key := types.NamespacedName{Namespace: "a", Name: "b"}
	for _, c := range []struct {
		name  string
		share *share // nil: there is no such CacheBackend
		want  string // hit rate and tokens; empty: not shown
	}{
		{"nothing was asked for", &share{replicas: 1}, ""},
		{"what was asked before counts from here", &share{replicas: 1, t2Hits: 5, t2Query: 10}, "0.5 0"},
		{"more was asked", &share{replicas: 1, t2Hits: 6, t2Query: 24}, "0.25 14"},
		{"a replica restarted", &share{replicas: 1, t2Hits: 0, t2Query: 4}, "0 14"},
		{"and goes on", &share{replicas: 1, t2Hits: 3, t2Query: 6}, "0.5 16"},
		{"more hits than questions are all", &share{replicas: 1, t2Hits: 9, t2Query: 6}, "1 16"},
		{"the replicas are gone", &share{}, ""},
		{"they are back", &share{replicas: 1, t2Hits: 1, t2Query: 1}, "1 0"},
		{"the object is gone", nil, ""},
	} {
		all := map[types.NamespacedName]*share{}
		if c.share != nil {
			all[key] = c.share
		}
		m.note(all)
		text := ""
		if rate, tokens, shown := strings.Cut(c.want, " "); shown {
			text = "# HELP inferencecache_backend_t2_hit_rate Share of the tokens asked of the cache below the GPU that it had, by CacheBackend (namespace/name); none until one was asked for.\n" +
				"# TYPE inferencecache_backend_t2_hit_rate gauge\n" +
				"inferencecache_backend_t2_hit_rate{backend=\"a/b\"} " + rate + "\n" +
				"# HELP inferencecache_backend_t2_query_tokens_total Tokens asked of the cache below the GPU since this process began to write statuses, by CacheBackend (namespace/name).\n" +
				"# TYPE inferencecache_backend_t2_query_tokens_total counter\n" +
				"inferencecache_backend_t2_query_tokens_total{backend=\"a/b\"} " + tokens + "\n"
		}
		err := testutil.GatherAndCompare(registry, strings.NewReader(text), "inferencecache_backend_t2_hit_rate", "inferencecache_backend_t2_query_tokens_total")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
