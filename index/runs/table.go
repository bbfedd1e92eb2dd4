package runs

import "math/bits"

// location is where a key lies: the run in the upper bits, the offset in it in the lower.
type location uint64

const (
	offsetBits   = 11
	maxRun       = 1 << offsetBits // blocks of a run, which bounds what cutting one up costs
	locationBits = 40
	tagBits      = 64 - locationBits
	maxRuns      = 1 << (locationBits - offsetBits)
)

func locate(run uint32, offset int) location {
	return location(run)<<offsetBits | location(offset)
}

func (l location) run() uint32 { return uint32(l >> offsetBits) }
func (l location) offset() int { return int(l & (maxRun - 1)) }

const (
	width      = 8              // slots of a bucket
	minBuckets = 2              // of a new segment
	maxBuckets = 2048 / width   // a segment that outgrows this splits in two
	stepped    = maxBuckets / 2 // from here on segments grow by a quarter of it
	maxDepth   = 24             // bits of the directory; a segment this deep grows instead of splitting
)

// bucket is one cache line of slots, filled from the front.
//
// A slot is 8 bytes: the upper 24 bits of the key's hash (the tag) and its location; 0 is empty, as no
// run has number 0.
type bucket [width]uint64

// table finds keys: open addressing in buckets, in segments behind a directory. The table holds no keys:
// the caller compares them by location.
//
// A segment is rebuilt or split when it is full, so that growth never stops the index for more than
// some 2,000 slots (tens of microseconds), and segments of in-between sizes keep the table about 70 %
// full at any size.
//
// A key is in its home bucket, which is proportional to its tag, or where that is full in the next
// that is not; the last buckets are no homes, so nothing wraps around. Buckets between a key and its
// home are full, so a search ends at the first that is not. Within a bucket all slots are compared
// without branches: a mispredicted one would wait for the load, and with it all loads after it.
type table struct {
	dir   []uint32 // segment by the low bits of the hash
	segs  []segment
	depth uint8 // the directory has 1<<depth entries
	used  int
	size  int // buckets of all segments
}

// segment is 32 bytes, so that two fit a cache line.
type segment struct {
	buckets []bucket
	used    int32
	homes   uint16 // buckets that can be a home
	depth   uint8  // low bits of the hash that all its keys share
}

func newTable() table {
	t := table{dir: []uint32{0}, segs: make([]segment, 1)}
	t.segs[0].resize(minBuckets)
	t.size = minBuckets
	return t
}

// mix spreads a key over 64 bits; the seed keeps producers from choosing keys that collide.
func mix(key, seed uint64) uint64 {
	hi, lo := bits.Mul64(key^seed, 0x9e3779b97f4a7c15)
	hi, lo = bits.Mul64(hi^lo^0xd1b54a32d192ed03, seed|1)
	return hi ^ lo
}

// matching returns the slots whose tag is that of the hash, as bits: the upper bits of slot ^ hash are
// 0 just where the tags are equal, and only 0 less 1 has the highest bit set.
func (b *bucket) matching(hash uint64) (m uint64) {
	m = ((b[0]^hash)>>locationBits - 1) >> 63
	m |= ((b[1]^hash)>>locationBits - 1) >> 63 << 1
	m |= ((b[2]^hash)>>locationBits - 1) >> 63 << 2
	m |= ((b[3]^hash)>>locationBits - 1) >> 63 << 3
	m |= ((b[4]^hash)>>locationBits - 1) >> 63 << 4
	m |= ((b[5]^hash)>>locationBits - 1) >> 63 << 5
	m |= ((b[6]^hash)>>locationBits - 1) >> 63 << 6
	m |= ((b[7]^hash)>>locationBits - 1) >> 63 << 7
	return m
}

func (b *bucket) full() bool { return b[width-1] != 0 }

// count returns the number of slots in use: nonzero | -nonzero has the highest bit set.
func (b *bucket) count() int {
	return int((b[0]|-b[0])>>63 + (b[1]|-b[1])>>63 + (b[2]|-b[2])>>63 + (b[3]|-b[3])>>63 +
		(b[4]|-b[4])>>63 + (b[5]|-b[5])>>63 + (b[6]|-b[6])>>63 + (b[7]|-b[7])>>63)
}

func slotOf(hash uint64, l location) uint64 { return hash>>locationBits<<locationBits | uint64(l) }
func slotLocation(slot uint64) location     { return location(slot & (1<<locationBits - 1)) }
func (s *segment) home(hash uint64) int {
	return int(hash >> locationBits * uint64(s.homes) >> tagBits)
}
func (t *table) segment(hash uint64) *segment { return &t.segs[t.dir[hash&(1<<t.depth-1)]] }

// touch loads the buckets where searches for the hashes begin; the loads do not wait for each other.
func (t *table) touch(hashes []uint64) (sum uint64) {
	for _, hash := range hashes {
		s := t.segment(hash)
		sum += s.buckets[s.home(hash)][0]
	}
	return sum
}

// insert adds a slot for a key that is absent. It returns false when the segment is full.
func (s *segment) insert(hash uint64, l location) bool {
	if int(s.used) >= len(s.buckets)*width*25/32 {
		return false
	}
	for i := s.home(hash); i < len(s.buckets); i++ {
		if b := &s.buckets[i]; !b.full() {
			b[b.count()&(width-1)] = slotOf(hash, l)
			s.used++
			return true
		}
	}
	return false
}

// add adds a location whose key is known to be absent. hashOf returns the hash of a location's key.
func (t *table) add(hash uint64, l location, hashOf func(location) uint64) {
	for !t.segment(hash).insert(hash, l) {
		t.grow(hash, hashOf)
	}
	t.used++
}

// slot finds the slot of a location whose key has the hash.
func (s *segment) slot(hash uint64, l location) (i, j int) {
	want := slotOf(hash, l)
	for i = s.home(hash); i < len(s.buckets); i++ {
		b := &s.buckets[i]
		for m := b.matching(hash); m != 0; m &= m - 1 {
			if j = bits.TrailingZeros64(m) & (width - 1); b[j] == want {
				return i, j
			}
		}
	}
	panic("runs: a key of a run is missing from the table")
}

// remove takes out the location of a key.
func (t *table) remove(hash uint64, l location) {
	s := t.segment(hash)
	i, j := s.slot(hash, l)
	for {
		b := &s.buckets[i]
		wasFull := b.full()
		last := (b.count() - 1) & (width - 1)
		b[j], b[last] = b[last], 0
		if !wasFull {
			break
		}
		// What overflowed this bucket, or one in front of it, comes back into the free slot.
		next, at := s.overflowed(i)
		if next < 0 {
			break
		}
		b[last] = s.buckets[next][at]
		i, j = next, at
	}
	s.used--
	t.used--
	if n := len(s.buckets); n > minBuckets && int(s.used) < n*width/4 {
		s.rebuild(n / 2)
		t.size += len(s.buckets) - n
	}
}

// overflowed finds a slot behind bucket i that belongs into it or in front of it.
func (s *segment) overflowed(i int) (next, at int) {
	for next = i + 1; next < len(s.buckets); next++ {
		b := &s.buckets[next]
		for at, slot := range b {
			if slot != 0 && s.home(slot) <= i {
				return next, at
			}
		}
		if !b.full() {
			break
		}
	}
	return -1, 0
}

// move gives a key a new location.
func (t *table) move(hash uint64, from, to location) {
	s := t.segment(hash)
	i, j := s.slot(hash, from)
	s.buckets[i][j] = slotOf(hash, to)
}

// grow makes room in the segment of the hash.
func (t *table) grow(hash uint64, hashOf func(location) uint64) {
	s := t.segment(hash)
	n := len(s.buckets)
	switch {
	case n < stepped:
		s.rebuild(2 * n)
	case n < maxBuckets:
		s.rebuild(n + stepped/4)
	case s.depth >= maxDepth || n >= 2*maxBuckets:
		s.rebuild(n + n/4)
	default:
		t.split(hash, hashOf)
		return
	}
	t.size += len(s.buckets) - n
}

// resize makes n empty buckets.
func (s *segment) resize(n int) {
	s.buckets, s.used = make([]bucket, n), 0
	s.homes = uint16(min(n-min(4, n/4), 1<<16-1))
}

// rebuild moves the slots to n buckets, or more where they do not fit.
func (s *segment) rebuild(n int) {
	old := s.buckets
	for ; !s.fill(n, old); n += n/4 + 1 {
	}
}

func (s *segment) fill(n int, old []bucket) bool {
	s.resize(n)
	for i := range old {
		for _, slot := range old[i] {
			if slot != 0 && !s.insert(slot, slotLocation(slot)) {
				return false
			}
		}
	}
	return true
}

// split divides the segment of the hash by the next bit, which only the keys themselves tell. It loads
// all of them before it branches on any.
func (t *table) split(hash uint64, hashOf func(location) uint64) {
	old := t.dir[hash&(1<<t.depth-1)]
	s := &t.segs[old]
	if s.depth == t.depth {
		t.dir = append(t.dir, t.dir...)
		t.depth++
	}
	var slots, hashes [2 * maxBuckets * width]uint64
	n := 0
	for i := range s.buckets {
		for _, slot := range s.buckets[i][:s.buckets[i].count()] {
			slots[n&(len(slots)-1)] = slot
			n++
		}
	}
	for i, slot := range slots[:n] {
		hashes[i] = hashOf(slotLocation(slot))
	}
	depth, before := s.depth, len(s.buckets)
	var halves [2]segment
	for i := range halves {
		halves[i].depth = depth + 1
		halves[i].resize(stepped)
	}
	for i, slot := range slots[:n] {
		h := &halves[hashes[i]>>depth&1]
		for !h.insert(slot, slotLocation(slot)) {
			h.rebuild(len(h.buckets) + stepped/4)
		}
	}
	*s = halves[0]
	t.size += len(halves[0].buckets) + len(halves[1].buckets) - before
	t.segs = append(t.segs, halves[1])
	bit := uint64(1) << depth
	for i := hash&(bit-1) | bit; i < 1<<t.depth; i += bit << 1 {
		t.dir[i] = uint32(len(t.segs) - 1)
	}
}
