package discover

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/inferencecache/inferencecache/agent/discover/engineargs"
	"github.com/inferencecache/inferencecache/agent/status"
)

// maxNote is the most bytes that the note of an Event may have.
const maxNote = 1024

// report makes an Event of each thing that is wrong with a container and was not before.
func (d *Discovery) report(pod *corev1.Pod, k *known) {
	before := k.reported
	k.reported = nil
	for _, p := range k.problems {
		said := string(pod.UID) + " " + string(p.Reason) + " " + p.Text
		k.reported = append(k.reported, said)
		if slices.Contains(before, said) {
			continue
		}
		d.cfg.Log.Warn("a pod's engine has a problem", "engine", k.id, "container", k.container, "reason", p.Reason, "problem", p.Text)
		note := strings.ToValidUTF8(p.Text[:min(len(p.Text), maxNote)], "")
		d.recorder.Eventf(pod.DeepCopy(), nil, corev1.EventTypeWarning, string(p.Reason), "Discover", "%s", note)
	}
}

// Status says what was found.
func (d *Discovery) Status() *status.Discovery {
	api := d.api.report()
	out := &status.Discovery{Node: d.cfg.Node, Connected: api.connected, Since: api.since, Containers: []status.Container{}}
	if api.err != nil {
		out.Error = api.err.Error()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	out.Settled = d.settled
	for _, key := range slices.Sorted(maps.Keys(d.pods)) {
		for i := range d.pods[key] {
			out.Containers = append(out.Containers, d.pods[key][i].status())
		}
	}
	return out
}

func (k *known) status() status.Container {
	c := status.Container{
		Namespace: k.namespace, Pod: k.pod, Container: k.container, ID: k.id, Engine: string(k.launch.Kind), Models: k.launch.Models,
		Role: k.launch.Role, State: k.state(),
	}
	for _, p := range k.problems {
		c.Problems = append(c.Problems, status.ContainerProblem{Reason: string(p.Reason), Text: p.Text})
	}
	return c
}

func (k *known) state() string {
	switch {
	case k.followed != "" && k.ready:
		return status.Followed
	case k.followed != "":
		return status.Unready
	case slices.ContainsFunc(k.problems, func(p engineargs.Problem) bool { return !p.Minor() }):
		return status.Problem
	default:
		return status.Waiting
	}
}

var (
	descConnected  = desc("discovery_connected", "1 while the API server tells of the node's pods.")
	descFailures   = desc("discovery_failures_total", "Calls to the API server that failed.")
	descSettled    = desc("discovery_settled", "1 once the node's pods have been listed.")
	descContainers = desc("discovery_containers", "Engine containers found, by state: followed, unready, waiting or problem.", "state")
	descProblem    = desc("discovery_problem", "1 for each thing to mend about an engine container; the pod's Events and the agent's status say what to do.",
		"namespace", "pod", "container", "reason")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("inferencecache_agent_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (d *Discovery) Describe(ch chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{descConnected, descFailures, descSettled, descContainers, descProblem} {
		ch <- one
	}
}

// Collect implements prometheus.Collector.
func (d *Discovery) Collect(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	ch <- prometheus.MustNewConstMetric(descFailures, prometheus.CounterValue, float64(d.api.report().misses))
	report := d.Status()
	gauge(descConnected, truth(report.Connected))
	gauge(descSettled, truth(report.Settled))
	states := map[string]int{status.Followed: 0, status.Unready: 0, status.Waiting: 0, status.Problem: 0}
	for _, c := range report.Containers {
		states[c.State]++
		seen := map[string]bool{} // a reason may come twice
		for _, p := range c.Problems {
			if !seen[p.Reason] {
				gauge(descProblem, 1, c.Namespace, c.Pod, c.Container, p.Reason)
			}
			seen[p.Reason] = true
		}
	}
	for state, n := range states {
		gauge(descContainers, float64(n), state)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// quiet hands on what the Kubernetes libraries log from warnings on: what they say of every call is said
// here once.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && q.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
