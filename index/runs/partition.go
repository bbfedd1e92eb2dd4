package runs

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/inferencecache/inferencecache/index"
)

// batch bounds the blocks that are changed under one hold of a partition's lock.
const batch = 512

// partition is everything of one partition, and its lock. A partition that holds nothing is dropped
// as a whole, with all its memory and names.
//
// Readers take the read lock once for a whole lookup, so that they see one moment; writers give the
// lock up after each batch, and the lock lets waiting readers in between two writers. So a lookup
// waits for one batch, some ten microseconds, and never sees half of one. Lock-free readers (epochs,
// sequence locks) would save some 10 ns a lookup, at the price of reclaiming slabs by hand.
type partition struct {
	key      index.Partition
	scope    *scope
	position int // in the registry's list, guarded by its lock

	mu   sync.RWMutex
	dead bool // dropped from the registry

	seed     uint64
	table    table
	runs     slab[run]
	pages    slab[uint64]
	lists    slab[uint32]
	spans    slab[span]
	wide     wideKeys
	holders  []holder
	confirms []confirmations // by holder, apart because lookups need no more of a holder
	ids      map[index.Holder]uint32
	freeIDs  []uint32
	pairs    int64
	prefixes int64
	// What totals have of pairs and prefixes, and the caches whose pairs changed since.
	flushedPairs, flushedPrefixes int64
	changed                       []uint32
	// pins counts walks over all runs that are under way. Meanwhile blocks do not move between
	// runs, so that no walk misses one; untidy says that this left something to do.
	pins   int
	untidy bool

	// oldest is at most the oldest evidence held; swept is when it was last determined.
	oldest index.Instant
	swept  index.Instant

	counted int64 // bytes that the registry has counted

	scratch []span
	hashed  []uint64
	met     []location
	touched uint64 // keeps the loads of table.touch and prefetch
}

// holder is one cache that holds something in a partition.
type holder struct {
	name    index.Holder
	digest  index.Digest
	pairs   int64
	flushed int64 // of pairs
	spans   int
	tally   *tally
}

// tally counts the pairs of one cache in one scope, over adapters.
type tally struct {
	pairs atomic.Int64
	refs  int // partitions that hold something; guarded by the scope's lock
}

func newPartition(key index.Partition, s *scope) *partition {
	p := &partition{key: key, scope: s, seed: rand.Uint64(), table: newTable(), ids: map[index.Holder]uint32{}}
	p.runs.alloc(0) // run 0 is no run
	p.holders = append(p.holders, holder{})
	p.confirms = append(p.confirms, confirmations{})
	p.oldest = 1<<32 - 1
	return p
}

// holderID returns the number of a cache, or 0 when it holds nothing.
func (p *partition) holderID(h index.Holder) uint32 { return p.ids[h] }

// admit returns the number of a cache, a new one if it has none.
func (p *partition) admit(h index.Holder) uint32 {
	if id := p.ids[h]; id != 0 {
		return id
	}
	var id uint32
	if n := len(p.freeIDs); n > 0 {
		id = p.freeIDs[n-1]
		p.freeIDs = p.freeIDs[:n-1]
	} else {
		id = uint32(len(p.holders))
		p.holders = append(p.holders, holder{})
		p.confirms = append(p.confirms, confirmations{})
	}
	p.holders[id] = holder{name: h, tally: p.scope.join(h)}
	p.confirms[id] = confirmations{}
	p.ids[h] = id
	return id
}

// dismiss forgets a cache that holds nothing any more.
func (p *partition) dismiss(id uint32) {
	if h := &p.holders[id]; h.tally != nil && h.pairs == 0 {
		h.flush()
		p.scope.leave(h.name, h.tally)
		delete(p.ids, h.name)
		p.holders[id] = holder{}
		p.freeIDs = append(p.freeIDs, id)
	}
}

// count adds to the pairs of a cache and to the prefixes. Totals follow in flush.
func (p *partition) count(id uint32, pairs, prefixes int) {
	p.holders[id].pairs += int64(pairs)
	p.pairs += int64(pairs)
	p.prefixes += int64(prefixes)
	if n := len(p.changed); n == 0 || p.changed[n-1] != id {
		p.changed = append(p.changed, id)
	}
}

// flush adds to all totals what changed in a batch.
func (p *partition) flush() {
	for _, id := range p.changed {
		p.holders[id].flush()
	}
	p.changed = p.changed[:0]
	p.scope.count(p.pairs-p.flushedPairs, p.prefixes-p.flushedPrefixes)
	p.flushedPairs, p.flushedPrefixes = p.pairs, p.prefixes
}

func (h *holder) flush() {
	if h.pairs != h.flushed {
		h.tally.pairs.Add(h.pairs - h.flushed)
		h.flushed = h.pairs
	}
}

// sum adds the keys of blocks [from, to) of a run to the digest of a cache, or takes them out.
func (p *partition) sum(r *run, from, to int, id uint32, tier index.Tier, delta int) {
	if r.is(wideKey) || tier != index.T1 && tier != index.T2 {
		return
	}
	d := &p.holders[id].digest
	d.Count[tier-1] += uint64(delta * (to - from))
	x := d.XOR[tier-1]
	for from < to {
		page := p.page(r, from)
		for _, k := range page[:min(len(page), to-from)] {
			x ^= k
		}
		from += len(page)
	}
	d.XOR[tier-1] = x
}

// Estimates of what the parts cost that are not slabs, in bytes.
const (
	partitionBytes = 1600 // a partition, its maps and names
	holderBytes    = 320  // a cache in a partition and in its scope
	wideBytes      = 96   // a byte string's map entries, besides its own bytes
)

// size returns the memory in use. Slabs keep what is given back for reuse, so the heap of an index that
// shrinks stays as large as it was.
func (p *partition) size() int64 {
	return partitionBytes + int64(p.runs.used)*int64(unsafe.Sizeof(run{})) + int64(p.spans.used)*int64(unsafe.Sizeof(span{})) +
		int64(p.pages.used)*8 + int64(p.lists.used)*4 + int64(p.table.size)*int64(unsafe.Sizeof(bucket{})) +
		int64(len(p.table.segs))*int64(unsafe.Sizeof(segment{})) + int64(len(p.table.dir))*4 +
		int64(len(p.ids))*holderBytes + int64(len(p.wide.keys))*wideBytes + int64(p.wide.size)
}

// key is a block key as runs hold it: a number, or the number that stands for a byte string.
type key struct {
	word uint64
	wide bool
}

func (p *partition) hash(k key) uint64 {
	if k.wide {
		return mix(k.word, ^p.seed)
	}
	return mix(k.word, p.seed)
}

// hashAt returns the hash of the key at a location.
func (p *partition) hashAt(l location) uint64 {
	r := p.run(l.run())
	return p.hash(key{p.wordAt(r, l.offset()), r.is(wideKey)})
}

// find returns where a key lies.
func (p *partition) find(k key) (location, bool) {
	hash := p.hash(k)
	return p.search(p.table.segment(hash), hash, k)
}

// search looks for a key in its segment.
func (p *partition) search(s *segment, hash uint64, k key) (location, bool) {
	for i := s.home(hash); i < len(s.buckets); i++ {
		b := &s.buckets[i]
		for m := b.matching(hash); m != 0; m &= m - 1 {
			l := slotLocation(b[bits.TrailingZeros64(m)&(width-1)])
			// An empty slot has the tag 0 and leads to run 0, which has no keys.
			if r := p.run(l.run()); r.n > 0 && p.wordAt(r, l.offset()) == k.word && r.is(wideKey) == k.wide {
				return l, true
			}
		}
		if !b.full() {
			break
		}
	}
	return 0, false
}

// hashes returns the hashes of words of one kind, with the table made ready for them. They are valid
// until the next call.
func (p *partition) hashes(words []uint64, wide bool) []uint64 {
	p.hashed = p.hashed[:0]
	seed := p.seed
	if wide {
		seed = ^seed
	}
	for _, w := range words {
		p.hashed = append(p.hashed, mix(w, seed))
	}
	p.touched = p.table.touch(p.hashed)
	return p.hashed
}

// put adds a key at a location unless it is somewhere already.
func (p *partition) put(k key, hash uint64, l location) bool {
	s := p.table.segment(hash)
	if _, ok := p.search(s, hash, k); ok {
		return false
	}
	if s.insert(hash, l) {
		p.table.used++
	} else {
		p.table.add(hash, l, p.hashAt)
	}
	return true
}

// wideKeys numbers keys that are not 8 bytes wide. A number is derived from the key, so that a key
// which comes back gets the same one, and moves on where two would share it.
type wideKeys struct {
	byKey map[string]uint64
	keys  map[uint64]string
	size  int // bytes of the strings
}

// admit returns the number of a byte string, a new one if it has none.
func (w *wideKeys) admit(s string) uint64 {
	if id, ok := w.byKey[s]; ok {
		return id
	}
	if w.byKey == nil {
		w.byKey, w.keys = map[string]uint64{}, map[uint64]string{}
	}
	id := stringHash(s)
	for {
		if _, taken := w.keys[id]; !taken {
			break
		}
		id++
	}
	w.byKey[s], w.keys[id] = id, s
	w.size += len(s)
	return id
}

func (w *wideKeys) dismiss(id uint64) {
	w.size -= len(w.keys[id])
	delete(w.byKey, w.keys[id])
	delete(w.keys, id)
}

// lookup returns the key of a byte string, which is a number if it is 8 bytes wide. It reports false
// for a byte string that no run has.
func (p *partition) lookup(s string) (key, bool) {
	if len(s) == 8 {
		return key{word: binary.BigEndian.Uint64([]byte(s))}, true
	}
	id, ok := p.wide.byKey[s]
	return key{id, true}, ok
}

// bytes returns a key's bytes.
func (p *partition) bytes(k key) string {
	if k.wide {
		return p.wide.keys[k.word]
	}
	return string(binary.BigEndian.AppendUint64(nil, k.word))
}
