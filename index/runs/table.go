package runs

import "math/bits"

// location is where a key lies: the run in the upper bits, the offset in it in the lower.
type location uint64

const (
	offsetBits   = 12
	maxRun       = 1 << offsetBits // blocks of a run
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
	minSlots  = 16   // slots of a new segment
	stepSlots = 256  // segments of 1024 slots and more grow by this many
	maxSlots  = 2048 // a segment that outgrows this splits in two
	maxDepth  = 24   // bits of the directory; a segment this deep grows instead of splitting
)

// table finds keys: open addressing in segments behind a directory. A segment is rebuilt or split
// when full, so that growth never stops the index for more than some 2,000 slots (tens of
// microseconds), and segments of in-between sizes keep the table about 80 % full at any size.
//
// A slot is 8 bytes: the upper 24 bits of the key's hash (the tag) and its location; 0 is empty, as
// no run has number 0. Slots of a segment are ordered by tag, each at or behind its home, which is
// proportional to the tag; there is room behind the last home, so nothing wraps around. A search
// ends at the first larger tag. The table holds no keys: the caller compares them by location.
type table struct {
	dir   []uint32 // segment by the low bits of the hash
	segs  []segment
	depth uint8 // the directory has 1<<depth entries
	used  int
}

type segment struct {
	slots []uint64
	used  int32
	depth uint8 // low bits of the hash that all its keys share
}

func newTable() table {
	return table{dir: []uint32{0}, segs: []segment{{slots: make([]uint64, minSlots)}}}
}

// mix spreads a key over 64 bits; the seed keeps producers from choosing keys that collide.
func mix(key, seed uint64) uint64 {
	hi, lo := bits.Mul64(key^seed, 0x9e3779b97f4a7c15)
	hi, lo = bits.Mul64(hi^lo^0xd1b54a32d192ed03, seed|1)
	return hi ^ lo
}

// homes returns how many slots can be a home; the others take what overflows the last.
func homes(slots int) int { return slots - min(32, slots/4) }

func home(tag uint64, slots int) int { return int(tag * uint64(homes(slots)) >> tagBits) }

func (t *table) segment(hash uint64) *segment {
	return &t.segs[t.dir[hash&(1<<t.depth-1)]]
}

// first returns the slots from the first on that may have the hash's tag.
func (s *segment) first(hash uint64) int {
	tag := hash >> locationBits
	i := home(tag, len(s.slots))
	for i < len(s.slots) && s.slots[i] != 0 && s.slots[i]>>locationBits < tag {
		i++
	}
	return i
}

func slotLocation(slot uint64) location { return location(slot & (1<<locationBits - 1)) }

// slotOf returns the slot of a location whose key has the hash.
func (s *segment) slotOf(hash uint64, l location) int {
	want := hash>>locationBits<<locationBits | uint64(l)
	for i := s.first(hash); i < len(s.slots); i++ {
		if s.slots[i] == want {
			return i
		}
	}
	panic("runs: a key of a run is missing from the table")
}

// insert adds a slot at index i, where first and a search for the key ended. It returns false when
// the segment has no room.
func (s *segment) insert(i int, slot uint64) bool {
	if int(s.used) >= len(s.slots)-len(s.slots)/8 {
		return false
	}
	end := i
	for end < len(s.slots) && s.slots[end] != 0 {
		end++
	}
	if end == len(s.slots) {
		return false
	}
	copy(s.slots[i+1:end+1], s.slots[i:end])
	s.slots[i] = slot
	s.used++
	return true
}

// add adds a location whose key is known to be absent. hashOf returns the hash of a location's key.
func (t *table) add(hash uint64, l location, hashOf func(location) uint64) {
	slot := hash>>locationBits<<locationBits | uint64(l)
	for {
		s := t.segment(hash)
		if s.insert(s.first(hash), slot) {
			t.used++
			return
		}
		t.grow(hash, hashOf)
	}
}

// remove takes out the location of a key.
func (t *table) remove(hash uint64, l location) {
	s := t.segment(hash)
	i := s.slotOf(hash, l)
	n := len(s.slots)
	for ; i+1 < n && s.slots[i+1] != 0 && home(s.slots[i+1]>>locationBits, n) <= i; i++ {
		s.slots[i] = s.slots[i+1]
	}
	s.slots[i] = 0
	s.used--
	t.used--
	if n > minSlots && int(s.used) < n/4 {
		s.rebuild(n / 2)
	}
}

// move gives a key a new location.
func (t *table) move(hash uint64, from, to location) {
	s := t.segment(hash)
	s.slots[s.slotOf(hash, from)] = hash>>locationBits<<locationBits | uint64(to)
}

// grow makes room in the segment of the hash.
func (t *table) grow(hash uint64, hashOf func(location) uint64) {
	s := t.segment(hash)
	switch n := len(s.slots); {
	case n < 1024:
		s.rebuild(2 * n)
	case n < maxSlots:
		s.rebuild(n + stepSlots)
	case s.depth >= maxDepth:
		s.rebuild(n + n/4)
	default:
		t.split(hash, hashOf)
	}
}

// rebuild lays the slots out anew. More slots are taken where they do not fit in n.
func (s *segment) rebuild(n int) {
	for !s.fill(n, s.slots) {
		n += n / 4
	}
}

// fill replaces the slots by n slots that hold those of old, which are in order.
func (s *segment) fill(n int, old []uint64) bool {
	slots := make([]uint64, n)
	at := 0
	for _, slot := range old {
		if slot == 0 {
			continue
		}
		at = max(at, home(slot>>locationBits, n))
		if at == n {
			return false
		}
		slots[at] = slot
		at++
	}
	s.slots = slots
	return true
}

// split divides the segment of the hash by the next bit, which only the keys themselves tell.
func (t *table) split(hash uint64, hashOf func(location) uint64) {
	old := t.dir[hash&(1<<t.depth-1)]
	s := &t.segs[old]
	if s.depth == t.depth {
		t.dir = append(t.dir, t.dir...)
		t.depth++
	}
	bit := uint64(1) << s.depth
	var halves [2][]uint64
	for _, slot := range s.slots {
		if slot != 0 {
			i := 0
			if hashOf(slotLocation(slot))&bit != 0 {
				i = 1
			}
			halves[i] = append(halves[i], slot)
		}
	}
	s.depth++
	other := segment{depth: s.depth, used: int32(len(halves[1]))}
	s.used = int32(len(halves[0]))
	s.slots = halves[0]
	s.rebuild(slotsFor(len(halves[0])))
	other.slots = halves[1]
	other.rebuild(slotsFor(len(halves[1])))
	t.segs = append(t.segs, other)
	for i := hash&(bit-1) | bit; i < 1<<t.depth; i += bit << 1 {
		t.dir[i] = uint32(len(t.segs) - 1)
	}
}

// slotsFor returns the size of a segment that holds n keys and has room for some more.
func slotsFor(n int) int {
	for slots := minSlots; ; {
		if n <= slots*13/16 {
			return slots
		}
		if slots < 1024 {
			slots *= 2
		} else {
			slots += stepSlots
		}
	}
}
