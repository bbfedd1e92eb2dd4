package fakeengine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// blockHash identifies a block: its tokens, everything before it, and the extra keys of the chain.
type blockHash [sha256.Size]byte

// low64 is the integer form: the last 8 bytes, big-endian.
func (h blockHash) low64() uint64 { return binary.BigEndian.Uint64(h[len(h)-8:]) }

// noneHash returns the root of all chains, the parent of a first block. It never goes on the wire. With an
// empty seed it is random, so equal prompts have different hashes in each process.
func noneHash(seed string) (blockHash, error) {
	if seed != "" {
		return sha256.Sum256([]byte("seed:" + seed)), nil
	}
	var h blockHash
	if _, err := rand.Read(h[:]); err != nil {
		return h, fmt.Errorf("draw the root hash: %w", err)
	}
	return h, nil
}

// hashBlock hashes block i of a request behind its parent. The keys are length-prefixed and in fixed places,
// so an adapter and a salt of the same name do not meet.
func hashBlock(parent blockHash, tokens []uint32, id identity, i int) blockHash {
	salt := id.salt
	if i > 0 {
		salt = "" // the parent carries it
	}
	buf := make([]byte, 0, len(parent)+4*len(tokens)+8+len(id.lora)+len(salt))
	buf = append(buf, parent[:]...)
	for _, t := range tokens {
		buf = binary.LittleEndian.AppendUint32(buf, t)
	}
	for _, key := range []string{id.lora, salt} {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(len(key)))
		buf = append(buf, key...)
	}
	return sha256.Sum256(buf)
}

// identity is what makes equal tokens different blocks.
type identity struct {
	lora   string // adapter name; empty is the base model
	loraID int
	salt   string
}

// extraKeys returns the extra keys published for block i, nil if it has none: the adapter for every block,
// the salt for the first only.
func (id identity) extraKeys(i int) []string {
	var keys []string
	if id.lora != "" {
		keys = append(keys, id.lora)
	}
	if i == 0 && id.salt != "" {
		keys = append(keys, id.salt)
	}
	return keys
}
