package command

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	icpb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// writeExplanation prints how an answer came about: the rules in order, then every candidate with the
// factors of its score.
func writeExplanation(w io.Writer, e *icpb.LookupExplanation) error {
	if e == nil {
		_, err := fmt.Fprintln(w, "\nThe server explains nothing: the tenant is reserved, or it is older than this command.")
		return err
	}
	if _, err := fmt.Fprintf(w, "\nDecided by %s. %d of %d caches of the scope competed for %d prompt tokens%s.\n\n", e.GetDecidedBy(),
		e.GetMembers(), e.GetScopeMembers(), e.GetPromptTokens(), inBlocksOf(e.GetBlockSizes())); err != nil {
		return err
	}
	steps := [][]string{{"STEP", "FINDING"}}
	for _, s := range e.GetSteps() {
		steps = append(steps, []string{s.GetStep(), s.GetFinding()})
	}
	if err := writeTable(w, steps); err != nil {
		return err
	}
	if len(e.GetCandidates()) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w, "\nScore = matched x freshness x pressure factor x SLO bias x power."); err != nil {
		return err
	}
	rows := [][]string{{
		"REPLICA", "RANK", "OUTCOME", "MATCHED", "TIER", "AGE", "FRESHNESS", "PRESSURE", "FACTOR", "SLO BIAS", "POWER", "SCORE", "HIT RATE", "STATS AGE",
	}}
	for _, c := range e.GetCandidates() {
		rows = append(rows, candidateRow(c))
	}
	if err := writeTable(w, rows); err != nil || e.GetOmitted() == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "%d more caches are left out.\n", e.GetOmitted())
	return err
}

func inBlocksOf(sizes []int32) string {
	if len(sizes) == 0 {
		return ""
	}
	words := make([]string, len(sizes))
	for i, size := range sizes {
		words[i] = strconv.Itoa(int(size))
	}
	return " in blocks of " + strings.Join(words, " and ")
}

// candidateRow leaves what was not computed, or never reported, to a dash.
func candidateRow(c *icpb.CandidateExplanation) []string {
	row := []string{
		c.GetReplicaId(), strconv.Itoa(int(c.GetDataParallelRank())), c.GetOutcome(), "0",
		"", "", "", "", share(c.GetPressureFactor()), "", "", "", "", "",
	}
	if c.GetMatchedTokens() > 0 {
		row[3] = strconv.Itoa(int(c.GetMatchedTokens()))
		row[4] = tierName(c.GetTier())
		row[5] = seconds(c.GetAgeSeconds())
		row[6] = share(c.GetFreshness())
		row[9], row[10] = share(c.GetSloBias()), share(c.GetDistinguishingPower())
	}
	if c.GetMatchedTokens() > 0 || c.GetScore() > 0 {
		row[11] = strconv.FormatFloat(float64(c.GetScore()), 'f', 1, 32)
	}
	if c.GetHasStats() {
		row[7], row[12], row[13] = share(c.GetPressure()), share(c.GetHitRate()), seconds(c.GetStatsAgeSeconds())
	}
	return row
}

func seconds(n int64) string { return (time.Duration(n) * time.Second).String() }
