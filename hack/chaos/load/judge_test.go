package load

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inferencecache/inferencecache/fingerprint"
	"github.com/inferencecache/inferencecache/hack/chaos/plan"
	"github.com/inferencecache/inferencecache/hack/demo/inspect"
)

func TestPromised_IsWholeBlocksAndNeverTheLastToken(t *testing.T) {
	for name, tt := range map[string]struct{ prompt, matched, want int }{
		"a part of the prompt":      {100, 48, 48},
		"all whole blocks":          {100, 96, 96},
		"a prompt of whole blocks":  {96, 96, 80},
		"one token behind a block":  {97, 96, 96},
		"a prompt of a single word": {1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := promised(tt.prompt, tt.matched); got != tt.want {
				t.Errorf("promised %d, want %d", got, tt.want)
			}
		})
	}
}

func TestHolds_LooksForEveryBlockOfTheOneCache(t *testing.T) {
	prefix := make([]uint32, 64)
	pool := inspect.Blocks{}
	for _, print := range fingerprint.Chain(prefix, 16) {
		pool.Add(inspect.Block{Rank: 1, Adapter: "sql", Hash: print})
	}
	hole := maps.Clone(pool)
	delete(hole, inspect.Block{Rank: 1, Adapter: "sql", Hash: fingerprint.Chain(prefix, 16)[2]})
	for name, tt := range map[string]struct {
		pool    inspect.Blocks
		rank    int32
		adapter string
		want    bool
	}{
		"all blocks":      {pool, 1, "sql", true},
		"one is missing":  {hole, 1, "sql", false},
		"another rank":    {pool, 0, "sql", false},
		"another adapter": {pool, 1, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := holds(tt.pool, tt.rank, tt.adapter, prefix); got != tt.want {
				t.Errorf("holds: %v", got)
			}
		})
	}
}

func TestVerdict_TellsWrongHintsFromOvertakenOnes(t *testing.T) {
	for name, tt := range map[string]struct {
		judgement
		cached int
		want   Counts
	}{
		"as promised":                  {judgement{promised: 32}, 32, Counts{Hints: 1, CalmHints: 1, Right: 1}},
		"more than promised":           {judgement{promised: 32}, 48, Counts{Hints: 1, CalmHints: 1, Right: 1}},
		"evicted after the answer":     {judgement{promised: 32, held: true}, 16, Counts{Hints: 1, CalmHints: 1, Overtaken: 1}},
		"never there":                  {judgement{promised: 32}, 16, Counts{Hints: 1, CalmHints: 1, WrongInCalm: 1}},
		"not there because of a fault": {judgement{promised: 32, trouble: plan.KillEngine}, 0, Counts{Hints: 1, WrongInTrouble: map[plan.Kind]int{plan.KillEngine: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Counts{WrongInTrouble: map[plan.Kind]int{}}
			tt.verdict(tt.cached, &got)
			if len(got.WrongInTrouble) == 0 {
				got.WrongInTrouble = nil
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
