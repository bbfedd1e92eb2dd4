package blocktable

import (
	"math/bits"

	"github.com/inferencecache/inferencecache/kvevents"
)

// Constants of Python's hash of a tuple, since 3.8.
const (
	tuplePrime1 = 11400714785074694791
	tuplePrime2 = 14029467366897019727
	tuplePrime5 = 2870177450012600261
	tupleSuffix = tuplePrime5 ^ 3527539
	tupleMinus1 = 1546275796 // stands for -1, which Python keeps for errors
)

// contentHash is Python's hash of a tuple of token ids. SGLang through 0.5.5 names its pages by it, whatever
// is in front of them, and announces the first page of every node of its tree without a parent: such a
// page begins a prompt or continues one, and nothing tells which.
func contentHash(tokens []uint32) kvevents.Hash {
	acc := uint64(tuplePrime5)
	for _, t := range tokens {
		acc = bits.RotateLeft64(acc+uint64(t)*tuplePrime2, 31) * tuplePrime1
	}
	acc += uint64(len(tokens)) ^ tupleSuffix
	if acc == 1<<64-1 {
		return tupleMinus1
	}
	return kvevents.Hash(acc)
}
