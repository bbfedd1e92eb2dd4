package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CachePolicy tunes lookups and eviction for the tenant that its namespace is. A namespace has one: of
// several, the one with the smallest name is in force.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=cachepolicies,scope=Namespaced,shortName=cpol
// +kubebuilder:printcolumn:name="Eviction",type=string,JSONPath=`.spec.eviction`
// +kubebuilder:printcolumn:name="InForce",type=string,JSONPath=`.status.conditions[?(@.type=="InForce")].status`,priority=1
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.inForceSince`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CachePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec CachePolicySpec `json:"spec"`
	// +optional
	Status CachePolicyStatus `json:"status,omitzero"`
}

// CachePolicyList is a list of CachePolicy objects.
//
// +kubebuilder:object:root=true
type CachePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CachePolicy `json:"items"`
}

// EvictionAlgorithm chooses which entries go first when the index is over its cap.
//
// +kubebuilder:validation:Enum=LRU;LFU
type EvictionAlgorithm string

// Eviction algorithms.
const (
	EvictionLRU EvictionAlgorithm = "LRU" // oldest evidence first
	EvictionLFU EvictionAlgorithm = "LFU" // fewest delivered matches first, then oldest
)

// AffinityMode switches the stable answer to a miss.
//
// +kubebuilder:validation:Enum=Enabled;Disabled
type AffinityMode string

// Affinity modes.
const (
	AffinityEnabled  AffinityMode = "Enabled"
	AffinityDisabled AffinityMode = "Disabled"
)

// AffinityPlacement is a way to find the place of a prompt that no replica holds.
//
// +kubebuilder:validation:Enum=Modulo;Rendezvous
type AffinityPlacement string

// Affinity placements.
const (
	PlacementModulo     AffinityPlacement = "Modulo"
	PlacementRendezvous AffinityPlacement = "Rendezvous"
)

// CachePolicySpec is what an operator decides about a tenant's lookups and index entries.
type CachePolicySpec struct {
	// Which entries go first when the index is over its cap: LRU, those with the oldest evidence, or LFU,
	// those with the fewest delivered matches. Unset is LRU.
	//
	// +kubebuilder:default=LRU
	// +optional
	Eviction EvictionAlgorithm `json:"eviction,omitempty"`

	// How long an entry counts after its last evidence, as a duration such as 30m or 1h30m. Unset leaves it
	// to the aggregator, whose default is 30m. Zero and negative durations are refused.
	//
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than 0s; leave it out for the aggregator's default"
	// +optional
	EvictionTTL *metav1.Duration `json:"evictionTTL,omitempty"`

	// Prompts with fewer tokens get no cache hint. Unset and 0 hint for prompts of any length. Negative
	// numbers are refused.
	//
	// +kubebuilder:validation:Minimum=0
	// +optional
	MinimumPrefixTokens *int32 `json:"minimumPrefixTokens,omitempty"`

	// A replica that holds fewer tokens of the prompt is not a match. Unset is 64; 0 switches the floor off.
	// Negative numbers are refused.
	//
	// +kubebuilder:default=64
	// +kubebuilder:validation:Minimum=0
	// +optional
	MinimumMatchedTokens *int32 `json:"minimumMatchedTokens,omitempty"`

	// A match whose best score is lower is withheld; a decimal number in quotes. Unset is "0.1"; "0" switches
	// the floor off. Refused: signs, exponents, leading zeros, more than 8 digits before or 6 after the point.
	//
	// +kubebuilder:default="0.1"
	// +kubebuilder:validation:Pattern=`^(0|[1-9][0-9]{0,7})(\.[0-9]{1,6})?$`
	// +optional
	RoutingFloorScore *string `json:"routingFloorScore,omitempty"`

	// Longest time one lookup may take, in milliseconds; a lookup that takes longer answers TIMEOUT. Unset
	// and 0 leave it to the caller's deadline. Negative numbers are refused.
	//
	// +kubebuilder:validation:Minimum=0
	// +optional
	LookupTimeoutMs *int32 `json:"lookupTimeoutMs,omitempty"`

	// Whether a miss is answered with the same replica for the same prompt start, so that the next request
	// finds it warm. Unset is Enabled.
	//
	// +kubebuilder:default=Enabled
	// +optional
	AffinityRouting AffinityMode `json:"affinityRouting,omitempty"`

	// A match that covers less than this share of a long prompt does not decide where it goes; a decimal
	// number from 0 to 1 in quotes. Unset leaves it to the aggregator, whose default is "0", off. Refused:
	// signs, exponents, more than 6 digits after the point, numbers above 1.
	//
	// +kubebuilder:validation:Pattern=`^(0(\.[0-9]{1,6})?|1(\.0{1,6})?)$`
	// +optional
	MinimumMatchedShare *string `json:"minimumMatchedShare,omitempty"`

	// Share of the best score within which scores count as equal, so that prompts that begin alike are
	// spread over them; a decimal number from 0 to 1 in quotes. Unset leaves it to the aggregator, whose
	// default is "0", by score alone. Refused: as for minimumMatchedShare.
	//
	// +kubebuilder:validation:Pattern=`^(0(\.[0-9]{1,6})?|1(\.0{1,6})?)$`
	// +optional
	ScoreTolerance *string `json:"scoreTolerance,omitempty"`

	// Leading blocks of a prompt that decide where affinity places it. 0 takes all. Unset leaves it to the
	// aggregator, whose default is 0. Negative numbers are refused.
	//
	// +kubebuilder:validation:Minimum=0
	// +optional
	AffinitySeedBlocks *int32 `json:"affinitySeedBlocks,omitempty"`

	// Places of a prompt of which affinity takes the one under the least pressure; 0 and 1 take the first.
	// Unset leaves it to the aggregator, whose default is 0. Refused: less than 0, more than 4.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4
	// +optional
	AffinityChoices *int32 `json:"affinityChoices,omitempty"`

	// How affinity finds a place: Modulo, by a number modulo the replicas, or Rendezvous, by the highest hash
	// of prompt and replica, which moves fewer prompts when replicas come and go. Unset leaves it to the
	// aggregator, whose default is Modulo.
	//
	// +optional
	AffinityPlacement AffinityPlacement `json:"affinityPlacement,omitempty"`

	// How a prompt is matched. Unset is the default of each of its fields.
	//
	// +kubebuilder:default={}
	// +optional
	Strategy *MatchStrategy `json:"strategy,omitempty"`
}

// MatchStrategy says how a prompt is matched against the index.
//
// +kubebuilder:validation:XValidation:rule="!has(self.requireChain) || !self.requireChain || !has(self.enableChainMatching) || self.enableChainMatching",message="requireChain needs enableChainMatching: with matching off, every request would be refused"
type MatchStrategy struct {
	// Whether a prompt is matched block by block; false matches whole prefixes only. Unset is true.
	//
	// +kubebuilder:default=true
	// +optional
	EnableChainMatching *bool `json:"enableChainMatching,omitempty"`

	// Whether requests that bring no chain of block hashes are refused with POLICY_REQUIRES_CHAIN. Unset is
	// false. True is refused together with enableChainMatching: false.
	//
	// +kubebuilder:default=false
	// +optional
	RequireChain *bool `json:"requireChain,omitempty"`

	// Whether a miss may be answered with a replica that is warm for the tenant, with reason TENANT_HOT.
	// Unset is true.
	//
	// +kubebuilder:default=true
	// +optional
	EnableTenantHot *bool `json:"enableTenantHot,omitempty"`
}

// CachePolicyStatus says where the policy is in force.
type CachePolicyStatus struct {
	// metadata.generation that this status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// When every aggregator that answers had this generation for the first time. Unset until then.
	//
	// +optional
	InForceSince *metav1.Time `json:"inForceSince,omitempty"`

	// What each aggregator that answers has in force.
	//
	// +listType=map
	// +listMapKey=name
	// +optional
	Aggregators []PolicyAggregator `json:"aggregators,omitempty"`

	// Conditions Accepted and InForce.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PolicyAggregator is one aggregator's view of a policy.
type PolicyAggregator struct {
	// Name of the aggregator's Pod.
	//
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name"`

	// metadata.generation that the aggregator applies; 0 while it applies none.
	//
	// +required
	Generation int64 `json:"generation"`

	// Since when it applies that generation. Unset while it applies none.
	//
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// Conditions of a CachePolicy.
const (
	// CachePolicyAccepted says whether the policy is the one that its namespace follows.
	CachePolicyAccepted = "Accepted"
	// CachePolicyInForce says whether every aggregator that answers applies this generation.
	CachePolicyInForce = "InForce"
)

// Reasons of CachePolicyAccepted.
const (
	ReasonAccepted        = "Accepted"        // True
	ReasonDuplicatePolicy = "DuplicatePolicy" // False: another policy of the namespace has a smaller name
	ReasonInvalidPolicy   = "InvalidPolicy"   // False: stored before a rule that it breaks
)

// Reasons of CachePolicyInForce.
const (
	ReasonInForceEverywhere = "InForceEverywhere" // True
	ReasonPartlyInForce     = "PartlyInForce"     // False: some aggregators apply another generation
	ReasonNotAccepted       = "NotAccepted"       // False: see CachePolicyAccepted
	ReasonNoAggregators     = "NoAggregators"     // Unknown: none answers
)
