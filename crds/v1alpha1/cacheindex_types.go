package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CacheIndexName is the name of the one CacheIndex of a cluster.
const CacheIndexName = "cluster-default"

// CacheIndex mirrors what the aggregators know, for people who read the cluster with kubectl. There is
// one, cluster-default, and nothing to configure; lookups do not read it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=cacheindices,scope=Cluster,shortName=ci
// +kubebuilder:printcolumn:name="Prefixes",type=integer,JSONPath=`.status.prefixes.summary.total`
// +kubebuilder:printcolumn:name="Changed",type=date,JSONPath=`.status.lastUpdated`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'cluster-default'",message="the only CacheIndex is cluster-default: no other one is ever filled"
type CacheIndex struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec CacheIndexSpec `json:"spec,omitzero"`
	// +optional
	Status CacheIndexStatus `json:"status,omitzero"`
}

// CacheIndexList is a list of CacheIndex objects.
//
// +kubebuilder:object:root=true
type CacheIndexList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CacheIndex `json:"items"`
}

// CacheIndexSpec is empty: there is nothing to configure.
type CacheIndexSpec struct{}

// CacheIndexStatus is what the aggregators report, put together.
type CacheIndexStatus struct {
	// Replicas that report statistics. Of two with the same id, the one with the larger tenant is kept.
	//
	// +listType=map
	// +listMapKey=id
	// +optional
	Replicas []IndexReplica `json:"replicas,omitempty"`

	// Tenants that have entries or replicas.
	//
	// +listType=map
	// +listMapKey=id
	// +optional
	Tenants []IndexTenant `json:"tenants,omitempty"`

	// Counts of prefix entries. Written out when they are 0.
	//
	// +optional
	Prefixes IndexPrefixes `json:"prefixes"`

	// The aggregators whose reports these are, as addresses joined by commas.
	//
	// +optional
	ObservedServer string `json:"observedServer,omitempty"`

	// When anything in this status other than a time changed last. Polls that find no change leave it.
	//
	// +optional
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`
}

// IndexReplica is the cache of one engine replica.
type IndexReplica struct {
	// The replica: the name of its Pod.
	//
	// +required
	ID string `json:"id"`

	// The tenant it reports under: the namespace of its Pod.
	//
	// +optional
	Tenant string `json:"tenant,omitempty"`

	// Cache memory in use, in bytes.
	//
	// +optional
	CacheMemoryBytes int64 `json:"cacheMemoryBytes,omitempty"`

	// Share of prompt tokens found in the cache, from "0" to "1" as a decimal number. Unset until the replica
	// has reported one; "0" is a real zero.
	//
	// +optional
	HitRate *string `json:"hitRate,omitempty"`

	// How full the cache is, from "0" to "1" as a decimal number. Unset until reported.
	//
	// +optional
	Pressure string `json:"pressure,omitempty"`

	// When the reported figures changed last.
	//
	// +optional
	LastUpdate *metav1.Time `json:"lastUpdate,omitempty"`
}

// IndexTenant is what one tenant holds.
type IndexTenant struct {
	// The tenant; empty for entries without one.
	//
	// +required
	ID string `json:"id"`

	// Distinct prefix entries the tenant holds. Unset until observed; 0 is none.
	//
	// +optional
	IndexEntries *int64 `json:"indexEntries,omitempty"`

	// Mean hit rate of the tenant's replicas, from "0" to "1" as a decimal number. Unset until one reports.
	//
	// +optional
	HitRate *string `json:"hitRate,omitempty"`

	// Always 0: an engine's memory is shared between its tenants and cannot be divided among them. Read
	// replicas[].cacheMemoryBytes.
	//
	// +optional
	MemoryUsed int64 `json:"memoryUsed"`
}

// IndexPrefixes counts prefix entries.
type IndexPrefixes struct {
	// Counts over the whole cluster.
	//
	// +optional
	Summary PrefixSummary `json:"summary"`
}

// PrefixSummary counts prefix entries over the whole cluster. Zeroes are written out.
type PrefixSummary struct {
	// Distinct prefix entries in the index.
	//
	// +required
	Total int64 `json:"total"`

	// Entries among them that lookups have matched recently.
	//
	// +required
	Hot int64 `json:"hot"`
}
