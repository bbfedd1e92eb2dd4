package kvevents

import "strings"

// Batch is one decoded message. It and everything in it is reused: valid until the next Decode of the
// same Decoder.
type Batch struct {
	// Timestamp is the engine's clock when it built the batch, in seconds since the Unix epoch; 0 if
	// the engine sent no finite number.
	Timestamp float64
	// Rank is the data-parallel rank that the engine states, when HasRank.
	Rank    int32
	HasRank bool
	Events  []Event
	// Malformed counts events that were skipped because they could not be read; FirstMalformed says
	// why the first of them was.
	Malformed      int
	FirstMalformed error
	// UnknownTags counts events of kinds that this package does not know; they are skipped.
	UnknownTags int
	// UnknownFields counts fields of readable events, and elements of the batch, that were skipped.
	UnknownFields int
}

// Kind says what an event reports.
type Kind uint8

// The kinds of events.
const (
	Stored  Kind = iota + 1 // the cache now holds the blocks
	Removed                 // one copy of each block is gone
	Cleared                 // every block in GPU memory of this rank is gone
)

// String returns the tag that engines use.
func (k Kind) String() string {
	switch k {
	case Stored:
		return "BlockStored"
	case Removed:
		return "BlockRemoved"
	case Cleared:
		return "AllBlocksCleared"
	default:
		return "unknown"
	}
}

// Hash is an engine's block hash in canonical form: of a byte string the last 8 bytes as a big-endian
// number, of a negative number its two's complement. Both forms that one engine can be set to send
// thus give the same Hash. Hashes of two engine processes are not comparable.
type Hash uint64

// Event is one cache change. Only Kind, Hashes, Medium and Group are ever set on Removed, and only
// Kind on Cleared.
type Event struct {
	Kind   Kind
	Hashes []Hash
	// Parent is the hash in front of the first block when HasParent; without it the run begins at
	// token 0, or the engine does not tell (placeholder events of offload tiers).
	Parent    Hash
	HasParent bool
	// Tokens are the token ids of the run; of bigram keys the first of each pair. Nil if none came.
	Tokens []uint32
	Bigram bool
	// TokenMismatch says that Tokens, though present, do not divide into BlockSize tokens for each
	// hash. It is legal where the engine leaves blocks out; which token belongs to which block is then
	// not defined.
	TokenMismatch bool
	// BlockSize is tokens per block; 0 in placeholder events.
	BlockSize int
	LoRAID    int64
	HasLoRAID bool
	LoRAName  string
	// Medium is the storage as sent; empty if absent or nil, which means the GPU.
	Medium string
	// Group is the KV-cache group, -1 if absent.
	Group    int32
	SpecKind string
	// SlidingWindow is the window of a windowed group in tokens, 0 if absent.
	SlidingWindow int
	// Salted says that a cache salt, or other metadata of that sort, is part of the identity of the
	// whole run.
	Salted bool
	// Extra says per hash which identity beyond tokens and adapter the block carries. Nil if no block
	// carries any, else as long as Hashes.
	Extra []Extra
}

// Extra is a set of bits: identity that a block has beyond its tokens and its adapter.
type Extra uint8

// The bits of Extra.
const (
	// ExtraSalt is a bare string: a cache salt, or an image id of releases that send no offset.
	ExtraSalt Extra = 1 << iota
	// ExtraMultimodal is an item such as an image, sent as [id, offset].
	ExtraMultimodal
	// ExtraEmbeds is a digest of prompt embeddings.
	ExtraEmbeds
	// ExtraUnknown is anything else; the block must not be identified by tokens alone.
	ExtraUnknown
)

// MediumClass sorts storage media by distance from the engine's GPU.
type MediumClass uint8

// The classes. MediumOther is a medium that no known engine sends; it says nothing of distance.
const (
	MediumOther MediumClass = iota
	MediumT1                // GPU memory
	MediumT2                // host memory of the node
	MediumT3                // disk of the node
	MediumT4                // shared or remote storage
)

// String returns the class's short name.
func (m MediumClass) String() string {
	switch m {
	case MediumT1:
		return "T1"
	case MediumT2:
		return "T2"
	case MediumT3:
		return "T3"
	case MediumT4:
		return "T4"
	default:
		return "other"
	}
}

// MediumTier returns the class of an event's medium, whatever its letter case.
func MediumTier(medium string) MediumClass {
	if medium == "" || medium == "GPU" {
		return MediumT1
	}
	switch m := strings.ToLower(medium); m {
	case "gpu":
		return MediumT1
	case "cpu", "cpu_pinned", "cpu_tier1":
		return MediumT2
	case "disk", "fs":
		return MediumT3
	case "storage", "obj", "external", "shared_storage", "object_store", "cpu_tier2", "remote":
		return MediumT4
	default:
		if strings.HasPrefix(m, "cpu:") { // a device with its index, as "cpu:0"
			return MediumT2
		}
		return MediumOther
	}
}
