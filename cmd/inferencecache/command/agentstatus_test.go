package command

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/agent/status"
)

func TestAgentStatusIsReadable(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	seq := uint64(41)
	report := status.Report{
		Agent: "node-a", Started: now.Add(-time.Minute),
		Engines: []status.Engine{{Name: "pod-a", Ranks: []status.Rank{
			{
				Rank: 0, Connected: true, Certainty: "exact", Seq: &seq, LastEvent: now.Add(-5 * time.Second), BlocksT1: 100, BlocksT2: 7, LagSeconds: 0.0014, Gaps: 2, Replays: 3, Restarts: 1,
				Excluded: map[string]int{"salt": 4, "multimodal": 1},
			},
			{Rank: 1, Certainty: "partial", Tier2: "nothing"},
		}}},
		Discovery: &status.Discovery{
			Node: "node-a", Settled: true, Connected: true, Since: now.Add(-time.Minute),
			Containers: []status.Container{
				{Namespace: "team", Pod: "pod-a", Container: "server", Engine: "vllm", Models: []string{"m", "n"}, Role: "prefill", State: status.Followed},
				{
					Namespace: "team", Pod: "pod-b", Container: "server", Engine: "sglang", State: status.Problem,
					Problems: []status.ContainerProblem{{Reason: "KVEventsDisabled", Text: "add --kv-events-config"}},
				},
			},
		},
		Aggregators: []status.Aggregator{{Address: "10.0.0.1:9090", Connected: true, InStep: true, Deltas: 12, LagSeconds: 0.0213}},
	}
	var out bytes.Buffer
	if err := writeStatus(&out, report, now); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"agent node-a, up 1m0s",
		"pod-a 0 connected 41 exact 100 7 0 multimodal=1,salt=4 5s ago 1.4 ms 2 3 1",
		"pod-a 1 away - partial 0 - 0 - never 0.0 ms 0 0 0",
		"pods of node node-a; the API server tells of pods, last changed 1m0s ago",
		"team pod-a server vllm m,n prefill followed -",
		"team pod-b server sglang - - problem KVEventsDisabled team/pod-b KVEventsDisabled: add --kv-events-config",
		"10.0.0.1:9090 connected true 12 0 0 0 21.3 ms -",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
}

func TestAgentStatusNamesAnAddressThatIsNoAgent(t *testing.T) {
	f := agentStatusFlags{agent: "127.0.0.1:1", timeout: time.Second}
	if err := f.run(t.Context(), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "agent's status") {
		t.Errorf("error %v", err)
	}
}
