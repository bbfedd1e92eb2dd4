package admission

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

func remoteStorageRules(b *v1alpha1.CacheBackend, path *field.Path) field.ErrorList {
	r := b.Spec.RemoteStorage
	if r == nil {
		return nil
	}
	var c check
	c.add(oneOf(path.Child("provider"), r.Provider, v1alpha1.ProviderRedis))
	c.add(oneOf(path.Child("ownership"), r.Ownership, v1alpha1.OwnershipManaged, v1alpha1.OwnershipExternal))
	endpoint := path.Child("endpoint")
	external := r.Ownership == v1alpha1.OwnershipExternal
	c.forbidden(r.Ownership == v1alpha1.OwnershipManaged && r.Endpoint != "", endpoint, "is for ownership External only: the controller knows where managed storage is")
	c.required(external && r.Endpoint == "", endpoint, "is needed for ownership External")
	c.forbidden(external && r.Workload != nil, path.Child("workload"), "is for ownership Managed only")
	if r.Endpoint != "" {
		c.add(endpointRules(r.Endpoint, b.Namespace, b.Spec.AllowCrossNamespace, endpoint))
	}
	if r.Workload != nil {
		c.add(atLeast(path.Child("workload", "terminationGracePeriodSeconds"), r.Workload.TerminationGracePeriodSeconds, 0))
	}
	if r.Redis != nil {
		c.add(redisRules(b, path.Child("redis")))
	}
	return c.errs
}

func redisRules(b *v1alpha1.CacheBackend, path *field.Path) field.ErrorList {
	var c check
	r := b.Spec.RemoteStorage.Redis
	external := b.Spec.RemoteStorage.Ownership == v1alpha1.OwnershipExternal
	c.forbidden(external && r.Image != "", path.Child("image"), "is for ownership Managed only")
	c.forbidden(external && r.Resources != nil, path.Child("resources"), "is for ownership Managed only")
	c.forbidden(r.TLS != nil, path.Child("tls"), "is not supported: LMCache's adapter connects without TLS")
	c.forbidden(r.Database != nil, path.Child("database"), "is not supported: LMCache's adapter uses database 0")
	if r.Resources != nil {
		c.add(resourceRules(*r.Resources, path.Child("resources")))
	}
	if r.Authentication != nil {
		c.add(authenticationRules(b, path.Child("authentication")))
	}
	return c.errs
}

func authenticationRules(b *v1alpha1.CacheBackend, path *field.Path) field.ErrorList {
	var c check
	auth := b.Spec.RemoteStorage.Redis.Authentication
	typed := b.Spec.Type == v1alpha1.BackendLMCache && b.Spec.LMCache != nil
	c.forbidden(!typed, path, "needs type LMCache with lmCache set: nothing else logs in")
	c.add(secretKey(&auth.Password, path.Child("password")))
	if auth.Username != nil {
		managed := b.Spec.RemoteStorage.Ownership == v1alpha1.OwnershipManaged
		c.forbidden(managed, path.Child("username"), "is for ownership External only: managed Redis has the default user alone")
		c.add(secretKey(auth.Username, path.Child("username")))
	}
	return c.errs
}

func secretKey(s *corev1.SecretKeySelector, path *field.Path) field.ErrorList {
	var c check
	c.required(s.Name == "" || s.Key == "", path, "needs name and key of a Secret")
	if s.Name != "" {
		for _, problem := range validation.IsDNS1123Subdomain(s.Name) {
			c.invalid(true, path.Child("name"), s.Name, problem)
		}
	}
	if s.Key != "" {
		for _, problem := range validation.IsConfigMapKey(s.Key) {
			c.invalid(true, path.Child("key"), s.Key, problem)
		}
	}
	c.forbidden(s.Optional != nil && *s.Optional, path, "must not be optional: without the Secret the login would be another one")
	return c.errs
}

const maxEndpointLength = 512

// hostPort is host:port or [address]:port; white space and control characters are looked for apart.
var hostPort = regexp.MustCompile(`^(?:([^][:]+)|\[([0-9A-Fa-f:.]+(?:%[^][]+)?)\]):([0-9]+)$`)

func endpointRules(endpoint, namespace string, crossNamespace bool, path *field.Path) field.ErrorList {
	var c check
	c.add(shortEnough(path, endpoint, maxEndpointLength))
	c.invalid(strings.ContainsFunc(endpoint, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), path, endpoint,
		"must not contain white space or control characters")
	scheme, rest, hasScheme := strings.Cut(endpoint, "://")
	c.invalid(hasScheme, path, endpoint, "must be host:port without a scheme")
	if !hasScheme {
		rest = scheme
	}
	host, problem := splitHostPort(rest)
	c.invalid(problem != "" && !hasScheme, path, endpoint, problem)
	other := clusterNamespace(host)
	c.forbidden(other != "" && other != namespace && !crossNamespace, path, fmt.Sprintf(
		"%s is in namespace %s, not %s: another tenant's store needs allowCrossNamespace: true", host, other, namespace))
	return c.errs
}

// splitHostPort returns the host of an endpoint, and what is wrong with the endpoint.
func splitHostPort(endpoint string) (host, problem string) {
	parts := hostPort.FindStringSubmatch(endpoint)
	if parts == nil {
		host, _, _ = strings.Cut(endpoint, ":")
		return host, "must be host:port, or [address]:port for IPv6"
	}
	host = parts[1] + parts[2]
	if port, err := strconv.Atoi(parts[3]); err != nil || port < 1 || port > maxPort {
		return host, "the port must be between 1 and 65535"
	}
	if _, err := netip.ParseAddr(host); err != nil && parts[2] != "" {
		return host, "the address in brackets is not an IPv6 address"
	}
	return host, ""
}

// clusterNamespace returns the namespace of a host name that cluster DNS resolves to a Service or Pod, as
// redis.team-b.svc.cluster.local; "" for other hosts.
func clusterNamespace(host string) string {
	name := strings.TrimSuffix(strings.ToLower(strings.TrimSuffix(host, ".")), ".cluster.local")
	labels := strings.Split(name, ".")
	last := len(labels) - 1
	if last < 2 || (labels[last] != "svc" && labels[last] != "pod") {
		return ""
	}
	return labels[last-1]
}
