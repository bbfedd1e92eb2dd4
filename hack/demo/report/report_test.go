package report

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestQuantile_IsTheNearestRank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 1e6), 1, 300).Draw(t, "values")
		p := rapid.SampledFrom([]float64{0.01, 0.5, 0.9, 0.99, 1}).Draw(t, "p")
		slices.Sort(values)
		got := quantile(values, p)
		notAbove, below := 0, 0
		for _, v := range values {
			if v <= got {
				notAbove++
			}
			if v < got {
				below++
			}
		}
		want := p * float64(len(values))
		if float64(notAbove) < want-1e-9 || float64(below) >= want+1e-9 {
			t.Fatalf("quantile %v of %v is %v", p, values, got)
		}
	})
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing is %v, want 0", got)
	}
}

func TestRecorder_SumsTheSamples(t *testing.T) {
	var r Recorder
	samples := []Sample{
		{Engine: "a", PromptTokens: 100, CachedTokens: 0, TTFT: 30 * time.Millisecond, Lookup: 2 * time.Millisecond},
		{Engine: "a", PromptTokens: 100, CachedTokens: 90, TTFT: 10 * time.Millisecond, Lookup: time.Millisecond, Hinted: true},
		{Engine: "b", PromptTokens: 200, CachedTokens: 110, TTFT: 20 * time.Millisecond},
	}
	for _, i := range rand.Perm(len(samples)) {
		r.Add(samples[i])
	}
	want := Traffic{
		Requests: 3, PromptTokens: 400, CachedTokens: 200, HitRate: 0.5,
		TTFT:    Quantiles{P50: 20, P99: 30},
		Engines: []Load{{"a", 2}, {"b", 1}, {"c", 0}},
		Lookups: 2, Lookup: Quantiles{P50: 1, P99: 2}, Hinted: 1,
	}
	if diff := cmp.Diff(want, r.Traffic([]string{"a", "b", "c"})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRecorder_ProgressIsOfTheLatestRequests(t *testing.T) {
	var r Recorder
	if n, rate := r.Progress(0); n != 0 || rate != 0 {
		t.Errorf("empty: %d requests, hit rate %v", n, rate)
	}
	r.Add(Sample{PromptTokens: 100})
	r.Add(Sample{PromptTokens: 100, CachedTokens: 50})
	if n, rate := r.Progress(1); n != 2 || rate != 0.5 {
		t.Errorf("after the first: %d requests, hit rate %v, want 2 and 0.5", n, rate)
	}
	if n, rate := r.Progress(7); n != 2 || rate != 0 {
		t.Errorf("behind the last: %d requests, hit rate %v, want 2 and 0", n, rate)
	}
}

// passes returns a report of the two hit rates.
func passes(roundRobin, byPrefix float64) *Report {
	r := &Report{Workload: "test"}
	r.RoundRobin.HitRate, r.ByPrefix.HitRate = roundRobin, byPrefix
	return r
}

func TestJudge_WantsTheGain(t *testing.T) {
	tests := []struct {
		name                          string
		roundRobin, byPrefix, minGain float64
		passed                        bool
	}{
		{"more than enough", 0.4, 0.8, 1.5, true},
		{"just enough", 0.5, 0.75, 1.5, true},
		{"too little", 0.5, 0.7, 1.5, false},
		{"nothing asked for", 0.5, 0.4, 0, true},
		{"no hit in either pass", 0, 0, 1.5, false},
		{"hits by prefix alone", 0, 0.1, 1.5, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := passes(tt.roundRobin, tt.byPrefix)
			r.Judge(tt.minGain)
			if r.Passed != tt.passed || (r.Err() == nil) != tt.passed {
				t.Errorf("passed %v, error %v", r.Passed, r.Err())
			}
		})
	}
}

func TestJudge_WantsTheIndexToAgreeAfterEachPass(t *testing.T) {
	good := []Cache{{Engine: "a", Held: 3, Known: 3}}
	bad := []Cache{{Engine: "a", Held: 3, Known: 3}, {Engine: "b", Held: 3, Known: 4, Extra: 1}}
	for name, caches := range map[string][2][]Cache{
		"the first pass": {bad, good}, "the second pass": {good, bad},
	} {
		r := passes(0.1, 0.9)
		r.RoundRobin.Caches, r.ByPrefix.Caches = caches[0], caches[1]
		r.Judge(1.5)
		if r.Passed || r.IndexAgrees || !strings.Contains(r.Err().Error(), "disagrees with b: of 3 blocks held 0 are not known, of 4 known 1 are not held") {
			t.Errorf("%s: passed %v, error %v", name, r.Passed, r.Err())
		}
	}
}

func TestReport_IsATableAndOneLineOfJSON(t *testing.T) {
	r := passes(0.4, 0.8)
	r.RoundRobin.Engines = []Load{{"a", 10}, {"b", 12}}
	r.RoundRobin.Caches = []Cache{{Engine: "a", Held: 5, Known: 5}}
	r.ByPrefix.Engines = []Load{{"a", 22}, {"b", 0}}
	r.ByPrefix.Caches = []Cache{{Engine: "a", Held: 5, Known: 4, Missing: 1}}
	r.ByPrefix.Requests, r.ByPrefix.Lookups, r.ByPrefix.Hinted = 22, 22, 20
	r.ByPrefix.Lookup = Quantiles{0.5, 2.25}
	r.ByPrefix.TTFT = Quantiles{10, 95.6}
	r.ByPrefix.Uplink = NewUplink(map[string]int64{"stored": 7, "removed": 2, "cleared": 0}, 3, 100)
	r.ByPrefix.Seconds = 1.25
	r.Judge(1.5)

	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	want := `                            round robin   by prefix
hit rate (prompt tokens)    40.0 %        80.0 %
TTFT p50 / p99 (modelled)   0 / 0 ms      10 / 96 ms
requests per engine         10 12         22 0
lookup p50 / p99            -             0.50 / 2.25 ms
requests routed by a hint   -             20 of 22
blocks held / known, a      5 / 5         5 / 4 (1 missing, 0 extra)
events                      0             2 removed, 7 stored
deltas                      0             3
bytes per delta             0             33
seconds                     0.0           1.2

The hit rate by prefix is 2.00 times that of round robin; the index DISAGREES with the engines.
`
	if diff := cmp.Diff(want, table.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}

	var line bytes.Buffer
	if err := r.WriteJSON(&line); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(line.Bytes(), &back); err != nil || strings.Count(line.String(), "\n") != 1 {
		t.Fatalf("JSON %q: %v", line.String(), err)
	}
	if diff := cmp.Diff(*r, back); diff != "" {
		t.Errorf("JSON (-written +read):\n%s", diff)
	}
}

func TestUplink_WithoutDeltasHasNoSize(t *testing.T) {
	u := NewUplink(map[string]int64{"stored": 2, "removed": 3}, 0, 0)
	if u.BytesPerDelta != 0 {
		t.Errorf("got %+v", u)
	}
}
