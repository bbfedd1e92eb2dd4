package runs_test

import (
	"testing"

	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/indextest"
	"github.com/inferencecache/inferencecache/index/runs"
)

// piece returns blocks [from, to) of one chain.
func piece(from, to int) index.Run {
	r := indextest.T1(indextest.Chain(uint64(1000+from), to-from), indextest.Start)
	r.StartTokens = int32(16 * from)
	r.Parent, r.HasParent = uint64(999+from), from > 0
	return r
}

func expectRuns(t *testing.T, x index.Index, when string, least, most int) {
	t.Helper()
	if n := runs.Runs(x); n < least || n > most {
		t.Errorf("%d runs %s, want %d to %d", n, when, least, most)
	}
	if err := runs.Check(x); err != nil {
		t.Errorf("%s: %v", when, err)
	}
}

func TestStore_GrowsARunInBatches(t *testing.T) {
	x := runs.New(index.Config{})
	for from := 0; from < 1600; from += 32 {
		x.Store(indextest.Base, pods[0], piece(from, from+32), indextest.Start)
	}
	expectRuns(t, x, "after batches in order", 1, 1)
}

func TestStore_JoinsPiecesThatArrivedOutOfOrder(t *testing.T) {
	x := runs.New(index.Config{})
	for from := 960; from >= 0; from -= 64 {
		x.Store(indextest.Base, pods[0], piece(from, from+64), indextest.Start)
	}
	expectRuns(t, x, "after pieces in reverse", 16, 16)
	x.Store(indextest.Base, pods[1], piece(0, 1024), indextest.Start)
	expectRuns(t, x, "after a report of the whole chain", 1, 1)
}

func TestStore_CutsAndJoinsByFragmentation(t *testing.T) {
	x := runs.New(index.Config{})
	for i := range 512 {
		x.Store(indextest.Base, pods[i%replicas], piece(i, i+1), indextest.Start)
	}
	expectRuns(t, x, "with single blocks in turn", 10, 40)
	for i := range 512 {
		x.Remove(indextest.Base, pods[i%replicas], piece(i, i+1).Keys)
		x.Store(indextest.Base, pods[0], piece(i, i+1), indextest.Start)
	}
	x.Store(indextest.Base, pods[1], piece(0, 512), indextest.Start)
	expectRuns(t, x, "with one cache again", 1, 1)
}

func TestRemove_CutsAChainWithMoreGapsThanBlocks(t *testing.T) {
	x := runs.New(index.Config{})
	x.Store(indextest.Base, pods[0], piece(0, 1000), indextest.Start)
	for i := range 1000 {
		if i%50 >= 5 {
			x.Remove(indextest.Base, pods[0], piece(i, i+1).Keys)
		}
	}
	expectRuns(t, x, "after 900 of 1,000 blocks went", 2, 20)
	x.Store(indextest.Base, pods[0], piece(0, 1000), indextest.Start)
	expectRuns(t, x, "after all came back", 1, 1)
}
