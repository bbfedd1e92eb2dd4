package rank

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/inferencecache/inferencecache/index"
)

// Placement is the part of a tenant's policy that says where a request goes which no cache knows well.
type Placement struct {
	// MinimumMatchedShare withholds a match whose best candidate holds a smaller share of the prompt's
	// tokens, 0 to 1, and leaves at least MinorMatchRest tokens to compute; 0 is off. What such a match
	// saves is small beside what the request costs anywhere, and where every prompt begins alike it
	// would send every new prompt to the caches that happen to hold the beginning. The contract knows
	// no such rule, so that it has to be asked for.
	MinimumMatchedShare float32
	// AffinitySeedBlocks bounds the leading blocks that affinity places a prompt by; 0 takes all. With
	// a bound a growing conversation keeps its place, and so do all prompts that begin alike: the
	// bound must reach past what every prompt shares.
	AffinitySeedBlocks int
	// AffinityChoices is the number of places of a prompt from which affinity takes the one under the
	// least pressure, at most 4; 0 and 1 take the first, whatever its pressure short of saturation.
	AffinityChoices int
	// ScoreTolerance is the share of the best score, 0 to 1, within which scores count as equal: such
	// candidates come in an order of their own for each prompt. Pressure is known only as of the last
	// report, and until the next one the best score alone takes every prompt that begins alike. 0
	// orders by score alone.
	ScoreTolerance float32
	// Rendezvous places by the highest hash of prompt and member instead of by a number modulo the
	// members: when a member comes or goes, only the prompts that it wins or loses move.
	Rendezvous bool
}

// DefaultPlacement returns the placement of a tenant whose policy says nothing of it: the contract's.
func DefaultPlacement() Placement { return Placement{} }

// Check names the first field that is out of its range.
func (p *Placement) Check() error {
	switch {
	case !within(p.MinimumMatchedShare, 0, 1):
		return fmt.Errorf("minimum matched share is %g, want 0 to 1", p.MinimumMatchedShare)
	case p.AffinitySeedBlocks < 0:
		return fmt.Errorf("affinity seed blocks are %d, want 0 for all, or more", p.AffinitySeedBlocks)
	case p.AffinityChoices < 0 || p.AffinityChoices > maxChoices:
		return fmt.Errorf("affinity choices are %d, want 0 to %d", p.AffinityChoices, maxChoices)
	case !within(p.ScoreTolerance, 0, 1):
		return fmt.Errorf("score tolerance is %g, want 0 to 1", p.ScoreTolerance)
	default:
		return nil
	}
}

// within is false also for what is no number.
func within(v, low, high float32) bool { return v >= low && v <= high }

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

// maxChoices is the number of places that a prompt has.
const maxChoices = sha256.Size / 8

// Affinity picks one of n members, which the caller keeps sorted. A seed has four places: each 8
// bytes of its SHA-256 as a big-endian number, modulo n. Of the first choices of them, at least 1, the
// member with the highest pressure factor is picked, and among equals the first. Where these are
// saturated, with a factor of 0, the places behind them decide, and in the end the next member in
// order, so that the prompts of a saturated member spread over the others. If all are saturated the
// first place stands.
func Affinity(seed []byte, n, choices int, factor func(i int) float32) int {
	sum := sha256.Sum256(seed)
	var places [maxChoices]int
	for k := range places {
		places[k] = int(binary.BigEndian.Uint64(sum[8*k:]) % uint64(n)) // less than n
	}
	if pick, ok := roomiest(places[:], choices, factor); ok {
		return pick
	}
	for step := range n {
		if i := (places[maxChoices-1] + step) % n; factor(i) > 0 {
			return i
		}
	}
	return places[0]
}

// roomiest returns the best of the first choices places, else the first behind them that is not
// saturated, and says whether there is one.
func roomiest(places []int, choices int, factor func(i int) float32) (pick int, ok bool) {
	room := float32(0)
	for k, place := range places {
		if k >= choices && room > 0 {
			break
		}
		if f := factor(place); f > room {
			pick, room = place, f
		}
	}
	return pick, room > 0
}

// Rendezvous picks one of n members. The places of a seed are the members whose names have the highest
// XXH3-64, seeded with the first 8 bytes of the seed's SHA-256 plus the member's rank; choices and
// saturation are as with Affinity.
func Rendezvous(seed []byte, n, choices int, name func(i int) index.Holder, factor func(i int) float32) int {
	sum := sha256.Sum256(seed)
	number := binary.BigEndian.Uint64(sum[:])
	var places [maxChoices]int // highest weight first
	var weights [maxChoices]uint64
	room, roomWeight := -1, uint64(0) // the highest that is not saturated
	for i := range n {
		w := weight(name(i), number)
		if (room < 0 || w > roomWeight) && factor(i) > 0 {
			room, roomWeight = i, w
		}
		at := min(i, maxChoices)
		for at > 0 && w > weights[at-1] {
			at--
		}
		if at < maxChoices {
			copy(places[at+1:], places[at:])
			copy(weights[at+1:], weights[at:])
			places[at], weights[at] = i, w
		}
	}
	if pick, ok := roomiest(places[:min(n, maxChoices)], choices, factor); ok {
		return pick
	}
	if room >= 0 {
		return room
	}
	return places[0]
}

// Disperse gives candidates whose scores are nearly that of the first, which is the best, the order of
// their hashes with number.
func (p *Placement) Disperse(candidates []Candidate, number uint64) {
	if p.ScoreTolerance <= 0 || len(candidates) < 2 {
		return
	}
	least := candidates[0].Score * (1 - p.ScoreTolerance)
	n := 1
	for n < len(candidates) && candidates[n].Score >= least {
		n++
	}
	slices.SortFunc(candidates[:n], func(a, b Candidate) int { return cmp.Compare(weight(b.Holder, number), weight(a.Holder, number)) })
}

// weight is the XXH3-64 of a member's name, seeded with a number plus its rank.
func weight(h index.Holder, number uint64) uint64 {
	return xxh3.HashStringSeed(h.Replica, number+uint64(uint32(h.Rank)))
}
