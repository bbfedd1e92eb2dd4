package fakeengine

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
)

// Hash is a block hash in the form in which the engine publishes it.
type Hash struct {
	digest blockHash
	bytes  bool
}

// Uint64 returns the integer form: the last 8 bytes of the digest.
func (h Hash) Uint64() uint64 { return h.digest.low64() }

// Bytes returns the whole digest.
func (h Hash) Bytes() []byte { return h.digest[:] }

// String returns the decimal integer, or 0x and hex digits for a hash published as bytes.
func (h Hash) String() string {
	if h.bytes {
		return "0x" + hex.EncodeToString(h.digest[:])
	}
	return strconv.FormatUint(h.Uint64(), 10)
}

// MarshalJSON returns String, as a number for the integer form.
func (h Hash) MarshalJSON() ([]byte, error) {
	if h.bytes {
		return fmt.Appendf(nil, "%q", h.String()), nil
	}
	return []byte(h.String()), nil
}

// HeldBlock is one block hash that a rank's pool has cached, in use or free.
type HeldBlock struct {
	Rank      int      `json:"rank"`
	LoRA      string   `json:"lora"` // empty is the base model
	Salt      string   `json:"salt"` // of the request, for every block of its chain; empty is none
	Group     int      `json:"group"`
	Medium    string   `json:"medium"`
	Hash      Hash     `json:"hash"`
	Tokens    []uint32 `json:"tokens"`
	Parent    *Hash    `json:"parent"` // nil for the first block of a request
	BlockSize int      `json:"block_size"`
	Copies    int      `json:"copies"` // physical blocks under the hash
	Index     int      `json:"index"`  // position in the request

	fingerprint uint64
}

// RankFingerprints are the content fingerprints of all unsalted cached blocks of one adapter in one rank.
type RankFingerprints struct {
	Rank         int
	LoRA         string
	Fingerprints []uint64 // ascending, without repetition
}

// held returns what the pool has cached, in no particular order. The token slices are shared and read
// only.
func (r *rank) held(bytesHashes bool) []HeldBlock {
	r.mu.Lock()
	defer r.mu.Unlock()
	blocks := make([]HeldBlock, 0, len(r.pool.cached))
	for _, e := range r.pool.cached {
		b := HeldBlock{
			Rank:        r.index,
			LoRA:        e.id.lora,
			Salt:        e.id.salt,
			Group:       group,
			Medium:      medium,
			Hash:        Hash{e.hash, bytesHashes},
			Tokens:      e.tokens,
			BlockSize:   r.pool.blockSize,
			Copies:      len(e.copies),
			Index:       e.index,
			fingerprint: e.fingerprint,
		}
		if e.index > 0 {
			b.Parent = &Hash{e.parent, bytesHashes}
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// fingerprints returns one element for each adapter that has blocks, ordered by name.
func (r *rank) fingerprints() []RankFingerprints {
	byAdapter := make(map[string][]uint64)
	for _, b := range r.held(false) {
		if b.Salt == "" {
			byAdapter[b.LoRA] = append(byAdapter[b.LoRA], b.fingerprint)
		}
	}
	sets := make([]RankFingerprints, 0, len(byAdapter))
	for lora, prints := range byAdapter {
		slices.Sort(prints)
		sets = append(sets, RankFingerprints{r.index, lora, slices.Compact(prints)})
	}
	slices.SortFunc(sets, func(a, b RankFingerprints) int { return cmp.Compare(a.LoRA, b.LoRA) })
	return sets
}
