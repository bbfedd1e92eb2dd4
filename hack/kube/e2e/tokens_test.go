package e2e

import (
	"net/http"
	"slices"
	"testing"

	"github.com/inferencecache/inferencecache/aggregator/auth"
	"github.com/inferencecache/inferencecache/hack/kube/kubetest"
)

// An aggregator asks the API server about every caller of its guarded endpoints. Only the controller's token
// for the right audience is let through.
func TestKubeTokensAreReviewed(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	install(t, c)
	host := kubetest.Host()
	p := &program{name: "aggregator", path: "aggregator", grpc: host + ":9090", http: host + ":8080", admin: host + ":8081"}
	w := installed(t, c, "aggregator")
	p.args = slices.Concat(w.args, []string{
		"--kubeconfig", kubetest.Kubeconfig(t, c.ServiceAccount(t, namespace, w.account)),
		"--grpc-bind-address", p.grpc, "--http-bind-address", p.http, "--snapshot-bind-address", p.admin, "--warm-up", "1ms",
	})
	p.start(t, t.TempDir())
	await(t, "the aggregator to be ready", p.ready)
	for name, tc := range map[string]struct {
		token string
		want  int
	}{
		"the controller, for the audience, is let through": {c.Token(t, namespace, controllerAccount, auth.ControllerAudience), http.StatusOK},
		"a token for several audiences is let through":     {c.Token(t, namespace, controllerAccount, "other", auth.ControllerAudience), http.StatusOK},
		"the controller, for another audience, is not":     {c.Token(t, namespace, controllerAccount, auth.PolicyAudience), http.StatusUnauthorized},
		"the controller, for the API server, is not":       {c.Token(t, namespace, controllerAccount), http.StatusUnauthorized},
		"another account, for the audience, is not":        {c.Token(t, namespace, agentAccount, auth.ControllerAudience), http.StatusForbidden},
		"an account of that name elsewhere is not":         {c.Token(t, "team-a", controllerAccount, auth.ControllerAudience), http.StatusForbidden},
		"a token that nobody issued is not":                {"nonsense", http.StatusUnauthorized},
		"no token is not":                                  {"", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			if err := status(p.admin+"/snapshot", tc.token, tc.want); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("without an API server nobody new is let through, and all are told to come back", func(t *testing.T) {
		token := c.Token(t, namespace, controllerAccount, auth.ControllerAudience)
		c.StopAPIServer(t)
		if err := status(p.admin+"/snapshot", token, http.StatusServiceUnavailable); err != nil {
			t.Error(err)
		}
		c.StartAPIServer(t)
		await(t, "the token to be taken", func() error { return status(p.admin+"/snapshot", token, http.StatusOK) })
	})
}
