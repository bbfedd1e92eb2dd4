package kvevents

import (
	"math/rand/v2"
	"testing"
)

const (
	benchBlocks = 32
	benchSize   = 16 // tokens per block
)

// benchStore is a batch with one store of benchBlocks blocks, token ids spread over a vocabulary of
// 150,000, in the array form of vLLM 0.22 or the map form of later releases.
func benchStore(b *testing.B, asMap bool) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	hashes := make([]any, benchBlocks)
	extra := make([]any, benchBlocks)
	for i := range hashes {
		hashes[i] = random.Uint64()
	}
	tokens := make([]any, benchBlocks*benchSize)
	for i := range tokens {
		tokens[i] = int(random.Uint32N(150_000))
	}
	if !asMap {
		return packBatch(b, list("BlockStored", hashes, random.Uint64(), tokens, benchSize, nil, "GPU", nil, extra, 0, "full_attention", nil))
	}
	return packBatch(b, fields{
		{"type", "BlockStored"},
		{"block_hashes", hashes},
		{"parent_block_hash", random.Uint64()},
		{"token_ids", tokens},
		{"block_size", benchSize},
		{"lora_id", nil},
		{"medium", "GPU"},
		{"lora_name", nil},
		{"extra_keys", extra},
		{"group_idx", 0},
		{"kv_cache_spec_kind", "full_attention"},
	})
}

func BenchmarkDecode(b *testing.B) {
	for _, form := range []string{"array", "map"} {
		b.Run("form="+form, func(b *testing.B) {
			payload := benchStore(b, form == "map")
			d := NewDecoder()
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				batch, err := d.Decode(payload)
				if err != nil || len(batch.Events) != 1 {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*benchBlocks/b.Elapsed().Seconds(), "blocks/s")
		})
	}
}

// BenchmarkDecodeRemoved decodes what an engine under pressure sends: one event for each block it drops.
func BenchmarkDecodeRemoved(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	events := make([]any, benchBlocks)
	for i := range events {
		events[i] = fields{{"type", "BlockRemoved"}, {"block_hashes", list(random.Uint64())}, {"medium", "GPU"}, {"group_idx", 0}}
	}
	payload := packBatch(b, events...)
	d := NewDecoder()
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		batch, err := d.Decode(payload)
		if err != nil || len(batch.Events) != benchBlocks {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*benchBlocks/b.Elapsed().Seconds(), "blocks/s")
}

func TestDecodeAllocatesNothingOnceWarm(t *testing.T) {
	payloads := [][]byte{
		packBatch(t, storedArray(1, 2, 3), list("BlockRemoved", list(1), "GPU", 0), list("AllBlocksCleared")),
		packBatch(t, fields{
			{"type", "BlockStored"},
			{"block_hashes", list(1)},
			{"token_ids", list(list(1, 2))},
			{"block_size", 1},
			{"lora_name", "sql-lora"},
			{"extra_keys", list(list("sql-lora", list("image", 3), "salt"))},
			{"session_id", "s"},
		}),
		packBatch(t, pack(t, list("BlockRemoved", list([]byte("a digest of some bytes")), "SHARED_STORAGE"))),
	}
	d := NewDecoder()
	decode := func() {
		for _, payload := range payloads {
			if b, err := d.Decode(payload); err != nil || b.Malformed > 0 {
				t.Fatal(err, b.FirstMalformed)
			}
		}
	}
	if n := testing.AllocsPerRun(100, decode); n > 0 {
		t.Errorf("%v allocations for %d batches, want none", n, len(payloads))
	}
}
