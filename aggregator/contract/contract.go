// Package contract holds the words of the public contract that more than one part of the aggregator
// needs: reason codes, the reserved tenant, limits on names, and tiers.
package contract

import (
	"errors"
	"strings"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// ReservedTenant belongs to the server's self-test: lookups of it answer NO_HINT, reports of it are
// dropped, and no aggregate counts it.
const ReservedTenant = "inferencecache.io/probe"

// Reason codes of LookupRoute.
const (
	PrefixMatch         = "PREFIX_MATCH"
	TenantHot           = "TENANT_HOT"
	AffinityHint        = "AFFINITY_HINT"
	NoHint              = "NO_HINT"
	PolicyRequiresChain = "POLICY_REQUIRES_CHAIN"
	Timeout             = "TIMEOUT"
	UnknownTenant       = "UNKNOWN_TENANT"
	UnknownModel        = "UNKNOWN_MODEL"
	UnknownHashScheme   = "UNKNOWN_HASH_SCHEME"
)

// Reason codes of RenderTemplate.
const (
	RenderOK       = "OK"
	RenderNotFound = "TEMPLATE_NOT_FOUND"
	RenderError    = "RENDER_ERROR"
)

// Limits on what a producer may name, in bytes.
const (
	MaxNameBytes = 512
	MaxHashBytes = 256
)

// Reasons why something that a producer sent was not applied: Ack.reason_code, the keys of
// DeltaAck.refused and the reason label of metrics.
const (
	EmptyReplica      = "empty_replica_id"
	EmptyTenant       = "empty_tenant_id"
	EmptyModel        = "empty_model_id"
	EmptyScheme       = "empty_hash_scheme"
	EmptyHash         = "empty_prefix_hash"
	EmptyBlockHash    = "empty_block_hash"
	NameTooLong       = "name_too_long"
	HashTooLong       = "hash_too_long"
	RaggedChain       = "ragged_chain"
	InvalidTokenCount = "invalid_token_count"
	TokenOverflow     = "token_count_overflow"
	StaleTimestamp    = "stale_timestamp"
	Reserved          = "reserved_tenant"
	TooManyNames      = "too_many_names"
	TooManyEntries    = "too_many_entries"
	RaggedKeys        = "ragged_keys"
	InvalidBlockSize  = "invalid_block_tokens"
	InvalidTier       = "invalid_tier"
	InvalidRank       = "invalid_rank"
	UnknownView       = "unknown_view"
	ViewTaken         = "view_taken_by_another_agent"
	DigestMismatch    = "digest_mismatch"
	MissingStats      = "missing_stats"
	UnknownMessage    = "unknown_message"
)

// ErrTooManyNames says that a bound on distinct names is reached.
var ErrTooManyNames = errors.New("too many distinct scopes or replicas are known already")

// tierUnknown is a tier that this version does not know: colder than every other.
const tierUnknown index.Tier = 4

// TierIn reads a tier from the wire: unspecified is T1, a value from a later version is colder than
// all known ones.
func TierIn(t pb.CacheTier) index.Tier {
	switch {
	case t == pb.CacheTier_CACHE_TIER_UNSPECIFIED:
		return index.T1
	case t >= pb.CacheTier_CACHE_TIER_T1 && t <= pb.CacheTier_CACHE_TIER_T3:
		return index.Tier(t)
	default:
		return tierUnknown
	}
}

// TierOut writes a tier to the wire.
func TierOut(t index.Tier) pb.CacheTier {
	if t >= index.T1 && t <= index.T3 {
		return pb.CacheTier(t)
	}
	return pb.CacheTier_CACHE_TIER_UNSPECIFIED
}

// CertaintyIn reads a certainty from the wire: one that only a later version knows is as bad as any.
func CertaintyIn(c pb.ViewCertainty) pb.ViewCertainty {
	if c < pb.ViewCertainty_VIEW_CERTAINTY_UNSPECIFIED || c > pb.ViewCertainty_VIEW_CERTAINTY_UNCERTAIN {
		return pb.ViewCertainty_VIEW_CERTAINTY_UNCERTAIN
	}
	return c
}

// CertaintyName returns the word for a certainty, empty for none.
func CertaintyName(c pb.ViewCertainty) string {
	switch c {
	case pb.ViewCertainty_VIEW_CERTAINTY_EXACT:
		return "exact"
	case pb.ViewCertainty_VIEW_CERTAINTY_PARTIAL:
		return "partial"
	case pb.ViewCertainty_VIEW_CERTAINTY_UNCERTAIN:
		return "uncertain"
	default:
		return ""
	}
}

// maxVersionBytes bounds a version that is kept.
const maxVersionBytes = 128

// Version returns the version that a producer states, cut to what is kept of it.
func Version(stated string) string {
	return strings.ToValidUTF8(stated[:min(len(stated), maxVersionBytes)], "")
}

// CheckNames returns why a producer's ids cannot be accepted, or "". Ids of nothing else than a
// replica, a tenant and a model are always required.
func CheckNames(replica, tenant, model string, optional ...string) string {
	switch {
	case replica == "":
		return EmptyReplica
	case tenant == "":
		return EmptyTenant
	case model == "":
		return EmptyModel
	}
	for _, name := range append(optional, replica, tenant, model) {
		if len(name) > MaxNameBytes {
			return NameTooLong
		}
	}
	return ""
}
