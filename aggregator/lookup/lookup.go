// Package lookup decides what LookupRoute answers.
package lookup

import (
	"context"
	"sync"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/aggregator/hot"
	"github.com/inferencecache/inferencecache/aggregator/metrics"
	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/rank"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/tokenize"
)

// Config is what a Service needs. Every field but Tokenizer, Hot and Now is required.
type Config struct {
	Index    index.Index
	Registry *registry.Registry
	Policy   policy.For
	Rank     rank.Config
	Metrics  *metrics.Metrics
	// BlockSize is the engine's block size in tokens where no engine has shown one.
	BlockSize int32
	// Tokenizer serves requests that carry text; without one those have no usable input.
	Tokenizer Tokenizer
	// Hot, if not nil, counts the prefixes that calls are answered with.
	Hot *hot.Counter
	// Now tells the time; default time.Now.
	Now func() time.Time
}

// Tokenizer turns text into the token ids that the model's engine makes of it. It bounds what a request
// may cost, in time too; its errors have a tokenize.Reason.
type Tokenizer interface {
	Encode(ctx context.Context, model string, input tokenize.Input) (tokenize.Result, error)
}

// Service answers LookupRoute.
type Service struct {
	Config
	calls sync.Pool // *call
}

// New returns a Service.
func New(config Config) *Service {
	if config.Now == nil {
		config.Now = time.Now
	}
	s := &Service{Config: config}
	s.calls.New = func() any { return &call{} }
	return s
}

// LookupRoute answers one request. It never fails: a request that cannot be served gets an empty
// answer with a reason.
func (s *Service) LookupRoute(ctx context.Context, req *pb.LookupRouteRequest) *pb.LookupRouteResponse {
	if req.GetTenantId() == contract.ReservedTenant {
		s.Metrics.Lookup(req.GetModelId(), false, contract.NoHint, false, 0)
		return &pb.LookupRouteResponse{ReasonCode: contract.NoHint}
	}
	c := s.begin(ctx, req)
	defer s.end(c)

	reason := s.decide(c)
	if n := int(req.GetMaxResults()); n > 0 && n < len(c.candidates) {
		c.candidates = c.candidates[:n]
	}
	resp := c.response(reason)
	if reason == contract.PrefixMatch {
		s.use(c)
	}
	if req.GetExplain() {
		resp.Explanation = s.explain(c, reason)
	}
	latency := s.Now().Sub(c.start)
	resp.LookupLatencyUs = latency.Microseconds()
	s.Metrics.Lookup(req.GetModelId(), c.known, reason, len(resp.ReplicaScores) > 0, latency)
	return resp
}

// decide returns the reason code; the candidates that the call is left with are the hint. The first
// rule that applies decides.
func (s *Service) decide(c *call) string {
	if s.expired(c) {
		return contract.Timeout
	}
	if c.policy.RequireChain && c.enter(stepRequireChain) && !carriesChain(c.req) {
		return contract.PolicyRequiresChain
	}
	c.enter(stepInput)
	usable := s.resolve(c)
	if s.expired(c) {
		return contract.Timeout
	}
	if !usable {
		return contract.NoHint
	}
	if !c.policy.Affinity && c.belowMinimum() {
		return contract.NoHint
	}
	reason := s.find(c)
	if s.expired(c) {
		return contract.Timeout
	}
	c.consulted = true
	if reason = c.gate(reason); reason == contract.NoHint && s.affinity(c) {
		return contract.AffinityHint
	}
	return reason
}

// find consults the index: a match, else warm replicas, else what the request has wrong.
func (s *Service) find(c *call) string {
	if !c.scoped() {
		c.enter(stepKeys)
		return contract.NoHint
	}
	if s.match(c) {
		return contract.PrefixMatch
	}
	if c.exact && s.tenantHot(c) {
		return contract.TenantHot
	}
	return s.classify(c)
}

// gate applies the tenant's policy to a hint, and returns NO_HINT for one that it withholds.
func (c *call) gate(reason string) string {
	switch {
	case reason != contract.PrefixMatch && reason != contract.TenantHot:
		return reason
	case reason == contract.TenantHot && !c.policy.TenantHot && c.enter(stepTenantHotOff), c.belowMinimum():
		return contract.NoHint
	case reason == contract.PrefixMatch && !c.clearsFloors():
		return contract.NoHint
	default:
		if reason == contract.PrefixMatch {
			c.policy.Disperse(c.candidates, c.parting())
		}
		c.enter(stepHint)
		return reason
	}
}

// clearsFloors drops the candidates that match too little and says whether a hint is left that is
// worth following. Distinguishing power stays as it was: it describes the prefix, not the hint.
func (c *call) clearsFloors() bool {
	if c.policy.MinimumMatchedTokens > 0 {
		c.enter(stepMatchedTokens)
	}
	kept, longest := c.candidates[:0], int32(0)
	for _, m := range c.candidates {
		if m.MatchedTokens >= c.policy.MinimumMatchedTokens {
			kept, longest = append(kept, m), max(longest, m.MatchedTokens)
		}
	}
	c.candidates = kept
	switch {
	case len(kept) == 0:
		return false
	case !c.exact && c.policy.Minor(longest, c.promptTokens):
		c.enter(stepMatchedShare)
		return false
	case c.policy.RoutingFloorScore > 0:
		c.enter(stepRoutingFloor)
		return kept[0].Score >= c.policy.RoutingFloorScore
	default:
		return true
	}
}

// use counts the use of the prefix and the entries that a delivered hint rests on.
func (s *Service) use(c *call) {
	if s.Hot != nil {
		s.Hot.Use(c.scope.Tenant, c.scope.Model, c.matched())
	}
	if !c.policy.LFU {
		return
	}
	for _, m := range c.candidates {
		s.Index.Credit(c.query(m.Chain), m.Holder, m.Blocks)
	}
}
