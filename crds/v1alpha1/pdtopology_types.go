package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PDTopology says which engines prefill and which decode, for disaggregated serving.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=pdtopologies,scope=Namespaced,shortName=pdt
// +kubebuilder:printcolumn:name="Prefill",type=string,JSONPath=`.spec.prefillPools[*].name`
// +kubebuilder:printcolumn:name="Decode",type=string,JSONPath=`.spec.decodePools[*].name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PDTopology struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Unset declares no pool.
	//
	// +optional
	Spec PDTopologySpec `json:"spec,omitzero"`
	// +optional
	Status PDTopologyStatus `json:"status,omitzero"`
}

// PDTopologyList is a list of PDTopology objects.
//
// +kubebuilder:object:root=true
type PDTopologyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PDTopology `json:"items"`
}

// PDTopologySpec names the pools and the accelerators they run on.
//
// +kubebuilder:validation:XValidation:rule="!has(self.prefillPools) || self.prefillPools.all(p, !has(p.acceleratorType) || size(p.acceleratorType) == 0 || (has(self.acceleratorTypes) && self.acceleratorTypes.exists(a, a.name == p.acceleratorType)))",message="acceleratorType must be the name of an entry of acceleratorTypes",fieldPath=".prefillPools"
// +kubebuilder:validation:XValidation:rule="!has(self.decodePools) || self.decodePools.all(p, !has(p.acceleratorType) || size(p.acceleratorType) == 0 || (has(self.acceleratorTypes) && self.acceleratorTypes.exists(a, a.name == p.acceleratorType)))",message="acceleratorType must be the name of an entry of acceleratorTypes",fieldPath=".decodePools"
type PDTopologySpec struct {
	// Engines that prefill. Unset is none. Two pools of one name, and more than 64, are refused.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +optional
	PrefillPools []EnginePool `json:"prefillPools,omitempty"`

	// Engines that decode. Unset is none. Two pools of one name, and more than 64, are refused.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +optional
	DecodePools []EnginePool `json:"decodePools,omitempty"`

	// Accelerators that pools refer to. Unset is none. Two of one name, and more than 64, are refused.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +optional
	AcceleratorTypes []AcceleratorType `json:"acceleratorTypes,omitempty"`
}

// EnginePool is a set of engines with one duty.
type EnginePool struct {
	// Names the pool. An empty name and one of more than 253 characters are refused.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// Labels of the pool's Pods, or of the nodes they are on. Unset selects none.
	//
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`

	// Engines the pool should have. It scales nothing: status compares it with what is there. Unset expects
	// no particular number. Negative numbers are refused.
	//
	// +kubebuilder:validation:Minimum=0
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// Name of the entry of acceleratorTypes that the pool runs on. Unset is any. A name without an entry is
	// refused.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	AcceleratorType string `json:"acceleratorType,omitempty"`
}

// AcceleratorType is a kind of accelerator.
type AcceleratorType struct {
	// Names the accelerator for acceleratorType of a pool. An empty name and one of more than 253 characters
	// are refused.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// Who makes it, for people. Unset says nothing.
	//
	// +optional
	Vendor string `json:"vendor,omitempty"`

	// What it is called, for people. Unset says nothing.
	//
	// +optional
	Model string `json:"model,omitempty"`

	// Labels of nodes that have it. Unset selects none.
	//
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// PDTopologyStatus says whether the pools have engines.
type PDTopologyStatus struct {
	// metadata.generation that this status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Condition Ready.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Reasons of ConditionReady of a PDTopology.
const (
	ReasonPoolsMatched      = "PoolsMatched"      // True
	ReasonEmptyPool         = "EmptyPool"         // False: a pool matches no ready engine
	ReasonNoCommonTransport = "NoCommonTransport" // False: no transport joins a prefill and a decode engine
)
