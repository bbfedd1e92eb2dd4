package runs_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/indextest"
	"github.com/inferencecache/inferencecache/index/runs"
)

func TestSizes_OfTheStructsThatMemoryIsMadeOf(t *testing.T) {
	if runs.SizeOfRun != 32 || runs.SizeOfSpan != 32 || runs.SizeOfSegment != 32 || runs.SizeOfBucket != 64 {
		t.Errorf("run %d, span %d, segment %d, bucket %d bytes; want 32, 32, 32 and a cache line of 64",
			runs.SizeOfRun, runs.SizeOfSpan, runs.SizeOfSegment, runs.SizeOfBucket)
	}
}

// TestMatch_DoesNotAllocatePerBlock allows for the pool of scratch space, which may lose what it holds.
func TestMatch_DoesNotAllocatePerBlock(t *testing.T) {
	x := runs.New(index.Config{})
	for i, blocks := range []int{16, 512, 5000} {
		for j := range 8 {
			x.Store(indextest.Base, pods[j], indextest.T1(indextest.Chain(uint64(i)<<20, blocks), indextest.Start), indextest.Start)
		}
	}
	dst := make([]index.Match, 0, 8)
	for name, q := range map[string]index.Query{
		"in one run":   {Keys: indextest.Chain(1<<20, 512)},
		"over runs":    {Keys: indextest.Chain(2<<20, 5000)},
		"with a miss":  {Keys: indextest.Chain(9<<20, 512)},
		"with no keys": {},
	} {
		q.Partition = indextest.Base
		if n := testing.AllocsPerRun(100, func() { dst = x.Match(q, dst[:0]) }); n > 2 {
			t.Errorf("a lookup %s makes %v allocations, want none or two", name, n)
		}
	}
}

// settledBytes is what an index says it uses and what the heap grew by since before.
func settledBytes(x index.Index, before uint64) (own, grown int64) {
	return x.(*runs.Index).Bytes(), int64(heap()) - int64(before)
}

func TestChurn_EndsWithTheMemoryOfTheWorkingSet(t *testing.T) {
	const chainBlocks = 50
	working, ops := 400, askedOps(t, 800_000) // stores and removes over 20,000 pairs
	if ops > 1_000_000 {
		working = 2000 // 100,000 pairs
	}
	rounds := ops / (2 * working * chainBlocks)
	before := heap()
	x := runs.New(index.Config{})
	store := func(c int) {
		x.Store(indextest.Base, pods[c%8], indextest.T1(indextest.Chain(uint64(c)<<20, chainBlocks), indextest.Start), indextest.Start)
	}
	for c := range working {
		store(c)
	}
	own, grown := settledBytes(x, before)
	rng := rand.New(rand.NewPCG(1, 2))
	live := rng.Perm(working)
	for next := working; next < working*rounds; next++ {
		i := rng.IntN(len(live))
		gone := indextest.Chain(uint64(live[i])<<20, chainBlocks)
		h := pods[live[i]%8]
		rng.Shuffle(chainBlocks, func(a, b int) { gone.Words[a], gone.Words[b] = gone.Words[b], gone.Words[a] })
		x.Remove(indextest.Base, h, gone)
		live[i] = next
		store(next)
	}
	if n := x.Counts().Pairs; n != int64(working*chainBlocks) {
		t.Fatalf("%d pairs, want %d", n, working*chainBlocks)
	}
	ownAfter, grownAfter := settledBytes(x, before)
	if ownAfter > own*3/2 || grownAfter > grown*2 {
		t.Errorf("%d bytes used, %d on the heap; after churn %d and %d", own, grown, ownAfter, grownAfter)
	}
	if err := runs.Check(x); err != nil {
		t.Error(err)
	}
	runtime.KeepAlive(x)
}

func TestChurn_OfNamesLeavesNothing(t *testing.T) {
	before := heap()
	x := runs.New(index.Config{})
	for i := range askedOps(t, 50_000) {
		p := index.Partition{Scope: index.Scope{Tenant: fmt.Sprint("t", i), Model: fmt.Sprint("m", i), Scheme: "s"}}
		h := indextest.Pod(fmt.Sprint("r", i))
		x.Store(p, h, indextest.T1(indextest.Words(1), indextest.Start), indextest.Start)
		x.Store(indextest.Base, h, indextest.T1(indextest.Wide(fmt.Sprint("wide", i)), indextest.Start), indextest.Start)
		x.Remove(p, h, indextest.Words(1))
		x.Clear(index.Clear{Replica: h.Replica})
	}
	if own, grown := settledBytes(x, before); own != 0 || grown > 64<<10 {
		t.Errorf("%d bytes used, %d on the heap, want none", own, grown)
	}
	runtime.KeepAlive(x)
}

// TestMatch_FindsPartitionsThatComeAndGo asks for so many partitions that they share places among those met
// lately, and drops and stores them again in between.
func TestMatch_FindsPartitionsThatComeAndGo(t *testing.T) {
	x := runs.New(index.Config{})
	held := map[string]bool{}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		name := fmt.Sprint("model-", rng.IntN(200))
		p := index.Partition{Scope: index.Scope{Model: name}}
		switch rng.IntN(3) {
		case 0:
			x.Store(p, pods[0], indextest.T1(indextest.Words(1), indextest.Start), indextest.Start)
			held[name] = true
		case 1:
			x.Remove(p, pods[0], indextest.Words(1))
			delete(held, name)
		default:
			if got := x.Match(index.Query{Partition: p, Keys: indextest.Words(1)}, nil); (len(got) == 1) != held[name] {
				t.Fatalf("%s: %v, while it is %t that it holds a block", name, got, held[name])
			}
		}
	}
}

func TestMaxBytes_IsKeptByEviction(t *testing.T) {
	const most = 1 << 20
	x := runs.New(index.Config{MaxBytes: most})
	for c := range 400 {
		x.Store(indextest.Base, pods[c%8], indextest.T1(indextest.Chain(uint64(c)<<20, 512), indextest.Start), indextest.Start)
	}
	before := x.Counts().Pairs
	for range 4 {
		indextest.Settle(x, indextest.Start)
	}
	if n := x.(*runs.Index).Bytes(); n > most {
		t.Errorf("%d bytes after eviction, want at most %d", n, most)
	}
	if after := x.Counts().Pairs; after < before/8 {
		t.Errorf("%d of %d pairs are left, more than needed went", after, before)
	}
}

// TestMatch_NeverSeesHalfABatch moves a whole chain between tiers and out of the index, in single
// reports, under readers that must see all of it alike.
func TestMatch_NeverSeesHalfABatch(t *testing.T) {
	const blocks, rounds = 400, 300
	x := runs.New(index.Config{})
	chain := indextest.Chain(1, blocks)
	x.Store(indextest.Base, pods[1], indextest.T1(indextest.Chain(1, blocks/2), indextest.Start), indextest.Start)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var dst []index.Match
			for {
				select {
				case <-done:
					return
				default:
				}
				dst = x.Match(index.Query{Partition: indextest.Base, Keys: chain}, dst[:0])
				for _, m := range dst {
					whole := m.Blocks == blocks && m.PrefixTokens == blocks*16 && (m.Tier == index.T1) == (m.Evidence%2 == 0)
					if m.Holder == pods[0] && !whole {
						t.Errorf("torn match %+v", m)
						return
					}
					if m.Holder == pods[1] && m.Blocks != blocks/2 {
						t.Errorf("%d blocks of a cache that does not change, want %d", m.Blocks, blocks/2)
						return
					}
				}
			}
		})
	}
	for i := range index.Instant(rounds) {
		r := indextest.T1(chain, indextest.Start+2*i)
		x.Store(indextest.Base, pods[0], r, indextest.Start+2*i)
		r.Tier, r.Evidence = index.T2, indextest.Start+2*i+1
		x.Store(indextest.Base, pods[0], r, r.Evidence)
		if i%3 == 0 {
			x.Remove(indextest.Base, pods[0], chain)
		}
		x.Store(indextest.Base, pods[2], indextest.T1(indextest.Chain(1<<32+uint64(i)*100, 100), indextest.Start), r.Evidence)
	}
	close(done)
	wg.Wait()
}

// TestIndex_SumsUpWhenWritersMeet lets several writers and housekeeping at the same partitions, then
// empties the index.
func TestIndex_SumsUpWhenWritersMeet(t *testing.T) {
	x := runs.New(index.Config{MaxPairs: 3000})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 3))
			for range 400 {
				p := indextest.Base
				p.Adapter = fmt.Sprint(rng.IntN(3))
				k := indextest.Chain(uint64(rng.IntN(8))<<8+uint64(rng.IntN(40)), 1+rng.IntN(100))
				switch h := pods[rng.IntN(4)]; rng.IntN(6) {
				case 0, 1, 2:
					x.Store(p, h, indextest.T1(k, indextest.Start), indextest.Start)
				case 3:
					x.Remove(p, h, k)
				case 4:
					x.Maintain(indextest.Start, nil)
				default:
					x.Clear(index.Clear{Replica: h.Replica})
				}
			}
		})
	}
	wg.Wait()
	if err := runs.Check(x); err != nil {
		t.Fatal(err)
	}
	for _, h := range pods[:4] {
		x.Clear(index.Clear{Replica: h.Replica})
	}
	if c := x.Counts(); c != (index.Counts{}) || x.(*runs.Index).Bytes() != 0 {
		t.Errorf("%+v and %d bytes are left", c, x.(*runs.Index).Bytes())
	}
}
