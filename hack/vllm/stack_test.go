package vllm

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

const (
	tenant = "serving"
	scheme = "vllm"
	// pollEvery is the time between two tries of await.
	pollEvery = 5 * time.Millisecond
	// patience bounds the wait for agent and aggregator; a loaded machine needs a part of it.
	patience = time.Minute
)

// stack is engines, one aggregator and one agent.
type stack struct {
	t                         *testing.T
	model                     string
	engines                   []*engine
	agent, aggregator         *program
	agentHTTP, aggregatorHTTP string
	client                    pb.InferenceCacheClient
}

// newStack starts n engines with a model, then the aggregator with further flags, then the agent, and waits until all are
// ready.
func newStack(t *testing.T, m served, n int, flags ...string) *stack {
	t.Helper()
	s := &stack{t: t, model: m.name}
	for i := range n {
		s.engines = append(s.engines, startEngine(t, fmt.Sprintf("engine-%d", i), m))
	}
	for _, e := range s.engines {
		e.awaitHealthy()
	}
	results.release = s.engines[0].version()

	// Chosen late: what is free now may be taken within the minutes that engines need to start.
	s.agentHTTP, s.aggregatorHTTP = freeAddress(t), freeAddress(t)
	grpcAddress := freeAddress(t)
	s.aggregator = s.program("aggregator", append(flags, "--grpc-bind-address", grpcAddress, "--http-bind-address", s.aggregatorHTTP, "--snapshot-bind-address", "")...)
	s.agent = s.program("agent", "--engines", s.enginesFile(), "--aggregator", grpcAddress, "--http-bind-address", s.agentHTTP)
	conn, err := grpc.NewClient(grpcAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s.client = pb.NewInferenceCacheClient(conn)
	s.aggregator.start()
	s.agent.start()
	s.awaitReady()
	s.awaitPage("the aggregator to be ready", "http://"+s.aggregatorHTTP+"/readyz")
	return s
}

func (s *stack) program(name string, args ...string) *program {
	return &program{t: s.t, name: name, path: filepath.Join(binaries, name), args: args, grace: 5 * time.Second}
}

func (s *stack) enginesFile() string {
	s.t.Helper()
	var list strings.Builder
	list.WriteString("engines:\n")
	for _, e := range s.engines {
		fmt.Fprintf(&list, "  - {name: %s, model: %s, tenant: %s, hashScheme: %s, topic: %s, events: 'tcp://%s', replay: 'tcp://%s', metrics: 'http://%s/metrics'}\n",
			e.name, s.model, tenant, scheme, topic, e.events, e.replay, e.http)
	}
	file := filepath.Join(s.t.TempDir(), "engines.yaml")
	if err := os.WriteFile(file, []byte(list.String()), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// awaitReady waits until the agent is ready: the aggregator has confirmed the whole table.
func (s *stack) awaitReady() {
	s.t.Helper()
	s.awaitPage("the agent to be ready", "http://"+s.agentHTTP+"/readyz")
}

func (s *stack) awaitPage(what, url string) {
	s.t.Helper()
	await(s.t, what, patience, func() error {
		resp, err := http.Get(url)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(resp.Body) // what it says is for people
			return fmt.Errorf("status %s: %s", resp.Status, body)
		}
		return nil
	}, s.agent, s.aggregator)
}

// matched returns the tokens of a prompt that LookupRoute says the engine holds.
func (s *stack) matched(e *engine, adapter string, prompt []uint32) (int, error) {
	_, matched, err := s.look(e, &pb.LookupRouteRequest{AdapterId: adapter, TokenIds: prompt})
	return matched, err
}

// look asks LookupRoute about a prompt in any form, and returns how much of it the engine holds. It reads the
// explanation, because hints leave out matches that are too short to be worth following.
func (s *stack) look(e *engine, r *pb.LookupRouteRequest) (*pb.LookupRouteResponse, int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r.TenantId, r.HashScheme, r.Explain = tenant, scheme, true
	if r.ModelId == "" {
		r.ModelId = s.model
	}
	reply, err := s.client.LookupRoute(ctx, r, grpc.WaitForReady(true))
	if err != nil {
		return nil, 0, fmt.Errorf("look up a route: %w", err)
	}
	matched := 0
	for _, c := range reply.GetExplanation().GetCandidates() {
		if c.GetReplicaId() == e.name {
			matched = int(c.GetMatchedTokens())
		}
	}
	for _, score := range reply.GetReplicaScores() {
		if score.GetReplicaId() == e.name && score.GetMatchedTokens() > 0 && int(score.GetMatchedTokens()) != matched {
			return nil, 0, fmt.Errorf("look up a route: the hint says that %s holds %d tokens, its explanation %d", e.name, score.GetMatchedTokens(), matched)
		}
	}
	return reply, matched, nil
}

func (s *stack) mustMatch(e *engine, adapter string, prompt []uint32) int {
	s.t.Helper()
	matched, err := s.matched(e, adapter, prompt)
	if err != nil {
		s.t.Fatal(err)
	}
	return matched
}

// awaitMatch waits until the index says that the engine holds exactly these many tokens of a prompt.
func (s *stack) awaitMatch(e *engine, adapter string, prompt []uint32, want int) time.Duration {
	s.t.Helper()
	return s.awaitIndex(e, adapter, prompt, fmt.Sprint("exactly ", want), func(got int) bool { return got == want })
}

// awaitAtLeast waits until the index says that the engine holds these many tokens of a prompt or more.
func (s *stack) awaitAtLeast(e *engine, adapter string, prompt []uint32, want int) time.Duration {
	s.t.Helper()
	return s.awaitIndex(e, adapter, prompt, fmt.Sprint("at least ", want), func(got int) bool { return got >= want })
}

func (s *stack) awaitIndex(e *engine, adapter string, prompt []uint32, want string, enough func(int) bool) time.Duration {
	s.t.Helper()
	return await(s.t, fmt.Sprintf("the index to hold %s of %d tokens at %s", want, len(prompt), e.name), patience, func() error {
		got, err := s.matched(e, adapter, prompt)
		if err == nil && !enough(got) {
			err = fmt.Errorf("it holds %d", got)
		}
		return err
	}, s.agent, s.aggregator)
}
