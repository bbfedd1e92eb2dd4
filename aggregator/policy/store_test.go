package policy_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/index"
)

func specs(tenant string, s policy.Spec) policy.Set {
	return policy.Set{Policies: map[string]policy.Spec{tenant: s}}
}

func TestTenantThatNoSourceNamesHasTheBasePolicy(t *testing.T) {
	base := policy.Default()
	base.RoutingFloorScore = 7
	s := policy.NewStore(base, "folder", "push")
	s.Feed("push").Replace(specs("a", policy.Spec{LFU: true}))
	if got := s.For("b"); *got != base {
		t.Errorf("policy %+v, want the base", *got)
	}
	if got := s.Limits("b"); got != (index.Limits{TTL: base.TTL}) {
		t.Errorf("limits %+v", got)
	}
	if got := s.For("a"); got.RoutingFloorScore != 7 || !got.LFU {
		t.Errorf("policy %+v, want LFU over the base", *got)
	}
}

func TestStrongerSourceReplacesAPolicyAsAWhole(t *testing.T) {
	s := policy.NewStore(policy.Default(), "folder", "push")
	folder, push := s.Feed("folder"), s.Feed("push")
	folder.Replace(policy.Set{
		Policies: map[string]policy.Spec{"a": {LFU: true, MinimumPrefixTokens: 10}, "b": {LFU: true}},
		Quotas:   map[string]int64{"a": 1, "b": 2},
	})
	push.Replace(policy.Set{
		Policies: map[string]policy.Spec{"a": {MinimumPrefixTokens: 20}},
		Quotas:   map[string]int64{"a": 3},
	})
	if got := s.For("a"); got.LFU || got.MinimumPrefixTokens != 20 {
		t.Errorf("policy of a: %+v, want all of push's and nothing of folder's", *got)
	}
	if a, b := s.Limits("a"), s.Limits("b"); a.MaxPrefixes != 3 || b.MaxPrefixes != 2 || !b.LFU {
		t.Errorf("limits of a %+v, of b %+v", a, b)
	}
	push.Replace(policy.Set{})
	if got := s.For("a"); !got.LFU || s.Limits("a").MaxPrefixes != 1 {
		t.Errorf("policy of a: %+v, want folder's, as push states none any more", *got)
	}
}

func TestQuotaOfZeroIsAQuota(t *testing.T) {
	s := policy.NewStore(policy.Default(), "push")
	s.Feed("push").Replace(policy.Set{Quotas: map[string]int64{"a": 0}})
	if got := s.Limits("a"); !got.Quota || got.MaxPrefixes != 0 {
		t.Errorf("limits %+v", got)
	}
}

func TestSourceThatFailsLeavesWhatItStated(t *testing.T) {
	s := policy.NewStore(policy.Default(), "folder")
	feed := s.Feed("folder")
	if got := s.Status()[0].String(); got != "has stated nothing yet" {
		t.Errorf("status %q", got)
	}
	feed.Fail(errors.New("no such file"))
	if got := s.Status()[0].String(); !strings.Contains(got, "nothing of it is in force: no such file") {
		t.Errorf("status %q", got)
	}
	if !feed.Replace(specs("a", policy.Spec{LFU: true})) || feed.Replace(specs("a", policy.Spec{LFU: true})) {
		t.Error("a first state is a change, and the same again is not")
	}
	feed.Fail(errors.New("line 3: bad\nline 4: worse"))
	if got := s.Status()[0].String(); strings.Contains(got, "\n") || !strings.HasSuffix(got, "line 3: bad; line 4: worse") {
		t.Errorf("status %q, want one line", got)
	}
	feed.Fail(errors.New("line 3: bad"))
	if !s.For("a").LFU {
		t.Error("what was stated is gone")
	}
	status := s.Status()[0]
	if status.Failures != 3 || status.Policies != 1 || !strings.Contains(status.String(), "line 3: bad") {
		t.Errorf("status %+v", status)
	}
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "policy source folder: line 3: bad") {
		t.Errorf("error %v", err)
	}
	feed.Replace(specs("a", policy.Spec{}))
	if got := s.Status()[0].String(); got != "ok, 1 policies, 0 quotas" || s.Err() != nil {
		t.Errorf("status %q, error %v", got, s.Err())
	}
}

func TestSourcesShowInMetrics(t *testing.T) {
	s := policy.NewStore(policy.Default(), "folder", "push")
	s.Feed("folder").Fail(errors.New("bad"))
	s.Feed("push").Replace(policy.Set{
		Policies: map[string]policy.Spec{"a": {}, "b": {}}, Quotas: map[string]int64{"a": 1},
	})
	r := prometheus.NewRegistry()
	r.MustRegister(s.Collector())
	if err := testutil.GatherAndCompare(r, strings.NewReader(`
# HELP inferencecache_policy_source_failures_total States of the source that could not be used.
# TYPE inferencecache_policy_source_failures_total counter
inferencecache_policy_source_failures_total{source="folder"} 1
inferencecache_policy_source_failures_total{source="push"} 0
# HELP inferencecache_policy_source_objects Policies and quotas that the source states.
# TYPE inferencecache_policy_source_objects gauge
inferencecache_policy_source_objects{kind="policy",source="folder"} 0
inferencecache_policy_source_objects{kind="policy",source="push"} 2
inferencecache_policy_source_objects{kind="quota",source="folder"} 0
inferencecache_policy_source_objects{kind="quota",source="push"} 1
# HELP inferencecache_policy_source_ok 1 if the source's last state is in force, 0 if it could not be used and an earlier one is.
# TYPE inferencecache_policy_source_ok gauge
inferencecache_policy_source_ok{source="folder"} 0
inferencecache_policy_source_ok{source="push"} 1
`), "inferencecache_policy_source_failures_total", "inferencecache_policy_source_objects", "inferencecache_policy_source_ok"); err != nil {
		t.Error(err)
	}
}

func TestSpecsResolve(t *testing.T) {
	off, on := false, true
	share, blocks := float32(0.5), 8
	num, negative, floor, below, infinite := int32(5), int32(-5), 2.5, -1.0, math.Inf(1)
	base := policy.Default()
	for name, c := range map[string]struct {
		spec policy.Spec
		want func(*policy.Policy)
	}{
		"nothing is the default":           {policy.Spec{}, func(*policy.Policy) {}},
		"a time to live":                   {policy.Spec{EvictionTTL: time.Minute}, func(p *policy.Policy) { p.TTL = time.Minute }},
		"a negative time to live":          {policy.Spec{EvictionTTL: -1}, func(*policy.Policy) {}},
		"less than the index can count":    {policy.Spec{EvictionTTL: 1}, func(p *policy.Policy) { p.TTL = time.Second }},
		"longer than the index can count":  {policy.Spec{EvictionTTL: math.MaxInt64}, func(p *policy.Policy) { p.TTL = policy.MaxTTL }},
		"prefix tokens":                    {policy.Spec{MinimumPrefixTokens: 9}, func(p *policy.Policy) { p.MinimumPrefixTokens = 9 }},
		"negative prefix tokens":           {policy.Spec{MinimumPrefixTokens: -9}, func(*policy.Policy) {}},
		"matched tokens":                   {policy.Spec{MinimumMatchedTokens: &num}, func(p *policy.Policy) { p.MinimumMatchedTokens = 5 }},
		"negative matched tokens":          {policy.Spec{MinimumMatchedTokens: &negative}, func(p *policy.Policy) { p.MinimumMatchedTokens = 0 }},
		"a routing floor":                  {policy.Spec{RoutingFloorScore: &floor}, func(p *policy.Policy) { p.RoutingFloorScore = 2.5 }},
		"a negative routing floor":         {policy.Spec{RoutingFloorScore: &below}, func(p *policy.Policy) { p.RoutingFloorScore = 0 }},
		"a routing floor without bound":    {policy.Spec{RoutingFloorScore: &infinite}, func(p *policy.Policy) { p.RoutingFloorScore = math.MaxFloat32 }},
		"a timeout":                        {policy.Spec{LookupTimeoutMs: 3}, func(p *policy.Policy) { p.LookupTimeout = 3 * time.Millisecond }},
		"a negative timeout":               {policy.Spec{LookupTimeoutMs: -3}, func(*policy.Policy) {}},
		"a timeout past all bounds":        {policy.Spec{LookupTimeoutMs: math.MaxInt64}, func(p *policy.Policy) { p.LookupTimeout = time.Hour }},
		"affinity off":                     {policy.Spec{AffinityRouting: &off}, func(p *policy.Policy) { p.Affinity = false }},
		"eviction by use":                  {policy.Spec{LFU: true}, func(p *policy.Policy) { p.LFU = true }},
		"chains off":                       {policy.Spec{EnableChainMatching: &off}, func(p *policy.Policy) { p.ChainMatching = false }},
		"chains required":                  {policy.Spec{RequireChain: &on}, func(p *policy.Policy) { p.RequireChain = true }},
		"warm replicas off":                {policy.Spec{EnableTenantHot: &off}, func(p *policy.Policy) { p.TenantHot = false }},
		"a share of the prompt":            {policy.Spec{MinimumMatchedShare: &share}, func(p *policy.Policy) { p.MinimumMatchedShare = 0.5 }},
		"a tolerance of scores":            {policy.Spec{ScoreTolerance: &share}, func(p *policy.Policy) { p.ScoreTolerance = 0.5 }},
		"a bound on the seed":              {policy.Spec{AffinitySeedBlocks: &blocks}, func(p *policy.Policy) { p.AffinitySeedBlocks = 8 }},
		"choices of affinity":              {policy.Spec{AffinityChoices: &blocks}, func(p *policy.Policy) { p.AffinityChoices = 8 }},
		"placement by the highest hash":    {policy.Spec{Rendezvous: &on}, func(p *policy.Policy) { p.Rendezvous = true }},
		"what is given as it is already":   {policy.Spec{EnableTenantHot: &on, AffinityRouting: &on}, func(*policy.Policy) {}},
		"a time to live that is in bounds": {policy.Spec{EvictionTTL: policy.MaxTTL}, func(p *policy.Policy) { p.TTL = policy.MaxTTL }},
	} {
		t.Run(name, func(t *testing.T) {
			want := base
			c.want(&want)
			if got := c.spec.Resolve(base); *got != want {
				t.Errorf("got  %+v\nwant %+v", *got, want)
			}
		})
	}
}

// Whatever the sources state, in whatever order, each tenant has what the strongest source that names
// it stated last.
func TestStoreAgreesWithAModel(t *testing.T) {
	sources := []string{"folder", "cluster", "push"}
	tenants := []string{"a", "b", "c"}
	rapid.Check(t, func(t *rapid.T) {
		s := policy.NewStore(policy.Default(), sources...)
		stated := map[string]policy.Set{}
		t.Repeat(map[string]func(*rapid.T){
			"replace": func(t *rapid.T) {
				source := rapid.SampledFrom(sources).Draw(t, "source")
				set := policy.Set{Policies: map[string]policy.Spec{}, Quotas: map[string]int64{}}
				for _, tenant := range rapid.SliceOfDistinct(rapid.SampledFrom(tenants), rapid.ID).Draw(t, "tenants") {
					set.Policies[tenant] = policy.Spec{MinimumPrefixTokens: rapid.Int64Range(0, 99).Draw(t, "prefix")}
				}
				for _, tenant := range rapid.SliceOfDistinct(rapid.SampledFrom(tenants), rapid.ID).Draw(t, "limited") {
					set.Quotas[tenant] = rapid.Int64Range(0, 99).Draw(t, "quota")
				}
				s.Feed(source).Replace(set)
				stated[source] = set
			},
			"fail": func(t *rapid.T) { s.Feed(rapid.SampledFrom(sources).Draw(t, "source")).Fail(errors.New("bad")) },
			"": func(t *rapid.T) {
				for _, tenant := range tenants {
					want, quota, limited := int64(0), int64(0), false
					for _, source := range sources {
						if spec, ok := stated[source].Policies[tenant]; ok {
							want = spec.MinimumPrefixTokens
						}
						if n, ok := stated[source].Quotas[tenant]; ok {
							quota, limited = n, true
						}
					}
					if got := s.For(tenant).MinimumPrefixTokens; got != want {
						t.Fatalf("tenant %s has %d, want %d", tenant, got, want)
					}
					if got := s.Limits(tenant); got.Quota != limited || got.MaxPrefixes != quota {
						t.Fatalf("tenant %s has limits %+v, want %d (%v)", tenant, got, quota, limited)
					}
				}
			},
		})
	})
}

func TestReadersSeeAllOfAChange(t *testing.T) {
	s := policy.NewStore(policy.Default(), "push")
	feed := s.Feed("push")
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if p := s.For("a"); p.LFU != (p.MinimumPrefixTokens == 1) {
					t.Errorf("half a policy: %+v", *p)
					return
				}
			}
		})
	}
	for i := range 2000 {
		if i%2 == 0 {
			feed.Replace(specs("a", policy.Spec{LFU: true, MinimumPrefixTokens: 1}))
		} else {
			feed.Replace(specs("a", policy.Spec{MinimumPrefixTokens: 2}))
		}
	}
	close(done)
	readers.Wait()
}

func TestReadingAPolicyAllocatesNothing(t *testing.T) {
	s := policy.NewStore(policy.Default(), "push")
	s.Feed("push").Replace(specs("a", policy.Spec{}))
	for _, tenant := range []string{"a", "b"} {
		if n := testing.AllocsPerRun(100, func() { s.For(tenant); s.Limits(tenant) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

func TestSourcesAreListedWeakestFirst(t *testing.T) {
	var names []string
	for _, status := range policy.NewStore(policy.Default(), "folder", "push").Status() {
		names = append(names, status.Source)
	}
	if !slices.Equal(names, []string{"folder", "push"}) {
		t.Errorf("sources %v", names)
	}
}

func TestPolicyIsInForceSinceItsGenerationCame(t *testing.T) {
	s := policy.NewStore(policy.Default(), "cluster", "push")
	cluster, push := s.Feed("cluster"), s.Feed("push")
	state := func(generation int64, version string, spec policy.Spec) bool {
		set := specs("a", spec)
		set.Origins = map[string]policy.Origin{"a": {Name: "default", Generation: generation, ResourceVersion: version}}
		return cluster.Replace(set)
	}
	one := func() policy.InForce {
		t.Helper()
		all := s.InForce()
		if len(all) != 1 || all[0].Tenant != "a" {
			t.Fatalf("in force: %+v", all)
		}
		return all[0]
	}
	state(1, "10", policy.Spec{LFU: true})
	first := one()
	if first.Source != "cluster" || first.Origin != (policy.Origin{Name: "default", Generation: 1, ResourceVersion: "10"}) || first.Since.IsZero() {
		t.Errorf("first %+v", first)
	}
	if state(1, "11", policy.Spec{LFU: true}) {
		t.Error("a change of status counts as a change of policy")
	}
	if got := one(); got.Since != first.Since || got.Origin.ResourceVersion != "11" {
		t.Errorf("after a change of status %+v", got)
	}
	state(2, "12", policy.Spec{})
	if got := one(); !got.Since.After(first.Since) || got.Origin.Generation != 2 {
		t.Errorf("another generation %+v, the first was %+v", got, first)
	}
	push.Replace(specs("a", policy.Spec{}))
	if got := one(); got.Source != "push" || got.Origin != (policy.Origin{}) {
		t.Errorf("pushed %+v", got)
	}
}
