package discover

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/inferencecache/inferencecache/agent/config"
	"github.com/inferencecache/inferencecache/agent/discover/engineargs"
)

// found is one engine container of a pod.
type found struct {
	container string
	id        string // of the engine: namespace/pod, with the container if the pod has several engines
	launch    *engineargs.Launch
	problems  []engineargs.Problem
	// engine is what to follow, if running and without problems that stand in the way.
	engine config.Engine
	// process names the engine process: it differs for another pod of the same name, another container
	// after a restart, and another address.
	process string
	running bool // and has an address
	ready   bool
}

// followable says whether there is something to follow now.
func (f *found) followable() bool {
	return f.running && !slices.ContainsFunc(f.problems, func(p engineargs.Problem) bool { return !p.Minor() })
}

// enginesOf finds the engines of a pod. It is a pure function of the pod.
func enginesOf(pod *corev1.Pod) []found {
	owner := ownerOf(pod)
	if owner.engine == none || over(pod) {
		return nil
	}
	var all []found
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if owner.container != "" && c.Name != owner.container {
			continue
		}
		said := owner
		if said.Kind != "" && said.container == "" && len(pod.Spec.Containers) > 1 {
			said.Kind = "" // it is not said of which container
		}
		launch := engineargs.Read(readable(pod, c, said.Owner))
		if launch == nil {
			continue
		}
		all = append(all, found{container: c.Name, launch: launch, problems: append(slices.Clip(said.wrong), launch.Problems...)})
	}
	if len(all) == 0 && (owner.engine != "" || owner.container != "") {
		all = append(all, missing(owner))
	}
	for i := range all {
		all[i].complete(pod, owner, len(all) > 1)
	}
	return all
}

// missing reports a pod that is said to be an engine and shows none.
func missing(owner said) found {
	text := "no container of the pod starts an engine; name one with " + EngineContainer + " and the engine with " + Engine
	if owner.container != "" && owner.Kind != "" {
		text = fmt.Sprintf("the pod has no container %.80q", owner.container)
	}
	return found{
		launch:   &engineargs.Launch{Kind: owner.Kind, Ranks: 1},
		problems: append(owner.wrong, engineargs.Problem{Reason: engineargs.EngineUnreadable, Text: text}),
	}
}

// over says whether the pod runs nothing any more, or will not for long.
func over(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// complete adds what the pod itself says.
func (f *found) complete(pod *corev1.Pod, owner said, several bool) {
	f.id = pod.Namespace + "/" + pod.Name
	if several {
		f.id += "/" + f.container
	}
	address := addressOf(pod)
	restarts := ""
	f.running = pod.Status.Phase == corev1.PodRunning
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == f.container {
			f.running = s.State.Running != nil
			restarts = fmt.Sprintf("%s/%d", s.ContainerID, s.RestartCount)
		}
	}
	f.running = f.running && address != ""
	f.ready = slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	f.process = strings.Join([]string{string(pod.UID), address, restarts}, " ")
	if !f.followable() {
		return
	}
	f.engine = f.target(pod, owner, address)
	if err := f.engine.Check(); err != nil {
		f.problems = append(f.problems, engineargs.Problem{
			Reason: engineargs.EngineUnreadable, Text: strings.ReplaceAll(err.Error(), "\n", "; "),
		})
	}
}

// target is what to follow.
func (f *found) target(pod *corev1.Pod, owner said, address string) config.Engine {
	l := f.launch
	e := config.Engine{
		ID: f.id, Name: pod.Name, Tenant: pod.Namespace, Model: l.Models[0], ModelAliases: unique(l.Models), HashScheme: owner.hashScheme,
		Events: at(l.Events, address, l.FirstRank), Replay: at(l.Replay, address, l.FirstRank), Topic: l.Topic,
		FirstRank: l.FirstRank, Ranks: l.Ranks, Tier2: owner.tier2, LoRANames: owner.loraNames,
	}
	if e.HashScheme == "" {
		e.HashScheme = string(l.Kind)
	}
	if e.Tier2 == "" && l.Offload == engineargs.OffloadInferred {
		e.Tier2 = config.Tier2Inferred
	}
	// vLLM numbers the adapters of its command line from 1 on.
	if e.LoRANames == nil && l.Kind == engineargs.VLLM && len(l.Adapters) > 0 {
		e.LoRANames = map[int64]string{}
		for i, name := range l.Adapters {
			e.LoRANames[int64(i+1)] = name
		}
	}
	scheme := "http://"
	if l.HTTPS {
		scheme = "https://"
	}
	base := scheme + net.JoinHostPort(address, strconv.Itoa(l.Port))
	if l.Metrics {
		e.Metrics = base + "/metrics"
	}
	if l.LoRA {
		e.API = base
	}
	return e
}

// unique returns the names behind the first, each once.
func unique(names []string) (rest []string) {
	for i, name := range names {
		if !slices.Contains(names[:i], name) && i > 0 {
			rest = append(rest, name)
		}
	}
	return rest
}

// at puts the pod's address in the place of an endpoint's wildcard, and moves on to the port of a rank.
func at(endpoint, address string, rank int) string {
	port, ok := strings.CutPrefix(endpoint, "tcp://*:")
	if !ok {
		return ""
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return ""
	}
	return "tcp://" + net.JoinHostPort(address, strconv.Itoa(n+rank))
}

// addressOf returns the pod's address: where it has several an IPv4 one, since engines that are told to
// listen on * listen there.
func addressOf(pod *corev1.Pod) string {
	for _, ip := range pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && a.Is4() {
			return ip.IP
		}
	}
	return pod.Status.PodIP
}
