package conformance

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/aggregator/auth"
	"github.com/inferencecache/inferencecache/aggregator/auth/authtest"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

var adminURL = flag.String("admin-url", "", "`URL` of the target's /snapshot, /policy and /probe, without the path; they must let everybody in")

// guarded is an aggregator whose guarded endpoints are served.
type guarded struct {
	url  string
	conn *grpc.ClientConn
}

// serveGuarded starts one, unless there is a target.
func serveGuarded(t *testing.T, admin aggregator.Admin) *guarded {
	t.Helper()
	admin.Address = "127.0.0.1:0"
	a, err := aggregator.New(aggregator.Config{
		GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: 16, Admin: admin, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	conn, err := connect(a.GRPCAddr())
	t.Cleanup(func() {
		if conn != nil {
			conn.Close()
		}
		cancel()
		<-done
	})
	if err != nil {
		t.Fatal(err)
	}
	return &guarded{"http://" + a.AdminAddr(), conn}
}

// request is a rule about one request.
type request struct {
	rule         string
	method, path string
	token, body  string
	status       int
	says         string // part of the answer
	allow        string // the Allow header
}

func (r *request) prove(t *testing.T, g *guarded) {
	req, err := http.NewRequestWithContext(t.Context(), r.method, g.url+r.path, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	if r.token != "" {
		req.Header.Set("Authorization", r.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != r.status || !strings.Contains(string(body), r.says) || resp.Header.Get("Allow") != r.allow {
		t.Errorf("status %d, Allow %q, body %s; want %d, %q, %s", resp.StatusCode, resp.Header.Get("Allow"), body, r.status, r.allow, r.says)
	}
}

// openRequests are to endpoints that let everybody in.
func openRequests() []request {
	const probe = `{"backend":"ns/b","model":"m","hashScheme":"vllm"`
	policy := func(rule, body string, status int, says string) request {
		return request{rule: rule, method: http.MethodPost, path: "/policy", body: body, status: status, says: says}
	}
	probed := func(rule, body string, status int, says string) request {
		return request{rule: rule, method: http.MethodPost, path: "/probe", body: body, status: status, says: says}
	}
	return []request{
		{rule: "GET /snapshot is a document", method: http.MethodGet, path: "/snapshot", status: 200, says: `"totalPrefixes":`},
		{rule: "which counts hot prefixes", method: http.MethodGet, path: "/snapshot", status: 200, says: `"hotPrefixes":`},
		{rule: "POST /snapshot is refused", method: http.MethodPost, path: "/snapshot", status: 405, allow: "GET"},
		{rule: "HEAD /snapshot is refused", method: http.MethodHead, path: "/snapshot", status: 405, allow: "GET"},
		{rule: "GET /policy is refused", method: http.MethodGet, path: "/policy", status: 405, allow: "POST, PUT"},
		{rule: "DELETE /policy is refused", method: http.MethodDelete, path: "/policy", status: 405, allow: "POST, PUT"},
		{rule: "GET /probe is refused", method: http.MethodGet, path: "/probe", status: 405, allow: "POST"},
		{rule: "PUT /probe is refused", method: http.MethodPut, path: "/probe", status: 405, allow: "POST"},
		{rule: "another path is not found", method: http.MethodGet, path: "/snapshots", status: 404},

		policy("version 3 is taken", `{"version":3}`, 204, ""),
		policy("version 7 is taken", `{"version":7,"policies":[],"tenants":[]}`, 204, ""),
		{rule: "PUT does what POST does", method: http.MethodPut, path: "/policy", body: `{"version":7}`, status: 204},
		policy("version 2 is refused", `{"version":2}`, 400, "unsupported policy snapshot version"),
		policy("version 8 is refused", `{"version":8}`, 400, "unsupported policy snapshot version"),
		policy("no version is refused", `{}`, 400, "unsupported policy snapshot version"),
		policy("an unknown field is refused", `{"version":7,"policy":[]}`, 400, "unknown field"),
		policy("an unknown field of a policy is refused", `{"version":7,"policies":[{"namespace":"a","ttl":1}]}`, 400, "unknown field"),
		policy("a field twice is refused", `{"version":7,"version":7}`, 400, "duplicate field"),
		policy("a namespace twice is refused", `{"version":7,"policies":[{"namespace":"a"},{"namespace":"a"}]}`, 400, "named twice"),
		policy("a tenant id twice is refused", `{"version":7,"tenants":[{"tenantID":"a"},{"tenantID":"a"}]}`, 400, "named twice"),
		policy("entries without a name are passed over", `{"version":7,"policies":[{},{}],"tenants":[{},{}]}`, 204, ""),
		policy("a time to live as text is refused", `{"version":7,"policies":[{"namespace":"a","evictionTTL":"30m"}]}`, 400, "evictionTTL"),
		policy("a floor as text is refused", `{"version":7,"policies":[{"namespace":"a","routingFloorScore":"0.1"}]}`, 400, "routingFloorScore"),
		policy("a number beyond its type is refused", `{"version":7,"policies":[{"namespace":"a","minimumMatchedTokens":4294967296}]}`, 400, "minimumMatchedTokens"),
		policy("more than one document is refused", `{"version":7}{"version":7}`, 400, "after top-level value"),
		policy("no document is refused", ``, 400, "policy document"),
		policy("what is no JSON is refused", `version: 7`, 400, "policy document"),
		policy("1 MiB is taken", `{"version":7}`+strings.Repeat(" ", 1<<20-13), 204, ""),
		policy("a byte more is refused", `{"version":7}`+strings.Repeat(" ", 1<<20-12), 400, "request body too large"),
		policy("a share above 1 is refused", `{"version":7,"policies":[{"namespace":"a","minimumMatchedShare":1.5}]}`, 400, "minimum matched share"),
		policy("five choices are refused", `{"version":7,"policies":[{"namespace":"a","affinityChoices":5}]}`, 400, "affinity choices"),
		policy("an unknown placement is refused", `{"version":7,"policies":[{"namespace":"a","affinityPlacement":"Rendezvous"}]}`, 400, "affinityPlacement"),

		probed("a probe finds what it stored", probe+`}`, 200, `"ingest":"ok","routing":"ok"`),
		probed("without a store the third stage says why it is skipped", probe+`}`, 200, `"t2":"skipped"`),
		probed("a probe of another type of backend has no third stage", probe+`,"backendType":"HiCache"}`, 200, `"t2":"skipped"`),
		probed("a probe needs a backend", `{"model":"m","hashScheme":"vllm"}`, 400, "backend"),
		probed("a probe needs a model", `{"backend":"b","hashScheme":"vllm"}`, 400, "model"),
		probed("a probe needs a scheme", `{"backend":"b","model":"m"}`, 400, "hashScheme"),
		probed("an unknown field of a probe is refused", probe+`,"tenant":"t"}`, 400, "unknown field"),
		probed("what follows a probe is refused", probe+`} x`, 400, "after top-level value"),
		probed("a probe of more than 4 KiB is refused", probe+`}`+strings.Repeat(" ", 4096), 400, "request body too large"),
		{rule: "a probe leaves no trace in a snapshot", method: http.MethodGet, path: "/snapshot", status: 200, says: `{"replicas":null,"tenants":null,"totalPrefixes":0,"hotPrefixes":0`},
	}
}

// TestConformanceOfHTTP proves the guarded endpoints where they let everybody in.
func TestConformanceOfHTTP(t *testing.T) {
	g := &guarded{url: *adminURL}
	switch {
	case *target != "" && *adminURL == "":
		t.Skip("needs the target's guarded endpoints; see -admin-url")
	case *target == "":
		g = serveGuarded(t, aggregator.Admin{Open: true})
	}
	for _, r := range openRequests() {
		t.Run(r.rule, func(t *testing.T) {
			if *target != "" && strings.Contains(r.says, `:null`) {
				t.Skip("only for an aggregator that the test starts")
			}
			r.prove(t, g)
		})
	}
}

// TestConformanceOfTheGuard proves who is let in. The API server that reviews tokens is the test's.
func TestConformanceOfTheGuard(t *testing.T) {
	if *target != "" {
		t.Skip("only for an aggregator that the test starts")
	}
	const controller = "system:serviceaccount:ns:controller"
	reviews := authtest.Start(t, map[string]authtest.Token{
		"c": {User: controller, Audiences: []string{auth.ControllerAudience}},
		"p": {User: controller, Audiences: []string{auth.PolicyAudience}},
		"o": {User: "somebody", Audiences: []string{auth.ControllerAudience, auth.PolicyAudience}},
	})
	reviewer, err := auth.NewKubernetes(reviews.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	g := serveGuarded(t, aggregator.Admin{
		Reviewer: reviewer, User: controller, ControllerAudience: auth.ControllerAudience, PolicyAudience: auth.PolicyAudience,
	})
	for _, r := range []request{
		{rule: "no token is unauthorized", method: http.MethodGet, path: "/snapshot", status: 401, says: "unauthorized"},
		{rule: "an empty token is", method: http.MethodGet, path: "/snapshot", token: "Bearer ", status: 401},
		{rule: "another scheme is", method: http.MethodGet, path: "/snapshot", token: "Basic c", status: 401},
		{rule: "a token nobody issued is", method: http.MethodGet, path: "/snapshot", token: "Bearer made-up", status: 401},
		{rule: "the controller's audience opens /snapshot", method: http.MethodGet, path: "/snapshot", token: "Bearer c", status: 200},
		{rule: "the scheme is known in any case", method: http.MethodGet, path: "/snapshot", token: "bearer c", status: 200},
		{rule: "the policy audience does not open /snapshot", method: http.MethodGet, path: "/snapshot", token: "Bearer p", status: 401},
		{rule: "the controller's audience opens /probe", method: http.MethodPost, path: "/probe", token: "Bearer c", body: "{}", status: 400},
		{rule: "the policy audience does not", method: http.MethodPost, path: "/probe", token: "Bearer p", body: "{}", status: 401},
		{rule: "the policy audience opens /policy", method: http.MethodPost, path: "/policy", token: "Bearer p", body: `{"version":7}`, status: 204},
		{rule: "the controller's does not", method: http.MethodPost, path: "/policy", token: "Bearer c", body: `{"version":7}`, status: 401},
		{rule: "another user is forbidden", method: http.MethodGet, path: "/snapshot", token: "Bearer o", status: 403, says: "forbidden"},
		{rule: "the guard comes before the method", method: http.MethodDelete, path: "/policy", status: 401},
		{rule: "behind it the method counts", method: http.MethodDelete, path: "/policy", token: "Bearer p", status: 405, allow: "POST, PUT"},
		{rule: "paths that do not exist are not guarded", method: http.MethodGet, path: "/none", status: 404},
	} {
		t.Run(r.rule, func(t *testing.T) { r.prove(t, g) })
	}
	reviews.Fail(true)
	for _, r := range []request{
		{rule: "without the API server a new token is not judged", method: http.MethodGet, path: "/snapshot", token: "Bearer new", status: 503, says: "token review unavailable"},
		{rule: "one that was good a moment ago is", method: http.MethodGet, path: "/snapshot", token: "Bearer c", status: 200},
	} {
		t.Run(r.rule, func(t *testing.T) { r.prove(t, g) })
	}
}

// TestConformanceOfPolicyVersions proves what a pushed policy does to lookups, version by version.
func TestConformanceOfPolicyVersions(t *testing.T) {
	if *target != "" {
		t.Skip("only for an aggregator that the test starts: a pushed document replaces all others")
	}
	g := serveGuarded(t, aggregator.Admin{Open: true})
	short, few := prompt(256, 1), prompt(48, 2)
	given := all(hold("a", short), hold("a", few), hold("c", prompt(64, 9)), join("b"))
	for _, r := range []struct {
		rule, fields string
		from, to     int
		ids          []uint32
		want         string
	}{
		{"no field leaves the floor of 64 tokens", ``, 3, 7, few, "NO_HINT"},
		{"a floor of 0 tokens is none in version 3", `,"minimumMatchedTokens":0`, 3, 3, few, "NO_HINT"},
		{"from version 4 on it is off", `,"minimumMatchedTokens":0`, 4, 7, few, "PREFIX_MATCH"},
		{"a floor of tokens is taken", `,"minimumMatchedTokens":257`, 3, 7, short, "NO_HINT"},
		{"a routing floor is taken, also where it is newer than the version", `,"routingFloorScore":1000`, 3, 7, short, "NO_HINT"},
		{"a routing floor of null is the default", `,"routingFloorScore":null`, 3, 7, short, "PREFIX_MATCH"},
		{"prefix tokens are taken", `,"minimumPrefixTokens":257`, 3, 7, short, "NO_HINT"},
		{"a negative number of them is none", `,"minimumPrefixTokens":-1`, 3, 7, short, "PREFIX_MATCH"},
		{"a strategy is taken", `,"strategy":{"requireChain":true}`, 3, 7, short, "POLICY_REQUIRES_CHAIN"},
		{"an empty strategy is the default", `,"strategy":{}`, 3, 7, short, "PREFIX_MATCH"},
		{"a timeout that is kept changes nothing", `,"lookupTimeoutMs":60000`, 3, 7, short, "PREFIX_MATCH"},
	} {
		for version := r.from; version <= r.to; version++ {
			t.Run(fmt.Sprintf("%s/v%d", r.rule, version), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				tenant := strings.NewReplacer(" ", "-", ",", "").Replace(t.Name())
				body := fmt.Sprintf(`{"version":%d,"policies":[{"namespace":%q,"affinityRouting":false%s}]}`, version, tenant, r.fields)
				(&request{method: http.MethodPost, path: "/policy", body: body, status: http.StatusNoContent}).prove(t, g)
				(&row{given: given, ask: ask(tokens(r.ids)), want: r.want}).proveReason(t, &session{pb.NewInferenceCacheClient(g.conn), g.conn, ctx, tenant})
			})
		}
	}
}

// proveReason acts and compares the reason alone.
func (r *row) proveReason(t *testing.T, s *session) {
	t.Helper()
	r.act(t, s)
	req := ask(func(req *pb.LookupRouteRequest) { req.TenantId, req.TokenIds = s.tenant, r.ask.GetTokenIds() })
	resp, err := s.LookupRoute(s.ctx, req)
	if err != nil || resp.GetReasonCode() != r.want {
		t.Errorf("answer %v, %v; want %s", resp, err, r.want)
	}
}
