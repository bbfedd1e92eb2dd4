package lookup

import (
	"context"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/rank"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// call is one request on its way through the decision. Its slices are kept for the next one.
type call struct {
	ctx      context.Context
	req      *pb.LookupRouteRequest
	scope    index.Scope
	policy   *policy.Policy
	members  *registry.Members
	start    time.Time
	now      index.Instant
	deadline time.Time // zero if there is none

	// The resolved input: chains that say the same prompt in different block sizes.
	chains []chain
	// exact says that whole prefixes are compared, not blocks.
	exact bool
	// promptTokens counts the prompt tokens that the input covers.
	promptTokens int64
	// tokens are the ids that the server made of prompt_text.
	tokens []uint32

	// The answer.
	candidates []rank.Candidate
	consulted  bool

	words   []uint64 // backs the keys of a chain from the wire
	matches []index.Match
	seed    []byte
}

// chain is the input in one block size.
type chain struct {
	keys index.Keys
	// counts are the tokens of each block, as the caller gave them; without them every block has
	// blockTokens.
	counts      []int32
	blockTokens int32
}

// maxKeptKeys bounds the buffers that a call keeps for the next, in elements.
const maxKeptKeys = 1 << 16

func (s *Service) begin(ctx context.Context, req *pb.LookupRouteRequest) *call {
	c := s.calls.Get().(*call)
	c.ctx, c.req, c.start = ctx, req, s.Now()
	c.now = index.At(c.start)
	c.scope = index.Scope{Tenant: req.GetTenantId(), Model: req.GetModelId(), Scheme: req.GetHashScheme()}
	c.policy = s.Policy(c.scope.Tenant)
	c.members = s.Registry.Members(c.scope)
	if c.policy.LookupTimeout > 0 {
		c.deadline = c.start.Add(c.policy.LookupTimeout)
	}
	return c
}

func (s *Service) end(c *call) {
	clear(c.chains) // keys may point into the request
	clear(c.matches)
	clear(c.candidates)
	if cap(c.words) > maxKeptKeys || cap(c.matches) > maxKeptKeys || cap(c.seed) > 16*maxKeptKeys {
		return
	}
	*c = call{
		chains: c.chains[:0], candidates: c.candidates[:0],
		words: c.words[:0], matches: c.matches[:0], seed: c.seed[:0],
	}
	s.calls.Put(c)
}

// expired says whether an answer would come too late. A caller's deadline reaches the handler as the
// end of ctx; the policy's is compared with the clock, so that no timer or goroutine is needed.
func (s *Service) expired(c *call) bool {
	return c.ctx.Err() != nil || !c.deadline.IsZero() && !s.Now().Before(c.deadline)
}

// scoped says whether the request names a scope.
func (c *call) scoped() bool {
	return c.scope.Tenant != "" && c.scope.Model != "" && c.scope.Scheme != ""
}

// known says whether a producer named the model, so that metrics may.
func (c *call) known() bool { return len(c.members.List) > 0 }

// belowMinimum says whether the prompt is too short for a hint from the cache.
func (c *call) belowMinimum() bool {
	return c.policy.MinimumPrefixTokens > 0 && c.promptTokens < c.policy.MinimumPrefixTokens
}

// query asks the index for one of the chains.
func (c *call) query(chain int) index.Query {
	return index.Query{
		Partition: index.Partition{Scope: c.scope, Adapter: c.req.GetAdapterId()},
		Keys:      c.chains[chain].keys,
		// An entry of exactly one TTL has freshness 0 and does not count.
		NotBefore: c.now.Before(c.policy.TTL) + 1,
	}
}

func (c *call) response(reason string) *pb.LookupRouteResponse {
	resp := &pb.LookupRouteResponse{ReasonCode: reason, TokenIds: c.tokens}
	if c.consulted {
		resp.AdapterId = c.req.GetAdapterId()
	}
	switch reason {
	case contract.PrefixMatch, contract.TenantHot, contract.AffinityHint:
	default:
		return resp
	}
	scores := make([]pb.ReplicaScore, len(c.candidates))
	resp.ReplicaScores = make([]*pb.ReplicaScore, len(c.candidates))
	for i := range c.candidates {
		m, s := &c.candidates[i], &scores[i]
		s.ReplicaId = m.Holder.Replica
		s.DataParallelRank = m.Holder.Rank
		s.Score = m.Score
		s.MatchedTokens = m.MatchedTokens
		s.EstimatedCacheHitProb = m.HitProbability
		s.Tier = contract.TierOut(m.Tier)
		resp.ReplicaScores[i] = s
	}
	return resp
}
