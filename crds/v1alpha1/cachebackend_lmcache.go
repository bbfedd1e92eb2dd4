package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Ports that a PodLocal server's Pod has taken: its own must be another.
const (
	// PortKVEvents is where engines publish KV events.
	PortKVEvents = 5557
	// PortLMCacheHTTP is where a PodLocal server answers probes and serves metrics.
	PortLMCacheHTTP = 8080
)

// DefaultChunkSizeTokens is LMCache.ChunkSizeTokens where it is unset.
const DefaultChunkSizeTokens = 256

// LMCacheTopology says where LMCache's servers run.
//
// +kubebuilder:validation:Enum=PodLocal;NodeLocal
type LMCacheTopology string

// LMCache topologies.
const (
	TopologyPodLocal  LMCacheTopology = "PodLocal"  // one in each engine Pod
	TopologyNodeLocal LMCacheTopology = "NodeLocal" // one on each node that has engines
)

// LMCache configures LMCache's servers.
//
// +kubebuilder:validation:XValidation:rule="self.topology != 'PodLocal' || has(self.podLocal)",message="podLocal is required for topology PodLocal",fieldPath=".podLocal"
// +kubebuilder:validation:XValidation:rule="self.topology == 'PodLocal' || !has(self.podLocal)",message="podLocal is for topology PodLocal only",fieldPath=".podLocal"
// +kubebuilder:validation:XValidation:rule="self.topology != 'NodeLocal' || has(self.nodeLocal)",message="nodeLocal is required for topology NodeLocal",fieldPath=".nodeLocal"
// +kubebuilder:validation:XValidation:rule="self.topology == 'NodeLocal' || !has(self.nodeLocal)",message="nodeLocal is for topology NodeLocal only",fieldPath=".nodeLocal"
type LMCache struct {
	// PodLocal runs a server in each engine Pod, NodeLocal one on each node that has engines. Required.
	//
	// +required
	Topology LMCacheTopology `json:"topology"`

	// Tokens in one cached chunk. Unset is 256. Numbers below 1 are refused.
	//
	// +kubebuilder:validation:Minimum=1
	// +optional
	ChunkSizeTokens *int32 `json:"chunkSizeTokens,omitempty"`

	// Required for topology PodLocal, refused otherwise.
	//
	// +optional
	PodLocal *PodLocal `json:"podLocal,omitempty"`

	// Required for topology NodeLocal, refused otherwise.
	//
	// +optional
	NodeLocal *NodeLocal `json:"nodeLocal,omitempty"`
}

// PodLocal configures the servers of topology PodLocal.
type PodLocal struct {
	// The server in each engine Pod. Required.
	//
	// +required
	Server PodLocalServer `json:"server"`
}

// PodLocalServer is an LMCache server beside its engine.
//
// +kubebuilder:validation:XValidation:rule="!(self.port in [5557, 8080])",message="must not be 5557, where engines publish KV events, or 8080, where the server answers probes",fieldPath=".port"
// +kubebuilder:validation:XValidation:rule="!has(self.resources.claims) || size(self.resources.claims) == 0",message="must not have claims",fieldPath=".resources.claims",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="has(self.resources.requests) && 'cpu' in self.resources.requests && quantity(string(self.resources.requests['cpu'])).isGreaterThan(quantity('0'))",message="requests.cpu above 0 is required",fieldPath=".resources"
// +kubebuilder:validation:XValidation:rule="has(self.resources.requests) && 'memory' in self.resources.requests && quantity(string(self.resources.requests['memory'])).compareTo(quantity(string(self.l1Capacity)).add(quantity('1Gi'))) >= 0",message="requests.memory of at least l1Capacity + 1Gi is required: the cache lies in shared memory, which counts as the container's",fieldPath=".resources"
// +kubebuilder:validation:XValidation:rule="has(self.resources.limits) && 'memory' in self.resources.limits && quantity(string(self.resources.limits['memory'])).compareTo(quantity(string(self.l1Capacity)).add(quantity('1Gi'))) >= 0",message="limits.memory of at least l1Capacity + 1Gi is required: the cache lies in shared memory, which counts as the container's",fieldPath=".resources"
// +kubebuilder:validation:XValidation:rule="!has(self.resources.requests) || !has(self.resources.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(r, !(r in self.resources.requests) || !(r in self.resources.limits) || quantity(string(self.resources.limits[r])).compareTo(quantity(string(self.resources.requests[r]))) >= 0)",message="a limit must not be below its request",fieldPath=".resources"
type PodLocalServer struct {
	// Image with a digest, repo@sha256:<64 lower-case hex digits>. A tag alone is refused, as it can move.
	// Required.
	//
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^@[:space:]]+@sha256:[0-9a-f]{64}$')",message="must be repo@sha256:<64 lower-case hex digits>: a tag can move"
	// +required
	Image string `json:"image"`

	// TCP port on the Pod's loopback where the engine connects, 1 to 65535. Required. 5557 and 8080, which
	// the Pod uses already, are refused.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +required
	Port int32 `json:"port"`

	// Memory for cached blocks, such as 20Gi. Required. Zero and negative amounts are refused.
	//
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="must be above 0"
	// +required
	L1Capacity resource.Quantity `json:"l1Capacity"`

	// Worker threads. Required. Numbers below 1 are refused.
	//
	// +kubebuilder:validation:Minimum=1
	// +required
	MaxWorkers int32 `json:"maxWorkers"`

	// Compute resources of the server's container. Required: a CPU request above 0, and a memory request and
	// a memory limit of at least l1Capacity + 1Gi. Refused: claims, limits below their requests, negative
	// amounts, hugepages that are not a multiple of their page size, and extended resources that are not
	// whole numbers with equal request and limit.
	//
	// +required
	Resources corev1.ResourceRequirements `json:"resources"`
}

// NodeLocal configures the servers of topology NodeLocal.
type NodeLocal struct {
	// The server on each node that has engines. Required.
	//
	// +required
	Server NodeLocalServer `json:"server"`

	// How long a server outlives the last engine on its node, in seconds, 0 to 86400. Unset is 300.
	//
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	// +optional
	IdleRetentionSeconds *int32 `json:"idleRetentionSeconds,omitempty"`

	// Scheduling of the server's Pod beyond its node. Unset takes what the node's engines have.
	//
	// +optional
	Scheduling *NodeLocalScheduling `json:"scheduling,omitempty"`
}

// NodeLocalServer is an LMCache server shared by the engines of a node.
//
// +kubebuilder:validation:XValidation:rule="self.port != self.httpPort",message="must differ from port",fieldPath=".httpPort"
// +kubebuilder:validation:XValidation:rule="!has(self.resources.claims) || size(self.resources.claims) == 0",message="must not have claims",fieldPath=".resources.claims",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="(!has(self.resources.requests) || !('nvidia.com/gpu' in self.resources.requests)) && (!has(self.resources.limits) || !('nvidia.com/gpu' in self.resources.limits))",message="must not ask for nvidia.com/gpu: the GPUs are the engines'",fieldPath=".resources",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="has(self.resources.requests) && 'cpu' in self.resources.requests && quantity(string(self.resources.requests['cpu'])).isGreaterThan(quantity('0'))",message="requests.cpu above 0 is required",fieldPath=".resources"
// +kubebuilder:validation:XValidation:rule="has(self.resources.requests) && 'memory' in self.resources.requests && quantity(string(self.resources.requests['memory'])).compareTo(quantity(string(self.l1Capacity)).add(quantity('1Gi'))) >= 0",message="requests.memory of at least l1Capacity + 1Gi is required: the cache lies in shared memory, which counts as the container's",fieldPath=".resources"
// +kubebuilder:validation:XValidation:rule="has(self.resources.limits) && 'memory' in self.resources.limits && quantity(string(self.resources.limits['memory'])).compareTo(quantity(string(self.l1Capacity)).add(quantity('1Gi'))) >= 0",message="limits.memory of at least l1Capacity + 1Gi is required: the cache lies in shared memory, which counts as the container's",fieldPath=".resources"
// +kubebuilder:validation:XValidation:rule="!has(self.resources.requests) || !has(self.resources.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(r, !(r in self.resources.requests) || !(r in self.resources.limits) || quantity(string(self.resources.limits[r])).compareTo(quantity(string(self.resources.requests[r]))) >= 0)",message="a limit must not be below its request",fieldPath=".resources"
type NodeLocalServer struct {
	// Image with a digest, repo@sha256:<64 lower-case hex digits>. A tag alone is refused, as it can move.
	// Required.
	//
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^@[:space:]]+@sha256:[0-9a-f]{64}$')",message="must be repo@sha256:<64 lower-case hex digits>: a tag can move"
	// +required
	Image string `json:"image"`

	// TCP port on the node where engines connect, 1 to 65535. Required.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +required
	Port int32 `json:"port"`

	// TCP port on the node for probes and metrics, 1 to 65535. Required. The number of port is refused.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +required
	HTTPPort int32 `json:"httpPort"`

	// Memory for cached blocks, such as 20Gi. Required. Zero and negative amounts are refused.
	//
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="must be above 0"
	// +required
	L1Capacity resource.Quantity `json:"l1Capacity"`

	// Worker threads for copies from and to GPUs; as many engines as this can share a server. Required.
	// Numbers below 1 are refused.
	//
	// +kubebuilder:validation:Minimum=1
	// +required
	MaxGPUWorkers int32 `json:"maxGPUWorkers"`

	// Worker threads for everything else. Required. Numbers below 1 are refused.
	//
	// +kubebuilder:validation:Minimum=1
	// +required
	MaxCPUWorkers int32 `json:"maxCPUWorkers"`

	// Compute resources of the server's container. Required and refused as for PodLocal; nvidia.com/gpu is
	// refused too.
	//
	// +required
	Resources corev1.ResourceRequirements `json:"resources"`
}

// NodeLocalScheduling is what the Pod of a NodeLocal server has beyond its node. There is no node selector
// and no affinity: the engines decide where the servers are.
type NodeLocalScheduling struct {
	// Added to those of the node's engines. Unset adds none.
	//
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Secrets for pulling the image, added to those of the node's engines. Unset adds none.
	//
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// ServiceAccount of the Pod. Unset is the namespace's default. No token is mounted.
	//
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Security settings of the Pod. Unset takes those that the server needs.
	//
	// +optional
	SecurityContext *corev1.PodSecurityContext `json:"securityContext,omitempty"`

	// Priority class of the Pod. Unset takes that of the node's engines.
	//
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// Scheduler of the Pod. Unset takes that of the node's engines.
	//
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`

	// Runtime class of the Pod. Unset takes that of the node's engines.
	//
	// +optional
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`

	// Time to shut down, in seconds. Unset is 30. Negative numbers are refused.
	//
	// +kubebuilder:validation:Minimum=0
	// +optional
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
}
