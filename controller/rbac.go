package controller

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// Permissions are what the account of a controller needs, and no more.
type Permissions struct {
	// Cluster are rules of a ClusterRole, Namespace those of a Role in the controller's own namespace.
	Cluster, Namespace []rbacv1.PolicyRule
}

// PermissionsOf returns what a controller with this configuration needs.
func PermissionsOf(config *Config) Permissions {
	const admission = "admissionregistration.k8s.io"
	group := v1alpha1.GroupVersion.Group
	own := config.CertDir == "" && config.WebhookAddress != ""
	p := Permissions{
		Cluster: []rbacv1.PolicyRule{
			rule(group, "get,list,watch", "cachebackends", "cachepolicies", "cachetenants"),
			rule(group, "create,get,list,watch", "cacheindices"),
			rule(group, "patch", "cachebackends/status", "cachepolicies/status", "cachetenants/status", "cacheindices/status"),
			rule("", "list,watch", "pods"),
			rule("", "get", "namespaces"),
			rule("events.k8s.io", "create,patch", "events"),
		},
		Namespace: []rbacv1.PolicyRule{
			rule("coordination.k8s.io", "create", "leases"),
			named(rule("coordination.k8s.io", "get,update,patch", "leases"), LeaseName),
			rule("", "create,patch", "events"),
		},
	}
	configurations := "get,list,watch"
	if own {
		configurations += ",update"
		p.Namespace = append(p.Namespace, named(rule("", "get,list,watch,update", "secrets"), config.Rotation.Secret.Name))
	}
	if config.WebhookAddress != "" {
		p.Cluster = append(p.Cluster,
			named(rule(admission, configurations, "mutatingwebhookconfigurations"), config.Rotation.Mutating),
			named(rule(admission, configurations, "validatingwebhookconfigurations"), config.Rotation.Validating))
	}
	return p
}

func rule(group, verbs string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: strings.Split(verbs, ",")}
}

func named(r rbacv1.PolicyRule, name string) rbacv1.PolicyRule {
	r.ResourceNames = []string{name}
	return r
}
