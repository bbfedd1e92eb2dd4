package runs

import "math/bits"

const (
	chunkBits = 13
	chunkLen  = 1 << chunkBits // elements of an ordinary chunk
	firstLen  = 4              // elements of a new slab; the first chunk doubles until it is full
)

// slab hands out extents of a power of two elements, named by 32-bit addresses instead of pointers,
// so that the garbage collector sees a few large pointer-free blocks however much they hold.
// Freed extents are reused before new ones are carved, the larger ones by halving. An alloc may move
// the first chunk: slices taken before it are stale afterwards.
type slab[T any] struct {
	chunks [][]T
	used   int        // elements in extents that are handed out
	tail   int        // elements carved from the last ordinary chunk
	last   int        // the chunk that extents are carved from
	free   [][]uint32 // addresses by class
	spare  []uint32   // numbers of dropped oversized chunks
}

// class returns the smallest class that holds n elements.
func class(n int) uint8 {
	if n <= 1 {
		return 0
	}
	return uint8(bits.Len(uint(n - 1)))
}

// at returns n elements from addr on.
func (s *slab[T]) at(addr uint32, n int) []T {
	return s.chunks[addr>>chunkBits][addr&(chunkLen-1):][:n:n]
}

// one returns the element at addr.
func (s *slab[T]) one(addr uint32) *T {
	return &s.chunks[addr>>chunkBits][addr&(chunkLen-1)]
}

// alloc returns the address of an extent of the class. Its elements hold whatever was there.
func (s *slab[T]) alloc(c uint8) uint32 {
	s.used += 1 << c
	if 1<<c > chunkLen {
		return s.allocOversized(c)
	}
	for d := int(c); d < len(s.free); d++ {
		if n := len(s.free[d]); n > 0 {
			addr := s.free[d][n-1]
			s.free[d] = s.free[d][:n-1]
			for d--; d >= int(c); d-- {
				s.keep(addr+1<<d, uint8(d))
			}
			return addr
		}
	}
	return s.carve(1 << c)
}

// carve takes n elements that were never used.
func (s *slab[T]) carve(n int) uint32 {
	if len(s.chunks) == 0 {
		s.chunks = append(s.chunks, make([]T, max(firstLen, n)))
	}
	if chunk := s.chunks[s.last]; s.tail+n > len(chunk) && len(chunk) < chunkLen {
		grown := make([]T, min(chunkLen, max(2*len(chunk), 1<<class(s.tail+n))))
		copy(grown, chunk)
		s.chunks[s.last] = grown
	}
	if s.tail+n > chunkLen {
		s.freeTail()
		s.last, s.tail = int(s.addChunk(make([]T, chunkLen))), 0
	}
	addr := uint32(s.last<<chunkBits + s.tail)
	s.tail += n
	return addr
}

// freeTail makes what is left of the last chunk available in pieces.
func (s *slab[T]) freeTail() {
	for s.tail < chunkLen {
		c := bits.TrailingZeros(uint(s.tail | chunkLen))
		for s.tail+1<<c > chunkLen {
			c--
		}
		s.keep(uint32(s.last<<chunkBits+s.tail), uint8(c))
		s.tail += 1 << c
	}
}

func (s *slab[T]) addChunk(chunk []T) uint32 {
	if n := len(s.spare); n > 0 {
		i := s.spare[n-1]
		s.spare = s.spare[:n-1]
		s.chunks[i] = chunk
		return i
	}
	s.chunks = append(s.chunks, chunk)
	return uint32(len(s.chunks) - 1)
}

// allocOversized gives an extent larger than a chunk a chunk of its own.
func (s *slab[T]) allocOversized(c uint8) uint32 {
	if len(s.chunks) == 0 {
		s.chunks = append(s.chunks, make([]T, firstLen))
	}
	return s.addChunk(make([]T, 1<<c)) << chunkBits
}

// release gives an extent back.
func (s *slab[T]) release(addr uint32, c uint8) {
	s.used -= 1 << c
	if 1<<c > chunkLen {
		s.chunks[addr>>chunkBits] = nil
		s.spare = append(s.spare, addr>>chunkBits)
		return
	}
	s.keep(addr, c)
}

// keep remembers a free extent.
func (s *slab[T]) keep(addr uint32, c uint8) {
	for len(s.free) <= int(c) {
		s.free = append(s.free, nil)
	}
	s.free[c] = append(s.free[c], addr)
}

// capacity returns the number of elements in all chunks.
func (s *slab[T]) capacity() int {
	n := 0
	for _, c := range s.chunks {
		n += len(c)
	}
	return n
}
