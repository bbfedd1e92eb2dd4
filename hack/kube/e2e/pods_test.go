package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/fakeengine"
)

const (
	model     = "fake-model"
	blockSize = 16
	// eventsConfig is what somebody who runs vLLM writes.
	eventsConfig = `{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:6557"}`
)

// form is a way to write down that a pod runs an engine.
type form int

const (
	plain      form = iota // command and arguments
	entrypoint             // arguments for what the image starts
	shell                  // one line for a shell, with a variable
	twoRanks               // two data-parallel ranks
	sglang                 // the other engine
	forms                  // how many there are
)

// pod is a pod whose engine listens on the pod's address.
type pod struct {
	namespace, name, node string
	form                  form
	address               string
	prompt                []uint32 // that no other pod is asked
	*fakeengine.Engine
	stop func()
}

// scheme is how the pod's engine cuts and hashes prompts, which requests name.
func (p *pod) scheme() string {
	if p.form == sglang {
		return "sglang"
	}
	return "vllm"
}

// manifest is the pod as a Deployment would make it, but already on its node.
func (p *pod) manifest(args ...string) *corev1.Pod {
	server := corev1.Container{
		Name:    "server",
		Image:   "vllm/vllm-openai:v0.11.0",
		Command: []string{"vllm", "serve", model},
		Args:    args,
		Ports:   []corev1.ContainerPort{{Name: "http", ContainerPort: 8000}},
	}
	switch p.form {
	case entrypoint:
		server.Command, server.Args = nil, append([]string{"--model", model}, args...)
	case shell:
		server.Env = []corev1.EnvVar{{Name: "MODEL", Value: model}, {Name: "EVENTS", Value: eventsConfig}}
		server.Image, server.Command = "example.com/chat:7", []string{"sh", "-c"}
		server.Args = []string{`ulimit -n 65536 && exec vllm serve "$MODEL" --port 8000 --kv-events-config "$EVENTS"`}
	case twoRanks:
		server.Args = append(args, "--data-parallel-size", "2")
	case sglang:
		server.Image, server.Command = "lmsysorg/sglang:v0.5.22", []string{"python3", "-m", "sglang.launch_server", "--model-path", model}
		server.Args = append(args, "--host", "0.0.0.0", "--enable-metrics", "--page-size", strconv.Itoa(blockSize))
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.name, Namespace: p.namespace, Labels: map[string]string{v1alpha1.LabelCacheDomain: "chat"}},
		Spec:       corev1.PodSpec{NodeName: p.node, Containers: []corev1.Container{server}},
	}
}

// bystander is a pod that no engine is in.
func bystander(namespace, node string) *corev1.Pod {
	p := &pod{namespace: namespace, name: "web", node: node}
	manifest := p.manifest()
	manifest.Spec.Containers[0].Image, manifest.Spec.Containers[0].Command = "nginx:1.29", nil
	return manifest
}

// addPods makes pods and returns when the engine of each runs on its address and holds a prompt.
func (s *system) addPods(pods ...*pod) {
	s.t.Helper()
	for _, p := range pods {
		s.create(p.manifest("--port=8000", "--kv-events-config="+eventsConfig))
	}
	for _, p := range pods {
		p.address = s.AwaitPod(s.t, p.namespace, p.name).Status.PodIP
		s.run(p)
		s.pods = append(s.pods, p)
	}
}

func (s *system) create(manifest *corev1.Pod) {
	s.t.Helper()
	if _, err := s.Client().CoreV1().Pods(manifest.Namespace).Create(s.t.Context(), manifest, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// run starts the engine of a pod and asks it a prompt that is new.
func (s *system) run(p *pod) {
	s.t.Helper()
	cfg := fakeengine.LoopbackConfig()
	cfg.Name, cfg.Model, cfg.Blocks, cfg.BlockSize = p.name, model, 500, blockSize
	switch p.form {
	case twoRanks:
		cfg.Ranks = 2
	case sglang:
		cfg.EventForm, cfg.ArrayFields, cfg.ReplayForm = fakeengine.EventArray, 7, fakeengine.ReplayTwoFrame
	}
	cfg.HTTPBindAddress = p.address + ":8000"
	cfg.Events, cfg.Replay = "tcp://"+p.address+":5557", "tcp://"+p.address+":6557"
	var err error
	if p.Engine, err = fakeengine.New(cfg); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("engine of %s: %v", p.name, err)
		}
	})
	s.t.Cleanup(p.stop)
	select {
	case <-p.Ready():
	case err := <-ended:
		s.t.Fatalf("engine of %s on %s: %v", p.name, p.address, err)
	}
	s.ask(p)
}

// ask has the pod's engine compute a new prompt, which is the pod's from then on.
func (s *system) ask(p *pod) {
	s.t.Helper()
	s.prompts++
	p.prompt = tokens(rand.New(rand.NewPCG(s.prompts, 0)), 6*blockSize)
	if _, err := p.Complete(s.t.Context(), fakeengine.Request{Prompt: p.prompt, MaxTokens: blockSize}); err != nil {
		s.t.Fatal(err)
	}
}

func tokens(r *rand.Rand, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = r.Uint32N(50_000)
	}
	return out
}

// remove deletes a pod and ends its engine.
func (s *system) remove(p *pod) {
	s.t.Helper()
	if err := s.Client().CoreV1().Pods(p.namespace).Delete(s.t.Context(), p.name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
	p.stop()
	s.pods = slices.DeleteFunc(s.pods, func(other *pod) bool { return other == p })
}

// changeStatus changes the status of a pod, as a kubelet does.
func (s *system) changeStatus(p *pod, change func(*corev1.PodStatus)) {
	s.t.Helper()
	pods := s.Client().CoreV1().Pods(p.namespace)
	object, err := pods.Get(s.t.Context(), p.name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	change(&object.Status)
	if _, err := pods.UpdateStatus(s.t.Context(), object, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// restart restarts the container of a pod: an empty engine on the same address.
func (s *system) restart(p *pod) {
	s.t.Helper()
	p.stop()
	s.changeStatus(p, func(status *corev1.PodStatus) {
		container := &status.ContainerStatuses[0]
		container.RestartCount++
		container.ContainerID = fmt.Sprintf("test://%s-%d", container.Name, container.RestartCount)
		container.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
	})
	s.run(p)
}

// move gives a pod another address, with an empty engine there.
func (s *system) move(p *pod, address string) {
	s.t.Helper()
	p.stop()
	p.address = address
	s.changeStatus(p, func(status *corev1.PodStatus) {
		status.PodIP, status.PodIPs = address, []corev1.PodIP{{IP: address}}
	})
	s.run(p)
}

// held is what the engines' pools hold: lines of pod, rank and fingerprint.
func (s *system) held(t *testing.T) []string {
	t.Helper()
	all := []string{}
	for _, p := range s.pods {
		for _, f := range p.Fingerprints() {
			for _, fingerprint := range f.Fingerprints {
				all = append(all, fmt.Sprintf("%s/%d/%016x", p.name, f.Rank, fingerprint))
			}
		}
	}
	slices.Sort(all)
	return all
}
