package blocktable

// slab stores values of one type by slot number, without a pointer each. Slots are used again.
type slab[T any] struct {
	items []T
	free  []int32
}

// at returns the value of a slot; the pointer is good until the next take.
func (s *slab[T]) at(slot int32) *T { return &s.items[slot] }

// take returns a slot whose value is undefined.
func (s *slab[T]) take() int32 {
	if n := len(s.free); n > 0 {
		slot := s.free[n-1]
		s.free = s.free[:n-1]
		return slot
	}
	var zero T
	s.items = append(s.items, zero)
	return int32(len(s.items) - 1)
}

// give returns a slot; its value becomes the zero value.
func (s *slab[T]) give(slot int32) {
	var zero T
	s.items[slot] = zero
	s.free = append(s.free, slot)
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
