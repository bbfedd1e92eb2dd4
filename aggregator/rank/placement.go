package rank

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"github.com/inferencecache/inferencecache/index"
)

// Placement is the part of a tenant's policy that says where a request goes which no cache knows well.
type Placement struct {
	// MinimumMatchedShare withholds a match whose best candidate holds a smaller share of the prompt's
	// tokens, 0 to 1, and leaves at least MinorMatchRest tokens to compute; 0 is off. What such a match
	// saves is small beside what the request costs anywhere, and where every prompt begins alike it
	// would send every new prompt to the caches that happen to hold the beginning.
	MinimumMatchedShare float32
	// SaturationPressure is the pressure from which on a cache counts as saturated: its pressure
	// factor is 0. 0 leaves the formula alone, in which a cache is saturated at a pressure of 1.
	SaturationPressure float32
	// AffinitySeedBlocks bounds the leading blocks that affinity places a prompt by; 0 takes all. With
	// a bound a growing conversation keeps its place, and so do all prompts that begin alike: the
	// bound must reach past what every prompt shares.
	AffinitySeedBlocks int
	// Rendezvous places by the highest hash of prompt and member instead of by a number modulo the
	// members: when a member comes or goes, only the prompts that it wins or loses move.
	Rendezvous bool
}

// DefaultPlacement returns the placement of a tenant whose policy says nothing of it.
func DefaultPlacement() Placement {
	return Placement{MinimumMatchedShare: 0.125}
}

// MinorMatchRest is the number of tokens beyond the match below which MinimumMatchedShare does not
// apply: so little is computed so fast that it does not matter where.
const MinorMatchRest = 1024

// Minor says whether a match of a prompt is too small a part of it to decide where it goes.
func (p *Placement) Minor(matched int32, promptTokens int64) bool {
	return float64(matched) < float64(p.MinimumMatchedShare)*float64(promptTokens) &&
		promptTokens-int64(matched) >= MinorMatchRest
}

// SeedKeys returns the keys that the affinity seed is made of.
func (p *Placement) SeedKeys(keys index.Keys) index.Keys {
	n := p.AffinitySeedBlocks
	if n <= 0 || n >= keys.Len() {
		return keys
	}
	if keys.Words != nil {
		return index.Keys{Words: keys.Words[:n]}
	}
	return index.Keys{Wide: keys.Wide[:n]}
}

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
// SHA-256 as a big-endian number, modulo n. A saturated pick gives way to that of the next 8 bytes,
// and so on, then to the next member in order, so that its prompts spread over the others; the pick
// of every other seed stays as it is. If all are saturated the first pick stands.
func Affinity(seed []byte, n int, saturated func(i int) bool) int {
	sum := sha256.Sum256(seed)
	first, last := 0, 0
	for at := 0; at < len(sum); at += 8 {
		last = int(binary.BigEndian.Uint64(sum[at:]) % uint64(n)) // less than n
		if !saturated(last) {
			return last
		}
		if at == 0 {
			first = last
		}
	}
	for step := range n {
		if i := (last + step) % n; !saturated(i) {
			return i
		}
	}
	return first
}

// Rendezvous picks one of n members: the one whose name has the highest XXH3-64, seeded with the
// first 8 bytes of the seed's SHA-256 plus the member's rank. Saturated members are picked only if
// all are.
func Rendezvous(seed []byte, n int, name func(i int) index.Holder, saturated func(i int) bool) int {
	sum := sha256.Sum256(seed)
	number := binary.BigEndian.Uint64(sum[:])
	var best [2]uint64
	pick := [2]int{-1, -1} // among those with room, among the saturated
	for i := range n {
		h := name(i)
		kind := 0
		if saturated(i) {
			kind = 1
		}
		weight := xxh3.HashStringSeed(h.Replica, number+uint64(uint32(h.Rank)))
		if pick[kind] < 0 || weight > best[kind] {
			pick[kind], best[kind] = i, weight
		}
	}
	if pick[0] < 0 {
		return pick[1]
	}
	return pick[0]
}
