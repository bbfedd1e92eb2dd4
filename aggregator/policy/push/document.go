// Package push takes policies over HTTP, as a controller sends them.
package push

import (
	"errors"
	"fmt"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/inferencecache/inferencecache/aggregator/policy"
)

// Versions of the document that are understood.
const (
	MinVersion = 3
	MaxVersion = 7
)

// document is the body of a request. It states everything: what it leaves out is no longer stated.
type document struct {
	Version  int           `json:"version"`
	Policies []policyEntry `json:"policies"`
	Tenants  []tenantEntry `json:"tenants"`
}

type policyEntry struct {
	Namespace            string         `json:"namespace"`
	EvictionTTL          int64          `json:"evictionTTL"` // nanoseconds
	MinimumPrefixTokens  int64          `json:"minimumPrefixTokens"`
	MinimumMatchedTokens *int32         `json:"minimumMatchedTokens"`
	RoutingFloorScore    *float64       `json:"routingFloorScore"`
	LookupTimeoutMs      int64          `json:"lookupTimeoutMs"`
	AffinityRouting      *bool          `json:"affinityRouting"`
	Eviction             string         `json:"eviction"` // "lfu" in any case; anything else is lru
	Strategy             *strategyEntry `json:"strategy"`

	// Beyond the contract.
	MinimumMatchedShare *float32 `json:"minimumMatchedShare"`
	ScoreTolerance      *float32 `json:"scoreTolerance"`
	AffinitySeedBlocks  *int     `json:"affinitySeedBlocks"`
	AffinityChoices     *int     `json:"affinityChoices"`
	AffinityPlacement   string   `json:"affinityPlacement"` // "modulo" or "rendezvous"; empty is the default
}

type strategyEntry struct {
	EnableChainMatching *bool `json:"enableChainMatching"`
	RequireChain        *bool `json:"requireChain"`
	EnableTenantHot     *bool `json:"enableTenantHot"`
}

type tenantEntry struct {
	TenantID        string `json:"tenantID"`
	MaxIndexEntries *int64 `json:"maxIndexEntries"` // nil is no quota
	IsolationMode   string `json:"isolationMode"`   // one mode exists, which changes nothing here
}

// Decode reads a document. It refuses what it does not understand, all of it, and says what that is.
func Decode(body []byte) (policy.Set, error) {
	var d document
	unknown, err := kjson.UnmarshalStrict(body, &d)
	switch {
	case err != nil:
		return policy.Set{}, fmt.Errorf("decode the policy document: %w", err)
	case len(unknown) > 0:
		return policy.Set{}, fmt.Errorf("decode the policy document: %w", errors.Join(unknown[:min(len(unknown), 8)]...))
	case d.Version < MinVersion || d.Version > MaxVersion:
		return policy.Set{}, fmt.Errorf("unsupported policy snapshot version %d: version must be %d to %d", d.Version, MinVersion, MaxVersion)
	}
	set := policy.Set{Policies: map[string]policy.Spec{}, Quotas: map[string]int64{}}
	if err := addPolicies(set, d); err != nil {
		return policy.Set{}, err
	}
	return set, addTenants(set, d.Tenants)
}

// addPolicies passes over entries without a namespace: they name nobody.
func addPolicies(set policy.Set, d document) error {
	for i, p := range d.Policies {
		if p.Namespace == "" {
			continue
		}
		if _, twice := set.Policies[p.Namespace]; twice {
			return fmt.Errorf("policies[%d]: namespace %.100q is named twice", i, p.Namespace)
		}
		spec, err := p.spec(d.Version)
		if err != nil {
			return fmt.Errorf("policies[%d], namespace %.100q: %w", i, p.Namespace, err)
		}
		set.Policies[p.Namespace] = spec
	}
	return nil
}

// addTenants passes over entries without an id, as for policies.
func addTenants(set policy.Set, tenants []tenantEntry) error {
	named := map[string]bool{}
	for i, t := range tenants {
		if t.TenantID == "" {
			continue
		}
		if named[t.TenantID] {
			return fmt.Errorf("tenants[%d]: tenantID %.100q is named twice", i, t.TenantID)
		}
		named[t.TenantID] = true
		if t.MaxIndexEntries != nil {
			set.Quotas[t.TenantID] = max(0, *t.MaxIndexEntries)
		}
	}
	return nil
}

// matchedTokensVersion is the first version with minimumMatchedTokens. Before it, 0 is not a choice.
const matchedTokensVersion = 4

func (p policyEntry) spec(version int) (policy.Spec, error) {
	s := policy.Spec{
		EvictionTTL:          time.Duration(p.EvictionTTL),
		MinimumPrefixTokens:  p.MinimumPrefixTokens,
		MinimumMatchedTokens: p.MinimumMatchedTokens,
		RoutingFloorScore:    p.RoutingFloorScore,
		LookupTimeoutMs:      p.LookupTimeoutMs,
		AffinityRouting:      p.AffinityRouting,
		LFU:                  strings.EqualFold(p.Eviction, "lfu"),
		MinimumMatchedShare:  p.MinimumMatchedShare,
		ScoreTolerance:       p.ScoreTolerance,
		AffinitySeedBlocks:   p.AffinitySeedBlocks,
		AffinityChoices:      p.AffinityChoices,
	}
	if n := p.MinimumMatchedTokens; version < matchedTokensVersion && n != nil && *n == 0 {
		s.MinimumMatchedTokens = nil
	}
	if p.Strategy != nil {
		s.EnableChainMatching = p.Strategy.EnableChainMatching
		s.RequireChain = p.Strategy.RequireChain
		s.EnableTenantHot = p.Strategy.EnableTenantHot
	}
	switch p.AffinityPlacement {
	case "":
	case "modulo", "rendezvous":
		rendezvous := p.AffinityPlacement == "rendezvous"
		s.Rendezvous = &rendezvous
	default:
		return s, fmt.Errorf("affinityPlacement is %.100q, want modulo or rendezvous", p.AffinityPlacement)
	}
	return s, s.Check()
}
