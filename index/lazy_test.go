package index_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/indextest"
	"github.com/inferencecache/inferencecache/index/reference"
)

func TestMatchGrowing_EqualsMatchAndAsksForLittleMore(t *testing.T) {
	chain := indextest.Chain(1, 600)
	for name, c := range map[string]struct{ held, asked int }{
		"a miss":                {0, 1},
		"one block":             {1, 8},
		"a few blocks":          {7, 8},
		"just what it asks for": {8, 64},
		"half":                  {300, 512},
		"all":                   {600, 600},
	} {
		t.Run(name, func(t *testing.T) {
			x := reference.New(index.Config{})
			held := index.Keys{Words: chain.Words[:c.held]}
			x.Store(indextest.Base, indextest.Pod("a"), indextest.T1(held, indextest.Start), indextest.Start)
			asked := 0
			got := index.MatchGrowing(x, index.Query{Partition: indextest.Base}, 600, func(n int) index.Keys {
				asked = n
				return index.Keys{Words: chain.Words[:n]}
			}, nil)
			if d := cmp.Diff(indextest.Match(x, chain), got); d != "" {
				t.Errorf("match (-want +got):\n%s", d)
			}
			if asked != c.asked {
				t.Errorf("asked for %d keys, want %d", asked, c.asked)
			}
		})
	}
	if got := index.MatchGrowing(reference.New(index.Config{}), index.Query{}, 0, nil, nil); len(got) != 0 {
		t.Errorf("an empty chain matches %v", got)
	}
}
