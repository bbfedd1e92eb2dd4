package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Quantiles are in milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// Load is the number of requests that one engine served.
type Load struct {
	Engine   string `json:"engine"`
	Requests int    `json:"requests"`
}

// Traffic is what the requests of one pass met with.
type Traffic struct {
	Requests     int       `json:"requests"`
	PromptTokens int64     `json:"promptTokens"`
	CachedTokens int64     `json:"cachedTokens"`
	HitRate      float64   `json:"hitRate"` // share of the prompt tokens
	TTFT         Quantiles `json:"ttftModelledMs"`
	Engines      []Load    `json:"engines"`
	Lookups      int       `json:"lookups"`
	Lookup       Quantiles `json:"lookupMs"` // as the client sees it
	Hinted       int       `json:"hinted"`   // requests whose engine a lookup chose
}

// Cache is one engine's cache at the end of a pass, beside what the index knows of it.
type Cache struct {
	Engine  string `json:"engine"`
	Held    int    `json:"held"`    // blocks, adapters and ranks kept apart
	Known   int    `json:"known"`   // blocks
	Missing int    `json:"missing"` // held and not known
	Extra   int    `json:"extra"`   // known and not held
}

// Agrees says whether the index knows exactly what the engine holds.
func (c Cache) Agrees() bool { return c.Missing == 0 && c.Extra == 0 }

// Uplink is the way of the events through the agent during one pass.
type Uplink struct {
	Events        map[string]int64 `json:"events"` // by kind
	Deltas        int64            `json:"deltas"`
	Bytes         int64            `json:"bytes"` // of the deltas
	BytesPerDelta float64          `json:"bytesPerDelta"`
}

// NewUplink fills in the derived figure.
func NewUplink(events map[string]int64, deltas, bytes int64) Uplink {
	return Uplink{Events: events, Deltas: deltas, Bytes: bytes, BytesPerDelta: ratio(bytes, deltas)}
}

// Pass is one replay of the workload.
type Pass struct {
	Traffic
	Uplink  Uplink  `json:"uplink"`
	Caches  []Cache `json:"caches"`
	Seconds float64 `json:"seconds"`
}

// Report compares the two passes.
type Report struct {
	Workload   string `json:"workload"`
	RoundRobin Pass   `json:"roundRobin"`
	ByPrefix   Pass   `json:"byPrefix"`
	// Gain is the hit rate by prefix over that of round robin; 0 if the latter is 0.
	Gain        float64  `json:"hitRateGain"`
	IndexAgrees bool     `json:"indexAgrees"`
	Seconds     float64  `json:"seconds"`
	Passed      bool     `json:"passed"`
	Failures    []string `json:"failures,omitempty"`
}

// Judge fills in the comparison and the verdict. Every engine must agree with the index after each
// pass, and the hit rate must grow by at least minGain, unless that is 0.
func (r *Report) Judge(minGain float64) {
	if r.RoundRobin.HitRate > 0 {
		r.Gain = r.ByPrefix.HitRate / r.RoundRobin.HitRate
	}
	r.IndexAgrees = true
	r.Failures = nil
	r.judgeIndex("round robin", r.RoundRobin)
	r.judgeIndex("by prefix", r.ByPrefix)
	if r.ByPrefix.HitRate < minGain*r.RoundRobin.HitRate || minGain > 0 && r.ByPrefix.HitRate == 0 {
		r.Failures = append(r.Failures, fmt.Sprintf("the hit rate by prefix is %.1f %%, want at least %g times the %.1f %% of round robin",
			100*r.ByPrefix.HitRate, minGain, 100*r.RoundRobin.HitRate))
	}
	r.Passed = len(r.Failures) == 0
}

func (r *Report) judgeIndex(pass string, p Pass) {
	for _, c := range p.Caches {
		if c.Agrees() {
			continue
		}
		r.IndexAgrees = false
		r.Failures = append(r.Failures, fmt.Sprintf("after %s the index disagrees with %s: of %d blocks held %d are not known, of %d known %d are not held",
			pass, c.Engine, c.Held, c.Missing, c.Known, c.Extra))
	}
}

// Err returns the failures as one error, nil if there are none.
func (r *Report) Err() error {
	errs := make([]error, len(r.Failures))
	for i, f := range r.Failures {
		errs[i] = errors.New(f)
	}
	return errors.Join(errs...)
}

// WriteJSON writes the report as one line.
func (r *Report) WriteJSON(w io.Writer) error {
	if err := json.NewEncoder(w).Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
