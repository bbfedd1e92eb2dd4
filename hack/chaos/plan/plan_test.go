package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestNew_FaultsOfOnePartDoNotOverlapAndEndInTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Shape{
			Engines: rapid.IntRange(1, 8).Draw(t, "engines"), Ranks: rapid.IntRange(1, 2).Draw(t, "ranks"),
			Agents: rapid.IntRange(1, 2).Draw(t, "agents"), Aggregators: rapid.IntRange(1, 2).Draw(t, "aggregators"),
			Lease: 2 * time.Second,
		}
		seed := rapid.Uint64().Draw(t, "seed")
		length := time.Duration(rapid.IntRange(1, 120).Draw(t, "seconds")) * time.Second
		faults := New(seed, length, s)
		if diff := cmp.Diff(faults, New(seed, length, s)); diff != "" {
			t.Fatalf("the same seed gives another plan:\n%s", diff)
		}
		free, last := map[string]time.Duration{}, time.Duration(0)
		for _, f := range faults {
			if f.At < last || f.At < free[f.Site()] || f.At+f.For > length {
				t.Fatalf("%+v begins too early or ends too late", f)
			}
			last, free[f.Site()] = f.At, f.At+f.For
			if f.Engine >= s.Engines || f.Rank >= s.Ranks || f.Agent >= s.Agents || f.Aggregator >= s.Aggregators {
				t.Fatalf("%+v has no such part", f)
			}
		}
	})
}

func TestNew_EveryKindComesUp(t *testing.T) {
	counts := Count(New(1, 20*time.Second, Shape{Engines: 8, Ranks: 2, Agents: 2, Aggregators: 2, Lease: 2 * time.Second}))
	if len(counts) != len(Kinds()) {
		t.Errorf("%d kinds counted, want %d", len(counts), len(Kinds()))
	}
	for kind, n := range counts {
		if n == 0 {
			t.Errorf("no %s in 20 seconds", kind)
		}
	}
}
