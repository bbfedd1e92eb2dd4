package rank

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inferencecache/inferencecache/index"
)

func TestFreshness(t *testing.T) {
	for name, c := range map[string]struct {
		age  time.Duration
		want float32
	}{
		"an entry seen now is fresh":                  {0, 1},
		"an entry seen in the future is fresh":        {-time.Hour, 1},
		"half a TTL leaves half":                      {15 * time.Minute, 0.5},
		"a whole TTL leaves nothing":                  {30 * time.Minute, 0},
		"more than a TTL is not worse than a TTL ago": {time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Freshness(c.age, 30*time.Minute); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestPressureFactor(t *testing.T) {
	for name, c := range map[string]struct {
		weight, pressure, want float32
	}{
		"no pressure takes nothing":          {1, 0, 1},
		"full pressure takes all":            {1, 1, 0},
		"pressure in between is linear":      {1, 0.25, 0.75},
		"a weight above 1 saturates earlier": {2, 0.75, 0},
		"a weight of 0 ignores pressure":     {0, 1, 1},
		"pressure below 0 gives no bonus":    {1, -3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (Config{PressureWeight: c.weight}).PressureFactor(c.pressure); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestSLOBias(t *testing.T) {
	for name, c := range map[string]struct {
		ttft int32
		want float32
	}{
		"no target changes nothing":                  {0, 1},
		"a negative target changes nothing":          {-1, 1},
		"a tight target favours freshness":           {199, 1.5},
		"a target at the threshold is not tight":     {200, 1},
		"a target above the threshold is not either": {5000, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Default().SLOBias(0.5, c.ttft); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestDistinguishingPower(t *testing.T) {
	for name, c := range map[string]struct {
		matching, total int
		want            float32
	}{
		"a lone member":                    {1, 1, 1},
		"no member known":                  {1, 0, 1},
		"half of the members match":        {2, 4, 0.5},
		"all members match":                {4, 4, 0},
		"more match than are known of":     {5, 4, 0},
		"one of many tells nearly all":     {1, 100, 0.99},
		"none matching tells everything":   {0, 4, 1},
		"all but one leave one part of it": {3, 4, 0.25},
	} {
		t.Run(name, func(t *testing.T) {
			if got := DistinguishingPower(c.matching, c.total); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func held(replica string, matched int32) Candidate {
	return Candidate{Holder: index.Holder{Replica: replica}, MatchedTokens: matched, Freshness: 1, PressureFactor: 1}
}

func scores(candidates []Candidate) map[string]float32 {
	out := map[string]float32{}
	for _, c := range candidates {
		out[c.Holder.Replica] = c.Score
	}
	return out
}

func TestMatchesAreToldApartByDepth(t *testing.T) {
	third := float32(3)
	for name, c := range map[string]struct {
		candidates []Candidate
		total      int
		exact      bool
		ttft       int32
		want       map[string]float32
	}{
		"three depths of three members": {
			candidates: []Candidate{held("c", 64), held("a", 256), held("b", 128)}, total: 3,
			want: map[string]float32{"a": 256 * (1 - 1/third), "b": 128 * (1 - 2/third), "c": 0},
		},
		"equal depths count together": {
			candidates: []Candidate{held("a", 100), held("b", 100)}, total: 4,
			want: map[string]float32{"a": 50, "b": 50},
		},
		"whole prefixes have no depth": {
			candidates: []Candidate{held("a", 256), held("b", 64)}, total: 4, exact: true,
			want: map[string]float32{"a": 128, "b": 32},
		},
		"a member without the prefix keeps the rest apart": {
			candidates: []Candidate{held("a", 100), held("b", 100)}, total: 3,
			want: map[string]float32{"a": 100 * (1 - 2/third), "b": 100 * (1 - 2/third)},
		},
		"a tight target doubles what is fresh": {
			candidates: []Candidate{held("a", 100)}, total: 1, ttft: 100, want: map[string]float32{"a": 200},
		},
	} {
		t.Run(name, func(t *testing.T) {
			Default().Matches(c.candidates, c.total, c.exact, c.ttft)
			if diff := cmp.Diff(c.want, scores(c.candidates)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOrder(t *testing.T) {
	saturated := held("a", 100)
	saturated.PressureFactor = 0
	rank1 := held("b", 100)
	rank1.Holder.Rank = 1
	shallow := held("z", 50)
	all := []Candidate{saturated, rank1, shallow, held("c", 100), held("b", 100)}
	Default().Matches(all, 5, false, 0)
	want := []index.Holder{{Replica: "b"}, {Replica: "b", Rank: 1}, {Replica: "c"}, {Replica: "z"}, {Replica: "a"}}
	for i, c := range all {
		if c.Holder != want[i] {
			t.Errorf("place %d: %v, want %v", i, c.Holder, want[i])
		}
	}
}

func TestTenantHot(t *testing.T) {
	for name, c := range map[string]struct {
		hitRate  float32
		age      time.Duration
		pressure float32
		score    float32
		hot      bool
	}{
		"a warm idle cache scores its hit rate":    {0.5, 0, 1, 0.5, true},
		"an older report counts less":              {0.5, 150 * time.Second, 1, 0.25, true},
		"a report at the age limit does not count": {0.5, 5 * time.Minute, 1, 0, false},
		"a hit rate at the limit counts":           {0.1, 0, 1, 0.1, true},
		"a hit rate below it does not":             {0.09, 0, 1, 0, false},
		"pressure takes its part":                  {0.5, 0, 0.5, 0.25, true},
		"a report from the future counts as now":   {0.5, -time.Minute, 1, 0.5, true},
	} {
		t.Run(name, func(t *testing.T) {
			score, hot := Default().TenantHot(c.hitRate, c.age, c.pressure, 0)
			if score != c.score || hot != c.hot {
				t.Errorf("got %v %v, want %v %v", score, hot, c.score, c.hot)
			}
		})
	}
	if _, hot := (Config{}).TenantHot(1, 0, 1, 0); hot {
		t.Error("an age limit of 0 does not turn it off")
	}
}

func TestAffinitySeedIsLengthPrefixed(t *testing.T) {
	for name, c := range map[string]struct {
		keys index.Keys
		want string
	}{
		"numbers":        {index.Keys{Words: []uint64{1, 0xFF00000000000002}}, "000000080000000000000001" + "00000008ff00000000000002"},
		"byte strings":   {index.Keys{Wide: []string{"ab", "", "c"}}, "000000026162" + "00000000" + "0000000163"},
		"nothing at all": {index.Keys{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hex.EncodeToString(AppendSeed(nil, c.keys)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestAffinityPick(t *testing.T) {
	seed := []byte("seed")
	sum := sha256.Sum256(seed)
	number := func(at int) int { return int(binary.BigEndian.Uint64(sum[8*at:]) % 7) }
	full := func(full ...int) map[int]float32 {
		factors := map[int]float32{}
		for _, i := range full {
			factors[i] = 0
		}
		return factors
	}
	for name, c := range map[string]struct {
		choices int
		factors map[int]float32 // 1 where not given
		want    int
	}{
		"the first 8 bytes of the digest decide":        {0, nil, number(0)},
		"pressure short of saturation changes nothing":  {1, map[int]float32{number(0): 0.01}, number(0)},
		"of two choices the one with more room":         {2, map[int]float32{number(0): 0.25, number(1): 0.5}, number(1)},
		"of two with equal room the first":              {2, map[int]float32{number(0): 0.5, number(1): 0.5}, number(0)},
		"a choice that is not asked for does not count": {2, map[int]float32{number(0): 0.5, number(1): 0.25}, number(0)},
		"a saturated pick gives way to the next 8":      {1, full(number(0)), number(1)},
		"after the digest the members come in order":    {1, full(number(0), number(1), number(2), number(3)), after(number(3), 7, number(0), number(1), number(2), number(3))},
		"with all saturated the first pick stands":      {4, full(0, 1, 2, 3, 4, 5, 6), number(0)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Affinity(seed, 7, c.choices, factors(c.factors)); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// factors returns the pressure factor of each member, 1 where none is given.
func factors(given map[int]float32) func(int) float32 {
	return func(i int) float32 {
		if f, ok := given[i]; ok {
			return f
		}
		return 1
	}
}

// after returns the first of n members behind i, around the end, that is none of full.
func after(i, n int, full ...int) int {
	for slices.Contains(full, i) {
		i = (i + 1) % n
	}
	return i
}

func TestRendezvous(t *testing.T) {
	name := func(i int) index.Holder { return index.Holder{Replica: fmt.Sprintf("pod-%d", i/2), Rank: int32(i % 2)} }
	counts, moved := map[int]int{}, 0
	const prompts, members = 4000, 8
	for i := range prompts {
		seed := []byte(fmt.Sprint("prompt ", i))
		pick := Rendezvous(seed, members, 1, name, factors(nil))
		counts[pick]++
		if more := Rendezvous(seed, members+1, 1, name, factors(nil)); more != pick {
			moved++
			if more != members {
				t.Fatalf("prompt %d moved from %d to %d, which was there before", i, pick, more)
			}
		}
		second := Rendezvous(seed, members, 1, name, factors(map[int]float32{pick: 0}))
		if second == pick {
			t.Fatalf("prompt %d goes to a saturated member", i)
		}
		if got := Rendezvous(seed, members, 2, name, factors(map[int]float32{pick: 0.5})); got != second {
			t.Fatalf("of two choices %d is picked, want %d, which has more room", got, second)
		}
		if all := Rendezvous(seed, members, 1, name, func(int) float32 { return 0 }); all != pick {
			t.Fatalf("with all saturated the pick is %d, want %d", all, pick)
		}
	}
	for i := range members {
		if n := counts[i]; n < prompts/members*8/10 || n > prompts/members*12/10 {
			t.Errorf("member %d has %d of %d prompts", i, n, prompts)
		}
	}
	if moved > prompts/(members+1)*12/10 {
		t.Errorf("%d of %d prompts moved", moved, prompts)
	}
}

func TestMinor(t *testing.T) {
	p := Placement{MinimumMatchedShare: 0.125}
	off := Placement{}
	for name, c := range map[string]struct {
		p       *Placement
		matched int32
		prompt  int64
		want    bool
	}{
		"a small part of a long prompt":          {&p, 512, 8192, true},
		"the share itself is enough":             {&p, 1024, 8192, false},
		"a little less is not":                   {&p, 1023, 8192, true},
		"a short rest does not matter":           {&p, 16, 1039, false},
		"a rest of the bound does":               {&p, 16, 1040, true},
		"a share of 0 is off":                    {&off, 1, 1 << 20, false},
		"more matched than the prompt has is no": {&p, 512, 100, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.p.Minor(c.matched, c.prompt); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestSeedKeys(t *testing.T) {
	words, wide := index.Keys{Words: []uint64{1, 2, 3}}, index.Keys{Wide: []string{"a", "b", "c"}}
	for n, want := range map[int]int{0: 3, -1: 3, 1: 1, 2: 2, 3: 3, 9: 3} {
		p := Placement{AffinitySeedBlocks: n}
		if a, b := p.SeedKeys(words).Len(), p.SeedKeys(wide).Len(); a != want || b != want {
			t.Errorf("a bound of %d leaves %d and %d blocks, want %d", n, a, b, want)
		}
	}
}

func TestAmongScoresOf0PressureDecides(t *testing.T) {
	busy, idle, half := held("a", 100), held("z", 100), held("m", 100)
	busy.PressureFactor, half.PressureFactor = 0.125, 0.5
	all := []Candidate{busy, half, idle}
	Default().Matches(all, 3, false, 0)
	for i, want := range []string{"z", "m", "a"} {
		if all[i].Score != 0 || all[i].Holder.Replica != want {
			t.Errorf("place %d: %+v, want %s with a score of 0", i, all[i], want)
		}
	}
}

func TestDisperse(t *testing.T) {
	order := func(tolerance float32, number uint64, scores ...float32) string {
		var candidates []Candidate
		for i, score := range scores {
			candidates = append(candidates, Candidate{Holder: index.Holder{Replica: string(rune('a' + i))}, Score: score})
		}
		(&Placement{ScoreTolerance: tolerance}).Disperse(candidates, number)
		out := ""
		for _, c := range candidates {
			out += c.Holder.Replica
		}
		return out
	}
	first := map[byte]int{}
	for number := range uint64(3000) {
		if got := order(0, number, 3, 3, 3, 1); got != "abcd" {
			t.Fatalf("without a tolerance the order is %s", got)
		}
		got := order(0.25, number, 4, 3.5, 3, 2.9)
		if got[3] != 'd' || got != order(0.25, number, 4, 3.5, 3, 2.9) {
			t.Fatalf("order %s", got)
		}
		first[got[0]]++
	}
	for _, replica := range []byte("abc") {
		if n := first[replica]; n < 800 || n > 1200 {
			t.Errorf("%c comes first %d times of 3000", replica, n)
		}
	}
}

func TestCheckNamesWhatIsOutOfRange(t *testing.T) {
	nan := float32(math.NaN())
	config, placement := Default(), DefaultPlacement()
	if err := errors.Join(config.Check(), placement.Check()); err != nil {
		t.Errorf("defaults: %v", err)
	}
	for want, change := range map[string]func(*Config){
		"pressure weight is -1": func(c *Config) { c.PressureWeight = -1 },
		"is NaN":                func(c *Config) { c.PressureWeight = nan },
		"threshold is -1 ms":    func(c *Config) { c.SLOTightTTFTMs = -1 },
		"bias is -1":            func(c *Config) { c.SLOTightBias = -1 },
		"hit rate":              func(c *Config) { c.TenantHotMinHitRate = 1.5 },
		"statistics":            func(c *Config) { c.TenantHotMaxAge = -1 },
	} {
		c := Default()
		change(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	for want, change := range map[string]func(*Placement){
		"share is -0.1":      func(p *Placement) { p.MinimumMatchedShare = -0.1 },
		"share is NaN":       func(p *Placement) { p.MinimumMatchedShare = nan },
		"seed blocks are -1": func(p *Placement) { p.AffinitySeedBlocks = -1 },
		"choices are 5":      func(p *Placement) { p.AffinityChoices = 5 },
		"tolerance is 1.5":   func(p *Placement) { p.ScoreTolerance = 1.5 },
	} {
		p := DefaultPlacement()
		change(&p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}
