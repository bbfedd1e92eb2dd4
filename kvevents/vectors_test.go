package kvevents

import (
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// vectors are messages encoded by hand after the rules of the engines' encoder. highHash is a hash that
// does not fit a signed number.
const highHash = 0xF000000000000001

var vectors = []struct {
	name string
	hex  string
	want Batch
}{
	{
		name: "first release: batch of two elements, store of six, negative hash",
		hex:  "92cb3ff80000000000009196ab426c6f636b53746f72656491fbc092010202c0",
		want: Batch{Timestamp: 1.5, Events: []Event{
			{Kind: Stored, Hashes: []Hash{0xFFFFFFFFFFFFFFFB}, Tokens: []uint32{1, 2}, BlockSize: 2, Group: -1},
		}},
	},
	{
		name: "store of eight elements with a high hash behind a parent",
		hex:  "93cb3ff80000000000009198ab426c6f636b53746f72656491cff0000000000000010792010202c0a3475055c000",
		want: Batch{Timestamp: 1.5, HasRank: true, Events: []Event{
			{
				Kind: Stored, Hashes: []Hash{highHash}, Parent: 7, HasParent: true, Tokens: []uint32{1, 2}, BlockSize: 2,
				Medium: "GPU", Group: -1,
			},
		}},
	},
	{
		name: "store of eleven elements with an adapter, whose name alone in the extra keys adds nothing",
		hex:  "93cb3ff8000000000000919bab426c6f636b53746f72656491cff000000000000001c09201020203a3475055a36164419191a361644100ae66756c6c5f617474656e74696f6e01",
		want: Batch{Timestamp: 1.5, HasRank: true, Rank: 1, Events: []Event{
			{
				Kind: Stored, Hashes: []Hash{highHash}, Tokens: []uint32{1, 2}, BlockSize: 2, LoRAID: 3, HasLoRAID: true,
				LoRAName: "adA", Medium: "GPU", Group: 0, SpecKind: "full_attention",
			},
		}},
	},
	{
		name: "map events: stored, removed, cleared",
		hex:  "93cb3ff8000000000000938ba474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391cff000000000000001b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473920102aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0aa65787472615f6b65797391c0a967726f75705f69647800b26b765f63616368655f737065635f6b696e64ae66756c6c5f617474656e74696f6e84a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657391cff000000000000001a66d656469756da3475055a967726f75705f6964780081a474797065b0416c6c426c6f636b73436c656172656400",
		want: Batch{Timestamp: 1.5, HasRank: true, Events: []Event{
			{
				Kind: Stored, Hashes: []Hash{highHash}, Tokens: []uint32{1, 2}, BlockSize: 2, Medium: "GPU", Group: 0,
				SpecKind: "full_attention",
			},
			{Kind: Removed, Hashes: []Hash{highHash}, Medium: "GPU", Group: 0},
			{Kind: Cleared, Group: -1},
		}},
	},
	{
		name: "hash as a digest of 32 bytes, of which the last eight count",
		hex:  "93cb3ff80000000000009198ab426c6f636b53746f72656491c420000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1fc092010202c0a3475055c000",
		want: Batch{Timestamp: 1.5, HasRank: true, Events: []Event{
			{
				Kind: Stored, Hashes: []Hash{0x18191A1B1C1D1E1F}, Tokens: []uint32{1, 2}, BlockSize: 2, Medium: "GPU", Group: -1,
			},
		}},
	},
	{
		name: "positional removes of three and of two elements, and a clear",
		hex:  "93cb3ff80000000000009393ac426c6f636b52656d6f76656491cff000000000000001a347505592ac426c6f636b52656d6f766564910791b0416c6c426c6f636b73436c656172656400",
		want: Batch{Timestamp: 1.5, HasRank: true, Events: []Event{
			{Kind: Removed, Hashes: []Hash{highHash}, Medium: "GPU", Group: -1},
			{Kind: Removed, Hashes: []Hash{7}, Group: -1},
			{Kind: Cleared, Group: -1},
		}},
	},
	{
		name: "store whose eighth element is a map with a salt, and a store of token pairs; rank nil",
		hex:  "93cb3ff80000000000009298ab426c6f636b53746f72656491fec092010202c0a347505581aa63616368655f73616c74a17497ab426c6f636b53746f72656491fdfe9292010292020302c0aa4350555f50494e4e4544c0",
		want: Batch{Timestamp: 1.5, Events: []Event{
			{
				Kind: Stored, Hashes: []Hash{0xFFFFFFFFFFFFFFFE}, Tokens: []uint32{1, 2}, BlockSize: 2, Medium: "GPU", Group: -1,
				Salted: true,
			},
			{
				Kind: Stored, Hashes: []Hash{0xFFFFFFFFFFFFFFFD}, Parent: 0xFFFFFFFFFFFFFFFE, HasParent: true,
				Tokens: []uint32{1, 2}, Bigram: true, BlockSize: 2, Medium: "CPU_PINNED", Group: -1,
			},
		}},
	},
	{
		name: "placeholder of an offload tier: no tokens, block size 0",
		hex:  "93cb3ff80000000000009189a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391cff000000000000001b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f69647390aa626c6f636b5f73697a6500a76c6f72615f6964c0a66d656469756da3435055a96c6f72615f6e616d65c0a967726f75705f6964780000",
		want: Batch{Timestamp: 1.5, HasRank: true, Events: []Event{
			{Kind: Stored, Hashes: []Hash{highHash}, Medium: "CPU", Group: 0},
		}},
	},
	{
		name: "store of a connector with nil tokens",
		hex:  "93cb3ff80000000000009188a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657391cff000000000000001b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473c0aa626c6f636b5f73697a6510a76c6f72615f6964c0a66d656469756da3637075a96c6f72615f6e616d65c000",
		want: Batch{Timestamp: 1.5, HasRank: true, Events: []Event{
			{Kind: Stored, Hashes: []Hash{highHash}, BlockSize: 16, Medium: "cpu", Group: -1},
		}},
	},
	{
		name: "batch as a map",
		hex:  "83a27473cb3ff8000000000000a66576656e74739181a474797065b0416c6c426c6f636b73436c6561726564b2646174615f706172616c6c656c5f72616e6b02",
		want: Batch{Timestamp: 1.5, HasRank: true, Rank: 2, Events: []Event{{Kind: Cleared, Group: -1}}},
	},
}

func TestDecodeReadsEveryReleaseForm(t *testing.T) {
	d := NewDecoder()
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			got, err := d.Decode(unhex(t, v.hex))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&v.want, got, cmpopts.EquateEmpty(), cmpopts.EquateErrors()); diff != "" {
				t.Errorf("batch differs (-want +got):\n%s", diff)
			}
		})
	}
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
