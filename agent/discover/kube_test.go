package discover_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/inferencecache/inferencecache/agent"
	"github.com/inferencecache/inferencecache/agent/discover"
	"github.com/inferencecache/inferencecache/agent/status"
	"github.com/inferencecache/inferencecache/aggregator"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/fakeengine"
	"github.com/inferencecache/inferencecache/hack/kube/kubetest"
)

const (
	patience = time.Minute
	team     = "team"
	events   = `{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:6557","topic":"kv-events"}`
)

// rules are all that the agent may do.
const rules = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: agent}
rules:
- {apiGroups: [""], resources: [pods], verbs: [list, watch]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: agent}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: agent}
subjects: [{kind: ServiceAccount, namespace: system, name: agent}]
`

// site is a node of a cluster with an agent that looks for engines there, and an aggregator.
type site struct {
	*kubetest.Cluster
	root *testing.T // until whose end everything runs
	t    *testing.T // of the step under way
	http string     // of the agent
	conn *grpc.ClientConn
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{Cluster: kubetest.Start(t), root: t, t: t}
	s.StartKwok(t, kubetest.PodCIDR())
	s.Apply(t, []byte(rules))
	s.Namespace(t, team)
	for _, node := range []string{"node-1", "node-2"} {
		s.Node(t, node)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	agg, err := aggregator.New(aggregator.Config{GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: 16, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	run(t, "aggregator", agg.Run)
	client, err := kubernetes.NewForConfig(s.ServiceAccount(t, "system", "agent"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := discover.New(discover.Config{Client: client, Node: "node-1", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(agent.Options{
		Discovery: d, Aggregators: []string{agg.GRPCAddr()}, HTTPAddress: "127.0.0.1:0", ID: "node-1",
		Beat: 100 * time.Millisecond, StatsInterval: 100 * time.Millisecond, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, "agent", a.Run)
	s.http = "http://" + a.HTTPAddr()
	if s.conn, err = grpc.NewClient(agg.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.conn.Close() })
	return s
}

// run runs a part until the test ends, and returns what stops it before.
func run(t *testing.T, name string, part func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- part(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// pod makes a pod on a node and returns its address.
func (s *site) pod(node, name string, command ...string) string {
	s.t.Helper()
	_, err := s.Client().CoreV1().Pods(team).Create(s.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{
			{Name: "proxy", Image: "envoy:1"},
			{Name: "server", Image: "vllm/vllm-openai:v0.11.2", Command: command},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return s.AwaitPod(s.t, team, name).Status.PodIP
}

// serve is the command of a pod with events on.
func serve(model string, flags ...string) []string {
	return append([]string{"vllm", "serve", model, "--port", "8000", "--kv-events-config", events}, flags...)
}

// engine runs an engine on a pod's address.
func (s *site) engine(address, model string, change func(*fakeengine.Config)) (*fakeengine.Engine, func()) {
	s.t.Helper()
	cfg := fakeengine.LoopbackConfig()
	cfg.Model, cfg.Blocks, cfg.Topic = model, 200, "kv-events"
	cfg.HTTPBindAddress, cfg.Events, cfg.Replay = address+":8000", "tcp://"+address+":5557", "tcp://"+address+":6557"
	if change != nil {
		change(&cfg)
	}
	e, err := fakeengine.New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	stop := run(s.root, "engine at "+address, e.Run)
	select {
	case <-e.Ready():
	case <-time.After(patience):
		s.t.Fatalf("the engine at %s does not start", address)
	}
	return e, stop
}

// prompted counts up, so that no two prompts are alike.
var prompted uint32

// ask lets an engine compute a prompt that is new.
func (s *site) ask(e *fakeengine.Engine, model string) {
	s.t.Helper()
	prompt := make([]uint32, 100)
	prompted++
	prompt[0] = prompted
	if _, err := e.Complete(s.t.Context(), fakeengine.Request{Model: model, Prompt: prompt, MaxTokens: 1}); err != nil {
		s.t.Fatal(err)
	}
}

// truth lists what an engine holds, as the index should have it of a replica under its names.
func truth(replica string, e *fakeengine.Engine, models ...string) (all []string) {
	for _, set := range e.Fingerprints() {
		for _, print := range set.Fingerprints {
			for _, model := range models {
				all = append(all, fmt.Sprintf("%s %s %s rank %d %s %016x", team, replica, model, set.Rank, set.LoRA, print))
			}
		}
	}
	return all
}

// index lists what the aggregator holds.
func (s *site) index() (all []string) {
	s.t.Helper()
	stream, err := pb.NewCacheInspectionClient(s.conn).DumpIndex(s.t.Context(), &pb.DumpIndexRequest{})
	for err == nil {
		var batch *pb.DumpIndexResponse
		if batch, err = stream.Recv(); err == nil {
			for _, e := range batch.Entries {
				all = append(all, fmt.Sprintf("%s %s %s rank %d %s %x", e.TenantId, e.ReplicaId, e.ModelId, e.Rank, e.AdapterId, e.Hash))
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		s.t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// holds waits until the index is exactly the given lists, and returns how long that took.
func (s *site) holds(when string, lists ...[]string) time.Duration {
	s.t.Helper()
	want := slices.Concat(lists...)
	slices.Sort(want)
	began := time.Now()
	for {
		got := s.index()
		if slices.Equal(got, want) {
			return time.Since(began)
		}
		if time.Since(began) > patience {
			s.t.Fatalf("%s, the index is not what the engines hold (-want +got):\n%s\n%s", when, cmp.Diff(want, got), s.get("/status"))
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *site) await(what string, done func() bool) {
	s.t.Helper()
	for began := time.Now(); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			s.t.Fatalf("waited in vain for %s; the agent says\n%s", what, s.get("/status"))
		}
	}
}

func (s *site) get(path string) string {
	s.t.Helper()
	resp, err := http.Get(s.http + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(body)
}

func (s *site) status() (report status.Report) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.get("/status")), &report); err != nil {
		s.t.Fatal(err)
	}
	return report
}

// container returns what the agent says of a pod's engine; empty if nothing.
func (s *site) container(pod string) (c status.Container) {
	s.t.Helper()
	for _, c := range s.status().Discovery.Containers {
		if c.Pod == pod {
			return c
		}
	}
	return status.Container{}
}

// change changes the state of a pod as a kubelet would.
func (s *site) change(pod string, change func(*corev1.Pod)) {
	s.t.Helper()
	p, err := s.Client().CoreV1().Pods(team).Get(s.t.Context(), pod, metav1.GetOptions{})
	if err == nil {
		change(p)
		_, err = s.Client().CoreV1().Pods(team).UpdateStatus(s.t.Context(), p, metav1.UpdateOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) remove(pod string) {
	s.t.Helper()
	if err := s.Client().CoreV1().Pods(team).Delete(s.t.Context(), pod, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// about returns the Events of a pod.
func (s *site) about(pod string) (all []eventsv1.Event) {
	s.t.Helper()
	list, err := s.Client().EventsV1().Events(team).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Regarding.Name == pod {
			all = append(all, e)
		}
	}
	return all
}

// step runs a part of the test under a name of its own.
func (s *site) step(name string, do func(t *testing.T)) {
	s.root.Run(name, func(t *testing.T) {
		s.t = t
		defer func() { s.t = s.root }()
		do(t)
	})
	if s.root.Failed() { // what follows builds on it
		s.root.FailNow()
	}
}

func TestKubeEnginesAreFollowedFromPods(t *testing.T) {
	s := newSite(t)
	s.await("the agent to be ready", func() bool { return strings.HasPrefix(s.get("/readyz"), "ok") })

	// A pod with two names, two ranks and an adapter of which its events give the number only; one of another
	// node, which is another agent's; one whose events are off.
	first := s.pod("node-1", "first", serve("/models/m", "--served-model-name", "m", "m-alias", "-dp", "2", "--enable-lora", "--lora-modules", "sql=/sql")...)
	a, stopA := s.engine(first, "m", func(c *fakeengine.Config) {
		c.Ranks, c.Adapters, c.EventForm, c.ArrayFields = 2, map[string]int{"sql": 1}, fakeengine.EventArray, 7
	})
	elsewhere := s.pod("node-2", "elsewhere", serve("m")...)
	other, _ := s.engine(elsewhere, "m", nil)
	s.pod("node-1", "mute", "vllm", "serve", "m")
	for range 4 {
		s.ask(a, "m")
		s.ask(a, "sql")
		s.ask(other, "m")
	}
	s.holds("with one pod of the node", truth("first", a, "m", "m-alias"))

	s.step("a pod whose events are off gets an Event that names the flag, once", func(t *testing.T) { s.muteIsReported(t) })
	second := s.pod("node-1", "second", "sh", "-c", "exec vllm serve $MODEL --port 8000 --kv-events-config '"+events+"'")
	s.step("a variable that is set nowhere is a problem, not an engine", func(t *testing.T) {
		s.await("the problem", func() bool { return s.container("second").State == status.Problem })
		if text := s.container("second").Problems[0].Text; !strings.Contains(text, "$MODEL is not set in the pod") {
			t.Errorf("problem %q", text)
		}
	})
	s.step("the owner may say what the command does not", func(t *testing.T) {
		s.annotate("second", discover.Model, "m")
		s.await("the engine to be followed", func() bool { return s.container("second").State == status.Followed })
	})
	b, stopB := s.engine(second, "m", nil)
	s.ask(b, "m")
	s.holds("with two pods", truth("first", a, "m", "m-alias"), truth("second", b, "m"))

	s.step("a container that restarts holds nothing of what it held", func(t *testing.T) { b, stopB = s.restarts(t, second, stopB, a) })
	s.step("a pod that is not ready is followed, and said to be so", func(t *testing.T) { s.unready(t, a, b) })
	s.step("another address is followed", func(t *testing.T) { b, stopB = s.moves(t, second, stopB, a) })
	s.step("an API server that is away changes nothing", func(t *testing.T) { s.away(t, a, b) })
	s.step("a pod that is deleted is gone at once, another of its name is another", func(t *testing.T) { b, stopB = s.replaced(t, stopB, a) })
	stopA()
	s.remove("first")
	s.holds("at the end", truth("second", b, "m"))
	stopB()
}

func (s *site) annotate(pod, key, value string) {
	s.t.Helper()
	p, err := s.Client().CoreV1().Pods(team).Get(s.t.Context(), pod, metav1.GetOptions{})
	if err == nil {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value)
		_, err = s.Client().CoreV1().Pods(team).Update(s.t.Context(), p, metav1.UpdateOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) muteIsReported(t *testing.T) {
	s.await("the Event", func() bool { return len(s.about("mute")) > 0 })
	s.change("mute", func(p *corev1.Pod) { p.Status.Conditions = nil }) // the agent looks again
	s.await("the container to be seen again", func() bool { return s.container("mute").State == status.Problem })
	got := s.about("mute")
	if len(got) != 1 || got[0].Type != corev1.EventTypeWarning || got[0].Reason != "KVEventsDisabled" || got[0].Series != nil ||
		!strings.Contains(got[0].Note, `add --kv-events-config '{"enable_kv_cache_events":true`) {
		t.Errorf("Events %+v", got)
	}
	describe := exec.Command(filepath.Join(kubetest.Programs(t), "kubectl"), "--kubeconfig", s.Kubeconfig(t), "-n", team, "describe", "pod", "mute")
	if out, err := describe.CombinedOutput(); err != nil || !strings.Contains(string(out), "KVEventsDisabled") {
		t.Errorf("kubectl describe: %v\n%s", err, out)
	} else {
		t.Logf("kubectl describe pod mute\n%s", out)
	}
	metric := fmt.Sprintf(`inferencecache_agent_discovery_problem{container="server",namespace=%q,pod="mute",reason="KVEventsDisabled"} 1`, team)
	if !strings.Contains(s.get("/metrics"), metric) {
		t.Errorf("no metric %s", metric)
	}
}

// restarts ends an engine as a container that is killed, and starts it again.
func (s *site) restarts(t *testing.T, address string, stop func(), a *fakeengine.Engine) (*fakeengine.Engine, func()) {
	server := func(p *corev1.Pod) *corev1.ContainerStatus {
		i := slices.IndexFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == "server" })
		return &p.Status.ContainerStatuses[i]
	}
	stop()
	s.change("second", func(p *corev1.Pod) {
		server(p).State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	})
	took := s.holds("while the container is down", truth("first", a, "m", "m-alias"))
	t.Logf("its blocks were gone %v after the state was written", took)
	b, stopB := s.engine(address, "m", nil)
	s.ask(b, "m")
	s.change("second", func(p *corev1.Pod) {
		c := server(p)
		c.RestartCount, c.ContainerID = 1, "test://server-1"
		c.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	})
	s.holds("after the restart", truth("first", a, "m", "m-alias"), truth("second", b, "m"))

	// Again, so fast that no state between is seen: nothing of the old process may be left.
	stopB()
	b, stopB = s.engine(address, "m", nil)
	s.ask(b, "m")
	s.change("second", func(p *corev1.Pod) { server(p).RestartCount, server(p).ContainerID = 2, "test://server-2" })
	s.holds("after the second restart", truth("first", a, "m", "m-alias"), truth("second", b, "m"))
	return b, stopB
}

func (s *site) unready(t *testing.T, a, b *fakeengine.Engine) {
	ready := func(to corev1.ConditionStatus) {
		s.change("second", func(p *corev1.Pod) {
			for i := range p.Status.Conditions {
				if p.Status.Conditions[i].Type == corev1.PodReady {
					p.Status.Conditions[i].Status = to
				}
			}
		})
	}
	ready(corev1.ConditionFalse)
	s.await("the pod to be said unready", func() bool { return s.container("second").State == status.Unready })
	s.ask(b, "m")
	s.holds("while a pod is unready", truth("first", a, "m", "m-alias"), truth("second", b, "m"))
	if !strings.Contains(s.get("/metrics"), `inferencecache_agent_discovery_containers{state="unready"} 1`) {
		t.Error("no metric says that a container is unready")
	}
	ready(corev1.ConditionTrue)
	s.await("the pod to be said ready", func() bool { return s.container("second").State == status.Followed })
}

// moves gives the pod another address.
func (s *site) moves(_ *testing.T, address string, stop func(), a *fakeengine.Engine) (*fakeengine.Engine, func()) {
	stop()
	next := address[:strings.LastIndexByte(address, '.')] + ".250"
	b, stopB := s.engine(next, "m", nil)
	s.ask(b, "m")
	s.change("second", func(p *corev1.Pod) { p.Status.PodIP, p.Status.PodIPs = next, []corev1.PodIP{{IP: next}} })
	s.holds("at another address", truth("first", a, "m", "m-alias"), truth("second", b, "m"))
	return b, stopB
}

// away stops the API server for a while.
func (s *site) away(t *testing.T, a, b *fakeengine.Engine) {
	metric := func(value string) bool {
		return strings.Contains(s.get("/metrics"), "\ninferencecache_agent_discovery_connected "+value+"\n")
	}
	s.StopAPIServer(s.root)
	s.await("the agent to notice", func() bool { return metric("0") })
	s.ask(a, "sql")
	s.ask(b, "m")
	s.holds("without an API server", truth("first", a, "m", "m-alias"), truth("second", b, "m"))
	if ready := s.get("/readyz"); !strings.HasPrefix(ready, "ok") {
		t.Errorf("readyz says %q", ready)
	}
	s.StartAPIServer(s.root)
	began := time.Now()
	s.await("the agent to be told again", func() bool { return metric("1") })
	t.Logf("the agent was told again %v after the API server was back", time.Since(began))
	s.holds("with an API server again", truth("first", a, "m", "m-alias"), truth("second", b, "m"))
}

// replaced deletes a pod and makes another of the same name.
func (s *site) replaced(t *testing.T, stop func(), a *fakeengine.Engine) (*fakeengine.Engine, func()) {
	s.remove("second")
	took := s.holds("after the deletion", truth("first", a, "m", "m-alias"))
	t.Logf("a deleted pod's blocks were gone after %v", took)
	stop()
	s.await("the pod to be gone", func() bool {
		list, err := s.Client().CoreV1().Pods(team).List(s.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=second"})
		return err == nil && len(list.Items) == 0
	})
	b, stopB := s.engine(s.pod("node-1", "second", serve("m")...), "m", nil)
	s.ask(b, "m")
	s.holds("with another pod of the name", truth("first", a, "m", "m-alias"), truth("second", b, "m"))
	return b, stopB
}
