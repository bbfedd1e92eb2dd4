package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/cmd/internal/cli"
)

// addRankingFlags defines the constants of docs/ranking.md.
func addRankingFlags(cmd *cobra.Command, config *aggregator.Config) {
	r := aggregator.DefaultRanking()
	config.Ranking = r
	cli.Group(cmd, "Ranking", func(fs *pflag.FlagSet) {
		s, p := &r.Score, &r.Placement
		fs.Float32Var(&s.PressureWeight, "pressure-weight", s.PressureWeight, "share of the score that full pressure takes away; above 1 a cache is saturated at less than full pressure")
		fs.Int32Var(&s.SLOTightTTFTMs, "slo-tight-ttft-ms", s.SLOTightTTFTMs, "time to first token, in milliseconds, below which a target is tight")
		fs.Float32Var(&s.SLOTightBias, "slo-tight-bias", s.SLOTightBias, "how much a tight target favours fresh entries")
		fs.Float32Var(&s.TenantHotMinHitRate, "tenant-hot-min-hit-rate", s.TenantHotMinHitRate, "least hit rate of a warm cache, 0 to 1")
		fs.DurationVar(&s.TenantHotMaxAge, "tenant-hot-max-age", s.TenantHotMaxAge, "oldest statistics of a warm cache; 0 turns TENANT_HOT off")
		fs.Float32Var(&p.MinimumMatchedShare, "minimum-matched-share", p.MinimumMatchedShare,
			"share of a long prompt, 0 to 1, below which a match does not decide where it goes; 0 is off")
		fs.Float32Var(&p.ScoreTolerance, "score-tolerance", p.ScoreTolerance, "share of the best score, 0 to 1, within which scores count as equal")
		fs.IntVar(&p.AffinitySeedBlocks, "affinity-seed-blocks", p.AffinitySeedBlocks, "leading blocks that place a prompt which nobody holds; 0 means all")
		fs.IntVar(&p.AffinityChoices, "affinity-choices", p.AffinityChoices, "places of a prompt of which the one under the least pressure is taken, at most 4")
		fs.Var(placement{&p.Rendezvous}, "affinity-placement", "how a place is found: "+placementModulo+"|"+placementRendezvous)
	})
}

// checkRanking says what is out of range.
func checkRanking(r *aggregator.Ranking) error {
	return errors.Join(r.Score.Check(), r.Placement.Check())
}

const (
	placementModulo     = "modulo"
	placementRendezvous = "rendezvous"
)

// placement is the value of --affinity-placement.
type placement struct{ rendezvous *bool }

func (p placement) String() string {
	if p.rendezvous != nil && *p.rendezvous { // pflag asks a zero value for the default
		return placementRendezvous
	}
	return placementModulo
}

func (p placement) Type() string { return "string" }

func (p placement) Set(s string) error {
	if s != placementModulo && s != placementRendezvous {
		return fmt.Errorf("must be one of %s, %s", placementModulo, placementRendezvous)
	}
	*p.rendezvous = s == placementRendezvous
	return nil
}
