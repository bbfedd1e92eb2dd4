// Package route chooses the engine of each request: in turns, or by asking which one holds the longest
// prefix of its prompt.
package route

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	icpb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// Choice is the engine for one request.
type Choice struct {
	Engine int           // index into the engines
	Lookup time.Duration // how long asking took; 0 if nobody was asked
	Hinted bool          // the answer chose the engine
}

// Router chooses engines. Each Choose without an error is followed by Done, when the request has
// ended. Both may be called from any goroutine.
type Router interface {
	Choose(ctx context.Context, prompt []uint32) (Choice, error)
	Done(c Choice)
}

// RoundRobin takes the engines in turns.
type RoundRobin struct {
	mu   sync.Mutex
	n    int
	next int
}

// NewRoundRobin returns a router over n engines.
func NewRoundRobin(n int) *RoundRobin { return &RoundRobin{n: n} }

// Choose returns the next engine.
func (r *RoundRobin) Choose(context.Context, []uint32) (Choice, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := Choice{Engine: r.next}
	r.next = (r.next + 1) % r.n
	return c, nil
}

// Done does nothing.
func (*RoundRobin) Done(Choice) {}

// Scope says where the engines' blocks are indexed.
type Scope struct{ Tenant, Model, HashScheme string }

// lookupTimeout bounds one lookup. It is generous: an aggregator that needs this long has failed, and
// the replay with it.
const lookupTimeout = 5 * time.Second

// ByPrefix follows the hints of LookupRoute, unless they would pile requests up on one engine.
type ByPrefix struct {
	client icpb.InferenceCacheClient
	scope  Scope
	index  map[string]int // engine by replica id

	mu    sync.Mutex
	load  []load // by engine
	total int    // requests under way on all engines
}

// load is what one engine was given.
type load struct {
	underWay int // requests
	served   int // requests, those under way included
}

// lighter says whether a request is better given to an engine loaded as l than to one loaded as other.
func (l load) lighter(other load) bool {
	return l.underWay < other.underWay || l.underWay == other.underWay && l.served < other.served
}

// bound is how many times the mean load one engine may have and still be hinted: consistent hashing
// with bounded loads, with hints in place of hashes.
const bound = 1.25

// alike is the share of the best score from which on a score counts as good as the best: scores also
// differ by seconds of age and by load at the last scrape.
const alike = 0.9

// NewByPrefix returns a router over the named engines.
func NewByPrefix(client icpb.InferenceCacheClient, scope Scope, engines []string) *ByPrefix {
	index := make(map[string]int, len(engines))
	for i, name := range engines {
		index[name] = i
	}
	return &ByPrefix{client: client, scope: scope, index: index, load: make([]load, len(engines))}
}

// Choose asks for a route and takes the best engine below its limit.
func (b *ByPrefix) Choose(ctx context.Context, prompt []uint32) (Choice, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	start := time.Now()
	answer, err := b.client.LookupRoute(ctx, &icpb.LookupRouteRequest{
		ModelId: b.scope.Model, TenantId: b.scope.Tenant, HashScheme: b.scope.HashScheme, TokenIds: prompt,
	})
	if err != nil {
		return Choice{}, fmt.Errorf("look up a route: %w", err)
	}
	c := Choice{Lookup: time.Since(start)}
	b.mu.Lock()
	defer b.mu.Unlock()
	c.Engine, c.Hinted, err = b.pickLocked(answer)
	if err != nil {
		return Choice{}, err
	}
	b.load[c.Engine].underWay++
	b.load[c.Engine].served++
	b.total++
	return c, nil
}

// pickLocked returns the best hinted engine below its limit, the most lightly loaded one of several that
// are about as good. Where no hint can be used, it is the most lightly loaded of all engines.
func (b *ByPrefix) pickLocked(answer *icpb.LookupRouteResponse) (engine int, hinted bool, err error) {
	limit := b.limitLocked()
	var best float32
	for _, s := range answer.GetReplicaScores() { // best first
		e, ok := b.index[s.GetReplicaId()]
		switch {
		case !ok:
			return 0, false, fmt.Errorf("look up a route: the answer names %q, which is none of the engines", s.GetReplicaId())
		case s.GetMatchedTokens() == 0 || b.load[e].underWay >= limit:
			continue
		case !hinted:
			engine, hinted, best = e, true, s.GetScore()
		case s.GetScore() >= alike*best && b.load[e].lighter(b.load[engine]):
			engine = e
		}
	}
	if hinted {
		return engine, true, nil
	}
	return b.lightestLocked(), false, nil
}

// limitLocked returns the load at which an engine takes no more hinted requests. It is more than the
// mean load with the new request, so that some engine is always below it.
func (b *ByPrefix) limitLocked() int {
	return int(math.Ceil(bound * float64(b.total+1) / float64(len(b.load))))
}

func (b *ByPrefix) lightestLocked() int {
	lightest := 0
	for e := range b.load {
		if b.load[e].lighter(b.load[lightest]) {
			lightest = e
		}
	}
	return lightest
}

// Done takes the request off its engine's load.
func (b *ByPrefix) Done(c Choice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.load[c.Engine].underWay--
	b.total--
}
