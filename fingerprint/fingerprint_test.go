package fingerprint

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// count returns n ascending token ids from first.
func count(first, n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(first + i)
	}
	return ids
}

// The anchors are part of the contract with other implementations; no change may move them.
func TestFrozenAnchors(t *testing.T) {
	if got, want := Content(count(1, 16)), uint64(16863443419780771464); got != want {
		t.Errorf("Content(1..16) = %d, want %d", got, want)
	}
	if got, want := Chain(count(0, 64), 16)[3], uint64(3888788807566526800); got != want {
		t.Errorf("Chain(0..63, 16)[3] = %d, want %d", got, want)
	}
	if got, want := ChainFrom(0xDEADBEEF, count(50, 32), 16)[1], uint64(2998384554010166533); got != want {
		t.Errorf("ChainFrom(0xDEADBEEF, 50..81, 16)[1] = %d, want %d", got, want)
	}
}

func TestChainDropsWhatDoesNotFillABlock(t *testing.T) {
	tests := []struct{ tokens, size, want int }{
		{0, 16, 0},
		{15, 16, 0},
		{16, 16, 1},
		{31, 16, 1},
		{3, 1, 3},
		{8, 0, 0},
		{8, -16, 0},
	}
	for _, test := range tests {
		tokens := count(0, test.tokens)
		if got := Chain(tokens, test.size); len(got) != test.want {
			t.Errorf("Chain of %d tokens in blocks of %d has %d hashes, want %d", test.tokens, test.size, len(got), test.want)
		}
		if got := ChainFrom(1, tokens, test.size); len(got) != test.want {
			t.Errorf("ChainFrom of %d tokens in blocks of %d has %d hashes, want %d", test.tokens, test.size, len(got), test.want)
		}
		if got := Blocks(test.tokens, test.size); got != test.want {
			t.Errorf("Blocks(%d, %d) = %d, want %d", test.tokens, test.size, got, test.want)
		}
	}
}

func TestChainCutAnywhereAndStitchedIsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 80).Draw(t, "block size")
		tokens := rapid.SliceOfN(rapid.Uint32(), 0, 400).Draw(t, "tokens")
		whole := Chain(tokens, size)
		cut := rapid.IntRange(0, len(whole)).Draw(t, "blocks in front of the cut")
		front, back := tokens[:cut*size], tokens[cut*size:]

		stitched := Chain(front, size)
		if cut == 0 {
			stitched = Chain(back, size)
		} else {
			stitched = append(stitched, ChainFrom(stitched[cut-1], back, size)...)
		}
		if !slices.Equal(whole, stitched) {
			t.Fatalf("cut behind block %d of %d: %v, want %v", cut, len(whole), stitched, whole)
		}
	})
}

func TestContentIsTheSameOnMachinesOfAnyByteOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.SliceOfN(rapid.Uint32(), 0, 600).Draw(t, "tokens")
		if got, want := contentPortable(tokens), Content(tokens); got != want {
			t.Fatalf("contentPortable = %d, Content = %d", got, want)
		}
	})
}

func TestKeyIsBigEndian(t *testing.T) {
	if got, want := Key(0x0102030405060708), [8]byte{1, 2, 3, 4, 5, 6, 7, 8}; got != want {
		t.Errorf("Key = %v, want %v", got, want)
	}
}

func TestChainAllocatesItsResultAlone(t *testing.T) {
	tokens := count(0, 8192)
	if n := testing.AllocsPerRun(20, func() { Chain(tokens, 16) }); n > 1 {
		t.Errorf("Chain of 8192 tokens: %v allocations, want at most 1", n)
	}
	if n := testing.AllocsPerRun(20, func() { ChainFrom(7, tokens, 16) }); n > 1 {
		t.Errorf("ChainFrom of 8192 tokens: %v allocations, want at most 1", n)
	}
	if n := testing.AllocsPerRun(20, func() { Child(1, Content(tokens[:16])) }); n > 0 {
		t.Errorf("Child and Content of one block: %v allocations, want none", n)
	}
}

func BenchmarkFingerprint(b *testing.B) {
	for _, n := range []int{512, 8192, 131072} {
		b.Run(fmt.Sprintf("tokens=%d", n), func(b *testing.B) {
			tokens := count(0, n)
			b.SetBytes(int64(4 * n))
			b.ReportAllocs()
			for b.Loop() {
				Chain(tokens, 16)
			}
			b.ReportMetric(float64(b.N)*float64(n/16)/b.Elapsed().Seconds(), "blocks/s")
		})
	}
}

func TestAppendChainGoesOnWhereAChainEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.SliceOfN(rapid.Uint32(), 0, 200).Draw(t, "tokens")
		size := rapid.IntRange(-1, 20).Draw(t, "block size")
		cut := 0
		if blocks := Blocks(len(tokens), size); blocks > 0 {
			cut = size * rapid.IntRange(0, blocks).Draw(t, "cut")
		}
		whole := AppendChain(AppendChain(nil, tokens[:cut], size), tokens[cut:], size)
		if want := Chain(tokens, size); !slices.Equal(whole, want) {
			t.Fatalf("cut at %d: %v, want %v", cut, whole, want)
		}
	})
}

func TestAppendChainAllocatesNothingWithRoom(t *testing.T) {
	tokens, dst := make([]uint32, 1024), make([]uint64, 0, 64)
	if n := testing.AllocsPerRun(10, func() { dst = AppendChain(dst[:0], tokens, 16) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
