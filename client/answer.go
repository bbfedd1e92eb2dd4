package client

import (
	"time"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// Reason codes of LookupRoute that this version knows.
const (
	// PrefixMatch: replicas hold a leading part of the prompt.
	PrefixMatch = "PREFIX_MATCH"
	// TenantHot: nothing matches, but these replicas are warm for the tenant.
	TenantHot = "TENANT_HOT"
	// AffinityHint: nothing matches, and this replica is where the prompt has its place.
	AffinityHint = "AFFINITY_HINT"
	// NoHint: route as if nobody had been asked.
	NoHint = "NO_HINT"
	// PolicyRequiresChain: the tenant's policy wants block hashes, and the request had none.
	PolicyRequiresChain = "POLICY_REQUIRES_CHAIN"
	// Timeout: no answer in time, from the aggregator or at all.
	Timeout = "TIMEOUT"
	// UnknownTenant, UnknownModel and UnknownHashScheme: the aggregator knows of no such thing, most
	// likely because the gateway and the engines name it differently.
	UnknownTenant     = "UNKNOWN_TENANT"
	UnknownModel      = "UNKNOWN_MODEL"
	UnknownHashScheme = "UNKNOWN_HASH_SCHEME"
)

// Answer is what came of a lookup.
type Answer struct {
	// Response is what the aggregator answered, or an empty one with the reason TIMEOUT; never nil.
	Response *pb.LookupRouteResponse
	// Err is why there was no answer; nil if there was one. It is for logs and metrics: the answer is
	// to be used either way.
	Err error
	// Took is how long the caller waited.
	Took time.Duration
}

// Reason returns the reason code, with every code that this version does not know as NO_HINT.
func (a Answer) Reason() string {
	switch reason := a.Response.GetReasonCode(); reason {
	case PrefixMatch, TenantHot, AffinityHint, PolicyRequiresChain, Timeout, UnknownTenant, UnknownModel, UnknownHashScheme:
		return reason
	default:
		return NoHint
	}
}

// Ranked returns the replicas to prefer, best first; none means to route as if nobody had been asked.
func (a Answer) Ranked() []*pb.ReplicaScore {
	switch a.Reason() {
	case PrefixMatch, TenantHot, AffinityHint:
		return a.Response.GetReplicaScores()
	default:
		return nil
	}
}

// Best returns the first replica of the ranking that reachable accepts, and whether there is one. A nil
// reachable accepts all.
func (a Answer) Best(reachable func(replica string) bool) (*pb.ReplicaScore, bool) {
	for _, s := range a.Ranked() {
		if reachable == nil || reachable(s.GetReplicaId()) {
			return s, true
		}
	}
	return nil, false
}

// Misconfigured says that the request names a tenant, model or hash scheme that nobody reports, or
// lacks the block hashes that the policy wants. Every request of its kind will fare alike until
// somebody mends the configuration, so it is worth a log line and a metric. Routing goes on.
func (a Answer) Misconfigured() bool {
	switch a.Reason() {
	case UnknownTenant, UnknownModel, UnknownHashScheme, PolicyRequiresChain:
		return true
	default:
		return false
	}
}
