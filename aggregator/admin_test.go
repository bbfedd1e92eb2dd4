package aggregator_test

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/aggregator/auth"
	"github.com/inferencecache/inferencecache/aggregator/auth/authtest"
	"github.com/inferencecache/inferencecache/aggregator/snapshot"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/tlsconfig"
	"github.com/inferencecache/inferencecache/tlsconfig/tlstest"
)

// open serves the guarded endpoints to everybody.
func open(c *aggregator.Config) { c.Admin.Address, c.Admin.Open = "127.0.0.1:0", true }

// send makes a request of a guarded endpoint.
func (s *server) send(t *testing.T, method, path, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.admin+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// push puts a policy document in force.
func (s *server) push(t *testing.T, document string) {
	t.Helper()
	if code, body := s.send(t, http.MethodPost, "/policy", "", document); code != http.StatusNoContent {
		t.Fatalf("status %d %s", code, body)
	}
}

// series waits until /metrics has a line.
func (s *server) series(t *testing.T, line string) {
	t.Helper()
	eventually(t, "the metric "+line, func() bool {
		_, body := s.get(t, "/metrics")
		return strings.Contains(body, "\n"+line+"\n")
	})
}

func TestPushedPolicyDecidesTheNextLookup(t *testing.T) {
	s := start(t, open)
	ids := tokens(128, 1)
	s.report(t, chainUpdate("pod-a", ids), idle("pod-b"))
	want := func(reason string) {
		t.Helper()
		if got := s.lookupRoute(t, byTokens(ids)).GetReasonCode(); got != reason {
			t.Errorf("reason %s, want %s", got, reason)
		}
	}
	want("PREFIX_MATCH")
	s.push(t, `{"version":7,"policies":[{"namespace":"t","strategy":{"requireChain":true}}]}`)
	want("POLICY_REQUIRES_CHAIN")
	s.push(t, `{"version":7,"policies":[{"namespace":"t","minimumPrefixTokens":129,"affinityRouting":false}]}`)
	want("NO_HINT")
	s.push(t, `{"version":7,"policies":[{"namespace":"another","strategy":{"requireChain":true}}]}`)
	want("PREFIX_MATCH")
	if code, _ := s.send(t, http.MethodPost, "/policy", "", `{"version":2}`); code != http.StatusBadRequest {
		t.Errorf("status %d", code)
	}
	want("PREFIX_MATCH")
}

func TestQuotaOfATenantEvictsItsOwnEntries(t *testing.T) {
	s := start(t, open)
	other := chainUpdate("pod-a", tokens(160, 1))
	other.TenantId = "u"
	s.report(t, chainUpdate("pod-a", tokens(160, 1)), other)
	s.push(t, `{"version":7,"tenants":[{"tenantID":"t","maxIndexEntries":4}]}`)
	s.series(t, `inferencecache_tenant_evictions_total{reason="over_entries",tenant_id="t"} 6`)
	s.series(t, `inferencecache_index_entries{model="m"} 14`)
	s.push(t, `{"version":7,"tenants":[{"tenantID":"t","maxIndexEntries":0}]}`)
	s.series(t, `inferencecache_index_entries{model="m"} 10`)
}

func TestTimeToLiveOfATenantExpiresItsOwnEntries(t *testing.T) {
	s := start(t, open)
	other := chainUpdate("pod-a", tokens(160, 1))
	other.TenantId = "u"
	s.push(t, `{"version":7,"policies":[{"namespace":"t","evictionTTL":1000000000,"eviction":"lfu"}]}`)
	s.report(t, chainUpdate("pod-a", tokens(160, 1)), other)
	s.series(t, `inferencecache_index_evictions_total{algorithm="lfu",reason="ttl"} 10`)
	s.series(t, `inferencecache_index_entries{model="m"} 10`)
}

func TestPushedPolicyReplacesTheFoldersAndBothShow(t *testing.T) {
	dir := t.TempDir()
	manifest := `{apiVersion: inferencecache.io/v1alpha1, kind: CachePolicy, metadata: {name: d, namespace: t}, spec: {strategy: {requireChain: true}}}`
	if err := os.WriteFile(filepath.Join(dir, "t.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, open, func(c *aggregator.Config) { c.PolicyDir = dir })
	ids := tokens(128, 1)
	s.report(t, chainUpdate("pod-a", ids), idle("pod-b"))
	if got := s.lookupRoute(t, byTokens(ids)).GetReasonCode(); got != "POLICY_REQUIRES_CHAIN" {
		t.Errorf("reason %s by the folder", got)
	}
	_, ready := s.get(t, "/readyz")
	if !strings.Contains(ready, "policy source folder: ok, 1 policies, 0 quotas\n") ||
		!strings.Contains(ready, "policy source push: has stated nothing yet\n") {
		t.Errorf("readiness %q", ready)
	}
	s.push(t, `{"version":7,"policies":[{"namespace":"t"}]}`)
	if got := s.lookupRoute(t, byTokens(ids)).GetReasonCode(); got != "PREFIX_MATCH" {
		t.Errorf("reason %s by what was pushed", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "t.yaml"), []byte("kind: nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.series(t, `inferencecache_policy_source_ok{source="folder"} 0`)
	code, ready := s.get(t, "/readyz")
	if code != http.StatusOK || !strings.Contains(ready, "policy source folder: cannot be used, what was read at") || !strings.Contains(ready, "t.yaml") {
		t.Errorf("status %d %q", code, ready)
	}
}

func TestSnapshotShowsWhatProducersReported(t *testing.T) {
	s := start(t, open)
	silent := &pb.CacheStateUpdate{
		ReplicaId: "pod-b", ModelId: "other", TenantId: "u", HashScheme: "vllm", Stats: &pb.ReplicaStats{HitRate: 0.5, Pressure: 0.25},
	}
	s.report(t, chainUpdate("pod-a", tokens(64, 1)), silent)
	s.connect(t, "agent", 1).apply(&pb.Delta{Seq: 1, Views: []*pb.View{view(1, "pod-c", 0)}, Stats: []*pb.ViewStats{{View: 1, Stats: &pb.ReplicaStats{HitRate: 1}}}})

	code, body := s.send(t, http.MethodGet, "/snapshot", "", "")
	if code != http.StatusOK {
		t.Fatalf("status %d %s", code, body)
	}
	var got snapshot.Snapshot
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for i := range got.Replicas {
		r := &got.Replicas[i]
		for _, at := range []*time.Time{&r.LastUpdate, &r.LastEventAt} {
			if age := now.Sub(*at); !at.IsZero() && (age < -time.Second || age > time.Minute) {
				t.Errorf("%s: time %s", r.ReplicaID, *at)
			}
			*at = time.Time{}
		}
	}
	want := snapshot.Snapshot{
		Replicas: []snapshot.Replica{
			{ReplicaID: "pod-a", Tenant: "t", PrefixCount: 4},
			{ReplicaID: "pod-c", Tenant: "t", StatsReported: true, HitRate: 1},
			{ReplicaID: "pod-b", Tenant: "u", StatsReported: true, HitRate: 0.5, Pressure: 0.25},
		},
		Tenants: []snapshot.Tenant{
			{TenantID: "t", IndexEntries: 4, HitRateReported: true, HitRate: 1},
			{TenantID: "u", HitRateReported: true, HitRate: 0.5},
		},
		TotalPrefixes: 4,
		Policy:        []snapshot.Policy{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestProbeGoesThroughAndLeavesNoTrace(t *testing.T) {
	s := start(t, open)
	code, body := s.send(t, http.MethodPost, "/probe", "", `{"backend":"ns/b","model":"functional-self-test","hashScheme":"vllm","backendType":"LMCache"}`)
	want := `{"backend":"ns/b","ingest":"ok","routing":"ok","t2":"skipped","skipped":[{"stage":"t2","message":"no remote store is configured (--t2-redis-address)"}]}` + "\n"
	if code != http.StatusOK || body != want {
		t.Errorf("status %d %s", code, body)
	}
	if _, page := s.get(t, "/metrics"); strings.Contains(page, "functional-self-test") || strings.Contains(page, "inferencecache_lookup_route_calls_total{") {
		t.Error("the probe counts among callers' lookups")
	}
	if _, body := s.send(t, http.MethodGet, "/snapshot", "", ""); body != `{"replicas":null,"tenants":null,"totalPrefixes":0,"hotPrefixes":0,"policy":[]}`+"\n" {
		t.Errorf("snapshot %s", body)
	}
}

// While probes run, an index that holds nothing of callers' is still an empty one to them, and the
// reserved tenant stays closed.
func TestCallersDoNotSeeProbes(t *testing.T) {
	s := start(t, open)
	done := make(chan struct{})
	var probes sync.WaitGroup
	probes.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				if code, body := s.send(t, http.MethodPost, "/probe", "", `{"backend":"b","model":"m","hashScheme":"vllm"}`); code != http.StatusOK {
					t.Errorf("status %d %s", code, body)
					return
				}
			}
		}
	})
	for range 50 {
		for _, tenant := range []string{"t", "inferencecache.io/probe"} {
			req := byTokens(tokens(64, 1))
			req.TenantId = tenant
			if got := s.lookupRoute(t, req); got.GetReasonCode() != "NO_HINT" || len(got.GetReplicaScores()) != 0 {
				t.Errorf("tenant %s: %v", tenant, got)
			}
		}
		dump, err := s.inspect.DumpIndex(t.Context(), &pb.DumpIndexRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := dump.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("dump of %v, error %v", m, err)
		}
	}
	close(done)
	probes.Wait()
}

func TestGuardedEndpointsAskForTheirOwnAudience(t *testing.T) {
	const controller = "system:serviceaccount:ns:controller"
	reviews := authtest.Start(t, map[string]authtest.Token{
		"for controller": {User: controller, Audiences: []string{auth.ControllerAudience}},
		"for policy":     {User: controller, Audiences: []string{auth.PolicyAudience}},
		"of another":     {User: "somebody", Audiences: []string{auth.ControllerAudience, auth.PolicyAudience}},
	})
	reviewer, err := auth.NewKubernetes(reviews.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(c *aggregator.Config) {
		c.Admin = aggregator.Admin{
			Address: "127.0.0.1:0", Reviewer: reviewer, User: controller,
			ControllerAudience: auth.ControllerAudience, PolicyAudience: auth.PolicyAudience,
		}
	})
	for name, c := range map[string]struct {
		method, path, token string
		code                int
	}{
		"a snapshot":                                 {http.MethodGet, "/snapshot", "for controller", 200},
		"a snapshot for policy":                      {http.MethodGet, "/snapshot", "for policy", 401},
		"a snapshot for another":                     {http.MethodGet, "/snapshot", "of another", 403},
		"a snapshot for nobody":                      {http.MethodGet, "/snapshot", "", 401},
		"a policy":                                   {http.MethodPut, "/policy", "for policy", 204},
		"a policy for controller":                    {http.MethodPut, "/policy", "for controller", 401},
		"a probe":                                    {http.MethodPost, "/probe", "for controller", 400},
		"a probe for policy":                         {http.MethodPost, "/probe", "for policy", 401},
		"a method that is wrong":                     {http.MethodDelete, "/policy", "for policy", 405},
		"a method that is wrong, of nobody":          {http.MethodDelete, "/policy", "", 401},
		"a path that is unknown":                     {http.MethodGet, "/snapshots", "", 404},
		"a path that is unknown below one that is":   {http.MethodGet, "/snapshot/x", "", 404},
		"a page of the other address on this one":    {http.MethodGet, "/metrics", "for controller", 404},
		"a method of the snapshot that is not GET":   {http.MethodPost, "/snapshot", "for controller", 405},
		"a method of the probe that is not POST":     {http.MethodPut, "/probe", "for controller", 405},
		"a policy for another, by the right address": {http.MethodPost, "/policy", "of another", 403},
	} {
		t.Run(name, func(t *testing.T) {
			if code, body := s.send(t, c.method, c.path, c.token, `{"version":7}`); code != c.code {
				t.Errorf("status %d %s, want %d", code, body, c.code)
			}
		})
	}
	reviews.Fail(true)
	if code, body := s.send(t, http.MethodGet, "/snapshot", "unheard of", ""); code != http.StatusServiceUnavailable || !strings.Contains(body, "token review unavailable") {
		t.Errorf("status %d %s", code, body)
	}
	for _, line := range []string{
		`inferencecache_snapshot_auth_total{result="ok"} 2`, `inferencecache_snapshot_auth_total{result="unauth"} 2`,
		`inferencecache_snapshot_auth_total{result="forbidden"} 1`, `inferencecache_snapshot_auth_total{result="error"} 1`,
		`inferencecache_policy_auth_total{result="ok"} 2`, `inferencecache_policy_auth_total{result="unauth"} 2`,
		`inferencecache_policy_auth_total{result="forbidden"} 1`, `inferencecache_probe_auth_total{result="ok"} 2`,
		`inferencecache_probe_auth_total{result="unauth"} 1`,
	} {
		s.series(t, line)
	}
}

func TestGuardedEndpointsAreNotServedUnlessAddressed(t *testing.T) {
	s := start(t)
	for _, path := range []string{"/snapshot", "/policy", "/probe"} {
		if code, _ := s.get(t, path); code != http.StatusNotFound {
			t.Errorf("%s: status %d at the public address", path, code)
		}
	}
}

func TestGuardThatIsNotCompleteIsRefused(t *testing.T) {
	whole := aggregator.Admin{
		Address: "127.0.0.1:0", Reviewer: &auth.Kubernetes{}, User: "u", ControllerAudience: "c", PolicyAudience: "p",
	}
	for name, change := range map[string]func(*aggregator.Admin){
		"nothing":              func(a *aggregator.Admin) { *a = aggregator.Admin{Address: a.Address} },
		"no reviewer":          func(a *aggregator.Admin) { a.Reviewer = nil },
		"no user":              func(a *aggregator.Admin) { a.User = "" },
		"no audience":          func(a *aggregator.Admin) { a.ControllerAudience = "" },
		"no policy audience":   func(a *aggregator.Admin) { a.PolicyAudience = "" },
		"a guard that is open": func(a *aggregator.Admin) { a.Open = true },
	} {
		t.Run(name, func(t *testing.T) {
			admin := whole
			change(&admin)
			_, err := aggregator.New(aggregator.Config{
				GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: 16, Admin: admin, Log: slog.New(slog.DiscardHandler),
			})
			if err == nil || !strings.Contains(err.Error(), "the guarded endpoints") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// load reads TLS files for a test.
func load(t *testing.T, files tlsconfig.Files) *tlsconfig.Source {
	t.Helper()
	source, err := tlsconfig.Load(files, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func TestEncryptedPortServesVerifiedClients(t *testing.T) {
	ca := tlstest.NewCA(t)
	files := ca.Server(t, "127.0.0.1")
	files.CA = ca.File
	s := start(t, func(c *aggregator.Config) { c.TLS = load(t, files) })
	call := func(creds credentials.TransportCredentials) error {
		conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = pb.NewInferenceCacheClient(conn).LookupRoute(t.Context(), byTokens(tokens(16, 1)))
		return err
	}
	known := ca.Client(t, "gateway")
	known.CA = ca.File
	if err := call(load(t, known).Client("")); err != nil {
		t.Errorf("a client with a certificate: %v", err)
	}
	if err := call(load(t, tlsconfig.Files{CA: ca.File}).Client("")); err == nil {
		t.Error("a client without a certificate is served")
	}
	s.series(t, "inferencecache_server_grpc_tls_enabled 1")
	s.series(t, "inferencecache_server_tls_reload_failures_total 0")
}

func TestPortInTheClearShowsAsSuch(t *testing.T) {
	start(t).series(t, "inferencecache_server_grpc_tls_enabled 0")
}

func TestEncryptionWithoutACertificateIsRefused(t *testing.T) {
	ca := tlstest.NewCA(t)
	_, err := aggregator.New(aggregator.Config{
		GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: 16,
		TLS: load(t, tlsconfig.Files{CA: ca.File}), Log: slog.New(slog.DiscardHandler),
	})
	if err == nil || !strings.Contains(err.Error(), "needs a certificate") {
		t.Errorf("error %v", err)
	}
}
