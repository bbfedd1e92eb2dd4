package kvevents

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

// fields is a msgpack map with its keys in a chosen order.
type fields []keyValue

type keyValue struct {
	key   any
	value any
}

func (f fields) EncodeMsgpack(e *msgpack.Encoder) error {
	if err := e.EncodeMapLen(len(f)); err != nil {
		return err
	}
	for _, kv := range f {
		if err := e.EncodeMulti(kv.key, kv.value); err != nil {
			return err
		}
	}
	return nil
}

// pack encodes a value with the msgpack library: lists as []any, maps as fields, every number in the
// width of its Go type, int in the shortest.
func pack(t interface{ Fatal(args ...any) }, v any) []byte {
	var buf bytes.Buffer
	if err := msgpack.NewEncoder(&buf).Encode(v); err != nil {
		t.Fatal(fmt.Errorf("encode test value: %w", err))
	}
	return buf.Bytes()
}

// list returns its arguments, never nil: nil would be encoded as such.
func list(v ...any) []any { return append([]any{}, v...) }

// storedArray is a store of eight elements with one token per block.
func storedArray(hashes ...any) []any {
	tokens := make([]any, len(hashes))
	for i := range tokens {
		tokens[i] = uint16(i)
	}
	return list("BlockStored", hashes, nil, tokens, 1, nil, "GPU", nil)
}

func batchOf(events ...any) []any { return list(1.5, events, 0) }

// drawEvent draws an event in its decoded form. What no release can express is left out.
func drawEvent(t *rapid.T) Event {
	ev := Event{Kind: rapid.SampledFrom([]Kind{Stored, Removed, Cleared}).Draw(t, "kind"), Group: -1}
	if ev.Kind == Cleared {
		return ev
	}
	ev.Hashes = rapid.SliceOfN(rapid.Map(drawNumber, func(v uint64) Hash { return Hash(v) }), 0, 5).Draw(t, "hashes")
	ev.Medium = drawName.Draw(t, "medium")
	if rapid.Bool().Draw(t, "has group") {
		ev.Group = rapid.Int32Range(0, 1<<31-1).Draw(t, "group")
	}
	if ev.Kind == Removed {
		return ev
	}
	if ev.HasParent = rapid.Bool().Draw(t, "has parent"); ev.HasParent {
		ev.Parent = Hash(drawNumber.Draw(t, "parent"))
	}
	ev.Tokens = rapid.SliceOfN(rapid.Uint32(), 0, 12).Draw(t, "tokens")
	ev.Bigram = len(ev.Tokens) > 0 && rapid.Bool().Draw(t, "bigram")
	ev.BlockSize = rapid.SampledFrom([]int{0, 1, 2, 3, 16, 1<<31 - 1}).Draw(t, "block size")
	ev.TokenMismatch = len(ev.Tokens) > 0 && len(ev.Tokens) != len(ev.Hashes)*ev.BlockSize
	if ev.HasLoRAID = rapid.Bool().Draw(t, "has adapter id"); ev.HasLoRAID {
		ev.LoRAID = rapid.Int64().Draw(t, "adapter id")
	}
	ev.LoRAName = drawName.Draw(t, "adapter")
	ev.SpecKind = drawName.Draw(t, "spec kind")
	ev.SlidingWindow = int(rapid.Int32Range(0, 1<<31-1).Draw(t, "window"))
	ev.Salted = ev.LoRAName == "" && rapid.Bool().Draw(t, "salted")
	if rapid.Bool().Draw(t, "has extra") {
		ev.Extra = rapid.SliceOfN(rapid.Map(rapid.Uint8Range(0, 15), func(b uint8) Extra { return Extra(b) }),
			len(ev.Hashes), len(ev.Hashes)).Draw(t, "extra")
	}
	return ev
}

var (
	drawName   = rapid.SampledFrom([]string{"", "GPU", "sql-lora", "an adapter with a name longer than thirty-one bytes"})
	drawNumber = rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 300), rapid.Uint64Range(1<<64-300, 1<<64-1))
)

// encodeEvent encodes an event in one of the forms that can carry it, and returns how many unknown
// fields it put in.
func encodeEvent(t *rapid.T, ev Event) (encoded any, unknown int) {
	if rapid.Bool().Draw(t, "as map") {
		encoded, unknown = encodeMap(t, ev)
	} else {
		encoded, unknown = encodeArray(t, ev)
	}
	if rapid.IntRange(0, 9).Draw(t, "wrap") == 0 {
		return pack(t, encoded), unknown
	}
	return encoded, unknown
}

// positions returns the values of the positional form, the last always nil or default, and the shortest
// length that carries the event.
func positions(t *rapid.T, ev Event) (values []any, shortest int) {
	switch ev.Kind {
	case Stored:
		position7 := nilIfEmpty(ev.LoRAName)
		if ev.Salted {
			position7 = fields{{"cache_salt", "pepper"}}
		}
		values = list(ev.Kind.String(), encodeHashes(t, ev.Hashes), encodeParent(t, ev), encodeTokens(t, ev), ev.BlockSize,
			nilUnless(ev.HasLoRAID, ev.LoRAID), nilIfEmpty(ev.Medium), position7, encodeExtra(t, ev),
			nilUnless(ev.Group >= 0, ev.Group), nilIfEmpty(ev.SpecKind), nilUnless(ev.SlidingWindow > 0, ev.SlidingWindow))
		shortest = 5
	case Removed:
		values = list(ev.Kind.String(), encodeHashes(t, ev.Hashes), nilIfEmpty(ev.Medium), nilUnless(ev.Group >= 0, ev.Group))
		shortest = 2
	default:
		return list(ev.Kind.String()), 1
	}
	for i, v := range values {
		if v != nil {
			shortest = max(shortest, i+1)
		}
	}
	return values, shortest
}

func encodeArray(t *rapid.T, ev Event) (encoded any, unknown int) {
	values, shortest := positions(t, ev)
	n := rapid.IntRange(shortest, len(values)+2).Draw(t, "length")
	for len(values) < n {
		values = append(values, drawAnything(t, 2))
		unknown++
	}
	return values[:n], unknown
}

func encodeMap(t *rapid.T, ev Event) (encoded any, unknown int) {
	all := fields{{"type", ev.Kind.String()}}
	if ev.Kind != Cleared {
		all = append(all, keyValue{"block_hashes", encodeHashes(t, ev.Hashes)})
	}
	optional := fields{
		{"medium", nilIfEmpty(ev.Medium)},
		{"group_idx", nilUnless(ev.Group >= 0, ev.Group)},
	}
	if ev.Kind == Stored {
		optional = append(optional, fields{
			{"parent_block_hash", encodeParent(t, ev)},
			{"token_ids", encodeTokens(t, ev)},
			{"block_size", nilUnless(ev.BlockSize > 0, ev.BlockSize)},
			{"lora_id", nilUnless(ev.HasLoRAID, ev.LoRAID)},
			{"lora_name", nilIfEmpty(ev.LoRAName)},
			{"extra_keys", encodeExtra(t, ev)},
			{"kv_cache_spec_kind", nilIfEmpty(ev.SpecKind)},
			{"kv_cache_spec_sliding_window", nilUnless(ev.SlidingWindow > 0, ev.SlidingWindow)},
			{"cache_salt", nilUnless(ev.Salted, "pepper")},
		}...)
	}
	for _, f := range optional {
		if f.value != nil || ev.Kind != Cleared && rapid.Bool().Draw(t, "send nil") {
			all = append(all, f)
		}
	}
	if rapid.Bool().Draw(t, "session") {
		all = append(all, keyValue{"session_id", "s"})
	}
	for range rapid.IntRange(0, 2).Draw(t, "unknown fields") {
		all = append(all, keyValue{rapid.SampledFrom([]any{"later_field", int8(4), nil}).Draw(t, "key"), drawAnything(t, 2)})
		unknown++
	}
	return rapid.Permutation(all).Draw(t, "order"), unknown
}

// drawAnything draws any msgpack value.
func drawAnything(t *rapid.T, depth int) any {
	switch kind := rapid.IntRange(0, 9).Draw(t, "value"); {
	case kind == 0 && depth > 0:
		return list(drawAnything(t, depth-1), drawAnything(t, depth-1))
	case kind == 1 && depth > 0:
		return fields{{"k", drawAnything(t, depth-1)}, {drawAnything(t, 0), nil}}
	case kind == 2:
		return rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes")
	case kind == 3:
		return rapid.StringN(0, 40, -1).Draw(t, "string")
	case kind == 4:
		return rapid.Float64().Draw(t, "float")
	case kind == 5:
		return rapid.Bool().Draw(t, "bool")
	case kind == 6:
		return msgpack.RawMessage(rapid.SampledFrom([]string{
			"\xd4\x01a", "\xd8\x010123456789abcdef", "\xc7\x03\x01abc", "\xc8\x00\x01\x01a", "\xc9\x00\x00\x00\x00\x01",
		}).Draw(t, "extension"))
	case kind == 7:
		return encodeNumber(t, drawNumber.Draw(t, "number"))
	default:
		return nil
	}
}

func nilIfEmpty(s string) any { return nilUnless(s != "", s) }

func nilUnless(present bool, v any) any {
	if !present {
		return nil
	}
	return v
}

// encodeNumber encodes v, read as two's complement where it is high, in any width that holds it.
func encodeNumber(t *rapid.T, v uint64) any {
	i := int64(v)
	forms := list(i)
	if i >= -1<<7 && i < 1<<7 {
		forms = append(forms, int8(i))
	}
	if i >= -1<<15 && i < 1<<15 {
		forms = append(forms, int16(i))
	}
	if i >= -1<<31 && i < 1<<31 {
		forms = append(forms, int32(i), int(i))
	}
	return rapid.SampledFrom(append(forms, unsignedForms(v)...)).Draw(t, "width")
}

func unsignedForms(v uint64) []any {
	forms := list(v)
	if v < 1<<8 {
		forms = append(forms, uint8(v))
	}
	if v < 1<<16 {
		forms = append(forms, uint16(v))
	}
	if v < 1<<32 {
		forms = append(forms, uint32(v), int(v))
	}
	return forms
}

func encodeHash(t *rapid.T, h Hash) any {
	if rapid.Bool().Draw(t, "hash as number") {
		return encodeNumber(t, uint64(h))
	}
	size := rapid.SampledFrom([]int{8, 16, 32}).Draw(t, "digest size")
	digest := rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "digest")
	for i := range 8 {
		digest[size-1-i] = byte(h >> (8 * i))
	}
	return digest
}

func encodeHashes(t *rapid.T, hashes []Hash) any {
	encoded := make([]any, len(hashes))
	for i, h := range hashes {
		encoded[i] = encodeHash(t, h)
	}
	return encoded
}

func encodeParent(t *rapid.T, ev Event) any {
	if !ev.HasParent {
		return nil
	}
	return encodeHash(t, ev.Parent)
}

func encodeTokens(t *rapid.T, ev Event) any {
	if len(ev.Tokens) == 0 {
		return rapid.SampledFrom([]any{nil, list()}).Draw(t, "no tokens")
	}
	encoded := make([]any, len(ev.Tokens))
	for i, token := range ev.Tokens {
		encoded[i] = rapid.SampledFrom(append(unsignedForms(uint64(token)), int64(token))).Draw(t, "token width")
		if ev.Bigram {
			encoded[i] = list(encoded[i], rapid.Uint32().Draw(t, "second"))
		}
	}
	return encoded
}

// encodeExtra lists what each block's bits stand for behind the adapter's name, as engines do.
func encodeExtra(t *rapid.T, ev Event) any {
	if ev.Extra == nil {
		return nil
	}
	encoded := make([]any, len(ev.Extra))
	for i, e := range ev.Extra {
		keys := list()
		if ev.LoRAName != "" {
			keys = append(keys, ev.LoRAName)
		}
		if e&ExtraMultimodal != 0 {
			keys = append(keys, list("image", rapid.IntRange(-9, 9).Draw(t, "offset")))
		}
		if e&ExtraSalt != 0 {
			keys = append(keys, "pepper")
		}
		if e&ExtraEmbeds != 0 {
			keys = append(keys, []byte("digest"))
		}
		if e&ExtraUnknown != 0 {
			keys = append(keys, rapid.SampledFrom([]any{7, fields{}, list("a", "b"), list(1, 2), list("a", 1, 2), nil}).Draw(t, "odd key"))
		}
		encoded[i] = keys
		if len(keys) == 0 && rapid.Bool().Draw(t, "nil for none") {
			encoded[i] = nil
		}
	}
	return encoded
}

func packBatch(tb testing.TB, events ...any) []byte {
	tb.Helper()
	return pack(tb, batchOf(events...))
}
