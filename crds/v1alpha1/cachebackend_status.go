package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CacheBackendStatus says how the wiring, the storage and the events are.
type CacheBackendStatus struct {
	// metadata.generation that this status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// integration.failOpen as it is in force. Unset until observed.
	//
	// +optional
	FailOpen *bool `json:"failOpen,omitempty"`

	// Running Pods that engineSelector matches; those that end or have ended do not count. Unset until
	// observed.
	//
	// +kubebuilder:validation:Minimum=0
	// +optional
	MatchedEnginePods *int32 `json:"matchedEnginePods"`

	// Why engineSelector matches nothing. Empty while it matches, or while nothing is to be expected.
	//
	// +optional
	EngineSelectorMessage string `json:"engineSelectorMessage,omitempty"`

	// When the first KV event was seen. Written once.
	//
	// +optional
	FirstKVEventObservedAt *metav1.Time `json:"firstKVEventObservedAt,omitempty"`

	// When the engines were available for the first time, which starts observation.firstEventTimeout. Written
	// once.
	//
	// +optional
	FirstAvailableAt *metav1.Time `json:"firstAvailableAt,omitempty"`

	// The connection between engines and cache servers. Unset where nothing is wired.
	//
	// +optional
	Connector *ConnectorStatus `json:"connector,omitempty"`

	// The store. Unset without spec.remoteStorage.
	//
	// +optional
	RemoteStorage *RemoteStorageStatus `json:"remoteStorage,omitempty"`

	// What the index knows of the engines. Unset until one of them has reported.
	//
	// +optional
	IndexParticipation *IndexParticipation `json:"indexParticipation,omitempty"`

	// Conditions Ready, Progressing and Degraded, and those of the parts that the object has.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConnectorMode says how engines talk to the cache.
//
// +kubebuilder:validation:Enum=Multiprocess
type ConnectorMode string

// ConnectorMultiprocess is a server process apart from the engine.
const ConnectorMultiprocess ConnectorMode = "Multiprocess"

// ConnectorStatus is the connection between engines and cache servers. Zeroes are written out.
type ConnectorStatus struct {
	// How engines talk to the cache.
	//
	// +optional
	Mode ConnectorMode `json:"mode,omitempty"`

	// Where the servers are.
	//
	// +optional
	Topology LMCacheTopology `json:"topology,omitempty"`

	// Running Pods that engineSelector matches.
	//
	// +optional
	MatchedEnginePods int32 `json:"matchedEnginePods"`

	// Pods among them that are Ready.
	//
	// +optional
	ReadyEnginePods int32 `json:"readyEnginePods"`

	// Servers that there should be.
	//
	// +optional
	DesiredServers int32 `json:"desiredServers"`

	// Servers that are Ready.
	//
	// +optional
	ReadyServers int32 `json:"readyServers"`

	// Matched Pods that have a Ready server.
	//
	// +optional
	CoveredEnginePods int32 `json:"coveredEnginePods"`

	// Matched Pods that have none.
	//
	// +optional
	UncoveredEnginePods int32 `json:"uncoveredEnginePods"`

	// Each matched Pod.
	//
	// +listType=map
	// +listMapKey=name
	// +optional
	EnginePodCoverage []EnginePodCoverage `json:"enginePodCoverage,omitempty"`
}

// EnginePodCoverage says whether one engine Pod has a server.
type EnginePodCoverage struct {
	// Name of the Pod.
	//
	// +required
	Name string `json:"name"`

	// Node it is on. Unset until it is scheduled.
	//
	// +optional
	NodeName string `json:"nodeName,omitempty"`

	// Whether the Pod is Ready.
	//
	// +optional
	Ready bool `json:"ready"`

	// Whether it has a Ready server.
	//
	// +optional
	Covered bool `json:"covered"`

	// Why it has none: a reason of ConnectorReady, or EngineSchedulingPending.
	//
	// +optional
	Reason string `json:"reason,omitempty"`
}

// RemoteStorageStatus is the store.
type RemoteStorageStatus struct {
	// The program that stores blocks.
	//
	// +optional
	Provider RemoteProvider `json:"provider,omitempty"`

	// Where it is, as host:port. Unset until known.
	//
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// Whether it answers.
	//
	// +kubebuilder:validation:Enum=True;False;Unknown
	// +optional
	Ready metav1.ConditionStatus `json:"ready,omitempty"`
}

// IndexParticipation is what the index knows of the engines.
type IndexParticipation struct {
	// Prefix entries, summed over replicas: one that eight replicas hold counts eight times. Written even
	// when 0.
	//
	// +kubebuilder:validation:Minimum=0
	// +required
	PrefixCount int64 `json:"prefixCount"`

	// Latest KV event of any replica. Unset before the first.
	//
	// +optional
	LastEventAt *metav1.Time `json:"lastEventAt,omitempty"`

	// Share of prompt tokens found in the engines' caches, from "0" to "1" as a decimal number. Unset until
	// one reports.
	//
	// +optional
	HitRate *string `json:"hitRate,omitempty"`

	// Share of the tokens asked of the cache below the GPU that it had, from "0" to "1" as a decimal number.
	// Unset until one was asked for.
	//
	// +optional
	T2HitRate *string `json:"t2HitRate,omitempty"`
}

// Conditions of a CacheBackend beside ConditionReady. Only Progressing and Degraded are always there.
const (
	CacheBackendProgressing          = "Progressing"
	CacheBackendDegraded             = "Degraded"
	CacheBackendConnectorReady       = "ConnectorReady"       // with lmCache
	CacheBackendRemoteStorageReady   = "RemoteStorageReady"   // with remoteStorage
	CacheBackendFunctionalProbeOK    = "FunctionalProbeOK"    // with managed remoteStorage
	CacheBackendEngineKernelsHealthy = "EngineKernelsHealthy" // while Pods carry the kernel check
	CacheBackendT2Degraded           = "T2Degraded"           // once t2HitRate is known; gates nothing
	CacheBackendEngineCompatibility  = "EngineCompatibility"  // while wired engines crash; gates nothing
)

// Reasons of ConditionReady of a CacheBackend, beside those of the condition that decides it.
const (
	ReasonKVEventsObserved     = "KVEventsObserved"     // True
	ReasonEventsOnlyActive     = "EventsOnlyActive"     // True: KV events are not required
	ReasonAwaitingFirstKVEvent = "AwaitingFirstKVEvent" // False, within firstEventTimeout
	ReasonNoKVEventsObserved   = "NoKVEventsObserved"   // False, after it; also Degraded
	ReasonEngineKernelDegraded = "EngineKernelDegraded" // False
)

// Reasons of CacheBackendProgressing and CacheBackendDegraded.
const (
	ReasonSynced              = "Synced"              // Progressing False: Ready is True
	ReasonRolloutInProgress   = "RolloutInProgress"   // Progressing True
	ReasonDegraded            = "Degraded"            // Progressing False
	ReasonReplicasUnavailable = "ReplicasUnavailable" // Degraded True
	ReasonNotDegraded         = "NotDegraded"         // Degraded False
)

// Reasons of CacheBackendConnectorReady, and of the coverage of one Pod.
const (
	ReasonConnectorReady                  = "ConnectorReady"                  // True
	ReasonNoEnginePods                    = "NoEnginePods"                    // False
	ReasonMPServersNotReady               = "MPServersNotReady"               // False
	ReasonNodeLocalServerPoolPending      = "NodeLocalServerPoolPending"      // False
	ReasonNodeLocalHostPortConflict       = "NodeLocalHostPortConflict"       // False
	ReasonNodeLocalWorkerCapacityExceeded = "NodeLocalWorkerCapacityExceeded" // False
	ReasonAmbiguousNodeLocalServers       = "AmbiguousNodeLocalServers"       // False
	ReasonConnectorInjectionUnverified    = "ConnectorInjectionUnverified"    // Unknown
	ReasonEngineSchedulingPending         = "EngineSchedulingPending"         // coverage only
)

// Reasons of CacheBackendRemoteStorageReady.
const (
	ReasonRemoteStorageReady       = "RemoteStorageReady"       // True
	ReasonRemoteStoragePending     = "RemoteStoragePending"     // Unknown
	ReasonRemoteStorageUnavailable = "RemoteStorageUnavailable" // False
	ReasonExternalEndpointMissing  = "ExternalEndpointMissing"  // False
	ReasonExternalEndpointInvalid  = "ExternalEndpointInvalid"  // False
)

// Reasons of CacheBackendFunctionalProbeOK.
const (
	ReasonProbeOK            = "ProbeOK"            // True
	ReasonProbeBypassed      = "ProbeBypassed"      // True
	ReasonProbeIngestFailed  = "ProbeIngestFailed"  // False
	ReasonProbeRoutingFailed = "ProbeRoutingFailed" // False
	ReasonProbeT2Failed      = "ProbeT2Failed"      // False
	ReasonProbeError         = "ProbeError"         // Unknown
)

// Reasons of CacheBackendEngineKernelsHealthy.
const (
	ReasonKernelsHealthy     = "KernelsHealthy"     // True
	ReasonKernelLoadFailed   = "KernelLoadFailed"   // False
	ReasonKernelCheckError   = "KernelCheckError"   // Unknown
	ReasonKernelCheckPending = "KernelCheckPending" // Unknown
)

// Reasons of CacheBackendT2Degraded and CacheBackendEngineCompatibility.
const (
	ReasonT2ZeroHitRate              = "T2ZeroHitRate"              // T2Degraded True: t2HitRate is "0"
	ReasonT2Serving                  = "T2Serving"                  // T2Degraded False
	ReasonInjectedEngineCrashLooping = "InjectedEngineCrashLooping" // EngineCompatibility False
)
