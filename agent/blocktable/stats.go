package blocktable

import "github.com/inferencecache/inferencecache/index"

// Stats counts what a table holds now and what has happened to it.
type Stats struct {
	// Cells held per tier, T1 first.
	Cells [2]int
	// GPUCopies counts the physical blocks in GPU memory of cache groups that hold whole prefixes.
	GPUCopies int
	// Blocks whose tokens no store has given yet, or whose parent is not known.
	Undescribed, Orphans int
	// Excluded blocks held, by reason.
	Excluded [exclusionReasons]int

	// Ignored copies in media whose removals engines do not announce. Total.
	Ignored uint64
	// Refused blocks because the table was full; removals of blocks not held; stores whose tokens
	// do not pair with their hashes; clears; times that everything had to be sent again. Totals.
	Refused, UnknownRemovals, Mismatched, Clears, Resyncs uint64
	// ExcludedTotal blocks since the start, by reason.
	ExcludedTotal [exclusionReasons]uint64
}

// held zeroes what is held and keeps the totals.
func (s *Stats) held() {
	s.GPUCopies = 0
	s.Cells, s.Undescribed, s.Orphans, s.Excluded = [2]int{}, 0, 0, [exclusionReasons]int{}
}

func (s *Stats) count(state identity, why Exclusion, delta int) {
	switch state {
	case undescribed:
		s.Undescribed += delta
	case orphan:
		s.Orphans += delta
	case excluded:
		s.Excluded[why] += delta
		if delta > 0 {
			s.ExcludedTotal[why]++
		}
	}
}

// Stats returns the counts.
func (t *Table) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stats
}

// Held calls yield for every cell that is held, with the table locked.
func (t *Table) Held(yield func(adapter string, print uint64, tier index.Tier)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for slot := range t.cells.used {
		if c := t.cells.at(slot); c.tier != 0 {
			yield(t.adapters.names[c.adapter], c.print, c.tier)
		}
	}
}

// Exclusions lists the reasons for exclusion.
func Exclusions() []Exclusion {
	all := make([]Exclusion, 0, exclusionReasons-1)
	for e := included + 1; e < exclusionReasons; e++ {
		all = append(all, e)
	}
	return all
}
