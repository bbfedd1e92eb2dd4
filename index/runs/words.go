package runs

import (
	"bytes"
	"hash/maphash"
	"unsafe"
)

// equalWords returns how many leading words of two slices of the same length are equal.
func equalWords(a, b []uint64) int {
	if len(a) == 0 || bytes.Equal(asBytes(a), asBytes(b)) {
		return len(a)
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

// asBytes views words as bytes for comparison. The view covers exactly the slice's memory, is read
// only and does not outlive the call.
func asBytes(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), 8*len(w))
}

var stringSeed = maphash.MakeSeed()

func stringHash(s string) uint64 { return maphash.String(stringSeed, s) }
