// Package policy says what an operator decided about a tenant's lookups and entries.
package policy

import (
	"time"

	"github.com/inferencecache/inferencecache/aggregator/rank"
	"github.com/inferencecache/inferencecache/index"
)

// Policy is the resolved policy of one tenant. It is immutable once it is shared.
type Policy struct {
	// TTL is how long an entry, or a report of statistics, counts after its last evidence.
	TTL time.Duration
	// MinimumPrefixTokens withholds cache hints from requests with fewer prompt tokens; 0 is off.
	MinimumPrefixTokens int64
	// MinimumMatchedTokens drops replicas that match fewer tokens; 0 is off.
	MinimumMatchedTokens int32
	// RoutingFloorScore withholds a match whose best score is below it; 0 is off.
	RoutingFloorScore float32
	// LookupTimeout bounds one lookup from its arrival; 0 leaves it to the caller's deadline.
	LookupTimeout time.Duration
	// Affinity answers a miss with a stable replica.
	Affinity bool
	// LFU evicts by use count, then age, instead of by last evidence alone.
	LFU bool
	// ChainMatching compares block by block; off, only whole prefixes match.
	ChainMatching bool
	// RequireChain refuses requests that carry no chain of block hashes of their own.
	RequireChain bool
	// TenantHot allows the answer TENANT_HOT.
	TenantHot bool
	rank.Placement
}

// Default returns the policy of a tenant for which none is installed.
func Default() Policy {
	return Policy{
		TTL:                  index.DefaultTTL,
		MinimumMatchedTokens: 64,
		RoutingFloorScore:    0.1,
		Affinity:             true,
		ChainMatching:        true,
		TenantHot:            true,
		Placement:            rank.DefaultPlacement(),
	}
}

// For returns the policy of a tenant. It is called once per lookup, from any goroutine, and must not
// block.
type For func(tenant string) *Policy

// Same returns a For that gives every tenant the same policy.
func Same(p Policy) For {
	return func(string) *Policy { return &p }
}
