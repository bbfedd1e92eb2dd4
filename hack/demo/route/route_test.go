package route

import (
	"testing"

	"pgregory.net/rapid"

	icpb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

func TestRoundRobin_TakesTurns(t *testing.T) {
	r := NewRoundRobin(3)
	for i := range 7 {
		c, err := r.Choose(t.Context(), nil)
		if err != nil || c != (Choice{Engine: i % 3}) {
			t.Fatalf("choice %d is %+v, %v", i, c, err)
		}
		r.Done(c)
	}
}

func TestByPrefix_FollowsTheBestHintBelowItsLimit(t *testing.T) {
	hint := func(replica string, score float32) *icpb.ReplicaScore {
		return &icpb.ReplicaScore{ReplicaId: replica, MatchedTokens: 64, Score: score}
	}
	affinity := &icpb.ReplicaScore{ReplicaId: "c"}
	idle := []load{{0, 5}, {0, 5}, {0, 5}}
	tests := []struct {
		name   string
		load   []load
		scores []*icpb.ReplicaScore
		engine int
		hinted bool
	}{
		{"no hint: the one with the fewest requests under way", []load{{1, 1}, {0, 9}, {1, 1}}, nil, 1, false},
		{"no hint: of several the one with the fewest requests ever", []load{{0, 9}, {0, 7}, {0, 8}}, nil, 1, false},
		{"a hint without a match", []load{{1, 5}, {0, 5}, {0, 9}}, []*icpb.ReplicaScore{affinity}, 1, false},
		{"one hint", idle, []*icpb.ReplicaScore{hint("c", 1)}, 2, true},
		{"the better of two", []load{{0, 1}, {0, 9}, {0, 1}}, []*icpb.ReplicaScore{hint("b", 10), hint("c", 8)}, 1, true},
		{"the lighter of two that are alike", []load{{0, 1}, {0, 9}, {0, 1}}, []*icpb.ReplicaScore{hint("b", 10), hint("c", 9.5)}, 2, true},
		// With 3 requests under way and one more the mean is 1.33, and the limit 2.
		{"the best is below its limit", []load{{1, 5}, {1, 5}, {1, 5}}, []*icpb.ReplicaScore{hint("b", 10), hint("c", 1)}, 1, true},
		{"the best is at its limit", []load{{1, 5}, {2, 5}, {0, 5}}, []*icpb.ReplicaScore{hint("b", 10), hint("c", 1)}, 2, true},
		{"all hinted are at their limit", []load{{0, 5}, {3, 5}, {3, 5}}, []*icpb.ReplicaScore{hint("b", 10), hint("c", 1)}, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewByPrefix(nil, Scope{}, []string{"a", "b", "c"})
			copy(r.load, tt.load)
			for _, l := range tt.load {
				r.total += l.underWay
			}
			engine, hinted, err := r.pickLocked(&icpb.LookupRouteResponse{ReplicaScores: tt.scores})
			if engine != tt.engine || hinted != tt.hinted || err != nil {
				t.Errorf("engine %d, hinted %v, error %v, want engine %d, hinted %v", engine, hinted, err, tt.engine, tt.hinted)
			}
		})
	}
}

func TestByPrefix_AlwaysHasAnEngineBelowItsLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewByPrefix(nil, Scope{}, make([]string, rapid.IntRange(1, 6).Draw(t, "engines")))
		for i := range r.load {
			r.load[i].underWay = rapid.IntRange(0, 9).Draw(t, "load")
			r.total += r.load[i].underWay
		}
		if lightest := r.load[r.lightestLocked()].underWay; lightest >= r.limitLocked() {
			t.Fatalf("load %v, limit %d", r.load, r.limitLocked())
		}
	})
}

func TestByPrefix_RefusesAReplicaThatIsNoEngine(t *testing.T) {
	r := NewByPrefix(nil, Scope{}, []string{"a"})
	answer := &icpb.LookupRouteResponse{ReplicaScores: []*icpb.ReplicaScore{{ReplicaId: "z", MatchedTokens: 1}}}
	if _, _, err := r.pickLocked(answer); err == nil {
		t.Error("no error")
	}
}
