package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/inferencecache/inferencecache/aggregator/auth"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/demo/inspect"
	"github.com/inferencecache/inferencecache/hack/kube/kubetest"
)

const nodes = 5

// system is everything, installed and running.
type system struct {
	*kubetest.Cluster
	t           *testing.T
	dir         string
	pods        []*pod
	prompts     uint64 // made up so far
	agents      []*program
	aggregators []*program
	next        *program // an aggregator that agents would find, started by who needs it
	controllers []*program
}

// newSystem starts a cluster of fake nodes, two aggregators, an agent for each node and two controllers, and
// returns when all are ready.
func newSystem(t *testing.T) *system {
	t.Helper()
	s := &system{Cluster: kubetest.Start(t), t: t, dir: t.TempDir()}
	webhooks := install(t, s.Cluster)
	s.StartKwok(t, kubetest.PodCIDR())
	for i := range nodes {
		s.Node(t, node(i))
	}
	for i := range 2 {
		s.addAggregator(i)
	}
	s.next = s.newAggregator(2)
	for i := range nodes {
		s.addAgent(i)
	}
	for i := range 2 {
		s.addController(i)
	}
	serve(t, webhooks, s.controllers[0].webhooks, s.controllers[1].webhooks)
	for _, p := range slices.Concat(s.aggregators, s.agents, s.controllers) {
		await(t, p.name+" to be ready", p.ready)
	}
	return s
}

func node(i int) string { return fmt.Sprintf("node-%d", i) }

// arguments gives a program what the manifests give it, with its account and no other rights; what comes later
// counts.
func (s *system) arguments(p *program, more ...string) {
	s.t.Helper()
	w := installed(s.t, s.Cluster, p.path)
	p.args = slices.Concat(w.args, []string{"--kubeconfig", kubetest.Kubeconfig(s.t, s.ServiceAccount(s.t, namespace, w.account))}, more)
}

// newAggregator returns an aggregator that is to be started with the manifests' flags.
func (s *system) newAggregator(i int, more ...string) *program {
	s.t.Helper()
	host := kubetest.Host()
	p := &program{name: fmt.Sprintf("aggregator-%d", i), path: "aggregator", grpc: host + ":9090", http: host + ":8080", admin: host + ":8081"}
	s.arguments(p, append(more, "--grpc-bind-address", p.grpc, "--http-bind-address", p.http, "--snapshot-bind-address", p.admin)...)
	return p
}

// addAggregator starts an aggregator that is ready sooner than with the manifests' flags.
func (s *system) addAggregator(i int) {
	s.t.Helper()
	p := s.newAggregator(i, "--expected-agents", fmt.Sprint(nodes), "--agent-lease", "5s")
	s.aggregators = append(s.aggregators, p)
	p.start(s.t, s.dir)
}

func (s *system) addAgent(i int) {
	s.t.Helper()
	p := &program{name: fmt.Sprintf("agent-%d", i), path: "agent", http: kubetest.Host() + ":8082"}
	s.arguments(p, "--node-name", node(i), "--http-bind-address", p.http, "--beat", "500ms")
	for _, aggregator := range append(slices.Clone(s.aggregators), s.next) {
		p.args = append(p.args, "--aggregator", aggregator.grpc)
	}
	s.agents = append(s.agents, p)
	p.start(s.t, s.dir)
}

func (s *system) addController(i int) {
	s.t.Helper()
	token := filepath.Join(s.dir, "controller-token")
	if err := os.WriteFile(token, []byte(s.Token(s.t, namespace, controllerAccount, auth.ControllerAudience)), 0o600); err != nil {
		s.t.Fatal(err)
	}
	host := kubetest.Host()
	p := &program{name: fmt.Sprintf("controller-%d", i), path: "controller", http: host + ":8081", metrics: host + ":8080", webhooks: host + ":9443"}
	s.arguments(p, "--namespace", namespace, "--health-probe-bind-address", p.http, "--metrics-bind-address", p.metrics,
		"--webhook-bind-address", p.webhooks, "--snapshot-token-file", token, "--cacheindex-refresh-interval", "1s")
	for _, aggregator := range s.aggregators {
		p.args = append(p.args, "--server-snapshot-url", "http://"+aggregator.admin+"/snapshot")
	}
	s.controllers = append(s.controllers, p)
	p.start(s.t, s.dir)
}

// revive starts a program again if it has ended, as a kubelet does, and waits until it is ready. A controller
// ends when it cannot renew its Lease for 10 s.
func (s *system) revive(p *program) {
	s.t.Helper()
	await(s.t, p.name+" to be ready", func() error {
		select {
		case <-p.process.Done():
			p.start(s.t, s.dir)
		default:
		}
		return p.ready()
	})
}

// dial returns the connection to a program, which outlives the program's restarts.
func (s *system) dial(p *program) *grpc.ClientConn {
	s.t.Helper()
	if p.conn != nil {
		return p.conn
	}
	conn, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1, MaxDelay: 100 * time.Millisecond}}))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	p.conn = conn
	return conn
}

// mustAgree waits until each of the aggregators holds exactly what the engines hold.
func (s *system) mustAgree(t *testing.T, aggregators ...*program) {
	t.Helper()
	for _, p := range aggregators {
		client := pb.NewCacheInspectionClient(s.dial(p))
		await(t, p.name+" to agree with the engines", func() error {
			known, err := inspect.Known(t.Context(), client)
			if err != nil {
				return err
			}
			all := []string{}
			for replica, blocks := range known {
				for block := range blocks {
					all = append(all, fmt.Sprintf("%s/%d/%016x", replica, block.Rank, block.Hash))
				}
			}
			slices.Sort(all)
			if diff := cmp.Diff(s.held(t), all); diff != "" {
				return fmt.Errorf("-engines +index:\n%.2000s", diff)
			}
			return nil
		})
	}
}

// lookup asks an aggregator where a prompt of the pod's tenant, for an engine like the pod's, should go.
func (s *system) lookup(ctx context.Context, aggregator *program, p *pod, prompt []uint32) (*pb.LookupRouteResponse, error) {
	return pb.NewInferenceCacheClient(s.dial(aggregator)).LookupRoute(ctx, &pb.LookupRouteRequest{
		TenantId: p.namespace, ModelId: model, HashScheme: p.scheme(), TokenIds: prompt,
	})
}

// hinted returns an error unless an aggregator names the pod for its prompt, and no other.
func (s *system) hinted(ctx context.Context, aggregator *program, p *pod) error {
	reply, err := s.lookup(ctx, aggregator, p, p.prompt)
	if err != nil {
		return err
	}
	if len(reply.ReplicaScores) != 1 || reply.ReplicaScores[0].ReplicaId != p.name || int(reply.ReplicaScores[0].MatchedTokens) < len(p.prompt) {
		return fmt.Errorf("the prompt of %s gets %v", p.name, reply)
	}
	return nil
}
