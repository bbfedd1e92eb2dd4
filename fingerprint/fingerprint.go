// Package fingerprint computes content fingerprints: hashes that identify a prompt prefix by its
// token ids alone, so that every engine, gateway and language that follows the construction arrives
// at the same key.
//
// All hashes are XXH3-64 with seed 1337:
//
//	content[i] = XXH3(token ids of block i, little-endian uint32 each)
//	prefix[0]  = content[0], or XXH3(LE64(parent) || LE64(content[0])) behind a parent
//	prefix[i]  = XXH3(LE64(prefix[i-1]) || LE64(content[i]))
//
// On the wire a hash is its 8-byte big-endian form. Tokens that do not fill a block are dropped:
// engines cache full blocks only.
package fingerprint

import (
	"encoding/binary"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// Seed is the seed of every hash of the construction.
const Seed = 1337

// littleEndian reports whether a token slice in memory already has the layout that is hashed.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// Content hashes the token ids of one block.
func Content(tokens []uint32) uint64 {
	if len(tokens) == 0 {
		return xxh3.HashSeed(nil, Seed)
	}
	if littleEndian {
		// Plain form: contentPortable. The view covers exactly the slice's memory, is read only,
		// and does not outlive the call; every byte of a uint32 is initialised.
		return xxh3.HashSeed(unsafe.Slice((*byte)(unsafe.Pointer(&tokens[0])), 4*len(tokens)), Seed)
	}
	return contentPortable(tokens)
}

// contentPortable is Content on machines of any byte order.
func contentPortable(tokens []uint32) uint64 {
	buf := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		buf = binary.LittleEndian.AppendUint32(buf, t)
	}
	return xxh3.HashSeed(buf, Seed)
}

// Child returns the prefix hash of a block behind the prefix parent.
func Child(parent, content uint64) uint64 {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], parent)
	binary.LittleEndian.PutUint64(b[8:], content)
	return xxh3.HashSeed(b[:], Seed)
}

// Blocks returns the number of full blocks in n tokens; 0 if blockSize is not positive.
func Blocks(n, blockSize int) int {
	if blockSize <= 0 {
		return 0
	}
	return n / blockSize
}

// Chain returns the prefix hash of each full block of a prompt.
func Chain(tokens []uint32, blockSize int) []uint64 {
	n := Blocks(len(tokens), blockSize)
	if n == 0 {
		return nil
	}
	prefix := Content(tokens[:blockSize])
	return appendChain(append(make([]uint64, 0, n), prefix), prefix, tokens[blockSize:], blockSize)
}

// ChainFrom is Chain for tokens that follow a prefix whose hash is parent.
func ChainFrom(parent uint64, tokens []uint32, blockSize int) []uint64 {
	n := Blocks(len(tokens), blockSize)
	if n == 0 {
		return nil
	}
	return appendChain(make([]uint64, 0, n), parent, tokens, blockSize)
}

// AppendChain goes on with the chain in dst: it appends the prefix hash of each full block of tokens,
// which follow those that dst was made of. An empty dst begins a prompt. Nothing is allocated if dst
// has room.
func AppendChain(dst []uint64, tokens []uint32, blockSize int) []uint64 {
	if Blocks(len(tokens), blockSize) == 0 {
		return dst
	}
	if len(dst) == 0 {
		dst = append(dst, Content(tokens[:blockSize]))
		tokens = tokens[blockSize:]
	}
	return appendChain(dst, dst[len(dst)-1], tokens, blockSize)
}

func appendChain(dst []uint64, prefix uint64, tokens []uint32, blockSize int) []uint64 {
	for ; len(tokens) >= blockSize; tokens = tokens[blockSize:] {
		prefix = Child(prefix, Content(tokens[:blockSize]))
		dst = append(dst, prefix)
	}
	return dst
}

// Key returns the wire form of a hash: 8 bytes, big-endian.
func Key(h uint64) [8]byte {
	var k [8]byte
	binary.BigEndian.PutUint64(k[:], h)
	return k
}
