package route

import (
	"testing"

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

func TestByPrefix_FollowsTheBestHintThatIsNotOverloaded(t *testing.T) {
	score := func(replica string, tokens int32) *icpb.ReplicaScore {
		return &icpb.ReplicaScore{ReplicaId: replica, MatchedTokens: tokens}
	}
	tests := []struct {
		name   string
		load   []int
		scores []*icpb.ReplicaScore
		engine int
		hinted bool
	}{
		{"no hint: the first of the least loaded", []int{1, 0, 0}, nil, 1, false},
		{"one hint", []int{0, 0, 0}, []*icpb.ReplicaScore{score("c", 64)}, 2, true},
		{"the best of two", []int{0, 0, 0}, []*icpb.ReplicaScore{score("b", 128), score("c", 64)}, 1, true},
		{"the best is at its limit", []int{0, 2, 0}, []*icpb.ReplicaScore{score("b", 128), score("c", 64)}, 1, true},
		{"the best is above its limit", []int{0, 3, 0}, []*icpb.ReplicaScore{score("b", 128), score("c", 64)}, 2, true},
		{"all are above their limits", []int{0, 3, 3}, []*icpb.ReplicaScore{score("b", 128), score("c", 64)}, 0, false},
		{"a replica that matches nothing", []int{1, 0, 1}, []*icpb.ReplicaScore{score("c", 0)}, 1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewByPrefix(nil, Scope{}, []string{"a", "b", "c"}, 2)
			copy(r.load, tt.load)
			engine, hinted, err := r.pickLocked(&icpb.LookupRouteResponse{ReplicaScores: tt.scores})
			if engine != tt.engine || hinted != tt.hinted || err != nil {
				t.Errorf("engine %d, hinted %v, error %v", engine, hinted, err)
			}
		})
	}
}

func TestByPrefix_RefusesAReplicaThatIsNoEngine(t *testing.T) {
	r := NewByPrefix(nil, Scope{}, []string{"a"}, 2)
	answer := &icpb.LookupRouteResponse{ReplicaScores: []*icpb.ReplicaScore{{ReplicaId: "z", MatchedTokens: 1}}}
	if _, _, err := r.pickLocked(answer); err == nil {
		t.Error("no error")
	}
}
