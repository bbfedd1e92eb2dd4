package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/aggregator/policy"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

var (
	target    = flag.String("target", "", "gRPC `address` of the aggregator to test; empty starts one")
	ours      = flag.Bool("ours", false, "the target is InferenceCache: prove also what only it has")
	policyURL = flag.String("policy-url", "", "`URL` of the target's policy endpoint, which must take snapshots without authentication")
)

// row is one rule.
type row struct {
	rule string
	// policy, if not nil, changes the default policy of the row's tenant.
	policy func(*policy.Policy)
	// own says that the row needs a field that only InferenceCache has.
	own bool
	// alone says that the row needs an aggregator that knows nothing yet.
	alone bool
	given []act

	ask  *pb.LookupRouteRequest
	want string // the answer in brief, see matches
	// also checks what the brief form leaves out.
	also func(*pb.LookupRouteResponse) error

	// ack is what the last act is answered: "" is accepted, "any" is not checked.
	ack string
	// state is GetCacheState in brief, if not empty.
	state string
}

// act is something that a producer does; it returns the Ack.
type act func(*session) (*pb.Ack, error)

// session is one row under way.
type session struct {
	pb.InferenceCacheClient
	conn   *grpc.ClientConn
	ctx    context.Context
	tenant string
}

// server is an aggregator under test.
type server struct {
	conn     *grpc.ClientConn
	policies *policies // nil if it is not ours
	stop     func()
}

// policies gives the aggregator under test the policy of each row.
type policies struct{ byTenant sync.Map }

func (p *policies) of(tenant string) *policy.Policy {
	if found, ok := p.byTenant.Load(tenant); ok {
		return found.(*policy.Policy)
	}
	standard := policy.Default()
	return &standard
}

func connect(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
}

// startServer runs an aggregator on loopback.
func startServer() (*server, error) {
	p := &policies{}
	a, err := aggregator.New(aggregator.Config{
		GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: 16, Policy: p.of,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	conn, err := connect(a.GRPCAddr())
	stop := func() {
		if conn != nil {
			conn.Close()
		}
		cancel()
		<-done
	}
	if err != nil {
		stop()
		return nil, err
	}
	return &server{conn, p, stop}, nil
}

// shared is the aggregator that all rows but those that are alone use.
var shared *server

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if *target == "" {
		shared, err = startServer()
	} else {
		shared = &server{stop: func() {}}
		shared.conn, err = connect(*target)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1) //nolint:forbidigo // TestMain ends the test process
	}
	code := m.Run()
	shared.stop()
	os.Exit(code) //nolint:forbidigo // TestMain ends the test process
}

// run names tenants apart from those of other runs against the same target.
var run = strconv.FormatUint(rand.Uint64(), 36)

var counted struct {
	sync.Mutex
	rows int
}

// prove runs rows, each as a subtest named by its rule.
func prove(t *testing.T, rows []row) {
	t.Helper()
	for i := range rows {
		r := &rows[i]
		counted.Lock()
		counted.rows++
		tenant := fmt.Sprintf("conformance-%s-%d", run, counted.rows)
		counted.Unlock()
		t.Run(r.rule, func(t *testing.T) { r.prove(t, tenant) })
	}
}

func (r *row) prove(t *testing.T, tenant string) {
	under := shared
	switch {
	case *target != "" && r.alone:
		t.Skip("only for an aggregator that the test starts")
	case *target != "" && r.own && !*ours:
		t.Skip("only for InferenceCache; see -ours")
	case r.alone:
		s, err := startServer()
		if err != nil {
			t.Fatal(err)
		}
		defer s.stop()
		under = s
	}
	if r.policy != nil {
		r.install(t, under, tenant)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := &session{pb.NewInferenceCacheClient(under.conn), under.conn, ctx, tenant}
	r.act(t, s)
	r.lookup(t, s)
	r.checkState(t, s)
}

func (r *row) act(t *testing.T, s *session) {
	ack := &pb.Ack{Accepted: true}
	for _, a := range r.given {
		var err error
		if ack, err = a(s); err != nil {
			t.Fatal(err)
		}
	}
	if r.ack == "any" {
		return
	}
	if ack.GetAccepted() != (r.ack == "") || ack.GetReasonCode() != r.ack {
		t.Errorf("ack %v, want reason %q", ack, r.ack)
	}
}

func (r *row) lookup(t *testing.T, s *session) {
	if r.ask == nil {
		return
	}
	req := proto.CloneOf(r.ask)
	if req.GetTenantId() == "t" {
		req.TenantId = s.tenant
	}
	resp, err := s.LookupRoute(s.ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if err := matches(r.want, resp); err != nil {
		t.Errorf("%v\nanswer %v", err, resp)
	}
	if r.also != nil {
		if err := r.also(resp); err != nil {
			t.Errorf("%v\nanswer %v", err, resp)
		}
	}
}

func (r *row) checkState(t *testing.T, s *session) {
	if r.state == "" {
		return
	}
	state, err := s.GetCacheState(s.ctx, &pb.GetCacheStateRequest{TenantId: s.tenant, ModelId: "m"})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("prefixes=%d", state.GetSummary().GetTotalPrefixes())
	for _, replica := range state.GetReplicas() {
		got += fmt.Sprintf(" %s:%g/%g", replica.GetReplicaId(), replica.GetHitRate(), replica.GetPressure())
	}
	if got != r.state {
		t.Errorf("state %q, want %q", got, r.state)
	}
}

// matches compares an answer with its brief form: the reason, then for each score in order
// replica:tokens, and if it matters #rank, =score and @tier. Scores are compared within 3 %, since
// entries age while a row runs.
func matches(want string, resp *pb.LookupRouteResponse) error {
	fields := strings.Fields(want)
	if resp.GetReasonCode() != fields[0] {
		return fmt.Errorf("reason %s, want %s", resp.GetReasonCode(), want)
	}
	if len(fields)-1 != len(resp.GetReplicaScores()) {
		return fmt.Errorf("%d scores, want %s", len(resp.GetReplicaScores()), want)
	}
	for i, s := range resp.GetReplicaScores() {
		field, tier, _ := strings.Cut(fields[i+1], "@")
		field, score, scored := strings.Cut(field, "=")
		if got := fmt.Sprintf("%s:%d", s.GetReplicaId(), s.GetMatchedTokens()); got != field {
			return fmt.Errorf("place %d is %s, want %s", i, got, want)
		}
		if tier != "" && !strings.HasSuffix(s.GetTier().String(), "_"+tier) {
			return fmt.Errorf("tier %v of %s, want %s", s.GetTier(), field, tier)
		}
		if !scored {
			continue
		}
		number, err := strconv.ParseFloat(score, 32)
		if err != nil {
			return err
		}
		if got := float64(s.GetScore()); got < number*0.97 || got > number*1.03 {
			return fmt.Errorf("score %g of %s, want %s", got, field, score)
		}
	}
	return nil
}

// install gives the row's tenant its policy.
func (r *row) install(t *testing.T, under *server, tenant string) {
	p := policy.Default()
	r.policy(&p)
	if under.policies != nil {
		under.policies.byTenant.Store(tenant, &p)
		return
	}
	if *policyURL == "" {
		t.Skip("needs a policy; see -policy-url")
	}
	if p.LookupTimeout > 0 && p.LookupTimeout < time.Millisecond {
		t.Skip("needs a lookup timeout that a pushed policy cannot state")
	}
	body, err := json.Marshal(snapshot(tenant, &p))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(*policyURL, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		t.Fatalf("push the policy: status %d: %s", resp.StatusCode, text)
	}
}

// snapshot is a policy in the form of the policy endpoint, version 7. Fields that only InferenceCache has
// are there if the target is.
func snapshot(tenant string, p *policy.Policy) map[string]any {
	eviction := "lru"
	if p.LFU {
		eviction = "lfu"
	}
	stated := map[string]any{
		"namespace":            tenant,
		"evictionTTL":          p.TTL.Nanoseconds(),
		"minimumPrefixTokens":  p.MinimumPrefixTokens,
		"minimumMatchedTokens": p.MinimumMatchedTokens,
		"routingFloorScore":    p.RoutingFloorScore,
		"lookupTimeoutMs":      p.LookupTimeout.Milliseconds(),
		"affinityRouting":      p.Affinity,
		"eviction":             eviction,
		"strategy": map[string]any{
			"enableChainMatching": p.ChainMatching, "requireChain": p.RequireChain, "enableTenantHot": p.TenantHot,
		},
	}
	if *ours {
		stated["minimumMatchedShare"] = p.MinimumMatchedShare
		stated["scoreTolerance"] = p.ScoreTolerance
		stated["affinitySeedBlocks"] = p.AffinitySeedBlocks
		stated["affinityChoices"] = p.AffinityChoices
		stated["affinityPlacement"] = "modulo"
		if p.Rendezvous {
			stated["affinityPlacement"] = "rendezvous"
		}
	}
	return map[string]any{"version": 7, "policies": []any{stated}}
}

// TestThereAreRows guards against tables that are not run.
func TestThereAreRows(t *testing.T) {
	n := 0
	for _, table := range tables() {
		n += len(table)
	}
	if n < 200 {
		t.Errorf("%d rows, want at least 200", n)
	}
	t.Logf("%d rows", n)
}

// TestConformance proves every table.
func TestConformance(t *testing.T) {
	for name, rows := range tables() {
		t.Run(name, func(t *testing.T) { prove(t, rows) })
	}
}

// tables returns all rows by what they are about.
func tables() map[string][]row {
	return map[string][]row{
		"match": matchRows(), "rank": rankRows(), "tier": tierRows(), "adapter": adapterRows(),
		"input": inputRows(), "precedence": precedenceRows(), "floors": floorRows(), "minimum prefix tokens": minimumRows(),
		"tenant hot": tenantHotRows(), "diagnostics": diagnosticRows(), "affinity": affinityRows(), "placement": placementRows(),
		"policy": policyRows(), "candidates": candidateRows(), "explain": explainRows(),
		"report": reportRows(), "event": eventRows(), "state": stateRows(), "hot prefixes": hotRows(), "views": viewRows(),
	}
}
