package rank

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
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
	first := int(binary.BigEndian.Uint64(sum[:8]) % 5)
	never := func(int) bool { return false }
	if got := Affinity(seed, 5, never); got != first {
		t.Errorf("pick %d, want %d", got, first)
	}
	if got := Affinity(seed, 5, func(i int) bool { return i == first }); got != (first+1)%5 {
		t.Errorf("a saturated pick gives way to %d, want the next", got)
	}
	if got := Affinity(seed, 5, func(int) bool { return true }); got != first {
		t.Errorf("with all saturated the pick is %d, want %d", got, first)
	}
}
