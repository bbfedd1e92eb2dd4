package fakeengine

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

// wireHash returns a block hash whose integer form is n.
func wireHash(n uint64) blockHash {
	var h blockHash
	binary.BigEndian.PutUint64(h[len(h)-8:], n)
	return h
}

func ascendingHash() (h blockHash) {
	for i := range h {
		h[i] = byte(i)
	}
	return h
}

func TestBatchesAreEncodedByteForByteAsVLLMDoes(t *testing.T) {
	const top = 0xF000000000000001
	seven := wireHash(7)
	stored := event{kind: blockStored, hashes: []blockHash{wireHash(top)}, tokens: []uint32{1, 2}}
	behind := stored
	behind.parent = &seven
	bytesHash := stored
	bytesHash.hashes = []blockHash{ascendingHash()}
	removed := event{kind: blockRemoved, hashes: []blockHash{wireHash(top)}}
	removedSeven := event{kind: blockRemoved, hashes: []blockHash{seven}}
	cleared := event{kind: allCleared}
	array := func(n int) func(*Config) {
		return func(c *Config) { c.EventForm, c.ArrayFields = EventArray, n }
	}
	for _, c := range []struct {
		name   string
		change func(*Config)
		events []event
		want   string
	}{
		{
			"an array of 8 behind a parent", array(8),
			[]event{behind},
			"93cb3ff80000000000009198ab426c6f636b53746f72656491cff0000000000000010792010202c0a3475055c000",
		},
		{
			"maps", nil,
			[]event{stored, removed, cleared},
			"93cb3ff8000000000000938ba474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391cff000000000000001b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473920102aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0aa65787472615f6b65797391c0a967726f75705f69647800b26b765f63616368655f737065635f6b696e64ae66756c6c5f617474656e74696f6e84a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657391cff000000000000001a66d656469756da3475055a967726f75705f6964780081a474797065b0416c6c426c6f636b73436c656172656400",
		},
		{
			"an array of 8 with a hash of 32 bytes", func(c *Config) { array(8)(c); c.HashForm = HashBytes },
			[]event{bytesHash},
			"93cb3ff80000000000009198ab426c6f636b53746f72656491c420000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1fc092010202c0a3475055c000",
		},
		{
			"removals of 3 elements and a clear", array(7),
			[]event{removed, cleared},
			"93cb3ff80000000000009293ac426c6f636b52656d6f76656491cff000000000000001a347505591b0416c6c426c6f636b73436c656172656400",
		},
		{
			"removals of 2 elements", array(6),
			[]event{removedSeven},
			"93cb3ff80000000000009192ac426c6f636b52656d6f766564910700",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.BlockSize = 2
			if c.change != nil {
				c.change(&cfg)
			}
			got, err := newEncoder(&cfg, 0).encode(batch{time.Unix(1, 5e8), c.events})
			if err != nil {
				t.Fatal(err)
			}
			if hex.EncodeToString(got) != c.want {
				t.Errorf("got  %x\nwant %s", got, c.want)
			}
		})
	}
}

func TestArraysHaveTheLengthsOfTheReleases(t *testing.T) {
	for _, c := range []struct{ stored, removed int }{{6, 2}, {7, 3}, {8, 3}, {9, 3}, {10, 4}, {12, 4}} {
		t.Run(fmt.Sprintf("a store of %d goes with a removal of %d", c.stored, c.removed), func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.EventForm, cfg.ArrayFields = EventArray, c.stored
			events := []event{{kind: blockStored, tokens: []uint32{}}, {kind: blockRemoved}, {kind: allCleared}}
			payload, err := newEncoder(&cfg, 3).encode(batch{time.Now(), events})
			if err != nil {
				t.Fatal(err)
			}
			b := decodeBatch(t, payload)
			for i, want := range []int{c.stored, c.removed, 1} {
				if got := len(b.events[i].([]any)); got != want {
					t.Errorf("event %d has %d elements, want %d", i, got, want)
				}
			}
			if b.rank != 3 {
				t.Errorf("rank %d, want 3", b.rank)
			}
		})
	}
}

func TestStoresCarryTheirExtraKeys(t *testing.T) {
	cfg := DefaultConfig()
	hashes := []blockHash{wireHash(1), wireHash(2)}
	for _, c := range []struct {
		name  string
		id    identity
		first int
		want  string
	}{
		{"nil where a block has none", identity{}, 0, "[<nil> <nil>]"},
		{"the salt on the first block only", identity{salt: "s"}, 0, "[[s] <nil>]"},
		{"no salt on a later run", identity{salt: "s"}, 4, "[<nil> <nil>]"},
		{"the adapter on every block, before the salt", identity{lora: "a", loraID: 7, salt: "s"}, 0, "[[a s] [a]]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ev := event{kind: blockStored, hashes: hashes, id: c.id, first: c.first}
			payload, err := newEncoder(&cfg, 0).encode(batch{time.Now(), []event{ev}})
			if err != nil {
				t.Fatal(err)
			}
			fields := decodeBatch(t, payload).events[0].(map[string]any)
			if got := fmt.Sprint(fields["extra_keys"]); got != c.want {
				t.Errorf("extra_keys %s, want %s", got, c.want)
			}
			var name, id any
			if c.id.lora != "" {
				name, id = c.id.lora, int8(7)
			}
			if fields["lora_name"] != name || fields["lora_id"] != id {
				t.Errorf("lora %v, id %v; want %v, %v", fields["lora_name"], fields["lora_id"], name, id)
			}
		})
	}
}

// decoded is a batch as plain values.
type decoded struct {
	at     float64
	events []any
	rank   int
}

func decodeBatch(t *testing.T, payload []byte) decoded {
	t.Helper()
	var outer []any
	if err := msgpack.Unmarshal(payload, &outer); err != nil {
		t.Fatal(err)
	}
	if len(outer) != 3 {
		t.Fatalf("batch of %d elements, want 3", len(outer))
	}
	return decoded{outer[0].(float64), outer[1].([]any), int(unsigned(outer[2]))}
}

// unsigned reads any integer that msgpack decodes to.
func unsigned(v any) uint64 {
	switch n := v.(type) {
	case int8:
		return uint64(n)
	case int16:
		return uint64(n)
	case int32:
		return uint64(n)
	case int64:
		return uint64(n)
	case uint8:
		return uint64(n)
	case uint16:
		return uint64(n)
	case uint32:
		return uint64(n)
	case uint64:
		return n
	default:
		panic(fmt.Sprintf("%T is no integer", v))
	}
}
