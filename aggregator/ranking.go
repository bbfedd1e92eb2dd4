package aggregator

import (
	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/rank"
)

// Ranking is the constants by which requests are ranked and placed, for tenants whose policy names none.
type Ranking struct {
	Score     rank.Config
	Placement rank.Placement
}

// DefaultRanking returns the documented constants.
func DefaultRanking() *Ranking {
	return &Ranking{rank.Default(), rank.DefaultPlacement()}
}

func (c *Config) ranking() *Ranking {
	if c.Ranking == nil {
		return DefaultRanking()
	}
	return c.Ranking
}

// basePolicy is what tenants have whose policy says nothing.
func (c *Config) basePolicy() policy.Policy {
	p := policy.Default()
	p.Placement = c.ranking().Placement
	return p
}
