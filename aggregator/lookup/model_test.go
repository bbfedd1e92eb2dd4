package lookup

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	"github.com/inferencecache/inferencecache/fingerprint"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// model is the contract written down a second time, with nothing but lists and loops. Scores are
// computed in the documented order, in float32, so that even ties come out alike.
type model struct {
	policy  policy.Policy
	members []modelMember
	entries []modelEntry
}

type modelMember struct {
	replica  string
	hasStats bool
	hitRate  float32
	pressure float32
	statsAge time.Duration
}

type modelEntry struct {
	replica string
	adapter string
	key     string
	tokens  int32 // of the prompt up to the end of the block
	age     time.Duration
}

type modelScore struct {
	replica string
	score   float32
	rest    float32 // the score but for distinguishing power
	matched int64
}

type modelBlock struct {
	key    string
	tokens int64
}

// answer returns the reason and the scores for a request of the model's own scope.
func (m *model) answer(req *pb.LookupRouteRequest) (string, []modelScore) {
	none := "NO_HINT"
	chainGiven := len(req.BlockHashes) > 0 || len(req.BlockTokenCounts) > 0
	valid := len(req.BlockHashes) > 0 && len(req.BlockHashes) == len(req.BlockTokenCounts)
	if m.policy.RequireChain && !valid {
		return "POLICY_REQUIRES_CHAIN", nil
	}
	var blocks []modelBlock
	exact, seed := false, []byte(nil)
	total := int64(0)
	switch {
	case m.policy.ChainMatching && chainGiven:
		if !valid {
			return none, nil
		}
		for i, h := range req.BlockHashes {
			blocks = append(blocks, modelBlock{string(h), int64(req.BlockTokenCounts[i])})
		}
	case len(req.PrefixHash) > 0:
		exact = true
		blocks = []modelBlock{{string(req.PrefixHash), int64(req.PrefixTokenCount)}}
	case len(req.TokenIds) >= 16:
		for _, h := range fingerprint.Chain(req.TokenIds, 16) {
			blocks = append(blocks, modelBlock{string(binary.BigEndian.AppendUint64(nil, h)), 16})
		}
		if !m.policy.ChainMatching {
			exact = true
			blocks = []modelBlock{{blocks[len(blocks)-1].key, int64(16 * len(blocks))}}
		}
	case len(req.TokenIds) > 0 || chainGiven:
		return none, nil
	default:
		exact = true
	}
	for _, b := range blocks {
		total += b.tokens
		if !exact {
			seed = binary.BigEndian.AppendUint32(seed, uint32(len(b.key)))
		}
		seed = append(seed, b.key...)
	}
	short := m.policy.MinimumPrefixTokens > 0 && total < m.policy.MinimumPrefixTokens
	if short && !m.policy.Affinity {
		return none, nil
	}

	m.compete(req.CandidateReplicaIds)
	scores := m.matches(req, blocks, exact)
	reason := "PREFIX_MATCH"
	if len(scores) == 0 && exact {
		scores, reason = m.hot(req), "TENANT_HOT"
	}
	if len(scores) == 0 {
		reason = none // never UNKNOWN_*: every entry is of the scope that is asked for
	}
	switch {
	case reason != "PREFIX_MATCH" && reason != "TENANT_HOT":
	case short, reason == "TENANT_HOT" && !m.policy.TenantHot:
		reason = none
	case reason == "PREFIX_MATCH":
		scores = filter(scores, func(s modelScore) bool { return s.matched >= int64(m.policy.MinimumMatchedTokens) })
		longest := int64(0)
		for _, s := range scores {
			longest = max(longest, s.matched)
		}
		minor := !exact && float64(longest) < float64(m.policy.MinimumMatchedShare)*float64(total) && total-longest >= 1024
		if len(scores) == 0 || minor || m.policy.RoutingFloorScore > 0 && scores[0].score < m.policy.RoutingFloorScore {
			reason = none
		}
	}
	if reason != none {
		if reason == "PREFIX_MATCH" {
			m.disperse(scores, blocks)
		}
		if n := int(req.MaxResults); n > 0 && n < len(scores) {
			scores = scores[:n]
		}
		return reason, scores
	}
	if !m.policy.Affinity || len(seed) == 0 || len(m.members) == 0 || len(req.BlockHashes) != len(req.BlockTokenCounts) {
		return none, nil
	}
	if n := m.policy.AffinitySeedBlocks; !exact && n > 0 && n < len(blocks) {
		seed = nil
		for _, b := range blocks[:n] {
			seed = binary.BigEndian.AppendUint32(seed, uint32(len(b.key)))
			seed = append(seed, b.key...)
		}
	}
	return "AFFINITY_HINT", []modelScore{{replica: m.members[m.pick(seed)].replica}}
}

// pick places a seed: by four numbers modulo the members, then by counting on from the last, or by
// the highest weight.
func (m *model) pick(seed []byte) int {
	sum := sha256.Sum256(seed)
	var order []int
	if m.policy.Rendezvous {
		weight := func(i int) uint64 {
			return xxh3.HashStringSeed(m.members[i].replica, binary.BigEndian.Uint64(sum[:8]))
		}
		for i := range m.members {
			order = append(order, i)
		}
		sort.Slice(order, func(a, b int) bool { return weight(order[a]) > weight(order[b]) })
	} else {
		n := uint64(len(m.members))
		for i := 0; i < 32; i += 8 {
			order = append(order, int(binary.BigEndian.Uint64(sum[i:i+8])%n))
		}
		for range m.members {
			order = append(order, (order[len(order)-1]+1)%len(m.members))
		}
	}
	roomiest := order[0]
	for _, i := range order[:min(len(order), max(1, m.policy.AffinityChoices))] {
		if m.factor(m.members[i].replica) > m.factor(m.members[roomiest].replica) {
			roomiest = i
		}
	}
	for _, i := range append([]int{roomiest}, order...) {
		if m.factor(m.members[i].replica) > 0 {
			return i
		}
	}
	return order[0]
}

// disperse gives scores near the best an order that follows from the block where the best match ends.
func (m *model) disperse(scores []modelScore, blocks []modelBlock) {
	if m.policy.ScoreTolerance == 0 {
		return
	}
	near, matched, end := 0, int64(0), 0
	for near < len(scores) && scores[near].score >= scores[0].score*(1-m.policy.ScoreTolerance) {
		near++
	}
	for end < len(blocks)-1 && matched < scores[0].matched {
		matched += blocks[end].tokens
		end++
	}
	number := binary.BigEndian.Uint64([]byte(blocks[end].key)) // every key of the model has 8 bytes
	sort.Slice(scores[:near], func(a, b int) bool {
		return xxh3.HashStringSeed(scores[a].replica, number) > xxh3.HashStringSeed(scores[b].replica, number)
	})
}

// compete leaves the members that the caller names.
func (m *model) compete(names []string) {
	if len(names) == 0 {
		return
	}
	var kept []modelMember
	for _, x := range m.members {
		if slices.Contains(names, x.replica) {
			kept = append(kept, x)
		}
	}
	m.members = kept
}

func filter(scores []modelScore, keep func(modelScore) bool) (kept []modelScore) {
	for _, s := range scores {
		if keep(s) {
			kept = append(kept, s)
		}
	}
	return kept
}

func (m *model) factor(replica string) float32 {
	for _, x := range m.members {
		if x.replica == replica && x.hasStats && x.statsAge < m.policy.TTL {
			return max(0, 1-x.pressure)
		}
	}
	return 1
}

func bias(req *pb.LookupRouteRequest, freshness float32) float32 {
	if ttft := req.GetSlo().GetTtftMs(); ttft > 0 && ttft < 200 {
		return 1 + freshness
	}
	return 1
}

func (m *model) matches(req *pb.LookupRouteRequest, blocks []modelBlock, exact bool) []modelScore {
	freshness := map[string]float32{}
	var scores []modelScore
	for _, x := range m.members {
		matched, oldest := int64(0), time.Duration(0)
		for _, b := range blocks {
			e := m.entry(x.replica, req.AdapterId, b.key)
			if e == nil || e.age >= m.policy.TTL {
				break
			}
			if matched += b.tokens; exact {
				matched = int64(e.tokens)
			}
			oldest = max(oldest, e.age)
		}
		if matched > 0 {
			freshness[x.replica] = float32(1 - float64(oldest)/float64(m.policy.TTL))
			scores = append(scores, modelScore{replica: x.replica, matched: matched})
		}
	}
	for i := range scores {
		s := &scores[i]
		same := 0
		for _, other := range scores {
			if exact || other.matched >= s.matched {
				same++
			}
		}
		power := float32(1)
		if len(m.members) > 1 {
			power = 1 - float32(same)/float32(len(m.members))
		}
		f := freshness[s.replica]
		s.score = float32(s.matched) * f * m.factor(s.replica) * bias(req, f) * power
		s.rest = float32(s.matched) * f * m.factor(s.replica) * bias(req, f)
	}
	m.sort(scores)
	return scores
}

func (m *model) entry(replica, adapter, key string) *modelEntry {
	for i := range m.entries {
		if e := &m.entries[i]; e.replica == replica && e.adapter == adapter && e.key == key {
			return e
		}
	}
	return nil
}

func (m *model) hot(req *pb.LookupRouteRequest) []modelScore {
	var scores []modelScore
	for _, x := range m.members {
		if x.hasStats && x.statsAge < 5*time.Minute && x.hitRate >= 0.1 {
			recency := float32(1 - float64(x.statsAge)/float64(5*time.Minute))
			scores = append(scores, modelScore{
				replica: x.replica, score: x.hitRate * recency * m.factor(x.replica) * bias(req, recency),
				rest: x.hitRate * m.factor(x.replica),
			})
		}
	}
	m.sort(scores)
	return scores
}

func (m *model) sort(scores []modelScore) {
	sort.Slice(scores, func(i, j int) bool {
		a, b := scores[i], scores[j]
		if a.score != b.score {
			return a.score > b.score
		}
		if a.score == 0 && a.rest != b.rest {
			return a.rest > b.rest
		}
		return a.replica < b.replica
	})
}

// build puts the model's state into a service.
func (m *model) build(t testing.TB) *world {
	w := newWorld(t)
	w.policy = m.policy
	for _, x := range m.members {
		w.join(x.replica)
		if x.hasStats {
			s := registry.Stats{HitRate: x.hitRate, Pressure: x.pressure, Reported: w.now.Add(-x.statsAge)}
			if err := w.Registry.SetStats("t", "m", index.Holder{Replica: x.replica}, s, w.now); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, e := range m.entries {
		w.Index.Store(index.Partition{Scope: scope, Adapter: e.adapter}, index.Holder{Replica: e.replica},
			index.Run{Keys: index.Keys{Wide: []string{e.key}}, BlockTokens: e.tokens, Tier: index.T1, Evidence: index.At(w.now.Add(-e.age))},
			index.At(w.now))
	}
	return w
}

// prompts of which the requests and the entries of a case are made: they share parts.
func drawPrompt(t *rapid.T) []uint32 {
	var ids []uint32
	for range rapid.IntRange(1, 6).Draw(t, "parts") {
		ids = append(ids, prompt(rapid.SampledFrom([]int{16, 32, 48, 16, 3, 640}).Draw(t, "length"), rapid.SampledFrom([]uint32{1, 1, 1, 2}).Draw(t, "part"))...)
	}
	return ids
}

func drawModel(t *rapid.T) *model {
	m := &model{policy: policy.Default()}
	flag := func(name string) bool { return rapid.IntRange(0, 3).Draw(t, name) == 3 }
	p := &m.policy
	p.Affinity, p.TenantHot, p.ChainMatching = !flag("noAffinity"), !flag("noTenantHot"), !flag("noChains")
	p.RequireChain = rapid.IntRange(0, 19).Draw(t, "requireChain") == 19
	p.MinimumMatchedTokens = rapid.SampledFrom([]int32{0, 16, 64}).Draw(t, "minimumMatched")
	p.MinimumPrefixTokens = rapid.SampledFrom([]int64{0, 0, 16, 64}).Draw(t, "minimumPrefix")
	p.RoutingFloorScore = rapid.SampledFrom([]float32{0, 0.1, 20}).Draw(t, "floor")
	p.MinimumMatchedShare = rapid.SampledFrom([]float32{0.125, 0, 0.5}).Draw(t, "minimumShare")
	p.AffinityChoices = rapid.SampledFrom([]int{0, 1, 2, 3}).Draw(t, "choices")
	p.AffinitySeedBlocks = rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "seedBlocks")
	p.Rendezvous = flag("rendezvous")
	p.ScoreTolerance = rapid.SampledFrom([]float32{0, 0, 0.3}).Draw(t, "tolerance")
	for _, replica := range []string{"a", "b", "c", "d"}[:4-rapid.IntRange(0, 4).Draw(t, "absent")] {
		m.members = append(m.members, modelMember{
			replica: replica, hasStats: !flag("noStats"),
			hitRate:  rapid.SampledFrom([]float32{0, 0.0625, 0.25, 0.5}).Draw(t, "hitRate"),
			pressure: rapid.SampledFrom([]float32{0, 0.25, 0.5, 1}).Draw(t, "pressure"),
			statsAge: rapid.SampledFrom([]time.Duration{0, time.Minute, 6 * time.Minute, time.Hour}).Draw(t, "statsAge"),
		})
		for range 3 - rapid.IntRange(0, 3).Draw(t, "prompts") {
			m.hold(replica, drawPrompt(t), rapid.SampledFrom([]string{"", "", "lora"}).Draw(t, "adapter"),
				time.Duration(rapid.SampledFrom([]int{0, 0, 10, 25, 30}).Draw(t, "age"))*time.Minute)
		}
	}
	return m
}

func (m *model) hold(replica string, ids []uint32, adapter string, age time.Duration) {
	for i, h := range fingerprint.Chain(ids, 16) {
		key := string(binary.BigEndian.AppendUint64(nil, h))
		e := m.entry(replica, adapter, key)
		switch {
		case e == nil:
			m.entries = append(m.entries, modelEntry{replica, adapter, key, int32(16 * (i + 1)), age})
		case age < e.age:
			e.age = age
		}
	}
}

func drawRequest(t *rapid.T) *pb.LookupRouteRequest {
	req := request(func(r *pb.LookupRouteRequest) {
		r.AdapterId = rapid.SampledFrom([]string{"", "", "", "lora"}).Draw(t, "requestAdapter")
		r.CandidateReplicaIds = rapid.SampledFrom([][]string{nil, nil, {"a"}, {"d", "b", "b", "x"}}).Draw(t, "candidates")
		r.MaxResults = rapid.SampledFrom([]int32{0, -1, 1, 2}).Draw(t, "maxResults")
		r.Slo = &pb.SLO{TtftMs: rapid.SampledFrom([]int32{0, 100, 500}).Draw(t, "ttft")}
	})
	ids := drawPrompt(t)
	form := rapid.SampledFrom([]int{1, 4, 2, 6, 7, 5, 4, 1, 15, 0}).Draw(t, "forms")
	chained := byChain(ids)
	if form&1 != 0 {
		req.BlockHashes, req.BlockTokenCounts = chained.BlockHashes, chained.BlockTokenCounts
	}
	if form == 15 && len(req.BlockHashes) > 0 {
		req.BlockTokenCounts = req.BlockTokenCounts[1:]
	}
	if n := len(chained.BlockHashes); form&2 != 0 && n > 0 {
		req.PrefixHash, req.PrefixTokenCount = chained.BlockHashes[n-1], int32(16*n)
	}
	if form&4 != 0 {
		req.TokenIds = ids
	}
	return req
}

func TestPipelineAgreesWithTheModel(t *testing.T) {
	reasons := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		m := drawModel(rt)
		req := drawRequest(rt)
		built := m.build(t)
		wantReason, want := m.answer(req)
		got := built.LookupRoute(context.Background(), req)
		reasons[got.ReasonCode]++
		if got.ReasonCode != wantReason || len(got.ReplicaScores) != len(want) {
			rt.Fatalf("got %s, want %s %v\nrequest %v\nmodel %+v", brief(got), wantReason, want, req, m)
		}
		for i, s := range got.ReplicaScores {
			if s.ReplicaId != want[i].replica || int64(s.MatchedTokens) != want[i].matched || s.Score != want[i].score {
				rt.Fatalf("place %d: got %v, want %+v\nrequest %v\nmodel %+v", i, s, want[i], req, m)
			}
		}
	})
	t.Logf("reasons %v", reasons)
}
