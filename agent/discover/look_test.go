package discover

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"

	"github.com/inferencecache/inferencecache/agent/config"
	"github.com/inferencecache/inferencecache/agent/status"
)

// looking is a Discovery that is shown pods by hand, and what it does about them.
type looking struct {
	*Discovery
	events *events.FakeRecorder
	done   []string
	refuse error
}

func newLooking(t *testing.T) *looking {
	t.Helper()
	d, err := New(Config{Node: "node-1", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l := &looking{Discovery: d, events: events.NewFakeRecorder(100)}
	d.recorder = l.events
	return l
}

func (l *looking) show(pod *corev1.Pod) {
	l.look(pod, "team/pod-a", func(e config.Engine) error {
		if l.refuse == nil {
			l.done = append(l.done, fmt.Sprintf("follow %s at %s", e.ID, e.Events))
		}
		return l.refuse
	}, func(id string) { l.done = append(l.done, "unfollow "+id) })
}

func TestPodsAreFollowedAsTheyChange(t *testing.T) {
	usual := vllmPod()
	restarted := changed(usual, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount++ })
	down := changed(usual, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} })
	off := annotated(usual, EventsEndpoint, "ipc://x")
	const follow, unfollow = "follow team/pod-a at tcp://10.0.0.7:5557", "unfollow team/pod-a"
	for name, c := range map[string]struct {
		pods []*corev1.Pod // nil is a pod that is gone
		want []string
	}{
		"a new one":                         {[]*corev1.Pod{usual}, []string{follow}},
		"one that stays":                    {[]*corev1.Pod{usual, usual.DeepCopy(), usual}, []string{follow}},
		"one that restarts":                 {[]*corev1.Pod{usual, restarted}, []string{follow, follow}},
		"one that is down for a while":      {[]*corev1.Pod{usual, down, restarted}, []string{follow, unfollow, follow}},
		"one that goes":                     {[]*corev1.Pod{usual, nil}, []string{follow, unfollow}},
		"one that goes unseen":              {[]*corev1.Pod{nil}, nil},
		"one whose owner switches it off":   {[]*corev1.Pod{usual, annotated(usual, Engine, "none")}, []string{follow, unfollow}},
		"one that gets a problem":           {[]*corev1.Pod{usual, off}, []string{follow, unfollow}},
		"one whose problem is mended":       {[]*corev1.Pod{off, usual}, []string{follow}},
		"one with another address":          {[]*corev1.Pod{usual, changed(usual, func(p *corev1.Pod) { p.Status.PodIP, p.Status.PodIPs = "10.0.0.8", nil })}, []string{follow, "follow team/pod-a at tcp://10.0.0.8:5557"}},
		"another pod of the name":           {[]*corev1.Pod{usual, changed(usual, func(p *corev1.Pod) { p.UID = "uid-2" })}, []string{follow, follow}},
		"one that gets another name itself": {[]*corev1.Pod{usual, annotated(usual, Model, "other")}, []string{follow, follow}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLooking(t)
			for _, p := range c.pods {
				l.show(p)
			}
			if diff := cmp.Diff(c.want, l.done); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if last := c.pods[len(c.pods)-1]; last == nil && len(l.pods) != 0 {
				t.Errorf("%d pods are kept", len(l.pods))
			}
		})
	}
}

func TestProblemsAreReportedWhenTheyAppear(t *testing.T) {
	off := changed(vllmPod(), func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"vllm", "serve", "m"} })
	l := newLooking(t)
	seen := func(when string, want ...string) {
		t.Helper()
		for _, reason := range want {
			select {
			case e := <-l.events.Events:
				if !strings.Contains(e, "Warning "+reason) {
					t.Errorf("%s: Event %q, want %s", when, e, reason)
				}
			default:
				t.Errorf("%s: no Event, want %s", when, reason)
			}
		}
		if n := len(l.events.Events); n > 0 {
			t.Errorf("%s: %d Events too many, such as %q", when, n, <-l.events.Events)
		}
	}
	l.show(off)
	seen("at first", "KVEventsDisabled")
	l.show(changed(off, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount++ }))
	seen("after a restart")
	l.show(vllmPod())
	seen("when mended")
	l.show(off)
	seen("when it is so again", "KVEventsDisabled")
	l.show(changed(off, func(p *corev1.Pod) { p.UID = "uid-2" }))
	seen("for another pod of the name", "KVEventsDisabled")
	l.refuse = errors.New("the engines file has it")
	l.show(vllmPod())
	seen("when the agent refuses it", "EngineUnsupported")
	l.show(vllmPod())
	seen("while it refuses")
	if c := l.Status().Containers[0]; c.State != status.Problem || !strings.Contains(c.Problems[0].Text, "the engines file has it") {
		t.Errorf("status %+v", c)
	}
}

func TestMetricsOfDiscovery(t *testing.T) {
	l := newLooking(t)
	l.api.called(t.Context(), listing, errors.New("refused"))
	l.api.called(t.Context(), watching, nil)
	l.settle()
	l.show(annotated(vllmPod(), EventsEndpoint, "ipc://x"))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(l)
	err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP inferencecache_agent_discovery_connected 1 while the API server tells of the node's pods.
# TYPE inferencecache_agent_discovery_connected gauge
inferencecache_agent_discovery_connected 1
# HELP inferencecache_agent_discovery_containers Engine containers found, by state: followed, unready, waiting or problem.
# TYPE inferencecache_agent_discovery_containers gauge
inferencecache_agent_discovery_containers{state="followed"} 0
inferencecache_agent_discovery_containers{state="problem"} 1
inferencecache_agent_discovery_containers{state="unready"} 0
inferencecache_agent_discovery_containers{state="waiting"} 0
# HELP inferencecache_agent_discovery_failures_total Calls to the API server that failed.
# TYPE inferencecache_agent_discovery_failures_total counter
inferencecache_agent_discovery_failures_total 1
# HELP inferencecache_agent_discovery_problem 1 for each thing to mend about an engine container; the pod's Events and the agent's status say what to do.
# TYPE inferencecache_agent_discovery_problem gauge
inferencecache_agent_discovery_problem{container="server",namespace="team",pod="pod-a",reason="KVEventsUnreachable"} 1
# HELP inferencecache_agent_discovery_settled 1 once the node's pods have been listed.
# TYPE inferencecache_agent_discovery_settled gauge
inferencecache_agent_discovery_settled 1
`))
	if err != nil {
		t.Error(err)
	}
}

func TestTheStoreTellsOfWhatChanged(t *testing.T) {
	s := &podStore{queue: workqueue.NewTyped[string](), pods: map[string]*corev1.Pod{}}
	next := func(want ...string) {
		t.Helper()
		for _, key := range want {
			if got, _ := s.queue.Get(); got != key {
				t.Errorf("key %q, want %q", got, key)
			} else {
				s.queue.Done(got)
			}
		}
		if s.queue.Len() > 0 {
			t.Errorf("%d keys too many", s.queue.Len())
		}
	}
	if err := s.Replace([]any{vllmPod()}, "1"); err != nil {
		t.Fatal(err)
	}
	next("team/pod-a", listed)
	if err := errors.Join(s.Update(vllmPod()), s.Update(vllmPod())); err != nil {
		t.Fatal(err)
	}
	next("team/pod-a")
	if err := s.Replace(nil, "2"); err != nil {
		t.Fatal(err)
	}
	next("team/pod-a", listed)
	if s.get("team/pod-a") != nil {
		t.Error("a pod that is in no list is kept")
	}
	if err := s.Add(&corev1.Node{}); err == nil {
		t.Error("a node was taken for a pod")
	}
}

func TestTheStateOfTheAPIServerIsThatOfTheLastCalls(t *testing.T) {
	now := time.Unix(100, 0)
	s := &apiState{log: slog.New(slog.DiscardHandler), now: func() time.Time { return now }}
	refused := errors.New("refused")
	for _, step := range []struct {
		call      int
		err       error
		connected bool
		since     int64
	}{
		{listing, refused, false, 101},
		{listing, nil, true, 102},
		{watching, refused, false, 103},
		{listing, nil, false, 103},
		{listing, refused, false, 103},
		{watching, nil, true, 106},
	} {
		now = now.Add(time.Second)
		s.called(t.Context(), step.call, step.err)
		if got := s.report(); got.connected != step.connected || (got.err == nil) != got.connected || got.since.Unix() != step.since {
			t.Errorf("after %+v: %+v", step, got)
		}
	}
}
