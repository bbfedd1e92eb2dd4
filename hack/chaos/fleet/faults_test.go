package fleet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/inferencecache/inferencecache/hack/chaos/plan"
	"github.com/inferencecache/inferencecache/hack/demo/inspect"
)

// past is a fleet of one agent with two engines in which faults began and ended so long ago; a fault that
// ended before now is over.
func past(traces map[plan.Fault]trace) *Fleet {
	f := &Fleet{Engines: []*Engine{{Name: "engine-0"}, {Name: "engine-1"}}, trouble: trouble{last: map[string]trace{}}}
	for fault, t := range traces {
		t.kind = fault.Kind
		f.trouble.last[fault.Site()] = t
	}
	return f
}

func ago(d time.Duration) time.Time { return time.Now().Add(-d) }

func TestTrouble_IsTheLatestFaultOnTheWay(t *testing.T) {
	lasting := trace{began: ago(9 * time.Second)}
	over := trace{began: ago(8 * time.Second), ended: ago(0)}
	longOver := trace{began: ago(7 * time.Second), ended: ago(aftermath + time.Second)}
	for name, tt := range map[string]struct {
		traces map[plan.Fault]trace
		want   plan.Kind
	}{
		"no fault":                  {nil, ""},
		"one that lasts":            {map[plan.Fault]trace{{Kind: plan.StallEvents, Rank: 1}: lasting}, plan.StallEvents},
		"one that is over":          {map[plan.Fault]trace{{Kind: plan.PauseAgent}: over}, plan.PauseAgent},
		"one that is long over":     {map[plan.Fault]trace{{Kind: plan.PauseAgent}: longOver}, ""},
		"the later of two":          {map[plan.Fault]trace{{Kind: plan.CutUplink}: lasting, {Kind: plan.ResetEngine}: over}, plan.ResetEngine},
		"one of another engine":     {map[plan.Fault]trace{{Kind: plan.KillEngine, Engine: 1}: lasting}, ""},
		"one of another aggregator": {map[plan.Fault]trace{{Kind: plan.KillAggregator, Aggregator: 1}: lasting}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := past(tt.traces).Trouble(0, 0); got != tt.want {
				t.Errorf("trouble %q, want %q", got, tt.want)
			}
		})
	}
}

func TestSilenced_IsOnlyWhoCannotBeHeardFor(t *testing.T) {
	const grace = time.Second
	stopped := trace{began: ago(Lease + 2*grace)}
	for name, tt := range map[string]struct {
		traces map[plan.Fault]trace
		want   bool
	}{
		"an agent that runs":                    {nil, false},
		"one that was stopped for a lease":      {map[plan.Fault]trace{{Kind: plan.PauseAgent}: stopped}, true},
		"one that was stopped just now":         {map[plan.Fault]trace{{Kind: plan.PauseAgent}: {began: ago(0)}}, false},
		"one that runs again":                   {map[plan.Fault]trace{{Kind: plan.PauseAgent}: {began: stopped.began, ended: ago(0)}}, false},
		"and its connection was cut":            {map[plan.Fault]trace{{Kind: plan.PauseAgent}: stopped, {Kind: plan.CutUplink}: {began: ago(0)}}, true},
		"what it said before was held up":       {map[plan.Fault]trace{{Kind: plan.PauseAgent}: stopped, {Kind: plan.StallUplink}: {began: ago(0)}}, false},
		"the aggregator has been away just now": {map[plan.Fault]trace{{Kind: plan.KillAgent}: stopped, {Kind: plan.KillAggregator}: {began: ago(Lease), ended: ago(grace)}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := past(tt.traces).Silenced(0, 0, grace); got != tt.want {
				t.Errorf("silenced: %v", got)
			}
		})
	}
}

func TestPairs_Without(t *testing.T) {
	a, b := Pairs{}, Pairs{}
	a.add("engine-0", inspect.Blocks{{Rank: 0, Hash: 1}: {}, {Rank: 1, Hash: 1}: {}, {Rank: 1, Adapter: "sql", Hash: 1}: {}})
	b.add("engine-0", inspect.Blocks{{Rank: 1, Hash: 1}: {}, {Rank: 1, Hash: 2}: {}})
	want := []Pair{{Cache{"engine-0", 0}, "", 1}, {Cache{"engine-0", 1}, "sql", 1}}
	less := func(x, y Pair) bool { return x.String() < y.String() }
	if diff := cmp.Diff(want, a.Without(b), cmpopts.SortSlices(less)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
