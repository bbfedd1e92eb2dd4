package lookup

import (
	"context"
	"math/bits"
	"time"

	"github.com/zeebo/xxh3"

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
	members  *registry.Members // those that compete
	start    time.Time
	now      index.Instant
	deadline time.Time // zero if there is none
	// scopeMembers counts the caches that serve the scope, whether they compete or not.
	scopeMembers int
	// known says that a producer named the model, so that metrics may.
	known bool

	// The resolved input: chains that say the same prompt in different block sizes.
	chains []chain
	// exact says that whole prefixes are compared, not blocks.
	exact bool
	// promptTokens counts the prompt tokens that the input covers.
	promptTokens int64
	// tokens are the ids that the server made of text; textErr is why it could not.
	tokens  []uint32
	textErr error

	// The answer.
	candidates []rank.Candidate
	consulted  bool

	steps  []step           // the rules met, in order
	ranked []rank.Candidate // all candidates before the floors; kept only to explain

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
	// rest are the token ids behind the keys, in full blocks. They are hashed when they are needed.
	rest []uint32

	words []uint64 // backs the keys of token ids
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
	c.scopeMembers = len(c.members.List)
	c.known = c.scopeMembers > 0
	if ids := req.GetCandidateReplicaIds(); len(ids) > 0 {
		c.members = c.members.Only(ids)
	}
	if c.policy.LookupTimeout > 0 {
		c.deadline = c.start.Add(c.policy.LookupTimeout)
	}
	return c
}

func (s *Service) end(c *call) {
	kept := cap(c.words) + cap(c.matches) + cap(c.seed)/16
	for i := range c.chains {
		kept += cap(c.chains[i].words)
		c.chains[i] = chain{words: c.chains[i].words[:0]} // keys may point into the request
	}
	if kept > maxKeptKeys {
		return
	}
	clear(c.matches)
	clear(c.candidates)
	*c = call{
		chains: c.chains[:0], candidates: c.candidates[:0], steps: c.steps[:0],
		words: c.words[:0], matches: c.matches[:0], seed: c.seed[:0],
	}
	s.calls.Put(c)
}

// addChain returns a new chain of the call, its buffer taken over from an earlier call.
func (c *call) addChain() *chain {
	if len(c.chains) < cap(c.chains) {
		c.chains = c.chains[:len(c.chains)+1]
	} else {
		c.chains = append(c.chains, chain{})
	}
	return &c.chains[len(c.chains)-1]
}

// enter notes that a rule is met. It returns true, so that it may stand in a condition.
func (c *call) enter(s step) bool {
	c.steps = append(c.steps, s)
	return true
}

// expired says whether an answer would come too late. A caller's deadline reaches the handler as the
// end of ctx; the policy's is compared with the clock, so that no timer or goroutine is needed.
func (s *Service) expired(c *call) bool {
	if c.ctx.Err() != nil || !c.deadline.IsZero() && !s.Now().Before(c.deadline) {
		return c.enter(stepDeadline)
	}
	return false
}

// scoped says whether the request names a scope.
func (c *call) scoped() bool {
	return c.scope.Tenant != "" && c.scope.Model != "" && c.scope.Scheme != ""
}

// belowMinimum says whether the prompt is too short for a hint from the cache.
func (c *call) belowMinimum() bool {
	return c.policy.MinimumPrefixTokens > 0 && c.promptTokens < c.policy.MinimumPrefixTokens && c.enter(stepPrefixTokens)
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
	resp := &pb.LookupRouteResponse{ReasonCode: reason, TokenIds: c.tokens, TextReason: c.textReason()}
	if c.consulted {
		resp.AdapterId = c.req.GetAdapterId()
	}
	if !isHint(reason) {
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

// parting returns a number that tells the prompt from others that match like it: the key of the first
// block that the best candidate does not hold, or the last key if it holds all. Of a wide key it is
// the XXH3-64.
func (c *call) parting() uint64 {
	best := c.candidates[0]
	keys := c.chains[best.Chain].keys
	return number(keys, min(best.Blocks, keys.Len()-1))
}

// matched returns a number for the prefix that the best candidate holds: of its last key and of the
// partition that this is a key of.
func (c *call) matched() uint64 {
	best := c.candidates[0]
	key := number(c.chains[best.Chain].keys, max(0, best.Blocks-1))
	return key ^ bits.RotateLeft64(xxh3.HashString(c.scope.Scheme), 17) ^ bits.RotateLeft64(xxh3.HashString(c.req.GetAdapterId()), 31) ^
		xxh3.HashString(c.scope.Model) ^ bits.RotateLeft64(xxh3.HashString(c.scope.Tenant), 47)
}

// number returns a key as a number.
func number(keys index.Keys, i int) uint64 {
	if keys.Words != nil {
		return keys.Words[i]
	}
	return xxh3.HashString(keys.Wide[i])
}
