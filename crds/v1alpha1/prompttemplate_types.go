package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PromptTemplate is a prompt with slots, some of which never change: what precedes the first mutable slot
// is the same for every request, and stays in the cache.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=prompttemplates,scope=Namespaced,shortName=pt
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.templateRevision`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PromptTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec PromptTemplateSpec `json:"spec"`
	// +optional
	Status PromptTemplateStatus `json:"status,omitzero"`
}

// PromptTemplateList is a list of PromptTemplate objects.
//
// +kubebuilder:object:root=true
type PromptTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PromptTemplate `json:"items"`
}

// SlotType says whether a slot's value may differ between requests.
//
// +kubebuilder:validation:Enum=Stable;Mutable
type SlotType string

// Slot types.
const (
	SlotStable  SlotType = "Stable"  // the same for all requests; part of the cacheable prefix
	SlotMutable SlotType = "Mutable" // differs between requests; the cacheable prefix ends before it
)

// PromptTemplateSpec is a template's text and its slots.
type PromptTemplateSpec struct {
	// The prompt, with slots written as {{ name }}. An empty one is refused.
	//
	// +kubebuilder:validation:MinLength=1
	// +required
	Body string `json:"body"`

	// The slots of the body. Unset declares none. Two slots of one name are refused.
	//
	// +listType=map
	// +listMapKey=name
	// +optional
	Slots []TemplateSlot `json:"slots,omitempty"`
}

// TemplateSlot is a place in a template that a request fills.
type TemplateSlot struct {
	// The name that the body uses. An empty one is refused.
	//
	// +kubebuilder:validation:MinLength=1
	// +required
	Name string `json:"name"`

	// Stable, the same for all requests, or Mutable, different between requests.
	//
	// +required
	Type SlotType `json:"type"`

	// Whether a request without a value is refused. Unset is false: the slot is then empty text.
	//
	// +optional
	Required *bool `json:"required,omitempty"`

	// For people who fill the slot. Unset says nothing.
	//
	// +optional
	Description string `json:"description,omitempty"`
}

// PromptTemplateStatus says whether the template can be used, and which content it is.
type PromptTemplateStatus struct {
	// metadata.generation that this status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Identifies body and slots: equal content has an equal revision. Unset until the template is read.
	//
	// +optional
	TemplateRevision string `json:"templateRevision,omitempty"`

	// Condition Ready.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Reasons of ConditionReady of a PromptTemplate.
const (
	ReasonParsed          = "Parsed"          // True
	ReasonInvalidTemplate = "InvalidTemplate" // False: the message names line and slot
)
