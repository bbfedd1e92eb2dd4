package kvevents

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSequence(t *testing.T) {
	const reconnect = math.MaxUint64 // in the list of numbers: the connection is made anew
	tests := []struct {
		name  string
		seqs  []uint64
		want  []Step
		epoch uint64
	}{
		{"from zero without a hole", []uint64{0, 1, 2}, []Step{{}, {}, {}}, 0},
		{"a late join misses what came before", []uint64{40, 41}, []Step{{Gap: 40, First: true}, {}}, 0},
		{"a jump forward is a gap", []uint64{0, 5}, []Step{{}, {Gap: 4}}, 0},
		{"the last number again is a duplicate", []uint64{0, 1, 1, 2}, []Step{{}, {}, {Duplicate: true}, {}}, 0},
		{"a number further back is a restart", []uint64{0, 1, 2, 0, 1}, []Step{{}, {}, {}, {Restart: true}, {}}, 1},
		{"a restart seen late has lost its first messages", []uint64{9, 3}, []Step{{Gap: 9, First: true}, {Restart: true, Gap: 3, First: true}}, 1},
		{"two restarts are two epochs", []uint64{0, 1, 2, 0, 1, 0}, []Step{{}, {}, {}, {Restart: true}, {}, {Restart: true}}, 2},
		{"after a reconnect the numbers may go on", []uint64{0, reconnect, 1, 2}, []Step{{}, {Reconnected: true}, {}}, 0},
		{
			"after a reconnect the same number is another process",
			[]uint64{0, reconnect, 0, 1},
			[]Step{{}, {Restart: true, Reconnected: true}, {}},
			1,
		},
		{
			"a jump over a reconnect is a gap as far as numbers tell",
			[]uint64{0, reconnect, 7},
			[]Step{{}, {Gap: 6, Reconnected: true}},
			0,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var s Sequence
			var got []Step
			for _, seq := range test.seqs {
				if seq == reconnect {
					s.Reconnected()
					continue
				}
				got = append(got, s.Observe(seq))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("steps differ (-want +got):\n%s", diff)
			}
			if s.Epoch() != test.epoch {
				t.Errorf("epoch %d, want %d", s.Epoch(), test.epoch)
			}
		})
	}
}

func TestSequenceAccountsForEveryMessageOfAProcess(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Sequence
		var missed, seen uint64
		for seq := range rapid.Uint64Range(1, 60).Draw(t, "sent") {
			if rapid.Bool().Draw(t, "lost") {
				continue
			}
			step := s.Observe(seq)
			missed, seen = missed+step.Gap, seen+1
			if missed+seen != seq+1 {
				t.Fatalf("%d missed and %d seen up to number %d", missed, seen, seq)
			}
		}
	})
}
