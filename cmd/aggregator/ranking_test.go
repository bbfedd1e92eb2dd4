package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/cmd/internal/cli"
)

func TestRankingFlags(t *testing.T) {
	var config aggregator.Config
	cmd := &cobra.Command{}
	addRankingFlags(cmd, &config)
	if got, want := *config.Ranking, *aggregator.DefaultRanking(); got != want {
		t.Errorf("without flags %+v, want %+v", got, want)
	}
	if err := cmd.ParseFlags([]string{"--minimum-matched-share=0.25", "--affinity-placement=rendezvous", "--score-tolerance=0.05", "--pressure-weight=0.5"}); err != nil {
		t.Fatal(err)
	}
	want := aggregator.DefaultRanking()
	want.Placement.MinimumMatchedShare, want.Placement.Rendezvous, want.Placement.ScoreTolerance, want.Score.PressureWeight = 0.25, true, 0.05, 0.5
	if *config.Ranking != *want {
		t.Errorf("got %+v, want %+v", *config.Ranking, *want)
	}
}

func TestRankingOutOfRangeIsAUsageError(t *testing.T) {
	for arg, want := range map[string]string{
		"--minimum-matched-share=2":      "minimum matched share is 2, want 0 to 1",
		"--affinity-choices=9":           "affinity choices are 9, want 0 to 4",
		"--affinity-placement=somewhere": "must be one of modulo, rendezvous",
		"--pressure-weight=NaN":          "pressure weight is NaN, want 0 to 100",
	} {
		t.Run(arg, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := cli.Run(t.Context(), newCommand(), []string{"--snapshot-bind-address=", arg}, &stdout, &stderr)
			if code != cli.ExitUsage || !strings.Contains(stderr.String(), want) {
				t.Errorf("exit code %d: %s", code, &stderr)
			}
		})
	}
}
