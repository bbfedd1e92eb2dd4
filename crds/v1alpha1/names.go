package v1alpha1

// Labels and annotations of group inferencecache.io, and the objects they are on.
const (
	// LabelCacheDomain, on an engine Pod, names the ownership domain the Pod belongs to. It is the only
	// key a CacheBackend may select by.
	LabelCacheDomain = "inferencecache.io/cache-domain"
	// LabelBackendType, on the objects of a managed Redis, is spec.type of their CacheBackend.
	LabelBackendType = "inferencecache.io/backend-type"
	// LabelLMCacheMetrics, "true" on every Pod that serves LMCache metrics, is what a PodMonitor selects.
	LabelLMCacheMetrics = "inferencecache.io/lmcache-mp-metrics"
	// LabelLMCacheNodeServer, "true" on a NodeLocal server Pod.
	LabelLMCacheNodeServer = "inferencecache.io/lmcache-node-server"
	// LabelCacheBackendUID, on a NodeLocal server Pod, is the UID of its CacheBackend.
	LabelCacheBackendUID = "inferencecache.io/cache-backend-uid"

	// AnnotationInjectedBy, on an engine Pod, is namespace/name of the CacheBackend that wired it.
	AnnotationInjectedBy = "inferencecache.io/injected-by"
	// AnnotationInjectedByUID, on an engine Pod, is the UID of that CacheBackend.
	AnnotationInjectedByUID = "inferencecache.io/injected-by-uid"
	// AnnotationInjectedGeneration, on an engine Pod, is metadata.generation of that CacheBackend at admission.
	AnnotationInjectedGeneration = "inferencecache.io/injected-generation"
	// AnnotationSkipInject, on an engine Pod, opts it out. Text that is not a known word for false is true.
	AnnotationSkipInject = "inferencecache.io/skip-inject"
	// AnnotationInjectSkipped, on an engine Pod that opted out, is InjectSkippedByAnnotation.
	AnnotationInjectSkipped = "inferencecache.io/inject-skipped"

	// AnnotationKernelCheck, on a CacheBackend, is one of the KernelCheck modes.
	AnnotationKernelCheck = "inferencecache.io/lmcache-kernel-check"
	// AnnotationRequireKVEvents, exactly "false" on a CacheBackend, takes KV events out of its readiness.
	AnnotationRequireKVEvents = "inferencecache.io/require-kv-events"
	// AnnotationSkipFunctionalProbe, exactly "true" on a CacheBackend, takes the functional probe out of its readiness.
	AnnotationSkipFunctionalProbe = "inferencecache.io/skip-functional-probe"
)

// InjectSkippedByAnnotation is the value of AnnotationInjectSkipped.
const InjectSkippedByAnnotation = "skip-inject-annotation"

// Values of AnnotationKernelCheck; absent is KernelCheckAuto.
const (
	KernelCheckAuto       = "auto"        // checks engines that ask for a GPU, and reports
	KernelCheckReportOnly = "report-only" // checks all engines, and reports
	KernelCheckStrict     = "strict"      // checks all engines, and a failure holds the engine back
	KernelCheckOff        = "off"
)

// TenantProbe is the tenant of the functional probe; no CacheTenant may name it.
const TenantProbe = "inferencecache.io/probe"

// ConditionReady is the condition that every kind with a controller has.
const ConditionReady = "Ready"
