package manifests

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/inferencecache/inferencecache/hack/kube/kubetest"
)

// permissions are what each ServiceAccount may do, as verb resource.group[/name], and where: after "in" a
// namespace, else everywhere.
var permissions = map[string]struct{ may, mayNot []string }{
	"inference-cache-agent": {
		may: []string{"list pods", "watch pods", "create events.events.k8s.io in team-a", "patch events.events.k8s.io in team-a"},
		mayNot: []string{
			"get pods", "create pods", "delete pods in team-a", "update pods in team-a", "patch pods/status in team-a", "get secrets", "list nodes",
			"create tokenreviews.authentication.k8s.io", "list cachepolicies.inferencecache.io",
		},
	},
	"inference-cache-aggregator": {
		may: []string{
			"list cachepolicies.inferencecache.io", "watch cachepolicies.inferencecache.io", "list cachetenants.inferencecache.io",
			"watch cachetenants.inferencecache.io", "create tokenreviews.authentication.k8s.io",
		},
		mayNot: []string{
			"update cachepolicies.inferencecache.io in team-a", "patch cachetenants.inferencecache.io/status in team-a", "list pods",
			"get secrets", "get secrets in " + namespace, "create events in team-a",
		},
	},
	"inference-cache-controller-manager": {
		may: []string{
			"list cachebackends.inferencecache.io", "watch cachetenants.inferencecache.io", "create cacheindices.inferencecache.io",
			"patch cacheindices.inferencecache.io/status", "patch cachetenants.inferencecache.io/status", "patch cachepolicies.inferencecache.io/status",
			"patch cachebackends.inferencecache.io/status", "create leases.coordination.k8s.io in " + namespace, "list pods",
		},
		mayNot: []string{
			"create pods in team-a", "delete pods in team-a", "update cachepolicies.inferencecache.io in team-a", "delete cachetenants.inferencecache.io in team-a",
			"get secrets", "list secrets in " + namespace, "create secrets in team-a", "update leases.coordination.k8s.io in kube-system",
			"create mutatingwebhookconfigurations.admissionregistration.k8s.io", "create tokenreviews.authentication.k8s.io",
		},
	},
}

func testRoles(t *testing.T, c *kubetest.Cluster) {
	for account, want := range permissions {
		t.Run(account, func(t *testing.T) {
			client, err := kubernetes.NewForConfig(c.ServiceAccount(t, namespace, account))
			if err != nil {
				t.Fatal(err)
			}
			for _, action := range want.may {
				if !allowed(t, client, action) {
					t.Errorf("may not %s", action)
				}
			}
			for _, action := range want.mayNot {
				if allowed(t, client, action) {
					t.Errorf("may %s", action)
				}
			}
		})
	}
}

// allowed asks the API server whether the client may do something.
func allowed(t *testing.T, client kubernetes.Interface, action string) bool {
	t.Helper()
	action, in, _ := strings.Cut(action, " in ")
	verb, resource, _ := strings.Cut(action, " ")
	attributes := &authorizationv1.ResourceAttributes{Namespace: in, Verb: verb}
	resource, attributes.Group, _ = strings.Cut(resource, ".")
	attributes.Group, attributes.Subresource, _ = strings.Cut(attributes.Group, "/")
	if attributes.Subresource == "" {
		resource, attributes.Subresource, _ = strings.Cut(resource, "/")
	}
	attributes.Resource = resource
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}
