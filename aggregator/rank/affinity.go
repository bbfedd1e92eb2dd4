package rank

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/inferencecache/inferencecache/index"
)

// AppendSeed appends the affinity seed of a chain: for each hash, in order, its length as a
// big-endian uint32 and its bytes.
func AppendSeed(dst []byte, keys index.Keys) []byte {
	for _, w := range keys.Words {
		dst = binary.BigEndian.AppendUint32(dst, 8)
		dst = binary.BigEndian.AppendUint64(dst, w)
	}
	for _, k := range keys.Wide {
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(k))) // a key is part of one message
		dst = append(dst, k...)
	}
	return dst
}

// Affinity picks one of n members, which the caller keeps sorted: the first 8 bytes of the seed's
// SHA-256 as a big-endian number, modulo n. A saturated pick gives way to the next member that is
// not; the pick of every other seed stays as it is. If all are saturated the pick stands.
func Affinity(seed []byte, n int, saturated func(i int) bool) int {
	sum := sha256.Sum256(seed)
	pick := int(binary.BigEndian.Uint64(sum[:8]) % uint64(n)) // less than n
	for step := range n {
		if i := (pick + step) % n; !saturated(i) {
			return i
		}
	}
	return pick
}
