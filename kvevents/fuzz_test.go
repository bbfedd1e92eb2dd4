package kvevents

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func FuzzDecode(f *testing.F) {
	for _, v := range vectors {
		f.Add(unhex(f, v.hex))
	}
	for _, bad := range badEvents {
		f.Add(packBatch(f, storedArray(1), bad.value))
	}
	generated := rapid.Custom(func(t *rapid.T) []byte {
		events := list()
		for range 3 {
			encoded, _ := encodeEvent(t, drawEvent(t))
			events = append(events, encoded)
		}
		return pack(t, batchOf(events...))
	})
	for seed := range 40 {
		f.Add(generated.Example(seed))
	}
	used := NewDecoder()
	f.Fuzz(func(t *testing.T, payload []byte) {
		got, err := NewDecoder().Decode(payload)
		checkBatch(t, got)
		again, againErr := used.Decode(payload)
		if (err == nil) != (againErr == nil) {
			t.Fatalf("error %v from a new decoder, %v from a used one", err, againErr)
		}
		ignore := cmpopts.IgnoreFields(Batch{}, "FirstMalformed")
		if diff := cmp.Diff(got, again, cmpopts.EquateEmpty(), cmpopts.EquateNaNs(), ignore); diff != "" {
			t.Fatalf("a used decoder reads differently (-new +used):\n%s", diff)
		}
	})
}

// checkBatch checks what holds for every batch, whatever the bytes were.
func checkBatch(t *testing.T, b *Batch) {
	t.Helper()
	if (b.Malformed > 0) != (b.FirstMalformed != nil) {
		t.Errorf("%d malformed, the first because %v", b.Malformed, b.FirstMalformed)
	}
	for i, ev := range b.Events {
		if ev.Kind < Stored || ev.Kind > Cleared {
			t.Errorf("event %d has kind %d", i, ev.Kind)
		}
		if ev.Extra != nil && len(ev.Extra) != len(ev.Hashes) {
			t.Errorf("event %d has %d extra for %d hashes", i, len(ev.Extra), len(ev.Hashes))
		}
		if ev.BlockSize < 0 || ev.SlidingWindow < 0 || ev.Group < -1 {
			t.Errorf("event %d has block size %d, window %d, group %d", i, ev.BlockSize, ev.SlidingWindow, ev.Group)
		}
		if whole := len(ev.Tokens) == len(ev.Hashes)*ev.BlockSize; len(ev.Tokens) > 0 && whole == ev.TokenMismatch {
			t.Errorf("event %d: %d tokens for %d blocks of %d, mismatch %v", i, len(ev.Tokens), len(ev.Hashes), ev.BlockSize, ev.TokenMismatch)
		}
		if ev.Kind != Stored && (ev.Tokens != nil || ev.HasParent || ev.Salted || ev.Extra != nil) {
			t.Errorf("event %d, a %v, has fields of a store", i, ev.Kind)
		}
	}
}
