// Package route chooses the engine of each request: in turns, or by asking which one holds the longest
// prefix of its prompt.
package route

import (
	"context"
	"fmt"
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
	slack  int

	mu   sync.Mutex
	load []int // requests under way, by engine
}

// NewByPrefix returns a router over the named engines. A hint is passed over where its engine has more
// than slack requests under way above the least loaded one.
func NewByPrefix(client icpb.InferenceCacheClient, scope Scope, engines []string, slack int) *ByPrefix {
	index := make(map[string]int, len(engines))
	for i, name := range engines {
		index[name] = i
	}
	return &ByPrefix{client: client, scope: scope, index: index, slack: slack, load: make([]int, len(engines))}
}

// Choose asks for a route and takes the best engine that is not overloaded, else the least loaded one.
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
	b.load[c.Engine]++
	return c, nil
}

func (b *ByPrefix) pickLocked(answer *icpb.LookupRouteResponse) (engine int, hinted bool, err error) {
	least := b.leastLoadedLocked()
	for _, s := range answer.GetReplicaScores() {
		e, ok := b.index[s.GetReplicaId()]
		if !ok {
			return 0, false, fmt.Errorf("look up a route: the answer names %q, which is none of the engines", s.GetReplicaId())
		}
		// A replica that matches nothing is no better than the least loaded one.
		if s.GetMatchedTokens() > 0 && b.load[e] <= b.load[least]+b.slack {
			return e, true, nil
		}
	}
	return least, false, nil
}

func (b *ByPrefix) leastLoadedLocked() int {
	least := 0
	for e, n := range b.load {
		if n < b.load[least] {
			least = e
		}
	}
	return least
}

// Done takes the request off its engine's load.
func (b *ByPrefix) Done(c Choice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.load[c.Engine]--
}
