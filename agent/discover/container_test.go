package discover

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/inferencecache/inferencecache/agent/config"
)

const eventsFlag = `{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:6557","topic":"kv-events"}`

// vllmPod is a pod that runs vLLM with events on, as the watch keeps it.
func vllmPod(flags ...string) *corev1.Pod {
	return slim(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pod-a", UID: "uid-1"},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{
			Name: "server", Image: "vllm/vllm-openai:v0.26.0",
			Command: append([]string{"vllm", "serve", "Qwen/Qwen3-8B", "--kv-events-config", eventsFlag}, flags...),
		}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.7", PodIPs: []corev1.PodIP{{IP: "10.0.0.7"}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "server", ContainerID: "containerd://1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		},
	})
}

func changed(pod *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	pod = pod.DeepCopy()
	change(pod)
	return pod
}

func annotated(pod *corev1.Pod, pairs ...string) *corev1.Pod {
	return changed(pod, func(p *corev1.Pod) {
		for i := 0; i < len(pairs); i += 2 {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, pairs[i], pairs[i+1])
		}
	})
}

func TestWhatIsFollowedOfAPod(t *testing.T) {
	usual := config.Engine{
		ID: "team/pod-a", Name: "pod-a", Tenant: "team", Model: "Qwen/Qwen3-8B", HashScheme: "vllm", Ranks: 1,
		Events: "tcp://10.0.0.7:5557", Replay: "tcp://10.0.0.7:6557", Topic: "kv-events", Metrics: "http://10.0.0.7:8000/metrics",
		Tier2: config.Tier2Observed,
	}
	with := func(change func(*config.Engine)) config.Engine {
		e := usual
		change(&e)
		return e
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want config.Engine
	}{
		"an engine as it is usually started": {vllmPod(), usual},
		"several names": {
			vllmPod("--served-model-name", "a", "b", "a"),
			with(func(e *config.Engine) { e.Model, e.ModelAliases = "a", []string{"b"} }),
		},
		"ranks in their pod": {
			vllmPod("-dp", "4", "-dpl", "2", "--data-parallel-start-rank", "2"),
			with(func(e *config.Engine) {
				e.Ranks, e.FirstRank, e.Events, e.Replay = 2, 2, "tcp://10.0.0.7:5559", "tcp://10.0.0.7:6559"
			}),
		},
		"adapters": {
			vllmPod("--enable-lora", "--lora-modules", "sql=/l", "chat=/c", "--port", "81"),
			with(func(e *config.Engine) {
				e.LoRANames, e.API, e.Metrics = map[int64]string{1: "sql", 2: "chat"}, "http://10.0.0.7:81", "http://10.0.0.7:81/metrics"
			}),
		},
		"LMCache": {
			vllmPod("--kv-transfer-config", `{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}`),
			with(func(e *config.Engine) { e.Tier2 = config.Tier2Inferred }),
		},
		"TLS": {
			vllmPod("--ssl-certfile", "/c", "--ssl-keyfile", "/k"),
			with(func(e *config.Engine) { e.Metrics = "https://10.0.0.7:8000/metrics" }),
		},
		"what the owner says counts": {
			annotated(vllmPod("--enable-lora"), Model, "x, y", HashScheme, "other", Tier2, "none", LoRANames, "7=sql", Port, "9000", EventsEndpoint, "tcp://*:7000", Ranks, "2"),
			with(func(e *config.Engine) {
				e.Model, e.ModelAliases, e.HashScheme, e.Tier2, e.Ranks = "x", []string{"y"}, "other", config.Tier2None, 2
				e.LoRANames, e.API, e.Metrics = map[int64]string{7: "sql"}, "http://10.0.0.7:9000", "http://10.0.0.7:9000/metrics"
				e.Events = "tcp://10.0.0.7:7000"
			}),
		},
		"of two addresses the one that * listens on": {
			changed(vllmPod(), func(p *corev1.Pod) {
				p.Status.PodIP, p.Status.PodIPs = "fd00::7", []corev1.PodIP{{IP: "fd00::7"}, {IP: "10.0.0.7"}}
			}), usual,
		},
		"a sidecar beside it": {
			changed(vllmPod(), func(p *corev1.Pod) {
				p.Spec.Containers = append([]corev1.Container{{Name: "proxy", Image: "envoy"}}, p.Spec.Containers...)
			}), usual,
		},
		"a container that nothing is known of": {
			annotated(changed(vllmPod(), func(p *corev1.Pod) {
				p.Spec.Containers[0].Command, p.Spec.Containers[0].Image = []string{"/start"}, "own"
			}), Engine, "vllm", Model, "Qwen/Qwen3-8B", EventsEndpoint, "tcp://*:5557", ReplayEndpoint, "tcp://*:6557", EventsTopic, "kv-events"), usual,
		},
		"a variable from the pod's own fields": {
			changed(vllmPod(), func(p *corev1.Pod) {
				c := &p.Spec.Containers[0]
				c.Command = append(c.Command, "--served-model-name", "$(NAME)")
				c.Env = []corev1.EnvVar{{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['model']"}}}}
				p.Labels = map[string]string{"model": "Qwen/Qwen3-8B"}
			}), usual,
		},
		"a pod without container states": {changed(vllmPod(), func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }), usual},
	} {
		t.Run(name, func(t *testing.T) {
			all := enginesOf(c.pod)
			if len(all) != 1 || !all[0].followable() {
				t.Fatalf("found %+v", all)
			}
			if diff := cmp.Diff(c.want, all[0].engine); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestPodsThatAreNotFollowed(t *testing.T) {
	now := metav1.NewTime(time.Unix(1, 0))
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string // reasons of problems, or "" for a pod that is none of ours
	}{
		"another pod": {changed(vllmPod(), func(p *corev1.Pod) {
			p.Spec.Containers[0].Command = []string{"sleep"}
			p.Spec.Containers[0].Image = "x"
		}), ""},
		"one that is let alone":   {annotated(vllmPod(), Engine, "none"), ""},
		"one that is told to end": {changed(vllmPod(), func(p *corev1.Pod) { p.DeletionTimestamp = &now }), ""},
		"one that has ended":      {changed(vllmPod(), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), ""},
		"one without an address":  {changed(vllmPod(), func(p *corev1.Pod) { p.Status.PodIP, p.Status.PodIPs = "", nil }), "waiting"},
		"one that waits to start": {changed(vllmPod(), func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} }), "waiting"},
		"one without events":      {changed(vllmPod(), func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"vllm", "serve", "m"} }), "KVEventsDisabled"},
		"an engine that is none":  {annotated(vllmPod(), Engine, "vlm"), "EngineUnreadable"},
		"a container that is not there": {
			annotated(vllmPod(), EngineContainer, "x"), "EngineUnreadable",
		},
		"a tier that is none":             {annotated(vllmPod(), Tier2, "some"), "EngineUnreadable"},
		"names of adapters that are none": {annotated(vllmPod(), LoRANames, "sql"), "EngineUnreadable"},
		"an endpoint elsewhere":           {annotated(vllmPod(), EventsEndpoint, "tcp://other:5557"), "KVEventsUnreachable"},
		"too many names":                  {vllmPod(append([]string{"--served-model-name"}, strings.Fields("a b c d e f g h i")...)...), "EngineUnreadable"},
		"a model from a Secret": {
			changed(vllmPod(), func(p *corev1.Pod) {
				p.Spec.Containers[0].Command = []string{"vllm", "serve", "$(M)", "--kv-events-config", eventsFlag}
				p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "M", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{}}}}
			}), "EngineUnreadable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var reasons []string
			for _, f := range enginesOf(c.pod) {
				if f.followable() {
					t.Errorf("followable: %+v", f.engine)
				}
				for _, p := range f.problems {
					reasons = append(reasons, string(p.Reason))
				}
				if len(f.problems) == 0 {
					reasons = append(reasons, "waiting")
				}
			}
			if got := strings.Join(reasons, " "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestAnotherProcessIsToldFromTheSame(t *testing.T) {
	process := func(p *corev1.Pod) string { return enginesOf(p)[0].process }
	usual := vllmPod()
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		same   bool
	}{
		"nothing":                        {func(*corev1.Pod) {}, true},
		"readiness":                      {func(p *corev1.Pod) { p.Status.Conditions = nil }, true},
		"a label":                        {func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, true},
		"another container":              {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "containerd://2" }, false},
		"a restart":                      {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount++ }, false},
		"another pod of the same name":   {func(p *corev1.Pod) { p.UID = types.UID("uid-2") }, false},
		"another address":                {func(p *corev1.Pod) { p.Status.PodIP, p.Status.PodIPs = "10.0.0.8", nil }, false},
		"another container of the pod's": {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Name = "x" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if same := process(usual) == process(changed(usual, c.change)); same != c.same {
				t.Errorf("the same: %v", same)
			}
		})
	}
}

func TestTwoEnginesInAPodHaveNamesOfTheirOwn(t *testing.T) {
	pod := changed(vllmPod(), func(p *corev1.Pod) {
		second := p.Spec.Containers[0]
		second.Name = "second"
		second.Command = append([]string{"vllm", "serve", "other"}, second.Command[3:]...)
		p.Spec.Containers = append(p.Spec.Containers, second)
	})
	var ids []string
	for _, f := range enginesOf(pod) {
		ids = append(ids, fmt.Sprintf("%s %s %s", f.engine.ID, f.engine.Name, f.engine.Model))
	}
	want := []string{"team/pod-a/server pod-a Qwen/Qwen3-8B", "team/pod-a/second pod-a other"}
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWhatIsKeptOfAPodIsSmall(t *testing.T) {
	pod := vllmPod()
	pod.Annotations = map[string]string{"big": strings.Repeat("x", 1<<20), Model: "m", "small": "x"}
	pod.Spec.Volumes = make([]corev1.Volume, 100)
	pod.ManagedFields = make([]metav1.ManagedFieldsEntry, 100)
	kept := slim(pod)
	if size := kept.Size(); size > 1<<10 || kept.Annotations[Model] != "m" || kept.Annotations["small"] != "x" {
		t.Errorf("%d bytes are kept, annotations %v", size, kept.Annotations)
	}
	if diff := cmp.Diff(enginesOf(pod), enginesOf(kept), cmp.AllowUnexported(found{})); diff != "" {
		t.Errorf("what is dropped was read:\n%s", diff)
	}
}
