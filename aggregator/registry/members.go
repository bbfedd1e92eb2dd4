package registry

import (
	"cmp"
	"slices"
	"time"

	"github.com/inferencecache/inferencecache/index"
)

// maxBlockSizes bounds the block sizes of a member, and of a scope: each one costs a lookup by
// token ids another chain.
const maxBlockSizes = 4

// Members is an immutable view of a scope: the caches that may be hinted.
type Members struct {
	// List is sorted by replica, then rank.
	List []Member
	// BlockSizes are the block sizes in tokens that the members use, smallest first.
	BlockSizes []int32
	// Unsized says that a member was only named by public reports which show no block size.
	Unsized bool
	// Declared says that an agent declared one of the members.
	Declared bool
}

var noMembers Members

// Member is one cache of a scope.
type Member struct {
	Holder index.Holder
	cache  *cache
}

// Stats returns the last statistics of the cache, nil if there are none.
func (m Member) Stats() *Stats {
	if m.cache == nil {
		return nil
	}
	return m.cache.stats.Load()
}

// Compare orders holders by replica, then rank.
func Compare(a, b index.Holder) int {
	return cmp.Or(cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.Rank, b.Rank))
}

// Find returns the member of a holder.
func (m *Members) Find(h index.Holder) (Member, bool) {
	i, ok := slices.BinarySearchFunc(m.List, h, func(m Member, h index.Holder) int { return Compare(m.Holder, h) })
	if !ok {
		return Member{}, false
	}
	return m.List[i], true
}

// Only returns the view without the members that replicas does not name. What is known of the whole
// scope stays as it is.
func (m *Members) Only(replicas []string) *Members {
	names := slices.Sorted(slices.Values(replicas))
	only := *m
	only.List = nil
	for _, member := range m.List {
		if _, named := slices.BinarySearch(names, member.Holder.Replica); named {
			only.List = append(only.List, member)
		}
	}
	return &only
}

// change notes that the members are not those of the snapshot any more. The caller holds the registry's
// lock.
func (c *cell) change(now time.Time) {
	c.asOf = later(c.asOf, now)
	c.stale.Store(true)
}

// rebuild replaces the snapshot of a cell if it is stale.
func (r *Registry) rebuild(c *cell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.stale.Swap(false) {
		c.snapshot.Store(c.takeLocked(r.config.TTL(c.scope.Tenant)))
	}
}

// takeLocked returns the members that count at the time of the last change.
func (c *cell) takeLocked(ttl time.Duration) *Members {
	s := &Members{List: make([]Member, 0, len(c.members))}
	var sizes []sizeCount
	for h, m := range c.members {
		if m.shown = m.alive(c.asOf, ttl); !m.shown {
			continue
		}
		s.List = append(s.List, Member{Holder: h, cache: m.cache})
		if m.agent != "" {
			s.Declared = true
		} else if len(m.sizes) == 0 {
			s.Unsized = true
		}
		for _, size := range m.sizes {
			sizes = countSize(sizes, size)
		}
	}
	slices.SortFunc(s.List, func(a, b Member) int { return Compare(a.Holder, b.Holder) })
	s.BlockSizes = commonest(sizes)
	return s
}

// learn notes a block size and says whether it is new. 0 and sizes past the bound are ignored.
func (m *member) learn(size int32) bool {
	if size <= 0 || len(m.sizes) >= maxBlockSizes || slices.Contains(m.sizes, size) {
		return false
	}
	m.sizes = append(m.sizes, size)
	return true
}

type sizeCount struct {
	size    int32
	members int
}

func countSize(sizes []sizeCount, size int32) []sizeCount {
	for i := range sizes {
		if sizes[i].size == size {
			sizes[i].members++
			return sizes
		}
	}
	return append(sizes, sizeCount{size, 1})
}

// commonest returns the sizes that most members use, smallest first.
func commonest(sizes []sizeCount) []int32 {
	slices.SortFunc(sizes, func(a, b sizeCount) int {
		return cmp.Or(cmp.Compare(b.members, a.members), cmp.Compare(a.size, b.size))
	})
	var out []int32
	for _, s := range sizes[:min(len(sizes), maxBlockSizes)] {
		out = append(out, s.size)
	}
	slices.Sort(out)
	return out
}
