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

// finder is an open-addressing hash table (linear probing, no tombstones) from keys to slots. The
// keys stay in the slab: an entry costs 4 bytes, at a load of at most 3/4.
type finder struct {
	slots []int32 // slot + 1; 0 is empty. The length is a power of two
	count int
}

// minFinder is the smallest size of a table.
const minFinder = 64

// find returns the slot among those with this hash for which equal holds.
func (f *finder) find(hash uint64, equal func(slot int32) bool) (int32, bool) {
	if f.count == 0 {
		return 0, false
	}
	mask := uint64(len(f.slots) - 1)
	for i := hash & mask; f.slots[i] != 0; i = (i + 1) & mask {
		if slot := f.slots[i] - 1; equal(slot) {
			return slot, true
		}
	}
	return 0, false
}

// add files a slot that is not filed yet. hashOf returns the hash of any filed slot's key.
func (f *finder) add(hash uint64, slot int32, hashOf func(slot int32) uint64) {
	if 4*(f.count+1) > 3*len(f.slots) {
		old := f.slots
		f.slots = make([]int32, max(minFinder, 2*len(old)))
		for _, s := range old {
			if s != 0 {
				f.place(hashOf(s-1), s)
			}
		}
	}
	f.place(hash, slot+1)
	f.count++
}

func (f *finder) place(hash uint64, entry int32) {
	mask := uint64(len(f.slots) - 1)
	i := hash & mask
	for f.slots[i] != 0 {
		i = (i + 1) & mask
	}
	f.slots[i] = entry
}

// drop takes a filed slot out. Entries behind it move up, so that every entry can be reached from
// the place where its hash points without crossing an empty one.
func (f *finder) drop(hash uint64, slot int32, hashOf func(slot int32) uint64) {
	mask := uint64(len(f.slots) - 1)
	i := hash & mask
	for f.slots[i] != slot+1 {
		i = (i + 1) & mask
	}
	f.count--
	for j := i; ; {
		j = (j + 1) & mask
		if f.slots[j] == 0 {
			f.slots[i] = 0
			return
		}
		home := hashOf(f.slots[j]-1) & mask
		if (j-home)&mask >= (j-i)&mask { // i lies between its home and j
			f.slots[i] = f.slots[j]
			i = j
		}
	}
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
