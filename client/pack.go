package client

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/inferencecache/inferencecache/fingerprint"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// chains holds buffers of block hashes.
var chains = sync.Pool{New: func() any { return new([]uint64) }}

// maxKeptBlocks bounds the buffers that are kept for the next prompt.
const maxKeptBlocks = 1 << 14

// AppendPacked appends the packed block hashes of a prompt: 8 bytes for each full block of blockSize
// tokens. Nothing is allocated if dst has room.
func AppendPacked(dst []byte, tokens []uint32, blockSize int) []byte {
	buffer := chains.Get().(*[]uint64)
	*buffer = fingerprint.AppendChain((*buffer)[:0], tokens, blockSize)
	for _, h := range *buffer {
		dst = binary.BigEndian.AppendUint64(dst, h)
	}
	if cap(*buffer) <= maxKeptBlocks {
		chains.Put(buffer)
	}
	return dst
}

// SetPrompt names a prompt in a request by its packed block hashes, the form that costs least to send
// and to decode, and that a policy which requires chains accepts. blockSize is the engines' KV block
// size in tokens; a scope whose engines differ in it is better asked by token ids, which the
// aggregator hashes in every size in use. The error names a block size that cannot be.
//
// A prompt of less than one block has no hashes: nothing can match it.
func SetPrompt(req *pb.LookupRouteRequest, tokens []uint32, blockSize int) error {
	if blockSize <= 0 || blockSize > math.MaxInt32 {
		return fmt.Errorf("hash a prompt: the block size is %d tokens, want 1 to %d", blockSize, math.MaxInt32)
	}
	req.PackedBlockHashes = AppendPacked(req.GetPackedBlockHashes()[:0], tokens, blockSize)
	req.BlockSize = int32(blockSize)
	return nil
}
