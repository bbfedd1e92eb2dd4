package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CacheBackend joins the engine Pods of one ownership domain to a KV-cache tier below the GPU, and says
// how it goes.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=cachebackends,scope=Namespaced,shortName=cb
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Matched",type=integer,JSONPath=`.status.matchedEnginePods`
// +kubebuilder:printcolumn:name="Remote",type=string,JSONPath=`.status.remoteStorage.endpoint`
// +kubebuilder:printcolumn:name="Prefixes",type=integer,JSONPath=`.status.indexParticipation.prefixCount`
// +kubebuilder:printcolumn:name="LastEvent",type=date,JSONPath=`.status.indexParticipation.lastEventAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!has(self.spec.remoteStorage) || self.spec.remoteStorage.ownership != 'Managed' || (size(self.metadata.name) <= 57 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))",message="with managed remote storage, metadata.name names a Service too: at most 57 lower-case letters, digits and '-', starting with a letter and not ending with '-'"
type CacheBackend struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec CacheBackendSpec `json:"spec"`
	// +optional
	Status CacheBackendStatus `json:"status,omitzero"`
}

// CacheBackendList is a list of CacheBackend objects.
//
// +kubebuilder:object:root=true
type CacheBackendList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CacheBackend `json:"items"`
}

// EngineRuntime is the program that serves the model.
//
// +kubebuilder:validation:Enum=VLLM;SGLang
type EngineRuntime string

// Engine runtimes.
const (
	RuntimeVLLM   EngineRuntime = "VLLM"
	RuntimeSGLang EngineRuntime = "SGLang"
)

// BackendType is the program that keeps KV blocks below the GPU.
//
// +kubebuilder:validation:Enum=LMCache;SGLangHiCache
type BackendType string

// Backend types.
const (
	BackendLMCache       BackendType = "LMCache"       // LMCache's multiprocess server
	BackendSGLangHiCache BackendType = "SGLangHiCache" // SGLang's own hierarchical cache
)

// CacheBackendSpec says which engines to wire to what. The rules between its fields:
//
// +kubebuilder:validation:XValidation:rule="!has(self.lmCache) || self.type == 'LMCache'",message="lmCache is for type LMCache only",fieldPath=".lmCache"
// +kubebuilder:validation:XValidation:rule="!has(self.lmCache) || self.integration.mode != 'EventsOnly'",message="lmCache must be left out in mode EventsOnly, which wires no cache",fieldPath=".lmCache"
// +kubebuilder:validation:XValidation:rule="has(self.lmCache) || self.type != 'LMCache' || self.integration.mode != 'Offload'",message="lmCache is required for type LMCache in mode Offload",fieldPath=".lmCache"
// +kubebuilder:validation:XValidation:rule="!has(self.lmCache) || self.lmCache.topology != 'NodeLocal' || (has(self.engineSelector) && has(self.engineSelector.matchLabels) && size(self.engineSelector.matchLabels) > 0)",message="engineSelector.matchLabels is required for topology NodeLocal: servers follow the selected engines",fieldPath=".engineSelector"
// +kubebuilder:validation:XValidation:rule="self.integration.mode != 'EventsOnly' || self.type == 'LMCache'",message="mode EventsOnly is for type LMCache only",fieldPath=".integration.mode"
// +kubebuilder:validation:XValidation:rule="self.integration.mode != 'EventsOnly' || !has(self.remoteStorage)",message="remoteStorage must be left out in mode EventsOnly: nothing would connect to it",fieldPath=".remoteStorage"
// +kubebuilder:validation:XValidation:rule="!has(self.hiCache) || self.type == 'SGLangHiCache'",message="hiCache is for type SGLangHiCache only",fieldPath=".hiCache"
// +kubebuilder:validation:XValidation:rule="has(self.hiCache) || self.type != 'SGLangHiCache'",message="hiCache is required for type SGLangHiCache",fieldPath=".hiCache"
// +kubebuilder:validation:XValidation:rule="self.type != 'SGLangHiCache' || self.runtime == 'SGLang'",message="type SGLangHiCache needs runtime SGLang; supported are VLLM with LMCache, SGLang with LMCache, SGLang with SGLangHiCache",fieldPath=".runtime"
// +kubebuilder:validation:XValidation:rule="self.type != 'SGLangHiCache' || (has(self.engineSelector) && has(self.engineSelector.matchLabels) && size(self.engineSelector.matchLabels) > 0)",message="engineSelector.matchLabels is required for type SGLangHiCache: without engines there is no cache",fieldPath=".engineSelector"
// +kubebuilder:validation:XValidation:rule="self.type != 'SGLangHiCache' || self.integration.failOpen",message="failOpen must be true for type SGLangHiCache: a cache inside the engine cannot fail apart from it",fieldPath=".integration.failOpen"
// +kubebuilder:validation:XValidation:rule="self.type != 'SGLangHiCache' || !has(self.remoteStorage)",message="remoteStorage must be left out for type SGLangHiCache, which uses none",fieldPath=".remoteStorage"
// +kubebuilder:validation:XValidation:rule="!has(self.remoteStorage) || !has(self.remoteStorage.redis) || !has(self.remoteStorage.redis.authentication) || (self.type == 'LMCache' && has(self.lmCache))",message="authentication needs type LMCache with lmCache set: nothing else logs in",fieldPath=".remoteStorage.redis.authentication"
// +kubebuilder:validation:XValidation:rule="self.runtime != 'VLLM' || self.type != 'LMCache' || !has(self.integration.engineOverrides) || ((!has(self.integration.engineOverrides.args) || !self.integration.engineOverrides.args.exists(a, a.substring(0, size(a) < 48 ? size(a) : 48).replace('_', '-').matches('^--(no-)?(kv-transfer-config|disable-hybrid-kv-cache-manager|model|port)([=. ]|$)'))) && (!has(self.integration.engineOverrides.suppressArgs) || !self.integration.engineOverrides.suppressArgs.exists(a, a.substring(0, size(a) < 48 ? size(a) : 48).replace('_', '-').matches('^--(no-)?(kv-transfer-config|disable-hybrid-kv-cache-manager|model|port)([=. ]|$)'))))",message="args and suppressArgs must not name --kv-transfer-config, --disable-hybrid-kv-cache-manager, --model or --port of vLLM: the wiring depends on them",reason=FieldValueForbidden,fieldPath=".integration.engineOverrides"
// +kubebuilder:validation:XValidation:rule="self.runtime != 'SGLang' || self.type != 'LMCache' || !has(self.integration.engineOverrides) || ((!has(self.integration.engineOverrides.args) || !self.integration.engineOverrides.args.exists(a, a.substring(0, size(a) < 48 ? size(a) : 48).replace('_', '-').matches('^--(enable-lmcache|lmcache-config-file|enable-metrics|model|model-path|port)([=. ]|$)'))) && (!has(self.integration.engineOverrides.suppressArgs) || !self.integration.engineOverrides.suppressArgs.exists(a, a.substring(0, size(a) < 48 ? size(a) : 48).replace('_', '-').matches('^--(enable-lmcache|lmcache-config-file|enable-metrics|model|model-path|port)([=. ]|$)'))))",message="args and suppressArgs must not name --enable-lmcache, --lmcache-config-file, --enable-metrics, --model, --model-path or --port of SGLang: the wiring depends on them",reason=FieldValueForbidden,fieldPath=".integration.engineOverrides"
// +kubebuilder:validation:XValidation:rule="self.type != 'SGLangHiCache' || !has(self.integration.engineOverrides) || ((!has(self.integration.engineOverrides.args) || !self.integration.engineOverrides.args.exists(a, a.substring(0, size(a) < 48 ? size(a) : 48).replace('_', '-').matches('^--(enable-hierarchical-cache|hicache-(size|ratio|write-policy|io-backend|mem-layout)|enable-metrics|model|model-path|port)([=. ]|$)'))) && (!has(self.integration.engineOverrides.suppressArgs) || !self.integration.engineOverrides.suppressArgs.exists(a, a.substring(0, size(a) < 48 ? size(a) : 48).replace('_', '-').matches('^--(enable-hierarchical-cache|hicache-(size|ratio|write-policy|io-backend|mem-layout)|enable-metrics|model|model-path|port)([=. ]|$)'))))",message="args and suppressArgs must not name --enable-hierarchical-cache, --hicache-size, --hicache-ratio, --hicache-write-policy, --hicache-io-backend, --hicache-mem-layout, --enable-metrics, --model, --model-path or --port: the wiring depends on them",reason=FieldValueForbidden,fieldPath=".integration.engineOverrides"
// +kubebuilder:validation:XValidation:rule="self.runtime != 'VLLM' || self.type != 'LMCache' || !has(self.integration.engineOverrides) || ((!has(self.integration.engineOverrides.env) || !self.integration.engineOverrides.env.exists(e, e.name in ['PYTHONHASHSEED', 'INFERENCECACHE_FAIL_OPEN'])) && (!has(self.integration.engineOverrides.suppressEnv) || !self.integration.engineOverrides.suppressEnv.exists(e, e in ['PYTHONHASHSEED', 'INFERENCECACHE_FAIL_OPEN'])))",message="env and suppressEnv must not name PYTHONHASHSEED or INFERENCECACHE_FAIL_OPEN: the wiring depends on them",reason=FieldValueForbidden,fieldPath=".integration.engineOverrides"
// +kubebuilder:validation:XValidation:rule="self.runtime != 'SGLang' || self.type != 'LMCache' || !has(self.integration.engineOverrides) || ((!has(self.integration.engineOverrides.env) || !self.integration.engineOverrides.env.exists(e, e.name in ['LMCACHE_USE_EXPERIMENTAL', 'INFERENCECACHE_FAIL_OPEN'])) && (!has(self.integration.engineOverrides.suppressEnv) || !self.integration.engineOverrides.suppressEnv.exists(e, e in ['LMCACHE_USE_EXPERIMENTAL', 'INFERENCECACHE_FAIL_OPEN'])))",message="env and suppressEnv must not name LMCACHE_USE_EXPERIMENTAL or INFERENCECACHE_FAIL_OPEN: the wiring depends on them",reason=FieldValueForbidden,fieldPath=".integration.engineOverrides"
type CacheBackendSpec struct {
	// The program that serves the model: VLLM or SGLang, in this case. Required.
	//
	// +required
	Runtime EngineRuntime `json:"runtime"`

	// The program that keeps KV blocks below the GPU. Unset is LMCache. SGLangHiCache needs runtime SGLang.
	//
	// +kubebuilder:default=LMCache
	// +optional
	Type BackendType `json:"type,omitempty"`

	// Whether remoteStorage.endpoint may be a Service or Pod of another namespace. Unset is false.
	//
	// +kubebuilder:default=false
	// +optional
	AllowCrossNamespace bool `json:"allowCrossNamespace,omitempty"`

	// The engine Pods, in this namespace, that belong to this object. Unset selects none.
	//
	// +optional
	EngineSelector *EngineSelector `json:"engineSelector,omitempty"`

	// What is expected of the engines' KV events. Unset is the default of each of its fields.
	//
	// +kubebuilder:default={}
	// +optional
	Observation *Observation `json:"observation,omitempty"`

	// How engines are wired. Unset is the default of each of its fields.
	//
	// +kubebuilder:default={}
	// +optional
	Integration *Integration `json:"integration,omitempty"`

	// SGLang's own hierarchical cache. Required for type SGLangHiCache, refused for others.
	//
	// +optional
	HiCache *HiCache `json:"hiCache,omitempty"`

	// LMCache's servers. Required for type LMCache in mode Offload, refused otherwise.
	//
	// +optional
	LMCache *LMCache `json:"lmCache,omitempty"`

	// A store that the cache servers share. Unset keeps blocks on the host that made them. Refused in mode
	// EventsOnly and for type SGLangHiCache.
	//
	// +optional
	RemoteStorage *RemoteStorage `json:"remoteStorage,omitempty"`
}

// EngineSelector selects engine Pods by their ownership domain.
type EngineSelector struct {
	// Empty, or exactly one label: inferencecache.io/cache-domain with the domain's name, a label value of 1
	// to 63 characters. Unset and empty select no Pod. Other keys are refused, as they would give a Pod
	// several owners; so is a domain that another CacheBackend of the namespace selects.
	//
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || 'inferencecache.io/cache-domain' in self",message="needs the key inferencecache.io/cache-domain",reason=FieldValueRequired
	// +kubebuilder:validation:XValidation:rule="self.all(k, k == 'inferencecache.io/cache-domain')",message="only the key inferencecache.io/cache-domain is allowed: with other keys a Pod could have several owners",reason=FieldValueForbidden
	// +kubebuilder:validation:XValidation:rule="!('inferencecache.io/cache-domain' in self) || size(self['inferencecache.io/cache-domain']) > 0",message="inferencecache.io/cache-domain needs a value",reason=FieldValueRequired
	// +kubebuilder:validation:XValidation:rule="!('inferencecache.io/cache-domain' in self) || size(self['inferencecache.io/cache-domain']) == 0 || self['inferencecache.io/cache-domain'].matches('^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="inferencecache.io/cache-domain must be a label value: at most 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit"
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// Observation says what is expected of the engines' KV events.
type Observation struct {
	// The model the engines serve, as requests name it. Unset takes it from each engine's command line.
	//
	// +optional
	ModelID string `json:"modelID,omitempty"`

	// How long after the engines are available the first KV event may take before the object is Degraded, as
	// a duration such as 90s or 5m. Unset is 5m. Zero and negative durations are refused.
	//
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than 0s"
	// +optional
	FirstEventTimeout *metav1.Duration `json:"firstEventTimeout,omitempty"`
}

// IntegrationMode says whether engines are wired to the cache.
//
// +kubebuilder:validation:Enum=Offload;EventsOnly
type IntegrationMode string

// Integration modes.
const (
	ModeOffload    IntegrationMode = "Offload"    // engines move KV blocks to the cache and back
	ModeEventsOnly IntegrationMode = "EventsOnly" // engines are left as they are; their events are followed
)

// IntegrationRole says which way KV blocks move.
//
// +kubebuilder:validation:Enum=ReadOnly;WriteOnly;ReadWrite
type IntegrationRole string

// Integration roles.
const (
	RoleReadOnly  IntegrationRole = "ReadOnly"
	RoleWriteOnly IntegrationRole = "WriteOnly"
	RoleReadWrite IntegrationRole = "ReadWrite"
)

// Integration says how engines are wired.
type Integration struct {
	// Offload wires engines to the cache; EventsOnly leaves them as they are and follows their KV events.
	// Unset is Offload. EventsOnly is for type LMCache, without lmCache and remoteStorage.
	//
	// +kubebuilder:default=Offload
	// +optional
	Mode IntegrationMode `json:"mode,omitempty"`

	// Which way KV blocks move. Unset is ReadWrite. ReadOnly and WriteOnly are refused: no supported
	// connector can be told to move blocks one way only.
	//
	// +kubebuilder:default=ReadWrite
	// +kubebuilder:validation:XValidation:rule="self == 'ReadWrite'",message="must be ReadWrite: no supported connector moves blocks one way only"
	// +optional
	Role IntegrationRole `json:"role,omitempty"`

	// Whether engines go on serving without the cache. False makes the object not Ready while remoteStorage
	// is unavailable. Unset is true. False is refused for type SGLangHiCache.
	//
	// +kubebuilder:default=true
	// +optional
	FailOpen *bool `json:"failOpen,omitempty"`

	// Changes to the arguments and environment that wiring adds to the engine container. Unset changes
	// nothing. Ignored in mode EventsOnly, which adds nothing.
	//
	// +optional
	EngineOverrides *EngineOverrides `json:"engineOverrides,omitempty"`
}

// EngineOverrides changes what wiring adds to the engine container: suppressions first, then additions.
// Arguments go by their leading token, before any "="; "_" and "-" are the same, as for the engines.
type EngineOverrides struct {
	// Arguments to add, or to put in place of added ones with the same leading token. One that the Pod's own
	// template has is left alone. Unset adds none. Refused: arguments that the wiring depends on, model and
	// port of the engine, more than 64 arguments, and arguments of more than 4096 characters.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +optional
	Args []string `json:"args,omitempty"`

	// Leading tokens of added arguments to leave out. Unset leaves out none. Refused as in args.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +optional
	SuppressArgs []string `json:"suppressArgs,omitempty"`

	// Variables to add, or to put in place of added ones. Unset adds none. Refused: variables that the wiring
	// depends on, names that are not valid in a Pod, both value and valueFrom, a valueFrom that does not have
	// exactly one source, and more than 64 variables.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(e, size(e.name) > 0)",message="a variable needs a name",reason=FieldValueRequired
	// +kubebuilder:validation:XValidation:rule="self.all(e, !has(e.valueFrom) || !has(e.value) || size(e.value) == 0)",message="a variable has value or valueFrom, not both"
	// +kubebuilder:validation:XValidation:rule="self.all(e, !has(e.valueFrom) || [has(e.valueFrom.fieldRef), has(e.valueFrom.resourceFieldRef), has(e.valueFrom.configMapKeyRef), has(e.valueFrom.secretKeyRef), has(e.valueFrom.fileKeyRef)].filter(s, s).size() == 1)",message="valueFrom needs exactly one source"
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`

	// Names of added variables to leave out. Unset leaves out none. Variables that the wiring depends on, and
	// more than 64 names, are refused.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +optional
	SuppressEnv []string `json:"suppressEnv,omitempty"`
}

// HiCacheWritePolicy says when blocks are copied to host memory.
//
// +kubebuilder:validation:Enum=write_back;write_through;write_through_selective
type HiCacheWritePolicy string

// HiCacheIOBackend says how blocks are copied.
//
// +kubebuilder:validation:Enum=direct;kernel;kernel_ascend
type HiCacheIOBackend string

// HiCacheMemoryLayout says how blocks lie in host memory.
//
// +kubebuilder:validation:Enum=layer_first;page_first;page_first_direct;page_first_kv_split;page_head
type HiCacheMemoryLayout string

// HiCache configures SGLang's own hierarchical cache.
//
// +kubebuilder:validation:XValidation:rule="has(self.sizeGB) != has(self.ratio)",message="exactly one of sizeGB and ratio is required"
type HiCache struct {
	// Host memory for each rank, in gigabytes. Exactly one of sizeGB and ratio is set. Numbers below 1 are
	// refused.
	//
	// +kubebuilder:validation:Minimum=1
	// +optional
	SizeGB *int32 `json:"sizeGB,omitempty"`

	// Host memory as a multiple of the GPU's KV memory, a decimal number in quotes such as "2.0". Exactly one
	// of sizeGB and ratio is set. Refused: zero, negative numbers, text that is not a finite number, and more
	// than 32 characters.
	//
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]{1,2})?$') && double(self) > 0.0",message="must be a finite decimal number above 0, such as \"2.0\""
	// +optional
	Ratio string `json:"ratio,omitempty"`

	// When blocks are copied to host memory. Unset leaves it to SGLang.
	//
	// +optional
	WritePolicy HiCacheWritePolicy `json:"writePolicy,omitempty"`

	// How blocks are copied. Unset leaves it to SGLang.
	//
	// +optional
	IOBackend HiCacheIOBackend `json:"ioBackend,omitempty"`

	// How blocks lie in host memory. Unset leaves it to SGLang.
	//
	// +optional
	MemoryLayout HiCacheMemoryLayout `json:"memoryLayout,omitempty"`
}
