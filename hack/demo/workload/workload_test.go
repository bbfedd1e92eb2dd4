package workload_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/inferencecache/inferencecache/hack/demo/workload"
)

func TestGenerate_FollowsFromTheSeed(t *testing.T) {
	once := workload.Generate(workload.Chat(7, 300))
	if diff := cmp.Diff(once, workload.Generate(workload.Chat(7, 300))); diff != "" {
		t.Errorf("one seed gives two workloads:\n%s", diff)
	}
	if cmp.Equal(once, workload.Generate(workload.Chat(8, 300))) {
		t.Error("two seeds give one workload")
	}
}

func TestGenerate_KeepsToItsShape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		between := func(name string) workload.Between {
			low := rapid.IntRange(1, 40).Draw(t, name)
			return workload.Between{Min: low, Max: low + rapid.IntRange(0, 40).Draw(t, name)}
		}
		c := workload.Config{
			Seed: rapid.Uint64().Draw(t, "seed"), Requests: rapid.IntRange(0, 200).Draw(t, "requests"),
			SystemPrompts: rapid.IntRange(1, 5).Draw(t, "system prompts"), SystemTokens: between("system"),
			Turns: between("turns"), UserTokens: between("user"), AnswerTokens: between("answer"), Pause: between("pause"),
		}
		sessions := workload.Generate(c)
		if got := workload.Requests(sessions); got != c.Requests {
			t.Fatalf("%d requests, want %d", got, c.Requests)
		}
		systems := map[workload.Span]bool{}
		for i, s := range sessions {
			last := i == len(sessions)-1
			if len(s) > c.Turns.Max || len(s) < c.Turns.Min && !last {
				t.Fatalf("session %d has %d turns", i, len(s))
			}
			systems[s[0].Input[0]] = true
			for k, turn := range s {
				said := turn.Input[len(turn.Input)-1].Tokens
				if said < c.UserTokens.Min || said > c.UserTokens.Max || (len(turn.Input) == 2) != (k == 0) {
					t.Fatalf("session %d turn %d is %+v", i, k, turn)
				}
			}
		}
		if len(systems) > c.SystemPrompts {
			t.Fatalf("%d system prompts, want at most %d", len(systems), c.SystemPrompts)
		}
	})
}

func TestSpan_OfOneSeedBeginsAlike(t *testing.T) {
	short := workload.Span{Seed: 3, Tokens: 5}.Append(nil)
	long := workload.Span{Seed: 3, Tokens: 50}.Append([]uint32{9})
	if !slices.Equal(short, long[1:6]) || len(long) != 51 || long[0] != 9 {
		t.Errorf("short %v, long %v", short, long)
	}
	if slices.Equal(short, workload.Span{Seed: 4, Tokens: 5}.Append(nil)) {
		t.Error("two seeds give the same ids")
	}
}

func TestTurn_CountsItsInput(t *testing.T) {
	turn := workload.Turn{Input: []workload.Span{{Tokens: 3}, {Tokens: 4}}}
	if got := turn.InputTokens(); got != 7 {
		t.Errorf("InputTokens() = %d, want 7", got)
	}
}
