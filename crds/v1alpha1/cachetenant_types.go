package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CacheTenant gives a tenant identity and a share of the index.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=cachetenants,scope=Namespaced,shortName=ct
// +kubebuilder:printcolumn:name="Tenant",type=string,JSONPath=`.spec.tenantID`
// +kubebuilder:printcolumn:name="Entries",type=integer,JSONPath=`.status.indexEntries`
// +kubebuilder:printcolumn:name="Quota",type=integer,JSONPath=`.spec.quota.maxIndexEntries`
// +kubebuilder:printcolumn:name="Isolation",type=string,JSONPath=`.spec.isolationMode`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CacheTenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec CacheTenantSpec `json:"spec"`
	// +optional
	Status CacheTenantStatus `json:"status,omitzero"`
}

// CacheTenantList is a list of CacheTenant objects.
//
// +kubebuilder:object:root=true
type CacheTenantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CacheTenant `json:"items"`
}

// IsolationMode says how tenants are kept apart.
//
// +kubebuilder:validation:Enum=Fairness
type IsolationMode string

// IsolationFairness shares the index by quota; tenants are not kept apart cryptographically.
const IsolationFairness IsolationMode = "Fairness"

// CacheTenantSpec identifies a tenant and bounds what it may keep.
type CacheTenantSpec struct {
	// The tenant_id that requests and replicas carry. For replicas found by the node agent that is the
	// namespace of their Pods, so any other id has no entries of theirs. Refused: an empty id, the id of
	// another CacheTenant in the namespace, and inferencecache.io/probe, which the functional probe uses.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self != 'inferencecache.io/probe'",message="inferencecache.io/probe is reserved for the functional probe"
	// +required
	TenantID string `json:"tenantID"`

	// What the tenant may keep. Unset sets no limit.
	//
	// +optional
	Quota *TenantQuota `json:"quota,omitempty"`

	// How the tenant is kept apart from others. Unset is Fairness, the only mode.
	//
	// +kubebuilder:default=Fairness
	// +optional
	IsolationMode IsolationMode `json:"isolationMode,omitempty"`

	// Reserved for keys of a later isolation mode. Any content is refused.
	//
	// +optional
	Crypto *TenantCrypto `json:"crypto,omitempty"`
}

// TenantQuota bounds what a tenant may keep in the index.
type TenantQuota struct {
	// Most distinct prefix entries the tenant keeps; beyond it, its own entries are evicted. Unset sets no
	// limit; 0 is a limit, which keeps nothing. Negative numbers are refused.
	//
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxIndexEntries *int64 `json:"maxIndexEntries,omitempty"`
}

// TenantCrypto is empty. Unknown keys reach validation instead of being dropped, so that a key put here
// is refused aloud.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:MaxProperties=0
type TenantCrypto struct{}

// CacheTenantStatus says what the tenant holds.
type CacheTenantStatus struct {
	// metadata.generation that this status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Distinct prefix entries the tenant holds. Unset until observed; 0 is none.
	//
	// +optional
	IndexEntries *int64 `json:"indexEntries,omitempty"`

	// Conditions Ready and QuotaExceeded.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CacheTenantQuotaExceeded is the condition of a CacheTenant, beside ConditionReady, that compares what it
// holds with its quota.
const CacheTenantQuotaExceeded = "QuotaExceeded"

// Reasons of ConditionReady of a CacheTenant. Unknown, of both conditions, is ReasonNoAggregators.
const (
	ReasonObserved          = "Observed"          // True
	ReasonDuplicateTenantID = "DuplicateTenantID" // False: the quota of another object with the id is in force
)

// Reasons of CacheTenantQuotaExceeded.
const (
	ReasonOverEntryBudget = "OverEntryBudget" // True
	ReasonWithinBudget    = "WithinBudget"    // False
	ReasonNoQuota         = "NoQuota"         // False
	ReasonNotEffective    = "NotEffective"    // False: the quota of another object with the id is in force
)
