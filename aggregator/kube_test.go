package aggregator_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/aggregator/auth"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/kube/kubetest"
)

// aggregatorRules are the permissions that docs/policy.md names, bound to the account of the test.
const aggregatorRules = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: aggregator-test}
rules:
- {apiGroups: [inferencecache.io], resources: [cachepolicies, cachetenants, prompttemplates], verbs: [list, watch]}
- {apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: aggregator-test}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: aggregator-test}
subjects: [{kind: ServiceAccount, namespace: system, name: aggregator}]
`

const kubePolicy = `
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: default, namespace: t}
spec: {minimumMatchedTokens: %d, affinityRouting: Disabled}
`

// startCluster starts an API server that knows the definitions, with the account of an aggregator.
func startCluster(t *testing.T) (*kubetest.Cluster, *rest.Config) {
	c := kubetest.Start(t)
	c.InstallCRDs(t)
	return c, account(t, c)
}

// account returns an account that may do what an aggregator must.
func account(t *testing.T, c *kubetest.Cluster) *rest.Config {
	c.Namespace(t, "t")
	config := c.ServiceAccount(t, "system", "aggregator")
	c.Apply(t, []byte(aggregatorRules))
	return config
}

func TestKubeDefinitionsAndPermissionsMayComeLater(t *testing.T) {
	c := kubetest.Start(t)
	config := c.ServiceAccount(t, "system", "aggregator")
	s := start(t, open, func(a *aggregator.Config) { a.PolicyCluster = config })
	s.wait(t, "a refusal to show", func() bool { return s.ready(t, "follow cachepolicies: ") && s.ready(t, "forbidden") })
	c.Apply(t, []byte(aggregatorRules))
	s.wait(t, "the lack of definitions to show", func() bool { return s.ready(t, "could not find the requested resource") })
	c.InstallCRDs(t)
	c.Namespace(t, "t")
	c.Apply(t, fmt.Appendf(nil, kubePolicy, 64))
	s.wait(t, "the policy", func() bool { return s.ready(t, "policy source cluster: ok, 1 policies, 0 quotas") })
}

func TestKubePolicyOfTheCluster(t *testing.T) {
	c, config := startCluster(t)
	c.Apply(t, fmt.Appendf(nil, kubePolicy, 1024), []byte(`
apiVersion: inferencecache.io/v1alpha1
kind: CacheTenant
metadata: {name: t, namespace: t}
spec: {tenantID: t, quota: {maxIndexEntries: 1000}}
---
apiVersion: inferencecache.io/v1alpha1
kind: PromptTemplate
metadata: {name: chat, namespace: t}
spec: {body: "You are helpful."}
`))
	s := start(t, open, func(a *aggregator.Config) { a.PolicyCluster = config })
	ids := tokens(128, 1)
	s.report(t, chainUpdate("pod-a", ids), idle("pod-b"))
	s.wait(t, "the first state", func() bool { return s.ready(t, "policy source cluster: ok, 1 policies, 1 quotas") })
	if got := s.lookupRoute(t, byTokens(ids)).GetReasonCode(); got != "NO_HINT" {
		t.Errorf("reason %s with a floor of 1024 tokens", got)
	}
	s.wait(t, "the template", func() bool {
		got, err := s.RenderTemplate(t.Context(), &pb.RenderTemplateRequest{TemplateRef: "chat", TenantId: "t"})
		return err == nil && string(got.GetRenderedPrompt()) == "You are helpful."
	})

	t.Run("a change reaches a lookup", func(t *testing.T) {
		begin := time.Now()
		c.Apply(t, fmt.Appendf(nil, kubePolicy, 64))
		applied := time.Now()
		s.wait(t, "a match", func() bool { return s.lookupRoute(t, byTokens(ids)).GetReasonCode() == "PREFIX_MATCH" })
		t.Logf("it took %s after the API server had it, which took %s", time.Since(applied), applied.Sub(begin))
		if _, body := s.send(t, http.MethodGet, "/snapshot", "", ""); !strings.Contains(body, `{"namespace":"t","name":"default","source":"cluster","generation":2,`) {
			t.Errorf("snapshot %s", body)
		}
	})

	t.Run("while the API server is away its last state is in force", func(t *testing.T) {
		c.StopAPIServer(t)
		s.series(t, `inferencecache_policy_source_ok{source="cluster"} 0`)
		if !s.ready(t, "policy source cluster: cannot be used, what was read at") {
			t.Error("the outage does not show in /readyz")
		}
		if got := s.lookupRoute(t, byTokens(ids)).GetReasonCode(); got != "PREFIX_MATCH" {
			t.Errorf("reason %s without the API server", got)
		}
		late := start(t, open, func(a *aggregator.Config) { a.PolicyCluster = config })
		late.report(t, chainUpdate("pod-a", ids), idle("pod-b"))
		late.wait(t, "the outage to show", func() bool { return late.ready(t, "nothing of it is in force") })
		c.StartAPIServer(t)
		c.Apply(t, fmt.Appendf(nil, kubePolicy, 1024))
		for _, s := range []*server{s, late} {
			s.wait(t, "the new policy", func() bool { return s.lookupRoute(t, byTokens(ids)).GetReasonCode() == "NO_HINT" })
			s.wait(t, "all to be well", func() bool { return s.ready(t, "policy source cluster: ok, 1 policies, 1 quotas") })
		}
	})
}

func TestKubeTokensAreReviewedByTheCluster(t *testing.T) {
	c, config := startCluster(t)
	c.ServiceAccount(t, "system", "controller")
	c.ServiceAccount(t, "system", "other")
	reviewer, err := auth.NewKubernetes(kubetest.Kubeconfig(t, config))
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(a *aggregator.Config) {
		a.Admin = aggregator.Admin{
			Address: "127.0.0.1:0", Reviewer: reviewer, User: "system:serviceaccount:system:controller",
			ControllerAudience: auth.ControllerAudience, PolicyAudience: auth.PolicyAudience,
		}
	})
	for name, c := range map[string]struct {
		token string
		want  int
	}{
		"the right audience":       {c.Token(t, "system", "controller", auth.ControllerAudience), http.StatusOK},
		"the audience of another":  {c.Token(t, "system", "controller", auth.PolicyAudience), http.StatusUnauthorized},
		"no audience of its own":   {c.Token(t, "system", "controller"), http.StatusUnauthorized},
		"the account of another":   {c.Token(t, "system", "other", auth.ControllerAudience), http.StatusForbidden},
		"no token that was issued": {"made-up", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			if code, body := s.send(t, http.MethodGet, "/snapshot", c.token, ""); code != c.want {
				t.Errorf("status %d, want %d: %s", code, c.want, body)
			}
		})
	}
}

// ready says whether /readyz contains a text.
func (s *server) ready(t *testing.T, text string) bool {
	t.Helper()
	_, body := s.get(t, "/readyz")
	return strings.Contains(body, text)
}

// wait waits until something is so.
func (s *server) wait(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}
