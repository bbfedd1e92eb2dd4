// Package report turns what a replay measured into figures, a table and a verdict.
package report

import (
	"math"
	"slices"
	"sync"
	"time"
)

// Sample is one finished request.
type Sample struct {
	Engine       string
	PromptTokens int
	CachedTokens int           // of the prompt, as the engine counts them
	TTFT         time.Duration // modelled time to the first token
	// Lookup is how long asking for a route took, as the client sees it; 0 if it was not asked for.
	Lookup time.Duration
	// Hinted says that the answer of the lookup chose the engine.
	Hinted bool
}

// Recorder collects the samples of one pass. Its methods may be called from any goroutine.
type Recorder struct {
	mu      sync.Mutex
	samples []Sample
}

// Add records one request.
func (r *Recorder) Add(s Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.samples = append(r.samples, s)
}

// Progress returns the number of requests so far, and the share of prompt tokens that was cached among
// those behind the first from; a share of nothing is 0.
func (r *Recorder) Progress(from int) (requests int, hitRate float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	prompt, cached := tokens(r.samples[min(from, len(r.samples)):])
	return len(r.samples), ratio(cached, prompt)
}

// Traffic returns the figures of the requests. Engines without requests are counted too.
func (r *Recorder) Traffic(engines []string) Traffic {
	r.mu.Lock()
	defer r.mu.Unlock()
	prompt, cached := tokens(r.samples)
	t := Traffic{
		Requests:     len(r.samples),
		PromptTokens: prompt,
		CachedTokens: cached,
		HitRate:      ratio(cached, prompt),
	}
	perEngine := make(map[string]int)
	var ttfts, lookups []float64
	for _, s := range r.samples {
		perEngine[s.Engine]++
		ttfts = append(ttfts, milliseconds(s.TTFT))
		if s.Lookup > 0 {
			lookups = append(lookups, milliseconds(s.Lookup))
		}
		if s.Hinted {
			t.Hinted++
		}
	}
	for _, e := range engines {
		t.Engines = append(t.Engines, Load{e, perEngine[e]})
	}
	t.Lookups = len(lookups)
	t.TTFT, t.Lookup = quantiles(ttfts), quantiles(lookups)
	return t
}

func tokens(samples []Sample) (prompt, cached int64) {
	for _, s := range samples {
		prompt += int64(s.PromptTokens)
		cached += int64(s.CachedTokens)
	}
	return prompt, cached
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// ratio returns a/b, and 0 for b of 0.
func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// quantiles sorts values.
func quantiles(values []float64) Quantiles {
	slices.Sort(values)
	return Quantiles{P50: quantile(values, 0.50), P99: quantile(values, 0.99)}
}

// quantile returns the smallest value that at least the share p of all is not above (nearest rank), 0
// for none.
func quantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
