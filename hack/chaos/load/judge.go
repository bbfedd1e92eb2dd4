package load

import (
	"context"

	"github.com/inferencecache/inferencecache/fingerprint"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/chaos/fleet"
	"github.com/inferencecache/inferencecache/hack/chaos/plan"
	"github.com/inferencecache/inferencecache/hack/demo/inspect"
)

// judgement is what a hint promised and what the pool held right after the answer.
type judgement struct {
	promised int       // prompt tokens that the engine should find
	held     bool      // the pool held all of them
	trouble  plan.Kind // the fault felt on the way from the engine to the aggregator; empty in calm
}

// judge reads the pool of the engine that was hinted. An eviction between answer and reading counts against
// the hint.
func (c *client) judge(ctx context.Context, engine, aggregator int, hint *pb.ReplicaScore) judgement {
	j := judgement{
		promised: promised(len(c.prompt), int(hint.GetMatchedTokens())),
		trouble:  c.fleet.Trouble(engine, aggregator),
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	pool, err := c.fleet.Engines[engine].Held(ctx)
	j.held = err == nil && holds(pool, hint.GetDataParallelRank(), c.adapter, c.prompt[:j.promised])
	return j
}

// promised is how many tokens an engine finds that holds the matched ones: whole blocks, and never the last
// token, which it always computes.
func promised(prompt, matched int) int {
	return min(matched, (prompt-1)/fleet.BlockTokens*fleet.BlockTokens)
}

// holds says whether every block of a prefix is in the pool.
func holds(pool inspect.Blocks, rank int32, adapter string, prefix []uint32) bool {
	for _, print := range fingerprint.Chain(prefix, fleet.BlockTokens) {
		if _, ok := pool[inspect.Block{Rank: rank, Adapter: adapter, Hash: print}]; !ok {
			return false
		}
	}
	return true
}

// verdict counts the hint by what the engine found.
func (j judgement) verdict(cached int, n *Counts) {
	n.Hints++
	if j.trouble == "" {
		n.CalmHints++
	}
	switch {
	case cached >= j.promised:
		n.Right++
	case j.held:
		n.Overtaken++
	case j.trouble == "":
		n.WrongInCalm++
	default:
		n.WrongInTrouble[j.trouble]++
	}
}
