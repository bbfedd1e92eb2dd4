package lookup

import (
	"fmt"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/aggregator/rank"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// step is one rule of the decision, by the name that explanations give it.
type step string

const (
	stepDeadline      step = "deadline"
	stepRequireChain  step = "require_chain"
	stepInput         step = "input"
	stepPrefixTokens  step = "minimum_prefix_tokens"
	stepKeys          step = "keys"
	stepMatch         step = "match"
	stepTenantHot     step = "tenant_hot"
	stepDiagnostics   step = "diagnostics"
	stepTenantHotOff  step = "enable_tenant_hot"
	stepMatchedTokens step = "minimum_matched_tokens"
	stepMatchedShare  step = "minimum_matched_share"
	stepRoutingFloor  step = "routing_floor"
	stepAffinity      step = "affinity"
	stepHint          step = "hint"
)

// maxExplained bounds the candidates of one explanation.
const maxExplained = 1024

// keepRanked keeps what the floors are about to cut down, if the caller wants to know.
func (c *call) keepRanked() {
	if c.req.GetExplain() {
		c.ranked = append(c.ranked[:0], c.candidates...)
	}
}

// explain says how the answer came about.
func (s *Service) explain(c *call, reason string) *pb.LookupExplanation {
	e := &pb.LookupExplanation{
		Members: int32(len(c.members.List)), ScopeMembers: int32(c.scopeMembers), // bounded by the registry
		PromptTokens: c.promptTokens,
	}
	for _, st := range c.steps {
		e.DecidedBy = string(st)
		e.Steps = append(e.Steps, &pb.DecisionStep{Step: string(st), Finding: c.finding(st, reason)})
	}
	for i := range c.chains {
		if ch := &c.chains[i]; !c.exact && ch.blockTokens > 0 {
			e.BlockSizes = append(e.BlockSizes, ch.blockTokens)
		}
	}
	if !c.consulted || !c.scoped() {
		return e
	}
	s.explainCandidates(c, reason, e)
	return e
}

// explainCandidates lists the ranked candidates, then the members that are none.
func (s *Service) explainCandidates(c *call, reason string, e *pb.LookupExplanation) {
	seen := map[index.Holder]bool{}
	add := func(m rank.Candidate, member registry.Member) {
		if len(e.Candidates) == maxExplained {
			e.Omitted++
			return
		}
		e.Candidates = append(e.Candidates, s.explainCandidate(c, m, member, reason))
	}
	for _, m := range c.ranked {
		seen[m.Holder] = true
		member, _ := c.members.Find(m.Holder)
		add(m, member)
	}
	for _, member := range c.members.List {
		if !seen[member.Holder] {
			add(rank.Candidate{Holder: member.Holder, PressureFactor: s.pressure(c, member)}, member)
		}
	}
}

func (s *Service) explainCandidate(c *call, m rank.Candidate, member registry.Member, reason string) *pb.CandidateExplanation {
	out := &pb.CandidateExplanation{
		ReplicaId: m.Holder.Replica, DataParallelRank: m.Holder.Rank,
		MatchedTokens: m.MatchedTokens, MatchedBlocks: int32(m.Blocks), // at most MaxBlocks
		Tier:      contract.TierOut(m.Tier),
		Freshness: m.Freshness, PressureFactor: m.PressureFactor,
		SloBias: m.SLOBias, DistinguishingPower: m.Power, Score: m.Score,
		Outcome: c.outcome(m, reason),
	}
	if m.MatchedTokens > 0 {
		out.AgeSeconds = int64(m.Age / time.Second)
	}
	if stats := member.Stats(); stats != nil {
		out.HasStats = true
		out.Pressure, out.HitRate = stats.Pressure, stats.HitRate
		out.StatsAgeSeconds = int64(c.start.Sub(stats.Reported) / time.Second)
	}
	return out
}

// outcome says what became of one candidate.
func (c *call) outcome(m rank.Candidate, reason string) string {
	for _, hinted := range c.candidates {
		if hinted.Holder == m.Holder && isHint(reason) {
			if reason == contract.AffinityHint {
				return "affinity"
			}
			return "hinted"
		}
	}
	switch {
	case m.MatchedTokens > 0 && m.MatchedTokens < c.policy.MinimumMatchedTokens:
		return "below_minimum_matched_tokens"
	case m.MatchedTokens == 0 && m.Score == 0 && c.exact:
		return "not_warm"
	case m.MatchedTokens == 0 && m.Score == 0:
		return "no_match"
	case reason == contract.PrefixMatch || reason == contract.TenantHot:
		return "beyond_max_results"
	default:
		return "withheld"
	}
}

// finding says in words what a rule found.
func (c *call) finding(st step, reason string) string {
	best := rank.Candidate{}
	if len(c.ranked) > 0 {
		best = c.ranked[0]
	}
	switch st {
	case stepDeadline:
		return "the caller's deadline or the policy's lookupTimeoutMs has passed"
	case stepRequireChain:
		return fmt.Sprintf("the policy wants a chain of block hashes; the request carries one: %v", carriesChain(c.req))
	case stepInput:
		return c.describeInput()
	case stepPrefixTokens:
		return fmt.Sprintf("the prompt has %d tokens, hints from the cache need %d", c.promptTokens, c.policy.MinimumPrefixTokens)
	case stepKeys:
		return fmt.Sprintf("tenant %q, model %q, hash scheme %q; all three are needed", c.scope.Tenant, c.scope.Model, c.scope.Scheme)
	case stepMatch:
		return c.describeMatch(best)
	case stepTenantHot:
		return fmt.Sprintf("%d of %d caches are warm by their statistics", len(c.ranked), len(c.members.List))
	case stepDiagnostics:
		return "nothing matches; the keys of the request against those reported: " + reason
	case stepTenantHotOff:
		return "the policy switches TENANT_HOT off"
	case stepMatchedTokens:
		return fmt.Sprintf("a candidate needs %d matched tokens", c.policy.MinimumMatchedTokens)
	case stepMatchedShare:
		return fmt.Sprintf("the longest match is less than %g of the prompt's %d tokens", c.policy.MinimumMatchedShare, c.promptTokens)
	case stepRoutingFloor:
		return fmt.Sprintf("a hint needs a score of %g", c.policy.RoutingFloorScore)
	case stepAffinity:
		return c.describeAffinity(reason)
	case stepHint:
		return "the hint is delivered"
	default:
		return ""
	}
}

func (c *call) describeInput() string {
	switch {
	case c.textErr != nil:
		return fmt.Sprintf("no token ids of the text (%s): %v", c.textReason(), c.textErr)
	case len(c.chains) == 0 && c.exact:
		return "the request has no input"
	case len(c.chains) == 0:
		return "the request has no usable input: a malformed chain, less than one block, or more than is taken"
	case c.exact:
		return fmt.Sprintf("one whole prefix of %d tokens", c.promptTokens)
	default:
		return fmt.Sprintf("%d tokens as blocks", c.promptTokens)
	}
}

func (c *call) describeMatch(best rank.Candidate) string {
	if best.MatchedTokens == 0 {
		return fmt.Sprintf("none of %d caches holds the first block", len(c.members.List))
	}
	n := 0
	for _, m := range c.ranked {
		if m.MatchedTokens > 0 {
			n++
		}
	}
	return fmt.Sprintf("%d of %d caches hold a leading part; the best scores %g with %d tokens",
		n, len(c.members.List), best.Score, best.MatchedTokens)
}

func (c *call) describeAffinity(reason string) string {
	if reason == contract.AffinityHint {
		return fmt.Sprintf("the prompt's place among %d caches", len(c.members.List))
	}
	return fmt.Sprintf("no place: %d caches, %d usable inputs", len(c.members.List), len(c.chains))
}

func isHint(reason string) bool {
	return reason == contract.PrefixMatch || reason == contract.TenantHot || reason == contract.AffinityHint
}
