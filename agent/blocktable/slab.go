package blocktable

// chunkSize is the number of values in one chunk of a slab: large enough that chunks cost nothing,
// small enough that a half-used one does not matter.
const chunkSize = 1 << 12

// slab stores values of one type by slot number, without a pointer each and without ever copying
// them to grow. Slots are used again.
type slab[T any] struct {
	chunks []*[chunkSize]T
	used   int32 // slots ever taken; those not in free are live
	free   []int32
}

// at returns the value of a slot; the pointer stays good.
func (s *slab[T]) at(slot int32) *T { return &s.chunks[slot/chunkSize][slot%chunkSize] }

// take returns a slot whose value is zero.
func (s *slab[T]) take() int32 {
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		return slot
	}
	if int(s.used) == len(s.chunks)*chunkSize {
		s.chunks = append(s.chunks, new([chunkSize]T))
	}
	s.used++
	return s.used - 1
}

// give returns a slot; its value becomes the zero value.
func (s *slab[T]) give(slot int32) {
	var zero T
	*s.at(slot) = zero
	s.free = append(s.free, slot)
}

// live returns the number of slots in use.
func (s *slab[T]) live() int { return int(s.used) - len(s.free) }

// finder is an open-addressing hash table from keys to slots of a slab, which keeps the keys. An entry
// is 5 bytes. A byte of the hash beside each slot spares most visits to keys that differ: those are
// what costs, each a cache line of its own.
type finder struct {
	tags  []uint8 // empty, dropped, or firstTag and more
	slots []int32
	count int // entries
	dead  int // dropped entries, which probes still cross
}

const (
	empty    = 0
	dropped  = 1
	firstTag = 2
	// minFinder is the smallest size of a table.
	minFinder = 64
)

func tagOf(hash uint64) uint8 { return max(firstTag, uint8(hash)) }

// home maps a hash to a place by its high bits, evenly for any size.
func (f *finder) home(hash uint64) int { return int((hash >> 32) * uint64(len(f.slots)) >> 32) }

func (f *finder) next(i int) int {
	if i++; i < len(f.slots) {
		return i
	}
	return 0
}

// find returns the slot among those with this hash for which equal holds.
func (f *finder) find(hash uint64, equal func(slot int32) bool) (int32, bool) {
	if f.count == 0 {
		return 0, false
	}
	tag := tagOf(hash)
	for i := f.home(hash); f.tags[i] != empty; i = f.next(i) {
		if f.tags[i] == tag && equal(f.slots[i]) {
			return f.slots[i], true
		}
	}
	return 0, false
}

// keyed is the slab of a finder: what to file again when the table is rebuilt.
type keyed interface {
	// each calls yield for every filed slot with its hash, in the order of slots.
	each(yield func(slot int32, hash uint64))
}

// add files a slot that is not filed yet. At most three quarters of the places are taken, dropped
// entries included.
func (f *finder) add(hash uint64, slot int32, all keyed) {
	if 4*(f.count+f.dead+1) > 3*len(f.slots) {
		f.rebuild(slot, all)
	}
	f.place(hash, slot)
}

// rebuild gives the table room for half as many entries again, without the slot that is being added.
func (f *finder) rebuild(adding int32, all keyed) {
	size := max(minFinder, 2*(f.count+1))
	*f = finder{tags: make([]uint8, size), slots: make([]int32, size)}
	all.each(func(slot int32, hash uint64) {
		if slot != adding {
			f.place(hash, slot)
		}
	})
}

func (f *finder) place(hash uint64, slot int32) {
	i := f.home(hash)
	for f.tags[i] >= firstTag {
		i = f.next(i)
	}
	if f.tags[i] == dropped {
		f.dead--
	}
	f.tags[i], f.slots[i] = tagOf(hash), slot
	f.count++
}

// drop takes a filed slot out.
func (f *finder) drop(hash uint64, slot int32) {
	tag := tagOf(hash)
	i := f.home(hash)
	for f.tags[i] != tag || f.slots[i] != slot {
		i = f.next(i)
	}
	f.count--
	if f.tags[f.next(i)] == empty { // no probe crosses this place to get further
		f.tags[i] = empty
		return
	}
	f.tags[i] = dropped
	f.dead++
}

// adapterNames numbers the adapter names of a table. Number 0 is the base model.
type adapterNames struct {
	names  []string
	number map[string]uint16
}

func newAdapterNames() adapterNames {
	return adapterNames{names: []string{""}, number: map[string]uint16{"": 0}}
}

// intern returns the number of a name; false when there are too many names.
func (a *adapterNames) intern(name string) (uint16, bool) {
	if n, ok := a.number[name]; ok {
		return n, true
	}
	if len(a.names) >= maxAdapters {
		return 0, false
	}
	n := uint16(len(a.names))
	a.names = append(a.names, name)
	a.number[name] = n
	return n, true
}
