package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// RemoteProvider is the program that stores blocks for several servers.
//
// +kubebuilder:validation:Enum=Redis
type RemoteProvider string

// ProviderRedis stores blocks in Redis.
const ProviderRedis RemoteProvider = "Redis"

// RemoteOwnership says who runs the store.
//
// +kubebuilder:validation:Enum=Managed;External
type RemoteOwnership string

// Remote ownerships.
const (
	OwnershipManaged  RemoteOwnership = "Managed"  // the controller runs it
	OwnershipExternal RemoteOwnership = "External" // somebody else runs it, at an endpoint
)

// RemoteStorage is a store that cache servers share.
//
// +kubebuilder:validation:XValidation:rule="self.ownership != 'Managed' || !has(self.endpoint)",message="endpoint is for ownership External only: the controller knows where managed storage is",fieldPath=".endpoint",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="self.ownership != 'External' || (has(self.endpoint) && size(self.endpoint) > 0)",message="endpoint is required for ownership External",fieldPath=".endpoint",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="self.ownership != 'External' || !has(self.workload)",message="workload is for ownership Managed only",fieldPath=".workload",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="self.ownership != 'External' || !has(self.redis) || !has(self.redis.image)",message="image is for ownership Managed only",fieldPath=".redis.image",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="self.ownership != 'External' || !has(self.redis) || !has(self.redis.resources)",message="resources is for ownership Managed only",fieldPath=".redis.resources",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="self.ownership != 'Managed' || !has(self.redis) || !has(self.redis.authentication) || !has(self.redis.authentication.username)",message="username is for ownership External only: managed Redis has the default user alone",fieldPath=".redis.authentication.username",reason=FieldValueForbidden
type RemoteStorage struct {
	// The program that stores blocks: Redis. Required.
	//
	// +required
	Provider RemoteProvider `json:"provider"`

	// Managed has the controller run the store in this namespace; External uses one at endpoint. Required.
	//
	// +required
	Ownership RemoteOwnership `json:"ownership"`

	// Where the store is, as host:port, or [address]:port for IPv6. Required for External, refused for
	// Managed. Refused: a scheme, white space, a port outside 1 to 65535, more than 512 characters, and,
	// without allowCrossNamespace, a Service or Pod of another namespace.
	//
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.contains('://')",message="must be host:port without a scheme"
	// +kubebuilder:validation:XValidation:rule="!self.matches('[[:space:][:cntrl:]]')",message="must not contain white space or control characters"
	// +kubebuilder:validation:XValidation:rule="self.contains('://') || self.matches('^([^][:]+|[[][0-9A-Fa-f:.]+(%[^][]+)?[]]):[0-9]+$')",message="must be host:port, or [address]:port for IPv6"
	// +kubebuilder:validation:XValidation:rule="!self.matches(':[0-9]+$') || (self.matches(':0*[1-9][0-9]{0,4}$') && int(self.substring(self.lastIndexOf(':') + 1)) <= 65535)",message="the port must be between 1 and 65535"
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// Scheduling of the managed store's Pod. Unset is the cluster's defaults. Refused for External.
	//
	// +optional
	Workload *RemoteWorkload `json:"workload,omitempty"`

	// Settings of Redis. Unset is the default of each of its fields.
	//
	// +optional
	Redis *RedisStorage `json:"redis,omitempty"`
}

// RemoteWorkload is the scheduling of a managed store's Pod.
type RemoteWorkload struct {
	// Labels of the nodes that may run it. Unset is any node.
	//
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Affinity of the Pod. Unset is none.
	//
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// Tolerations of the Pod. Unset is none.
	//
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// How the Pod is spread. Unset is the cluster's default.
	//
	// +optional
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// Secrets for pulling the image. Unset is those of the ServiceAccount.
	//
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// ServiceAccount of the Pod. Unset is the namespace's default.
	//
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Security settings of the Pod. Unset runs as the image says.
	//
	// +optional
	SecurityContext *corev1.PodSecurityContext `json:"securityContext,omitempty"`

	// Priority class of the Pod. Unset is the cluster's default.
	//
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// Scheduler of the Pod. Unset is the cluster's default.
	//
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`

	// Runtime class of the Pod. Unset is the cluster's default.
	//
	// +optional
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`

	// Time to shut down, in seconds. Unset is the cluster's default, 30. Negative numbers are refused.
	//
	// +kubebuilder:validation:Minimum=0
	// +optional
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
}

// RedisStorage is the settings of Redis.
type RedisStorage struct {
	// Image of managed Redis. Unset is docker.io/library/redis:7.4-alpine. Refused for External.
	//
	// +optional
	Image string `json:"image,omitempty"`

	// Compute resources of managed Redis, which keeps a fifth of the memory limit for itself. Unset requests
	// 4Gi of memory and limits it to 8Gi; {} sets neither. Refused for External. Also refused: claims, limits
	// below their requests, negative amounts, unknown names, hugepages that are not a multiple of their page
	// size, and hugepages or extended resources without an equal limit.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.claims) || size(self.claims) == 0",message="must not have claims",fieldPath=".claims",reason=FieldValueForbidden
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(r, !(r in self.requests) || !(r in self.limits) || quantity(string(self.limits[r])).compareTo(quantity(string(self.requests[r]))) >= 0)",message="a limit must not be below its request"
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// How cache servers log in. Unset is without a password. Refused without lmCache.
	//
	// +optional
	Authentication *RedisAuthentication `json:"authentication,omitempty"`

	// Reserved. Always refused, so that nobody takes a plain connection for an encrypted one: LMCache's
	// adapter has no TLS.
	//
	// +kubebuilder:validation:XValidation:rule="false",message="is not supported: LMCache's adapter connects without TLS",reason=FieldValueForbidden
	// +optional
	TLS *RedisTLS `json:"tls,omitempty"`

	// Reserved. Always refused: LMCache's adapter uses database 0.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="false",message="is not supported: LMCache's adapter uses database 0",reason=FieldValueForbidden
	// +optional
	Database *int32 `json:"database,omitempty"`
}

// RedisAuthentication names the Secrets that hold the credentials, in this namespace.
//
// +kubebuilder:validation:XValidation:rule="[self.password].all(s, has(s.name) && size(s.name) > 0 && size(s.key) > 0)",message="needs name and key of a Secret",fieldPath=".password"
// +kubebuilder:validation:XValidation:rule="!has(self.username) || (has(self.username.name) && size(self.username.name) > 0 && size(self.username.key) > 0)",message="needs name and key of a Secret",fieldPath=".username"
// +kubebuilder:validation:XValidation:rule="!has(self.password.optional) || !self.password.optional",message="must not be optional: without it the store would be open",fieldPath=".password",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(self.username) || !has(self.username.optional) || !self.username.optional",message="must not be optional",fieldPath=".username",reason=FieldValueForbidden
type RedisAuthentication struct {
	// The user to log in as. Unset is the default user. Refused for Managed; also refused: a missing or
	// invalid name or key, and optional: true.
	//
	// +optional
	Username *corev1.SecretKeySelector `json:"username,omitempty"`

	// The password. Required. Refused: a missing or invalid name or key, and optional: true.
	//
	// +required
	Password corev1.SecretKeySelector `json:"password"`
}

// RedisTLS is reserved.
type RedisTLS struct {
	// Reserved.
	//
	// +optional
	CACertificate *corev1.SecretKeySelector `json:"caCertificate,omitempty"`

	// Reserved.
	//
	// +optional
	ServerName string `json:"serverName,omitempty"`
}
