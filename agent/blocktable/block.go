package blocktable

import (
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/kvevents"
)

// blockKey is what the engine names.
type blockKey struct {
	hash  kvevents.Hash
	group int16 // -1 if the engine names none
}

// cellKey is what the index knows.
type cellKey struct {
	print   uint64
	adapter uint16
}

// identity says how far the fingerprint of a block is known.
type identity uint8

const (
	undescribed identity = iota // no store has given its tokens
	orphan                      // tokens known, fingerprint of the parent not
	known                       // has a cell
	excluded                    // more than tokens identify it; never has a cell
)

// medium is where the engine keeps a copy that counts.
type medium uint8

const (
	onGPU   medium = iota // T1
	offload               // T2
	media
)

// block is one engine hash of one group. Millions are kept: the fields are as narrow as they can be.
type block struct {
	hash      kvevents.Hash
	parent    kvevents.Hash // of the same group; valid when hasParent
	content   uint64        // content hash of its tokens; valid unless undescribed
	cell      int32         // valid when known
	group     int16
	adapter   uint16
	tokens    uint16       // block size
	copies    [media]uint8 // 255 stands for that many or more
	state     identity
	why       Exclusion // valid when excluded
	hasParent bool
	pieces    uint8 // blocks of its chunk; 0 for blocks of the engine's own
}

// maxCopies is far above what engines hold of one hash (5 were seen).
const maxCopies = 255

// maxRefs bounds the engine hashes of one fingerprint. Engines that do not show salts make many.
const maxRefs = 1<<16 - 1

// maxBlockTokens bounds the block size.
const maxBlockTokens = 1<<16 - 1

func (b *block) key() blockKey { return blockKey{b.hash, b.group} }

// cell is one fingerprint under one adapter.
type cell struct {
	print     uint64
	parent    uint64        // fingerprint; valid when hasParent
	start     int32         // prompt tokens in front of it
	seen      index.Instant // last evidence
	sent      uint16        // 2 bits per uplink: the tier last put into a delta, 0 for none
	refs      uint16        // known blocks that have this cell
	held      [2]uint16     // those of them with copies, by T1 and T2
	tokens    uint16        // block size; 0 only in a free slot
	adapter   uint16
	dirty     uint8      // 1 bit per uplink: waits in its list
	tier      index.Tier // current; 0 when not held
	hasParent bool
}

func (c *cell) key() cellKey { return cellKey{c.print, c.adapter} }

// hash spreads engine hashes, of which some releases choose small numbers.
func (k blockKey) hash64() uint64 { return mix(uint64(k.hash) + uint64(uint16(k.group))<<48) }

func (k cellKey) hash64() uint64 { return mix(k.print + uint64(k.adapter)<<48) }

// mix is the finalizer of MurmurHash3: every bit of the input reaches the low bits.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// findBlock and findCell return the slot of a key.
func (t *Table) findBlock(k blockKey) (int32, bool) {
	return t.byHash.find(k.hash64(), func(slot int32) bool { return t.blocks.at(slot).key() == k })
}

func (t *Table) findCell(k cellKey) (int32, bool) {
	return t.byPrint.find(k.hash64(), func(slot int32) bool { return t.cells.at(slot).key() == k })
}

// filedBlocks and filedCells list what the finders file.
type (
	filedBlocks struct{ *slab[block] }
	filedCells  struct{ *slab[cell] }
)

func (f filedBlocks) each(yield func(slot int32, hash uint64)) {
	for slot := range f.used {
		if b := f.at(slot); b.copies != [media]uint8{} {
			yield(slot, b.key().hash64())
		}
	}
}

func (f filedCells) each(yield func(slot int32, hash uint64)) {
	for slot := range f.used {
		if c := f.at(slot); c.tokens != 0 {
			yield(slot, c.key().hash64())
		}
	}
}
