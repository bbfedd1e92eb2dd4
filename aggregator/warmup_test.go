package aggregator

import (
	"strings"
	"testing"
	"time"
)

func TestReadinessWaitsForAgents(t *testing.T) {
	start := time.Unix(1000, 0)
	type look struct {
		after               time.Duration
		connected, complete int
		behind              []string
		want                string // part of what is missing; empty for ready
	}
	for name, c := range map[string]struct {
		expected int
		looks    []look
	}{
		"those that are there by the deadline": {0, []look{
			{after: time.Second, connected: 1, complete: 1, want: "are waited for"},
			{after: 3 * time.Second, connected: 2, complete: 1, behind: []string{"node-b"}, want: "1 of 2 agents have sent their whole table; not yet: node-b"},
			{after: 4 * time.Second, connected: 2, complete: 2},
		}},
		"nobody, where nobody came": {0, []look{{after: 3 * time.Second}}},
		"as many as are expected, however long": {2, []look{
			{after: time.Hour, connected: 2, complete: 1, behind: []string{"node-b"}, want: "1 of 2 expected agents"},
			{after: time.Hour, connected: 2, complete: 2},
		}},
		"nobody any more once it was ready": {2, []look{
			{connected: 2, complete: 2},
			{after: time.Hour},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := warmUp{expected: c.expected, deadline: start.Add(2 * time.Second)}
			for i, l := range c.looks {
				got := w.missing(start.Add(l.after), l.connected, l.complete, l.behind)
				if (got == "") != (l.want == "") || !strings.Contains(got, l.want) {
					t.Errorf("look %d: missing %q, want %q", i, got, l.want)
				}
			}
		})
	}
}
