package daemonset

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestWorkloadsSelectTheirOwnPodsAndNoOthers(t *testing.T) {
	i := readBase(t)
	for _, w := range i.workloads {
		if got := selected(i, w.selector); !slices.Equal(got, []string{w.name}) {
			t.Errorf("%s selects the pods of %v", w.name, got)
		}
		for _, c := range w.template.Spec.TopologySpreadConstraints {
			if !maps.Equal(c.LabelSelector.MatchLabels, w.selector) {
				t.Errorf("%s spreads pods with %v, its own have %v", w.name, c.LabelSelector.MatchLabels, w.selector)
			}
		}
	}
}

func TestServicesBudgetsAndNetworkPoliciesSelectOneWorkload(t *testing.T) {
	i := readBase(t)
	for _, s := range i.services {
		oneWorkload(t, i, "Service "+s.Name, s.Spec.Selector)
	}
	for _, b := range i.budgets {
		oneWorkload(t, i, "PodDisruptionBudget "+b.Name, b.Spec.Selector.MatchLabels)
	}
	for _, n := range i.networks {
		oneWorkload(t, i, "NetworkPolicy "+n.Name, n.Spec.PodSelector.MatchLabels)
		for _, rule := range n.Spec.Ingress {
			for _, from := range rule.From {
				oneWorkload(t, i, "NetworkPolicy "+n.Name+" from", from.PodSelector.MatchLabels)
			}
		}
	}
}

func TestEveryWorkloadHasANetworkPolicyThatKnowsItsPorts(t *testing.T) {
	i := readBase(t)
	for _, w := range i.workloads {
		ports := map[string]bool{}
		for _, n := range i.networks {
			if !maps.Equal(n.Spec.PodSelector.MatchLabels, w.selector) {
				continue
			}
			for _, rule := range n.Spec.Ingress {
				for _, p := range rule.Ports {
					ports[p.Port.StrVal] = true
				}
			}
		}
		if want := portNames(w); !slices.Equal(slices.Sorted(maps.Keys(ports)), want) {
			t.Errorf("%s has ports %v, and its NetworkPolicy names %v", w.name, want, slices.Sorted(maps.Keys(ports)))
		}
	}
}

func TestNobodyButControllersReachesTheGuardedPort(t *testing.T) {
	i := readBase(t)
	for _, n := range i.networks {
		for _, rule := range n.Spec.Ingress {
			for _, p := range rule.Ports {
				if p.Port.StrVal == "snapshot" && (len(rule.From) != 1 || len(rule.Ports) != 1) {
					t.Errorf("%s opens %s to %v", n.Name, p.Port.StrVal, rule.From)
				}
			}
		}
	}
}

func TestPortsThatAreNamedExist(t *testing.T) {
	i := readBase(t)
	for _, s := range i.services {
		for _, w := range i.workloads {
			if !maps.Equal(s.Spec.Selector, w.selector) {
				continue
			}
			for _, p := range s.Spec.Ports {
				if !slices.Contains(portNames(w), p.TargetPort.StrVal) {
					t.Errorf("Service %s leads to port %q, %s has %v", s.Name, p.TargetPort.StrVal, w.name, portNames(w))
				}
			}
		}
	}
	for _, w := range i.workloads {
		for what, probe := range map[string]*core.Probe{"liveness": w.container().LivenessProbe, "readiness": w.container().ReadinessProbe} {
			if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Port.Type != intstr.String || !slices.Contains(portNames(w), probe.HTTPGet.Port.StrVal) {
				t.Errorf("%s has no %s probe on one of its ports %v", w.name, what, portNames(w))
			}
		}
	}
}

func TestAServiceShowsAggregatorsUnderTheirOwnPorts(t *testing.T) {
	i := readBase(t)
	ports := map[string]int32{}
	for _, p := range i.workload(t, "aggregator").container().Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, name := range []string{"inference-cache-server", "inference-cache-aggregators"} {
		for _, p := range i.service(t, name).Spec.Ports {
			if p.Port != ports[p.TargetPort.StrVal] {
				t.Errorf("Service %s has %s on %d, the pods on %d", name, p.Name, p.Port, ports[p.TargetPort.StrVal])
			}
		}
	}
}

func TestPodsAreRestricted(t *testing.T) {
	for _, w := range readBase(t).workloads {
		for _, wrong := range unrestricted(&w.template.Spec) {
			t.Errorf("%s: %s", w.name, wrong)
		}
	}
}

// unrestricted lists what the restricted Pod Security profile refuses, and a root that can be written.
func unrestricted(p *core.PodSpec) []string {
	var wrong []string
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	refuse(p.HostNetwork || p.HostPID || p.HostIPC, "shares a namespace with the node")
	s := p.SecurityContext
	refuse(s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0, "may run as root")
	refuse(s == nil || s.SeccompProfile == nil || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault, "has no seccomp profile")
	for _, v := range p.Volumes {
		refuse(v.HostPath != nil, "mounts %s of the node", v.Name)
	}
	for _, c := range p.Containers {
		s := c.SecurityContext
		refuse(s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation, "%s may gain privileges", c.Name)
		refuse(s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem, "%s may write to its root", c.Name)
		refuse(s == nil || s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) || len(s.Capabilities.Add) > 0,
			"%s keeps capabilities", c.Name)
		for _, p := range c.Ports {
			refuse(p.HostPort != 0, "%s takes port %d of the node", c.Name, p.HostPort)
		}
		refuse(c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero(),
			"%s does not say what it needs", c.Name)
	}
	return wrong
}

func TestTheCollectorIsToldOfTheMemoryLimit(t *testing.T) {
	for _, w := range readBase(t).workloads {
		limit, told := w.container().Resources.Limits.Memory().Value(), int64(0)
		for _, e := range w.container().Env {
			if e.Name == "GOMEMLIMIT" {
				if _, err := fmt.Sscanf(e.Value, "%dMiB", &told); err != nil {
					t.Fatalf("%s: GOMEMLIMIT %s: %v", w.name, e.Value, err)
				}
			}
		}
		if share := float64(told<<20) / float64(limit); share < 0.85 || share > 0.95 {
			t.Errorf("%s: GOMEMLIMIT is %.0f %% of the memory limit, want 85 to 95", w.name, 100*share)
		}
	}
}

// selected names the workloads whose pods have the labels.
func selected(i *install, selector map[string]string) []string {
	var names []string
	for _, w := range i.workloads {
		if labels.SelectorFromSet(selector).Matches(labels.Set(w.template.Labels)) {
			names = append(names, w.name)
		}
	}
	return names
}

func oneWorkload(t *testing.T, i *install, what string, selector map[string]string) {
	t.Helper()
	if got := selected(i, selector); len(got) != 1 {
		t.Errorf("%s selects the pods of %v, want those of one workload", what, got)
	}
}

func portNames(w workload) []string {
	var names []string
	for _, p := range w.container().Ports {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}
