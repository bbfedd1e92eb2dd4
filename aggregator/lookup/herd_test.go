package lookup

import (
	"bufio"
	"cmp"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/policy"
)

// conversations generates a workload in which every prompt begins with the same block: sessions of a
// few turns, each of which continues the one before.
func conversations(requests int, perSecond float64) []prompted {
	r := rand.New(rand.NewPCG(1, 2))
	name := uint64(fleetHead)
	var work []prompted
	at := 0.0
	for len(work) < requests {
		turns := 1 + r.IntN(5)
		at += r.ExpFloat64() / perSecond * 3 // a session has three turns on average
		when := time.Duration(at * float64(time.Second))
		blocks := []uint64{fleetHead}
		grow := 2 + int(min(60, r.ExpFloat64()*12))
		for range turns {
			for range grow {
				name++
				blocks = append(blocks, name)
			}
			work = append(work, prompted{when, slices.Clone(blocks), len(blocks)*fleetBlock + r.IntN(fleetBlock), 50 + r.IntN(600)})
			grow = 1 + r.IntN(6)
			when += time.Duration(20+r.IntN(100)) * time.Second
		}
	}
	slices.SortFunc(work, func(a, b prompted) int { return cmp.Compare(a.at, b.at) })
	return work[:requests]
}

// longHeads generates a workload of few long system prompts, each with a short question behind.
func longHeads(requests int, perSecond float64) []prompted {
	r := rand.New(rand.NewPCG(3, 4))
	name := uint64(fleetHead)
	var heads [6][]uint64
	for i := range heads {
		for range 8 + r.IntN(16) {
			name++
			heads[i] = append(heads[i], name)
		}
	}
	var work []prompted
	at := 0.0
	for range requests {
		at += r.ExpFloat64() / perSecond
		blocks := slices.Clone(heads[min(r.IntN(6), r.IntN(6))])
		for range 1 + r.IntN(4) {
			name++
			blocks = append(blocks, name)
		}
		work = append(work, prompted{time.Duration(at * float64(time.Second)), blocks, len(blocks)*fleetBlock + r.IntN(fleetBlock), 50 + r.IntN(300)})
	}
	return work
}

// recorded reads a trace in Mooncake's format, JSON Lines, sped up.
func recorded(t testing.TB, path string, limit int, speed float64) []prompted {
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var work []prompted
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && len(work) < limit {
		var line struct {
			Timestamp int64    `json:"timestamp"`
			Input     int      `json:"input_length"`
			Output    int      `json:"output_length"`
			Blocks    []uint64 `json:"hash_ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		for i := range line.Blocks {
			line.Blocks[i] = line.Blocks[i]*0x9e3779b97f4a7c15 + 1
		}
		if whole := line.Input / fleetBlock; whole > 0 {
			at := time.Duration(float64(line.Timestamp) / speed * float64(time.Millisecond))
			work = append(work, prompted{at, line.Blocks[:whole], line.Input, line.Output})
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return work
}

// variant is one way to route.
type variant struct {
	name   string
	policy policy.Policy
	setup  func(*fleet)
	turns  bool // route in turns, without asking
}

// variants are the ways compared.
func variants() []variant {
	with := func(name string, change func(*policy.Policy)) variant {
		p := policy.Default()
		p.MinimumMatchedShare = 0.125
		change(&p)
		return variant{name: name, policy: p}
	}
	formula := func(p *policy.Policy) { p.MinimumMatchedShare = 0 }
	setup := func(v variant, name string, f func(*fleet)) variant {
		v.name, v.setup = v.name+name, f
		return v
	}
	return []variant{
		{name: "turns", policy: policy.Default(), turns: true},
		setup(with("formula", formula), ",holders-only", func(f *fleet) { f.holdersOnly = true }),
		with("formula", formula),
		with("formula,floor=0", func(p *policy.Policy) { formula(p); p.RoutingFloorScore = 0 }),
		setup(with("formula", formula), ",ceiling=16", func(f *fleet) { f.ceiling = 16 }),
		with("share=0.125", func(*policy.Policy) {}),
		with("share=0.25", func(p *policy.Policy) { p.MinimumMatchedShare = 0.25 }),
		with("share=0.5", func(p *policy.Policy) { p.MinimumMatchedShare = 0.5 }),
		with("floor=0", func(p *policy.Policy) { p.RoutingFloorScore = 0 }),
		with("seed=4", func(p *policy.Policy) { p.AffinitySeedBlocks = 4 }),
		with("rendezvous", func(p *policy.Policy) { p.Rendezvous = true }),
		with("no-affinity", func(p *policy.Policy) { p.Affinity = false }),
		with("choices=2", func(p *policy.Policy) { p.AffinityChoices = 2 }),
		with("tolerance=0.05", func(p *policy.Policy) { p.ScoreTolerance = 0.05 }),
		with("tolerance=0.05,choices=2", func(p *policy.Policy) { p.ScoreTolerance = 0.05; p.AffinityChoices = 2 }),
		with("tolerance=0.05,choices=2,rendezvous", func(p *policy.Policy) { p.ScoreTolerance = 0.05; p.AffinityChoices = 2; p.Rendezvous = true }),
		setup(with("share=0.125", func(*policy.Policy) {}), ",no-statistics", func(f *fleet) { f.silent = true }),
		setup(with("formula", formula), ",no-statistics", func(f *fleet) { f.silent = true }),
		setup(with("floor=0", func(p *policy.Policy) { p.RoutingFloorScore = 0 }), ",no-statistics", func(f *fleet) { f.silent = true }),
	}
}

func (v *variant) run(t testing.TB, work []prompted) fleetOutcome {
	f := newFleet(t, v.policy)
	if v.setup != nil {
		v.setup(f)
	}
	if v.turns {
		return f.run(work, f.turn)
	}
	return f.run(work, f.route)
}

// find returns a variant by its name.
func find(t *testing.T, name string) variant {
	for _, v := range variants() {
		if v.name == name {
			return v
		}
	}
	t.Fatalf("no variant %q", name)
	return variant{}
}

// A fleet that starts cold, of which every prompt begins with the same block. By the formula alone the
// first cache that holds that block attracts every new prompt, since the others hold nothing.
func TestPromptsThatAllBeginAlikeAreSpreadOver(t *testing.T) {
	work := conversations(1500, 8)
	for name, c := range map[string]struct {
		herds  bool
		atMost float64 // requests of the busiest replica over the mean
	}{
		"share=0.125":                         {false, 1.6},
		"share=0.125,no-statistics":           {false, 1.6},
		"rendezvous":                          {false, 1.6},
		"tolerance=0.05,choices=2,rendezvous": {false, 1.6},
		"formula,no-statistics":               {true, fleetReplicas},
		"formula,floor=0":                     {true, fleetReplicas},
	} {
		t.Run(name, func(t *testing.T) {
			v := find(t, name)
			got := v.run(t, work)
			if got.spread > c.atMost || c.herds != (got.spread > fleetReplicas/2) {
				t.Errorf("the busiest replica has %d of %d requests", got.top, len(work))
			}
			if !c.herds && got.hits < 0.5 {
				t.Errorf("hit rate %.3f", got.hits)
			}
		})
	}
}

// Where many caches hold what a prompt needs, the last report makes one of them the best for every
// prompt until the next report. A tolerance shares the prompts out among them.
func TestEqualHoldersShareTheLoad(t *testing.T) {
	work := longHeads(1000, 25)
	v, tolerant := find(t, "share=0.125"), find(t, "tolerance=0.05")
	strict, shared := v.run(t, work), tolerant.run(t, work)
	if shared.mean() > strict.mean()*2/3 || shared.hits < strict.hits-0.01 {
		t.Errorf("mean wait %v with hits %.3f, by score alone %v with %.3f", shared.mean(), shared.hits, strict.mean(), strict.hits)
	}
}

// BenchmarkPlacement compares ways to route: "spread" is the requests of the busiest replica over the
// mean, "hits" the share of prompt tokens found in a cache, waits are modelled until the first token.
// INFERENCECACHE_TRACE names a trace to replay beside the generated workloads.
func BenchmarkPlacement(b *testing.B) {
	works := map[string][]prompted{"alike": conversations(6000, 8), "heads": longHeads(6000, 25)}
	if path := os.Getenv("INFERENCECACHE_TRACE"); path != "" {
		works["trace"] = recorded(b, path, 12000, 2.5)
		works["trace3000"] = works["trace"][:3000]
	}
	for _, name := range slices.Sorted(maps.Keys(works)) {
		for _, v := range variants() {
			b.Run("work="+name+"/"+v.name, func(b *testing.B) {
				for range b.N {
					got := v.run(b, works[name])
					b.ReportMetric(got.spread, "spread")
					b.ReportMetric(float64(got.top), "top")
					b.ReportMetric(got.hits, "hits")
					b.ReportMetric(float64(got.mean().Milliseconds()), "wait-mean-ms")
					b.ReportMetric(float64(got.percentile(50).Milliseconds()), "wait-p50-ms")
					b.ReportMetric(float64(got.percentile(99).Milliseconds()), "wait-p99-ms")
				}
			})
		}
	}
}
