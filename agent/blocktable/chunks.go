package blocktable

import (
	"slices"

	"github.com/inferencecache/inferencecache/fingerprint"
	"github.com/inferencecache/inferencecache/kvevents"
)

// A connector such as LMCache keeps chunks of many blocks in host memory, under hashes of its own, behind
// parents of its own. A chunk is taken apart into blocks of the engine's size, which hold the fingerprints
// of its tokens at T2, where nothing but tokens can be behind it and its removal will be heard of:
//
//   - Its events name no adapter, salt or image. Chunks count only while no block of the cache had one;
//     the engine announces a block before the connector does, so that none comes too late to be told.
//   - Some connectors announce no removals. Chunks are noted, and count from the first removal of one on.
//   - Announcements of several workers may cancel each other out. What chunks hold is not confirmed, and
//     ages out.
type chunks struct {
	noted   map[kvevents.Hash]link // chunks that did not count, at most maxNoted
	removed bool                   // one of them was removed
	mixed   bool                   // more than tokens has identified a block of this cache
	counted bool                   // chunks are among what is held
}

// maxNoted bounds the chunks that are remembered to learn whether their source announces removals, and for
// those that follow them. When there are as many, noting begins anew.
const maxNoted = 1 << 16

// maxPieces bounds the blocks of one chunk.
const maxPieces = 255

// chunkGroup is the group of a chunk's blocks: engines count theirs from 0.
const chunkGroup = -2

// isChunk says whether a store in host memory is one of chunks.
func (t *Table) isChunk(e *kvevents.Event) bool { return t.gpuBlock > 0 && e.BlockSize > t.gpuBlock }

// storeChunks counts what chunks hold, where that can be known.
func (t *Table) storeChunks(e *kvevents.Event, paired, plain bool) {
	pieces := e.BlockSize / t.gpuBlock
	usable := paired && plain && !t.chunks.mixed && e.BlockSize%t.gpuBlock == 0 && pieces <= maxPieces
	if !usable || !t.chunks.removed {
		t.stats.Ignored += uint64(len(e.Hashes))
	}
	if !usable {
		t.noteAll(e.Hashes)
		return
	}
	prev := link{}
	if e.HasParent {
		prev = t.linkToChunk(e.Parent)
	}
	for i, h := range e.Hashes {
		tokens := e.Tokens[i*e.BlockSize : (i+1)*e.BlockSize]
		if !t.chunks.removed {
			prev = t.chunkBehind(h, tokens, prev)
			t.note(h, prev)
			continue
		}
		if t.blocks.live()+pieces > t.cfg.MaxBlocks {
			t.refuse(len(e.Hashes) - i)
			return
		}
		prev = t.storeChunk(h, tokens, pieces, prev)
	}
}

func (t *Table) linkToChunk(h kvevents.Hash) link {
	if l, ok := t.chunks.noted[h]; ok {
		return l
	}
	return t.linkTo(blockKey{h, chunkGroup})
}

// chunkBehind is the link to a chunk that does not count.
func (t *Table) chunkBehind(h kvevents.Hash, tokens []uint32, prev link) link {
	out := link{key: blockKey{h, chunkGroup}, exists: true, state: undescribed}
	if prev.exists && prev.state != known {
		return out
	}
	for piece := range slices.Chunk(tokens, t.gpuBlock) {
		print := fingerprint.Content(piece)
		if prev.exists {
			print = fingerprint.Child(prev.print, print)
		}
		prev = link{exists: true, print: print, endTokens: prev.endTokens + int32(len(piece))}
	}
	out.state, out.print, out.endTokens = known, prev.print, prev.endTokens
	return out
}

// storeChunk describes the blocks of one chunk. The last one has the chunk's own hash, so that the next
// chunk finds it as its parent. A connector has a chunk once, however often it says so.
func (t *Table) storeChunk(h kvevents.Hash, tokens []uint32, pieces int, prev link) link {
	t.chunks.counted = true
	for i := range pieces {
		slot, _ := t.blockAt(blockKey{pieceHash(h, i, pieces), chunkGroup}) // the caller has made sure of room
		t.describe(slot, description{tokens: tokens[i*t.gpuBlock : (i+1)*t.gpuBlock], prev: prev})
		t.blocks.at(slot).pieces = uint8(pieces)
		if t.blocks.at(slot).copies[offload] == 0 {
			t.addCopy(slot, offload)
		}
		prev = t.linkOf(t.blocks.at(slot))
	}
	return prev
}

// removeChunk says whether the hash is one of a chunk, counted or noted.
func (t *Table) removeChunk(h kvevents.Hash) bool {
	if _, ok := t.chunks.noted[h]; ok {
		t.chunks.removed = true
		delete(t.chunks.noted, h)
		return true
	}
	slot, ok := t.findBlock(blockKey{h, chunkGroup})
	if !ok {
		return false
	}
	for i, pieces := 0, int(t.blocks.at(slot).pieces); i < pieces; i++ {
		if slot, ok := t.findBlock(blockKey{pieceHash(h, i, pieces), chunkGroup}); ok {
			t.setCopies(slot, offload, 0)
		}
	}
	return true
}

func (t *Table) noteAll(hashes []kvevents.Hash) {
	for _, h := range hashes {
		t.note(h, link{key: blockKey{h, chunkGroup}, exists: true, state: undescribed})
	}
}

func (t *Table) note(h kvevents.Hash, l link) {
	if t.chunks.noted == nil || len(t.chunks.noted) >= maxNoted {
		t.chunks.noted = map[kvevents.Hash]link{}
	}
	t.chunks.noted[h] = l
}

// pieceHash names block i of a chunk.
func pieceHash(h kvevents.Hash, i, pieces int) kvevents.Hash {
	if i == pieces-1 {
		return h
	}
	return kvevents.Hash(mix(uint64(h) ^ uint64(i+1)*0x9e3779b97f4a7c15))
}
