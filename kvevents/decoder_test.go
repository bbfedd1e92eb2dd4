package kvevents

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

func TestDecodeReadsWhatWasEncodedInEveryForm(t *testing.T) {
	d := NewDecoder()
	rapid.Check(t, func(t *rapid.T) {
		want := Batch{Timestamp: rapid.Float64Range(-1e12, 1e12).Draw(t, "timestamp")}
		events := list()
		for range rapid.IntRange(0, 4).Draw(t, "events") {
			ev := drawEvent(t)
			encoded, unknown := encodeEvent(t, ev)
			events = append(events, encoded)
			if all := Extra(0); ev.Extra != nil {
				for _, e := range ev.Extra {
					all |= e
				}
				if all == 0 {
					ev.Extra = nil
				}
			}
			want.Events = append(want.Events, ev)
			want.UnknownFields += unknown
		}
		outer := list(want.Timestamp, events)
		if rapid.Bool().Draw(t, "has rank") {
			want.Rank, want.HasRank = rapid.Int32Range(0, 1<<31-1).Draw(t, "rank"), true
			outer = append(outer, want.Rank)
		}
		var value any = outer
		if rapid.Bool().Draw(t, "outer map") {
			m := fields{{"ts", outer[0]}, {"events", outer[1]}}
			if want.HasRank {
				m = append(m, keyValue{"data_parallel_rank", want.Rank})
			}
			value = rapid.Permutation(m).Draw(t, "outer order")
		}
		got, err := d.Decode(pack(t, value))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, got, cmpopts.EquateEmpty(), cmpopts.EquateErrors()); diff != "" {
			t.Errorf("batch differs (-want +got):\n%s", diff)
		}
	})
}

// badEvents are well-formed values that are no event.
var badEvents = []struct {
	name  string
	value any
	why   string
}{
	{"nil", nil, "neither an array nor a map"},
	{"a number", 7, "neither an array nor a map"},
	{"a string", "BlockStored", "neither an array nor a map"},
	{"an empty array", list(), "the tag is missing"},
	{"a tag that is no string", list(7, list(1)), "the tag is no string"},
	{"a map without a tag", fields{{"block_hashes", list(1)}}, "the tag is missing"},
	{"a tag that is nil", fields{{"type", nil}}, "the tag is no string"},
	{"a store that ends before its block size", list("BlockStored", list(1), nil, list(1)), "BlockStored: field block_size: missing"},
	{"a remove without hashes", fields{{"type", "BlockRemoved"}}, "BlockRemoved: field block_hashes: missing"},
	{"hashes that are nil", list("BlockRemoved", nil), "field block_hashes: value of another type"},
	{"a hash that is nil", list("BlockRemoved", list(1, nil)), "field block_hashes: value of another type"},
	{"a hash that is a string", list("BlockRemoved", list("abcdefgh")), "field block_hashes: value of another type"},
	{"a hash of no bytes", list("BlockRemoved", list([]byte{})), "field block_hashes: number out of range"},
	{"a token that is negative", list("BlockStored", list(1), nil, list(-424242), 1), "field token_ids: number out of range"},
	{"a token of 33 bits", list("BlockStored", list(1), nil, list(uint64(8589934592)), 1), "field token_ids: number out of range"},
	{"a token that is a fraction", list("BlockStored", list(1), nil, list(424242.5), 1), "field token_ids: value of another type"},
	{"tokens that are pairs only at first", list("BlockStored", list(1), nil, list(list(1, 2), 3), 2), "field token_ids: value of another type"},
	{"tokens that are triples", list("BlockStored", list(1), nil, list(list(1, 2, 3)), 1), "field token_ids: value of another type"},
	{"a negative block size", list("BlockStored", list(1), nil, list(1), -1), "field block_size: number out of range"},
	{"an adapter id beyond 63 bits", list("BlockStored", list(1), nil, list(1), 1, uint64(1<<63)), "field lora_id: number out of range"},
	{"an adapter name that is a number", list("BlockStored", list(1), nil, list(1), 1, nil, nil, 9), "field lora_name: value of another type"},
	{"a name longer than any", list("BlockRemoved", list(1), strings.Repeat("m", maxName+1)), "field medium: number out of range"},
	{"an event wrapped twice", []byte{0xc4, 2, 0xc4, 0}, "neither an array nor a map"},
	{"an event wrapped and cut", []byte("\x92\xacBlockRemoved\x91"), "field block_hashes: the data ends inside a value"},
	{"nothing wrapped", []byte{}, "the data ends inside a value"},
}

func TestDecodeSkipsABadEventAndKeepsItsNeighbours(t *testing.T) {
	d := NewDecoder()
	for _, bad := range badEvents {
		t.Run(bad.name, func(t *testing.T) {
			got, err := d.Decode(packBatch(t, storedArray(1, 2), bad.value, list("BlockRemoved", list(2))))
			if err != nil {
				t.Fatal(err)
			}
			want := []Event{
				{Kind: Stored, Hashes: []Hash{1, 2}, Tokens: []uint32{0, 1}, BlockSize: 1, Medium: "GPU", Group: -1},
				{Kind: Removed, Hashes: []Hash{2}, Group: -1},
			}
			if diff := cmp.Diff(want, got.Events, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("neighbours differ (-want +got):\n%s", diff)
			}
			if got.Malformed != 1 || got.UnknownTags != 0 || got.UnknownFields != 0 {
				t.Errorf("malformed %d, unknown tags %d, unknown fields %d; want 1, 0, 0", got.Malformed, got.UnknownTags, got.UnknownFields)
			}
			reason := fmt.Sprint(got.FirstMalformed)
			if !strings.HasPrefix(reason, "event 1: ") || !strings.Contains(reason, bad.why) {
				t.Errorf("reason %q, want event 1 and %q", reason, bad.why)
			}
			if strings.Contains(reason, "424242") {
				t.Errorf("reason %q tells a token id", reason)
			}
		})
	}
}

func TestDecodeKeepsEveryGoodEventAmongArbitraryValues(t *testing.T) {
	d := NewDecoder()
	rapid.Check(t, func(t *rapid.T) {
		var want []Event
		events := list()
		bad := 0
		for i := range rapid.IntRange(1, 8).Draw(t, "events") {
			if rapid.Bool().Draw(t, "good") {
				events = append(events, list("BlockRemoved", list(i)))
				want = append(want, Event{Kind: Removed, Hashes: []Hash{Hash(i)}, Group: -1})
				continue
			}
			bad++
			switch rapid.IntRange(0, 2).Draw(t, "bad") {
			case 0:
				events = append(events, drawAnything(t, 3))
			case 1:
				events = append(events, rapid.SampledFrom(badEvents).Draw(t, "known bad").value)
			default:
				events = append(events, fields{{"type", "BlockInactive"}, {"block_hashes", drawAnything(t, 3)}})
			}
		}
		got, err := d.Decode(pack(t, batchOf(events...)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.Events, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("good events differ (-want +got):\n%s", diff)
		}
		if got.Malformed+got.UnknownTags != bad {
			t.Errorf("malformed %d and unknown %d of %d bad events", got.Malformed, got.UnknownTags, bad)
		}
	})
}

func TestDecodeToleratesWhatItDoesNotKnow(t *testing.T) {
	removed := Event{Kind: Removed, Hashes: []Hash{1}, Group: -1}
	tests := []struct {
		name  string
		value any
		want  Batch
	}{
		{
			"an unknown tag in either form", batchOf(list("BlockInactive", list(1)), fields{{"type", "TierBlocksCleared"}, {"medium", "CPU"}}),
			Batch{Timestamp: 1.5, HasRank: true, UnknownTags: 2},
		},
		{
			"an unknown tag behind fields of an unknown form", batchOf(fields{{"block_hashes", 3}, {"type", "BlockInactive"}}),
			Batch{Timestamp: 1.5, HasRank: true, UnknownTags: 1},
		},
		{
			"further elements of the batch", list(1, list(list("BlockRemoved", list(1))), nil, "epoch", fields{{"digest", 1}}),
			Batch{Timestamp: 1, Events: []Event{removed}, UnknownFields: 2},
		},
		{
			"a timestamp and a rank of no use", list("now", list(list("BlockRemoved", list(1))), -3),
			Batch{Events: []Event{removed}, UnknownFields: 2},
		},
		{
			"a list at position 7 of a store",
			batchOf(list("BlockStored", list(1), nil, list(5), 1, nil, nil, list("full", "swa"))),
			Batch{Timestamp: 1.5, HasRank: true, UnknownFields: 1, Events: []Event{
				{Kind: Stored, Hashes: []Hash{1}, Tokens: []uint32{5}, BlockSize: 1, Group: -1},
			}},
		},
		{
			"fields of a store on a remove", batchOf(fields{{"type", "BlockRemoved"}, {"block_hashes", list(1)}, {"token_ids", "none"}}),
			Batch{Timestamp: 1.5, HasRank: true, UnknownFields: 1, Events: []Event{removed}},
		},
		{
			"an adapter id without a name, behind which a bare key is a salt",
			batchOf(list("BlockStored", list(1), nil, list(5), 1, 2, nil, nil, list(list("a")))),
			Batch{Timestamp: 1.5, HasRank: true, Events: []Event{
				{
					Kind: Stored, Hashes: []Hash{1}, Tokens: []uint32{5}, BlockSize: 1, Group: -1,
					LoRAID: 2, HasLoRAID: true, Extra: []Extra{ExtraSalt},
				},
			}},
		},
		{
			"a salt that equals the adapter's name",
			batchOf(list("BlockStored", list(1), nil, list(5), 1, 2, nil, "a", list(list("a", "a")))),
			Batch{Timestamp: 1.5, HasRank: true, Events: []Event{
				{
					Kind: Stored, Hashes: []Hash{1}, Tokens: []uint32{5}, BlockSize: 1, Group: -1,
					LoRAID: 2, HasLoRAID: true, LoRAName: "a", Extra: []Extra{ExtraSalt},
				},
			}},
		},
		{
			"extra keys that do not match the hashes, which may speak of any of them",
			batchOf(list("BlockStored", list(1, 2), nil, list(5, 6), 1, nil, nil, nil, list("a"))),
			Batch{Timestamp: 1.5, HasRank: true, UnknownFields: 1, Events: []Event{
				{
					Kind: Stored, Hashes: []Hash{1, 2}, Tokens: []uint32{5, 6}, BlockSize: 1, Group: -1,
					Extra: []Extra{ExtraUnknown, ExtraUnknown},
				},
			}},
		},
		{
			"an empty salt, which is none",
			batchOf(fields{{"type", "BlockStored"}, {"block_hashes", list(1)}, {"cache_salt", ""}}),
			Batch{Timestamp: 1.5, HasRank: true, Events: []Event{{Kind: Stored, Hashes: []Hash{1}, Group: -1}}},
		},
		{
			"metadata of another name, which may be part of the identity too",
			batchOf(list("BlockStored", list(1), nil, list(), 0, nil, nil, fields{{"namespace", "n"}})),
			Batch{Timestamp: 1.5, HasRank: true, UnknownFields: 1, Events: []Event{
				{Kind: Stored, Hashes: []Hash{1}, Group: -1, Salted: true},
			}},
		},
	}
	d := NewDecoder()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := d.Decode(pack(t, test.value))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.want, got, cmpopts.EquateEmpty(), cmpopts.EquateErrors()); diff != "" {
				t.Errorf("batch differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeRefusesWhatIsNoBatch(t *testing.T) {
	tests := []struct {
		name    string
		payload []byte
		want    string
	}{
		{"nothing", nil, "the data ends inside a value"},
		{"a number", pack(t, 7), "want an array or a map"},
		{"text", []byte("hello"), "want an array or a map"},
		{"an array of one", pack(t, list(1.5)), "array of 1 elements, want at least timestamp and events"},
		{"events that are no list", pack(t, list(1.5, "x")), "field events: value of another type"},
		{"events that are nil", pack(t, list(1.5, nil, 0)), "field events: value of another type"},
		{"a map without events", pack(t, fields{{"ts", 1.5}}), "field events: missing"},
		{"a reserved byte", []byte{0x92, 0xc1, 0x90}, "reserved type byte"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b, err := NewDecoder().Decode(test.payload)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if b == nil || len(b.Events) != 0 {
				t.Errorf("batch %+v, want an empty one", b)
			}
		})
	}
}

func TestDecodeReturnsTheEventsInFrontOfACut(t *testing.T) {
	whole := packBatch(t, storedArray(1), list("BlockRemoved", list(1)), fields{{"type", "AllBlocksCleared"}})
	full, err := NewDecoder().Decode(whole)
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for cut := range len(whole) {
		got, err := NewDecoder().Decode(whole[:cut])
		if !errors.Is(err, errTruncated) {
			t.Fatalf("cut after %d of %d bytes: error %v, want truncation", cut, len(whole), err)
		}
		if diff := cmp.Diff(full.Events[:len(got.Events)], got.Events, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("cut after %d bytes (-want +got):\n%s", cut, diff)
		}
		if len(got.Events) < last || got.Malformed > 0 {
			t.Fatalf("cut after %d bytes: %d events, %d malformed; %d events one byte earlier", cut, len(got.Events), got.Malformed, last)
		}
		last = len(got.Events)
	}
	if last != 3 {
		t.Errorf("%d events in front of the last byte, want 3", last)
	}
}

func TestDecodeSetsNothingAsideForLengthsThatAreNotThere(t *testing.T) {
	huge := func(head string) []byte { return []byte(head + "\xff\xff\xff\xff") }
	tag := "\x95\xabBlockStored"
	payloads := map[string][]byte{
		"batch":      huge("\xdd"),
		"batch map":  huge("\xdf"),
		"events":     huge("\x92\x01\xdd"),
		"hashes":     huge("\x92\x01\x91" + tag + "\xdd"),
		"tokens":     huge("\x92\x01\x91" + tag + "\x91\x01\xc0\xdd"),
		"event map":  huge("\x92\x01\x91\xdf"),
		"a string":   huge("\x92\x01\x91\xdb"),
		"bytes":      huge("\x92\x01\x91\xc6"),
		"extension":  huge("\x92\x01\x91\xc9"),
		"extra keys": huge("\x92\x01\x91\x99\xabBlockStored\x91\x01\xc0\x91\x01\x01\xc0\xc0\xc0\xdd"),
	}
	for name, payload := range payloads {
		t.Run(name, func(t *testing.T) {
			d := NewDecoder()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := d.Decode(payload); !errors.Is(err, errTruncated) {
				t.Errorf("error %v, want truncation", err)
			}
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > 64<<10 {
				t.Errorf("%d bytes allocated for a message of %d", used, len(payload))
			}
		})
	}
}

func TestDecodeSurvivesDeepNesting(t *testing.T) {
	const depth = 8 << 20
	deep := append(bytes.Repeat([]byte{0x91}, depth), 0xc0)
	b, err := NewDecoder().Decode(packBatch(t, list("BlockRemoved", list(1), nil, nil, msgpack.RawMessage(deep)), storedArray(1)))
	if err != nil || len(b.Events) != 2 || b.UnknownFields != 1 {
		t.Errorf("%d events, %d unknown fields, error %v; want 2, 1 and none", len(b.Events), b.UnknownFields, err)
	}
}

func TestDecodeBoundsWhatOneBatchMayHold(t *testing.T) {
	big := make([]byte, maxHashes+1) // each byte is a small number
	hashes := append([]byte{0xdd, 0, 0x40, 0, 1}, big...)
	b, err := NewDecoder().Decode(packBatch(t, list("BlockRemoved", msgpack.RawMessage(hashes)), storedArray(1)))
	if err != nil || len(b.Events) != 1 || !errors.Is(b.FirstMalformed, errTooMany) {
		t.Errorf("%d events, reason %v, error %v; want 1, too many and none", len(b.Events), b.FirstMalformed, err)
	}

	events := make([]any, maxEvents+3)
	for i := range events {
		events[i] = list("AllBlocksCleared")
	}
	b, err = NewDecoder().Decode(packBatch(t, events...))
	if err != nil || len(b.Events) != maxEvents || b.Malformed != 3 {
		t.Errorf("%d events, %d malformed, error %v; want %d, 3 and none", len(b.Events), b.Malformed, err, maxEvents)
	}
}

func TestDecoderGivesBackTheMemoryOfAnOutlier(t *testing.T) {
	d := NewDecoder()
	tokens := make([]any, keepTokens*4)
	for i := range tokens {
		tokens[i] = 1
	}
	if _, err := d.Decode(packBatch(t, list("BlockStored", list(1), nil, tokens, len(tokens)))); err != nil {
		t.Fatal(err)
	}
	small := packBatch(t, storedArray(1))
	for range 2 {
		if _, err := d.Decode(small); err != nil {
			t.Fatal(err)
		}
	}
	if cap(d.tokens) > keepTokens {
		t.Errorf("room for %d tokens is kept after small batches, want at most %d", cap(d.tokens), keepTokens)
	}
}

func TestDecoderKeepsFewNames(t *testing.T) {
	d := NewDecoder()
	for i := range 3 * internNames {
		name := fmt.Sprintf("adapter-%d", i)
		b, err := d.Decode(packBatch(t, list("BlockRemoved", list(1), name)))
		if err != nil || b.Events[0].Medium != name {
			t.Fatalf("medium of %v, error %v; want %q", b.Events, err, name)
		}
	}
	if len(d.names) > internNames {
		t.Errorf("%d names kept, want at most %d", len(d.names), internNames)
	}
}

func TestMediumTier(t *testing.T) {
	tests := map[MediumClass][]string{
		MediumT1:    {"", "GPU", "gpu"},
		MediumT2:    {"CPU", "cpu", "CPU_PINNED", "CPU_TIER1", "cpu:0"},
		MediumT3:    {"DISK", "FS"},
		MediumT4:    {"STORAGE", "OBJ", "EXTERNAL", "SHARED_STORAGE", "OBJECT_STORE", "CPU_TIER2", "remote"},
		MediumOther: {"NPU", "cpu_tier3", " gpu", "cpus"},
	}
	for want, media := range tests {
		for _, medium := range media {
			if got := MediumTier(medium); got != want {
				t.Errorf("MediumTier(%q) = %v, want %v", medium, got, want)
			}
		}
	}
}
