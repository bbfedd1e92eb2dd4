package lookup

import (
	"encoding/binary"
	"unsafe"

	"github.com/inferencecache/inferencecache/fingerprint"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// Bounds on the input of one lookup. More is no usable input.
const (
	MaxTokens = 1 << 20
	MaxBlocks = 1 << 20
)

// resolve turns the first input that the request carries into chains, and says whether it is usable.
// A request with no input at all is: it may still be answered by warm replicas.
func (s *Service) resolve(c *call) bool {
	req := c.req
	chainGiven := len(req.GetPackedBlockHashes()) > 0 || len(req.GetBlockHashes()) > 0 || len(req.GetBlockTokenCounts()) > 0
	switch {
	case c.policy.ChainMatching && len(req.GetPackedBlockHashes()) > 0:
		return c.packedChain()
	case c.policy.ChainMatching && chainGiven:
		return c.wireChain()
	case len(req.GetPrefixHash()) > 0:
		c.exact = true
		c.promptTokens = int64(req.GetPrefixTokenCount())
		c.addChain().keys = c.keys(req.GetPrefixHash())
		return true
	case len(req.GetTokenIds()) > 0:
		return s.tokenChains(c, req.GetTokenIds())
	case carriesText(req):
		return s.textChains(c)
	case chainGiven:
		return false // the policy does not compare chains, and there is nothing else
	default:
		c.exact = true
		return true
	}
}

// carriesChain says whether the request has a well-formed chain of block hashes.
func carriesChain(req *pb.LookupRouteRequest) bool {
	if packed := req.GetPackedBlockHashes(); len(packed) > 0 {
		return len(packed)%8 == 0 && req.GetBlockSize() > 0
	}
	return len(req.GetBlockHashes()) > 0 && len(req.GetBlockHashes()) == len(req.GetBlockTokenCounts())
}

func (c *call) packedChain() bool {
	packed, size := c.req.GetPackedBlockHashes(), c.req.GetBlockSize()
	if !carriesChain(c.req) || len(packed)/8 > MaxBlocks {
		return false
	}
	for ; len(packed) > 0; packed = packed[8:] {
		c.words = append(c.words, binary.BigEndian.Uint64(packed))
	}
	c.promptTokens = int64(len(c.words)) * int64(size)
	ch := c.addChain()
	ch.keys, ch.blockTokens = index.Keys{Words: c.words}, size
	return true
}

func (c *call) wireChain() bool {
	counts := c.req.GetBlockTokenCounts()
	if !carriesChain(c.req) || len(c.req.GetPackedBlockHashes()) > 0 || len(counts) > MaxBlocks {
		return false
	}
	for _, n := range counts {
		if n < 0 {
			return false
		}
		c.promptTokens += int64(n)
	}
	ch := c.addChain()
	ch.keys, ch.counts = c.keys(c.req.GetBlockHashes()...), counts
	return true
}

// keys returns the hashes as the index takes them. They point into the request.
func (c *call) keys(hashes ...[]byte) index.Keys {
	for _, h := range hashes {
		if len(h) != 8 {
			return index.Keys{Wide: viewStrings(hashes)}
		}
	}
	for _, h := range hashes {
		c.words = append(c.words, binary.BigEndian.Uint64(h))
	}
	return index.Keys{Words: c.words}
}

// viewStrings returns strings that share the hashes' memory, which spares a copy per block. The
// plain form is string(h). It is safe because nothing writes to a request after it is decoded, and
// the index keeps no key of a lookup.
func viewStrings(hashes [][]byte) []string {
	out := make([]string, len(hashes))
	for i, h := range hashes {
		out[i] = unsafe.String(unsafe.SliceData(h), len(h))
	}
	return out
}

// tokenChains makes a chain of the prompt for each block size in use.
func (s *Service) tokenChains(c *call, ids []uint32) bool {
	if len(ids) > MaxTokens {
		return false
	}
	for _, size := range c.members.BlockSizes {
		c.addTokenChain(ids, size)
	}
	if len(c.members.BlockSizes) == 0 || c.members.Unsized {
		c.addTokenChain(ids, s.BlockSize)
	}
	return len(c.chains) > 0
}

func (c *call) addTokenChain(ids []uint32, size int32) {
	blocks := fingerprint.Blocks(len(ids), int(size))
	if blocks == 0 || c.hasChain(size) {
		return
	}
	tokens := blocks * int(size)
	c.promptTokens = max(c.promptTokens, int64(tokens))
	ch := c.addChain()
	ch.blockTokens, ch.rest = size, ids[:tokens]
	if c.policy.ChainMatching {
		return
	}
	ch.hash(blocks)
	c.exact = true
	ch.keys.Words = ch.words[blocks-1:]
}

// hash brings the keys of a chain of token ids to n, or to all there are.
func (ch *chain) hash(n int) {
	tokens := min(len(ch.rest), max(0, n-len(ch.words))*int(ch.blockTokens))
	if tokens == 0 {
		return
	}
	ch.words = fingerprint.AppendChain(ch.words, ch.rest[:tokens], int(ch.blockTokens))
	ch.rest = ch.rest[tokens:]
	ch.keys.Words = ch.words
}

func (c *call) hasChain(size int32) bool {
	for _, ch := range c.chains {
		if ch.blockTokens == size {
			return true
		}
	}
	return false
}
