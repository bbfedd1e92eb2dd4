// Package rank scores the caches that may serve a request. Everything here is a pure function over
// a match, the statistics of a cache and the request; all of it is computed in float32.
//
//	score = matched_tokens x freshness x pressure_factor x slo_bias x distinguishing_power
package rank

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/inferencecache/inferencecache/index"
)

// Config holds the constants of the formula.
type Config struct {
	// PressureWeight is how much of the score full pressure takes away; above 1 a cache is saturated at
	// less than full pressure.
	PressureWeight float32
	// SLOTightTTFTMs is the time-to-first-token target in milliseconds below which a request counts
	// as tight.
	SLOTightTTFTMs int32
	// SLOTightBias is how much a tight request favours fresh entries.
	SLOTightBias float32
	// TenantHotMinHitRate and TenantHotMaxAge say which statistics make a cache warm: the least hit
	// rate, and how old the report may be. An age of 0 turns TENANT_HOT off.
	TenantHotMinHitRate float32
	TenantHotMaxAge     time.Duration
}

// Default returns the documented constants.
func Default() Config {
	return Config{
		PressureWeight:      1,
		SLOTightTTFTMs:      200,
		SLOTightBias:        1,
		TenantHotMinHitRate: 0.1,
		TenantHotMaxAge:     5 * time.Minute,
	}
}

// Check names the first field that is out of its range.
func (c *Config) Check() error {
	switch {
	case !within(c.PressureWeight, 0, 100):
		return fmt.Errorf("pressure weight is %g, want 0 to 100", c.PressureWeight)
	case c.SLOTightTTFTMs < 0:
		return fmt.Errorf("tight SLO threshold is %d ms, want 0 or more", c.SLOTightTTFTMs)
	case !within(c.SLOTightBias, 0, 100):
		return fmt.Errorf("tight SLO bias is %g, want 0 to 100", c.SLOTightBias)
	case !within(c.TenantHotMinHitRate, 0, 1):
		return fmt.Errorf("least hit rate of a warm cache is %g, want 0 to 1", c.TenantHotMinHitRate)
	case c.TenantHotMaxAge < 0:
		return fmt.Errorf("oldest statistics of a warm cache are of %s, want 0 or more", c.TenantHotMaxAge)
	default:
		return nil
	}
}

// Candidate is one cache that may be hinted.
type Candidate struct {
	Holder index.Holder
	// MatchedTokens counts the prompt tokens that it holds from the start.
	MatchedTokens int32
	Tier          index.Tier
	// Age is that of the oldest matched block, and Freshness what is left of it, 0 to 1.
	Age       time.Duration
	Freshness float32
	// PressureFactor is 1 for an idle cache and 0 for a saturated one.
	PressureFactor float32
	Score          float32
	// SLOBias and Power are the other factors of the score.
	SLOBias, Power float32
	// HitProbability is what the answer gives as estimated_cache_hit_prob.
	HitProbability float32
	// Chain and Blocks say which of the request's chains matched, and how many blocks of it.
	Chain, Blocks int
}

// Freshness falls linearly from 1 for an entry seen now to 0 for one seen a TTL ago.
func Freshness(age, ttl time.Duration) float32 {
	switch {
	case age <= 0:
		return 1
	case age >= ttl:
		return 0
	default:
		return float32(1 - float64(age)/float64(ttl))
	}
}

// PressureFactor is 1 minus the weighted pressure, 0 to 1.
func (c Config) PressureFactor(pressure float32) float32 {
	return min(1, max(0, 1-c.PressureWeight*pressure))
}

// SLOBias favours fresh entries when the request has a tight target; otherwise it is 1.
func (c Config) SLOBias(freshness float32, ttftMs int32) float32 {
	if ttftMs > 0 && ttftMs < c.SLOTightTTFTMs {
		return 1 + freshness*c.SLOTightBias
	}
	return 1
}

// DistinguishingPower is the share of the members that do not match: a prefix that every member
// holds says nothing about where to go. A lone member has nothing to be told apart from.
func DistinguishingPower(matching, total int) float32 {
	switch {
	case total <= 1:
		return 1
	case matching >= total:
		return 0
	default:
		return 1 - float32(matching)/float32(total)
	}
}

// Matches scores candidates whose MatchedTokens, Freshness and PressureFactor are set, out of total
// members, and sorts them. A candidate is told apart by those that match at least as many tokens;
// exact says that matches have no depth, so that all count.
func (c Config) Matches(candidates []Candidate, total int, exact bool, ttftMs int32) {
	slices.SortFunc(candidates, func(a, b Candidate) int { return cmp.Compare(b.MatchedTokens, a.MatchedTokens) })
	for i := 0; i < len(candidates); {
		end := i + 1
		for end < len(candidates) && candidates[end].MatchedTokens == candidates[i].MatchedTokens {
			end++
		}
		matching := end
		if exact {
			matching = len(candidates)
		}
		power := DistinguishingPower(matching, total)
		for ; i < end; i++ {
			m := &candidates[i]
			m.SLOBias, m.Power = c.SLOBias(m.Freshness, ttftMs), power
			m.Score = float32(m.MatchedTokens) * m.Freshness * m.PressureFactor * m.SLOBias * power
			m.HitProbability = m.Freshness
		}
	}
	Sort(candidates)
}

// TenantHot returns the score of a cache by its statistics alone, and whether it is warm. age is
// that of the statistics.
func (c Config) TenantHot(hitRate float32, age time.Duration, pressureFactor float32, ttftMs int32) (float32, bool) {
	if c.TenantHotMaxAge <= 0 || age >= c.TenantHotMaxAge || hitRate < c.TenantHotMinHitRate {
		return 0, false
	}
	recency := Freshness(age, c.TenantHotMaxAge)
	return hitRate * recency * pressureFactor * c.SLOBias(recency, ttftMs), true
}

// Sort orders candidates by score, highest first, then by replica and rank. Where every member holds
// the prefix all scores are 0, and the names alone would send it all to one cache, even a saturated
// one: among scores of 0 what is left of the formula without distinguishing power decides first.
func Sort(candidates []Candidate) {
	slices.SortFunc(candidates, func(a, b Candidate) int {
		byScore := cmp.Compare(b.Score, a.Score)
		if byScore == 0 && a.Score == 0 {
			byScore = cmp.Compare(b.undistinguished(), a.undistinguished())
		}
		return cmp.Or(byScore, cmp.Compare(a.Holder.Replica, b.Holder.Replica), cmp.Compare(a.Holder.Rank, b.Holder.Rank))
	})
}

// undistinguished is the score without distinguishing power; for a candidate that matches nothing, as
// of TENANT_HOT, its hit rate takes the place of the tokens.
func (m *Candidate) undistinguished() float32 {
	if m.MatchedTokens == 0 {
		return m.HitProbability * m.PressureFactor
	}
	return float32(m.MatchedTokens) * m.Freshness * m.PressureFactor * m.SLOBias
}
