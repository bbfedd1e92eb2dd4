package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inferencecache/inferencecache/hack/kube/kubetest"
)

// outage is how long the API server is away.
const outage = time.Minute

func TestKubeSystem(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for _, tenant := range []string{"team-a", "team-b"} {
		s.Namespace(t, tenant)
	}
	pods := make([]*pod, 50)
	for i := range pods {
		pods[i] = &pod{namespace: []string{"team-a", "team-b"}[i%2], name: fmt.Sprintf("chat-%02d", i), node: node(i % nodes), form: form(i/2) % forms}
	}
	s.addPods(pods...)
	s.create(bystander("team-a", node(0)))
	t.Run("every engine is found, by the agent of its node", func(t *testing.T) { testFound(t, s) })
	t.Run("a lookup names the pod that holds the prompt", func(t *testing.T) { s.mustHint(t, s.pods...) })
	t.Run("pods that go, restart, are replaced and move", func(t *testing.T) { testPods(t, s) })
	t.Run("a policy reaches lookups in less than a second", func(t *testing.T) { testPolicy(t, s) })
	t.Run("status", func(t *testing.T) { testStatus(t, s) })
	t.Run("admission", func(t *testing.T) { testAdmission(t, s) })
	t.Run("an engine without events is told what to add", func(t *testing.T) { testEventsOff(t, s) })
	t.Run("the controller that leads is killed", func(t *testing.T) { testKilledController(t, s) })
	t.Run("an aggregator is killed", func(t *testing.T) { testKilledAggregator(t, s) })
	t.Run("the API server is away", func(t *testing.T) { testOutage(t, s) })
	t.Run("a new aggregator takes the place of an old one", func(t *testing.T) { testUpgrade(t, s) })
}

// mustHint asks every aggregator for the prompt of each pod.
func (s *system) mustHint(t *testing.T, pods ...*pod) {
	t.Helper()
	for _, aggregator := range s.aggregators {
		for _, p := range pods {
			if err := s.hinted(t.Context(), aggregator, p); err != nil {
				t.Errorf("%s: %v", aggregator.name, err)
			}
		}
	}
}

// awaitNoHint waits until no aggregator names any pod for a prompt that a pod held.
func (s *system) awaitNoHint(t *testing.T, p *pod, prompt []uint32) {
	t.Helper()
	for _, aggregator := range s.aggregators {
		await(t, aggregator.name+" to forget a prompt", func() error {
			reply, err := s.lookup(t.Context(), aggregator, p, prompt)
			if err == nil && reply.ReasonCode == "PREFIX_MATCH" {
				err = fmt.Errorf("still %v", reply)
			}
			return err
		})
	}
}

// testFound compares what each agent follows, as namespace/name, with the pods of its node.
func testFound(t *testing.T, s *system) {
	s.mustAgree(t, s.aggregators...)
	for i, agent := range s.agents {
		var want, got []string
		for _, p := range s.pods {
			if p.node == node(i) {
				want = append(want, p.namespace+"/"+p.name)
			}
		}
		for _, engine := range agent.report(t).Engines {
			got = append(got, engine.Name)
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("engines of %s (-pods +followed):\n%s", node(i), diff)
		}
	}
}

func testPods(t *testing.T, s *system) {
	gone, restarted, replaced, moved := s.pods[0], s.pods[1], s.pods[2], s.pods[3]
	before := map[*pod][]uint32{}
	for _, p := range s.pods[:4] {
		before[p] = p.prompt
	}
	s.remove(gone)
	s.restart(restarted)
	s.remove(replaced)
	successor := &pod{namespace: replaced.namespace, name: "chat-replaced", node: node(4)}
	s.addPods(successor)
	s.move(moved, kubetest.Host())
	s.mustAgree(t, s.aggregators...)
	for p, prompt := range before {
		s.awaitNoHint(t, p, prompt)
	}
	s.mustHint(t, restarted, successor, moved)
}

// policyOf is a CachePolicy whose only wish is a floor.
func policyOf(namespace string, minimumMatchedTokens int) []byte {
	return fmt.Appendf(nil, "{apiVersion: inferencecache.io/v1alpha1, kind: CachePolicy, metadata: {name: default, namespace: %s}, spec: {minimumMatchedTokens: %d}}",
		namespace, minimumMatchedTokens)
}

// testPolicy changes a policy to and fro. The best of several times counts: the others are those of a machine
// that does other things too.
func testPolicy(t *testing.T, s *system) {
	p := s.pods[len(s.pods)-1]
	fastest := time.Hour
	for i := range 8 {
		hinted := i%2 == 1
		floor := map[bool]int{false: 100_000, true: 1}[hinted]
		begin := time.Now()
		s.Apply(t, policyOf(p.namespace, floor))
		for _, aggregator := range s.aggregators {
			await(t, fmt.Sprintf("%s to obey a floor of %d tokens", aggregator.name, floor), func() error {
				err := s.hinted(t.Context(), aggregator, p)
				if err == nil && !hinted {
					return errors.New("still hinted")
				}
				if hinted {
					return err
				}
				return nil
			})
		}
		fastest = min(fastest, time.Since(begin))
	}
	if fastest > time.Second {
		t.Errorf("the fastest change of a policy took %s, from being applied to lookups", fastest)
	}
	t.Logf("the fastest change of a policy took %s, from being applied to lookups at every aggregator", fastest)
}

// entries counts what the engines of a tenant hold.
func (s *system) entries(tenant string) int {
	n := 0
	for _, p := range s.pods {
		if p.namespace == tenant {
			for _, f := range p.Fingerprints() {
				n += len(f.Fingerprints)
			}
		}
	}
	return n
}

// awaitColumn waits until kubectl prints a number.
func (s *system) awaitColumn(t *testing.T, want int, args ...string) {
	t.Helper()
	await(t, fmt.Sprintf("kubectl %s to show %d", strings.Join(args, " "), want), func() error {
		out, err := s.TryKubectl(t, args...)
		if err == nil && !slices.Contains(strings.Fields(out), fmt.Sprint(want)) {
			err = errors.New(out)
		}
		return err
	})
	t.Log("\n" + s.Kubectl(t, args...))
}

// others are an object of each kind whose status is not of a tenant's.
const others = `
{apiVersion: inferencecache.io/v1alpha1, kind: CacheBackend, metadata: {name: chat, namespace: team-a},
 spec: {runtime: VLLM, integration: {mode: EventsOnly}, observation: {modelID: fake-model},
  engineSelector: {matchLabels: {inferencecache.io/cache-domain: chat}}}}
---
{apiVersion: inferencecache.io/v1alpha1, kind: PromptTemplate, metadata: {name: support, namespace: team-a},
 spec: {body: "You answer for {{ product }}. {{ question }}", slots: [{name: product, type: Stable}, {name: question, type: Mutable}]}}
---
{apiVersion: inferencecache.io/v1alpha1, kind: PDTopology, metadata: {name: chat, namespace: team-a},
 spec: {prefillPools: [{name: prefill}], decodePools: [{name: decode}]}}
`

// testStatus compares what kubectl prints with what the engines hold.
func testStatus(t *testing.T, s *system) {
	for _, tenant := range []string{"team-a", "team-b"} {
		s.Apply(t, fmt.Appendf(nil, "{apiVersion: inferencecache.io/v1alpha1, kind: CacheTenant, metadata: {name: %s, namespace: %[1]s}, spec: {tenantID: %[1]s, quota: {maxIndexEntries: 100000}}}", tenant))
	}
	s.Apply(t, []byte(others))
	s.Apply(t, policyOf("team-a", 64))
	s.awaitColumn(t, s.entries("team-a")+s.entries("team-b"), "get", "ci")
	s.awaitColumn(t, s.entries("team-a"), "get", "ct", "-n", "team-a")
	s.awaitColumn(t, s.entries("team-b"), "get", "ct", "-n", "team-b")
	s.awaitColumn(t, s.entries("team-a"), "get", "cb", "-n", "team-a")
	s.Kubectl(t, "wait", "--for=condition=InForce", "--timeout=60s", "-n", "team-a", "cpol/default")
	s.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", "-n", "team-a", "ct/team-a")
	t.Log("\n" + s.Kubectl(t, "get", "ci,ct,cpol,cb,pt,pdt", "-A", "-o", "wide"))
}

// testKilledController kills the controller that writes statuses: the other one answers webhooks meanwhile,
// and writes statuses once the Lease has run out.
func testKilledController(t *testing.T, s *system) {
	i := slices.IndexFunc(s.controllers, func(p *program) bool { return p.leads(t) })
	if i < 0 {
		t.Fatal("no controller leads")
	}
	victim := s.controllers[i]
	victim.kill(t)
	s.Apply(t, policyOf("team-b", 32)) // refused without a webhook that answers
	s.ask(s.pods[0])
	s.awaitColumn(t, s.entries("team-a")+s.entries("team-b"), "get", "ci")
	s.Kubectl(t, "wait", "--for=condition=InForce", "--timeout=60s", "-n", "team-b", "cpol/default")
	s.Kubectl(t, "delete", "cpol", "-n", "team-b", "default")
	s.revive(victim)
}

func testEventsOff(t *testing.T, s *system) {
	p := &pod{namespace: "team-a", name: "silent", node: node(0)}
	s.create(p.manifest("--port=8000"))
	await(t, "an Event on the pod", func() error {
		out := s.Kubectl(t, "describe", "pod", "-n", p.namespace, p.name)
		if !strings.Contains(out, "--kv-events-config") {
			return errors.New(out)
		}
		t.Log("\n" + out)
		return nil
	})
}

func testKilledAggregator(t *testing.T, s *system) {
	victim, survivor := s.aggregators[0], s.aggregators[1]
	victim.kill(t)
	for _, p := range s.pods[:10] {
		s.ask(p)
	}
	s.mustAgree(t, survivor)
	for _, p := range s.pods {
		if err := s.hinted(t.Context(), survivor, p); err != nil {
			t.Error(err)
		}
	}
	victim.start(s.t, s.dir)
	await(t, victim.name+" to be ready", victim.ready)
	s.mustHint(t, s.pods...) // at once: it is ready only when it has what all agents have
	s.mustAgree(t, s.aggregators...)
}

// testUpgrade does what the Deployment does in a rolling update: an aggregator with the manifests' own flags is
// started, and an old one stopped when the new one is ready. Whoever asks those that are ready is hinted all the
// time.
func testUpgrade(t *testing.T, s *system) {
	old, next := s.aggregators[0], s.next
	next.start(s.t, s.dir)
	for _, p := range s.pods[:10] {
		s.ask(p) // while the new one is told the rest
	}
	s.mustAgree(t, s.aggregators...)
	await(t, next.name+" to be ready", func() error {
		if err := next.ready(); err != nil {
			s.mustHint(t, s.pods...)
			return err
		}
		return nil
	})
	s.aggregators[0] = next
	s.mustHint(t, s.pods...) // at once
	if err := old.process.Stop(10 * time.Second); err != nil {
		t.Error(err)
	}
	s.mustHint(t, s.pods...)
	s.mustAgree(t, s.aggregators...)
}

// While the API server is away, hints go on as before, and engines that are known are followed; when it is
// back, what has happened meanwhile is made good.
func testOutage(t *testing.T, s *system) {
	strict := s.pods[0]
	s.Apply(t, policyOf(strict.namespace, 100_000))
	for _, aggregator := range s.aggregators {
		await(t, "the policy to be obeyed", func() error {
			if s.hinted(t.Context(), aggregator, strict) == nil {
				return errors.New("still hinted")
			}
			return nil
		})
	}
	s.StopAPIServer(t)
	begin := time.Now()
	for _, p := range s.pods {
		s.ask(p)
	}
	s.mustAgree(t, s.aggregators...)
	for time.Since(begin) < outage {
		for _, p := range s.pods {
			for _, aggregator := range s.aggregators {
				if err := s.hinted(t.Context(), aggregator, p); (err == nil) != (p.namespace != strict.namespace) {
					t.Fatalf("%s for %s of %s: %v", aggregator.name, p.name, p.namespace, err)
				}
			}
		}
		time.Sleep(time.Second)
	}
	testStartDuringOutage(t, s)
	s.StartAPIServer(t)
	for _, p := range s.controllers {
		s.revive(p)
	}
	s.Apply(t, policyOf(strict.namespace, 1))
	for _, aggregator := range s.aggregators {
		await(t, "the policy to be obeyed", func() error { return s.hinted(t.Context(), aggregator, strict) })
	}
	latest := &pod{namespace: "team-b", name: "latest", node: node(1)}
	s.addPods(latest)
	s.remove(s.pods[1])
	s.mustAgree(t, s.aggregators...)
	s.mustHint(t, s.pods...)
	for _, p := range s.agents {
		await(t, p.name+" to be ready", p.ready)
	}
}

// testStartDuringOutage starts programs anew while there is no API server. An aggregator needs none for what
// agents tell it; an agent finds its engines when the API server is back.
func testStartDuringOutage(t *testing.T, s *system) {
	aggregator, agent := s.aggregators[0], s.agents[nodes-1]
	aggregator.kill(t)
	aggregator.start(s.t, s.dir)
	await(t, aggregator.name+" to be ready", aggregator.ready)
	for _, p := range s.pods {
		if p.namespace == "team-b" { // which has no policy
			if err := s.hinted(t.Context(), aggregator, p); err != nil {
				t.Error(err)
			}
		}
	}
	agent.kill(t)
	agent.start(s.t, s.dir)
}
