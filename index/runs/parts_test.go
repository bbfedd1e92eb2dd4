package runs

import (
	"testing"

	"pgregory.net/rapid"
)

// TestTable_FindsWhatIsThere compares a table with a map, also where hashes are alike: with the same tag
// all keys have the same home, with the same lower bits a split does not divide them.
func TestTable_FindsWhatIsThere(t *testing.T) {
	for name, v := range map[string]struct {
		keep uint64 // bits of a hash that vary
		most int    // keys
	}{
		"with hashes of all bits":      {1<<64 - 1, 6000},
		"with the same lower bits":     {1<<64 - 1<<locationBits, 3000},
		"with the same tags":           {1<<locationBits - 1, 200},
		"with one hash for everything": {0, 200},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				tbl := newTable()
				hashes := map[location]uint64{}
				hashOf := func(l location) uint64 { return hashes[l] }
				for i := range rapid.IntRange(1, v.most).Draw(t, "adds") {
					l := locate(uint32(i/7+1), i%7)
					hashes[l] = mix(uint64(i), 7) & v.keep
					tbl.add(hashes[l], l, hashOf)
					if gone := locate(uint32(i/14+1), i/2%7); i%3 == 2 && gone != l {
						if h, ok := hashes[gone]; ok {
							tbl.remove(h, gone)
							delete(hashes, gone)
						}
					}
				}
				if tbl.used != len(hashes) {
					t.Fatalf("%d used, want %d", tbl.used, len(hashes))
				}
				for l, h := range hashes {
					tbl.segment(h).slot(h, l) // panics when it is not there
				}
			})
		})
	}
}

func TestSlab_ExtentsDoNotOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s slab[uint16]
		type extent struct {
			addr uint32
			c    uint8
		}
		var held []extent
		for i := range rapid.IntRange(1, 300).Draw(t, "steps") {
			if len(held) > 0 && rapid.IntRange(0, 2).Draw(t, "op") == 0 {
				j := rapid.IntRange(0, len(held)-1).Draw(t, "victim")
				s.release(held[j].addr, held[j].c)
				held = append(held[:j], held[j+1:]...)
				continue
			}
			c := uint8(rapid.IntRange(0, 14).Draw(t, "class"))
			e := extent{s.alloc(c), c}
			held = append(held, e)
			for k := range s.at(e.addr, 1<<c) {
				s.at(e.addr, 1<<c)[k] = uint16(i)
			}
			for _, other := range held[:len(held)-1] {
				for _, v := range s.at(other.addr, 1<<other.c) {
					if v == uint16(i) {
						t.Fatalf("extent %+v overlaps %+v", e, other)
					}
				}
			}
		}
		used := 0
		for _, e := range held {
			used += 1 << e.c
		}
		if s.used != used || used+unused(&s) != s.capacity() {
			t.Fatalf("%d used, want %d; %d unused of %d", s.used, used, unused(&s), s.capacity())
		}
	})
}
