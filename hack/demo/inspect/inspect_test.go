package inspect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/inferencecache/inferencecache/hack/demo/report"
)

func TestCompare_CountsTheDifferences(t *testing.T) {
	block := rapid.Custom(func(t *rapid.T) Block {
		return Block{rapid.Int32Range(0, 1).Draw(t, "rank"), rapid.SampledFrom([]string{"", "sql"}).Draw(t, "adapter"), rapid.Uint64Range(0, 5).Draw(t, "hash")}
	})
	set := func(t *rapid.T, name string) Blocks {
		blocks := make(Blocks)
		for _, b := range rapid.SliceOf(block).Draw(t, name) {
			blocks.Add(b)
		}
		return blocks
	}
	rapid.Check(t, func(t *rapid.T) {
		held, known := set(t, "held"), set(t, "known")
		missing, extra := 0, 0
		for b := range held {
			if _, ok := known[b]; !ok {
				missing++
			}
		}
		for b := range known {
			if _, ok := held[b]; !ok {
				extra++
			}
		}
		want := report.Cache{Engine: "e", Held: len(held), Known: len(known), Missing: missing, Extra: extra}
		got := Compare("e", held, known)
		if got != want || got.Agrees() != cmp.Equal(held, known) {
			t.Fatalf("Compare() = %+v, want %+v", got, want)
		}
	})
}

func TestVerdicts_LookAtEveryCache(t *testing.T) {
	same, empty := report.Cache{Held: 2, Known: 2}, report.Cache{}
	extra := report.Cache{Held: 0, Known: 1, Extra: 1}
	for _, tt := range []struct {
		name         string
		caches       []report.Cache
		agree, empty bool
	}{
		{"all the same", []report.Cache{same, empty}, true, false},
		{"nothing anywhere", []report.Cache{empty, empty}, true, true},
		{"one block too many", []report.Cache{empty, extra}, false, false},
	} {
		if Agree(tt.caches) != tt.agree || Empty(tt.caches) != tt.empty {
			t.Errorf("%s: agree %v, empty %v", tt.name, Agree(tt.caches), Empty(tt.caches))
		}
	}
}

const page = `# TYPE inferencecache_agent_events_total counter
inferencecache_agent_events_total{engine="a",kind="stored"} 5
inferencecache_agent_events_total{engine="b",kind="stored"} 6
inferencecache_agent_events_total{engine="a",kind="cleared"} 1
# TYPE inferencecache_agent_uplink_deltas_total counter
inferencecache_agent_uplink_deltas_total{aggregator="x"} 4
# TYPE inferencecache_agent_uplink_bytes_total counter
inferencecache_agent_uplink_bytes_total{aggregator="x"} 1000
`

func TestCounters_AreSummedAndCountedSince(t *testing.T) {
	after, err := parseCounters(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	before := Counters{events: map[string]int64{"stored": 1}, deltas: 2, bytes: 200}
	want := report.Uplink{Events: map[string]int64{"stored": 10, "cleared": 1}, Deltas: 2, Bytes: 800, BytesPerDelta: 400}
	if diff := cmp.Diff(want, after.Since(before)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(int64(11), after.events["stored"]); diff != "" {
		t.Errorf("Since changed its receiver:\n%s", diff)
	}
}

func TestCounters_OfAnotherPageAreAnError(t *testing.T) {
	for _, text := range []string{"", "<html>"} {
		if c, err := parseCounters(strings.NewReader(text)); err == nil {
			t.Errorf("%q gives %+v", text, c)
		}
	}
}
