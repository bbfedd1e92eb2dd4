package registry

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

var (
	scope = index.Scope{Tenant: "t", Model: "m", Scheme: "vllm"}
	t0    = time.Unix(1_700_000_000, 0)
)

const ttl = 30 * time.Minute

func holder(replica string) index.Holder { return index.Holder{Replica: replica} }

func names(m *Members) []string {
	out := []string{}
	for _, member := range m.List {
		out = append(out, fmt.Sprintf("%s/%d", member.Holder.Replica, member.Holder.Rank))
	}
	return out
}

func wantMembers(t *testing.T, r *Registry, want ...string) {
	t.Helper()
	if got := names(r.Members(scope)); !slices.Equal(got, want) {
		t.Errorf("members %v, want %v", got, want)
	}
}

func mustJoin(t *testing.T, r *Registry, s index.Scope, h index.Holder, agent string) {
	t.Helper()
	if err := r.Join(s, h, agent, t0); err != nil {
		t.Fatal(err)
	}
}

func mustReport(t *testing.T, r *Registry, s index.Scope, h index.Holder, size int32, now time.Time) {
	t.Helper()
	if err := r.Report(s, h, size, now); err != nil {
		t.Fatal(err)
	}
}

func TestAgentDeclaredMembers(t *testing.T) {
	r := New(Config{})
	wantMembers(t, r)
	mustJoin(t, r, scope, index.Holder{Replica: "b", Rank: 1}, "x")
	mustJoin(t, r, scope, holder("b"), "x")
	mustJoin(t, r, scope, holder("a"), "x")
	wantMembers(t, r, "a/0", "b/0", "b/1")
	if !r.Members(scope).Declared {
		t.Error("not shown as declared")
	}

	r.SetLive(scope, holder("a"), "x", false, t0)
	wantMembers(t, r, "b/0", "b/1")
	r.SetLive(scope, holder("a"), "someone else", true, t0)
	wantMembers(t, r, "b/0", "b/1")
	r.SetLive(scope, holder("a"), "x", true, t0)
	wantMembers(t, r, "a/0", "b/0", "b/1")

	mustJoin(t, r, scope, holder("a"), "y")
	r.Leave(scope, holder("a"), "x", t0) // no longer x's
	wantMembers(t, r, "a/0", "b/0", "b/1")
	r.Leave(scope, holder("a"), "y", t0)
	r.Leave(scope, holder("b"), "x", t0)
	r.Leave(scope, index.Holder{Replica: "b", Rank: 1}, "x", t0)
	wantMembers(t, r)
	if tenant, model := r.Declared("t", "m"); tenant || model {
		t.Error("still shown as declared")
	}
	if r.members != 0 || r.nCaches != 0 || len(*r.scopes.Load()) != 0 {
		t.Errorf("%d members, %d caches, %d scopes are left", r.members, r.nCaches, len(*r.scopes.Load()))
	}
}

func TestPubliclyNamedMembersExpire(t *testing.T) {
	r := New(Config{})
	mustReport(t, r, scope, holder("a"), 0, t0)
	mustReport(t, r, scope, holder("b"), 0, t0.Add(time.Minute))
	wantMembers(t, r, "a/0", "b/0")
	r.Expire(t0.Add(ttl - time.Second))
	wantMembers(t, r, "a/0", "b/0")
	r.Expire(t0.Add(ttl))
	wantMembers(t, r, "b/0")
	r.Seen("t", "m", "b", t0.Add(ttl), t0.Add(ttl))
	r.Expire(t0.Add(ttl + 10*time.Minute))
	wantMembers(t, r, "b/0")
	r.Expire(t0.Add(3 * ttl))
	wantMembers(t, r)
	if len(*r.scopes.Load()) != 0 || r.nCaches != 0 {
		t.Error("something is left")
	}
}

func TestMemberOfBothKindsStaysAsLongAsEither(t *testing.T) {
	r := New(Config{})
	mustReport(t, r, scope, holder("a"), 0, t0)
	mustJoin(t, r, scope, holder("a"), "x")
	r.Expire(t0.Add(2 * ttl))
	wantMembers(t, r, "a/0")
	mustReport(t, r, scope, holder("a"), 0, t0.Add(2*ttl))
	r.Leave(scope, holder("a"), "x", t0.Add(2*ttl))
	wantMembers(t, r, "a/0")
	mustJoin(t, r, scope, holder("a"), "x")
	r.SetLive(scope, holder("a"), "x", false, t0.Add(2*ttl))
	wantMembers(t, r, "a/0") // by its report
	r.Expire(t0.Add(4 * ttl))
	wantMembers(t, r) // the agent's lease is what is left, and it is not good
}

func TestBlockSizes(t *testing.T) {
	r := New(Config{})
	for i, sizes := range [][]int32{{64, 16}, {16}, {16, 1, 128, 256, 512}, {32}, nil} {
		h := holder(fmt.Sprint(i))
		mustJoin(t, r, scope, h, "x")
		for _, size := range sizes {
			r.Learn(scope, h, size, t0)
		}
	}
	// 16 is the commonest; of those that one member uses, the smallest.
	if got := r.Members(scope).BlockSizes; !slices.Equal(got, []int32{1, 16, 32, 64}) {
		t.Errorf("sizes %v", got)
	}
	for i := range 5 {
		r.Leave(scope, holder(fmt.Sprint(i)), "x", t0)
	}
	mustReport(t, r, scope, holder("a"), 0, t0)
	if m := r.Members(scope); len(m.BlockSizes) != 0 || !m.Unsized {
		t.Errorf("sizes %v stayed when their members went", m.BlockSizes)
	}
	mustReport(t, r, scope, holder("a"), 8, t0)
	if m := r.Members(scope); !slices.Equal(m.BlockSizes, []int32{8}) || m.Unsized {
		t.Errorf("sizes %v", m.BlockSizes)
	}
}

func TestNamesAreBounded(t *testing.T) {
	r := New(Config{MaxScopes: 2, MaxMembers: 3})
	other := func(i int) index.Scope { return index.Scope{Tenant: "t", Model: fmt.Sprint(i), Scheme: "vllm"} }
	mustReport(t, r, other(1), holder("a"), 0, t0)
	mustReport(t, r, other(2), holder("a"), 0, t0)
	if err := r.Report(other(3), holder("a"), 0, t0); !errors.Is(err, contract.ErrTooManyNames) {
		t.Errorf("third scope: %v", err)
	}
	mustReport(t, r, other(2), holder("b"), 0, t0)
	if err := r.Join(other(2), holder("c"), "x", t0); !errors.Is(err, contract.ErrTooManyNames) {
		t.Errorf("fourth member: %v", err)
	}
	if err := r.SetStats("t", "other", holder("z"), Stats{}, t0); !errors.Is(err, contract.ErrTooManyNames) {
		t.Errorf("statistics of a fourth cache: %v", err)
	}
	r.Expire(t0.Add(ttl))
	mustReport(t, r, other(3), holder("a"), 0, t0)
}

func TestStatsAreOneRecordPerCacheForEveryScheme(t *testing.T) {
	r := New(Config{})
	sglang := scope
	sglang.Scheme = "sglang"
	mustReport(t, r, scope, holder("a"), 0, t0)
	mustReport(t, r, sglang, holder("a"), 0, t0)
	set := func(pressure float32, at time.Time) {
		if err := r.SetStats("t", "m", holder("a"), Stats{Pressure: pressure, Reported: at}, at); err != nil {
			t.Fatal(err)
		}
	}
	set(0.5, t0.Add(time.Minute))
	set(0.9, t0) // older: does not count
	for _, s := range []index.Scope{scope, sglang} {
		m, ok := r.Members(s).Find(holder("a"))
		if !ok || m.Stats() == nil || m.Stats().Pressure != 0.5 {
			t.Errorf("%v: %v", s, m.Stats())
		}
	}
	r.ClearStats("t", "m", "a")
	if m, _ := r.Members(scope).Find(holder("a")); m.Stats() != nil {
		t.Error("statistics are left after they were cleared")
	}
}

func TestRanksOfAReplicaAreTakenTogether(t *testing.T) {
	r := New(Config{})
	for rank, s := range []Stats{
		{MemoryBytes: 10, HitRate: 0.2, Pressure: 0.3, T2HitTokens: 1, T2QueryTokens: 2, ClientVersion: "v1", Reported: t0},
		{MemoryBytes: 20, HitRate: 0.4, Pressure: 0.1, T2HitTokens: 3, T2QueryTokens: 4, Reported: t0},
	} {
		h := index.Holder{Replica: "b", Rank: int32(rank)}
		mustJoin(t, r, scope, h, "x")
		if err := r.SetStats("t", "m", h, s, t0); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.SetStats("t", "m", holder("a"), Stats{HitRate: 1, Reported: t0}, t0); err != nil {
		t.Fatal(err)
	}
	want := []ReplicaStats{
		{Replica: "a", Stats: Stats{HitRate: 1, Reported: t0}},
		{Replica: "b", Stats: Stats{MemoryBytes: 30, HitRate: (float32(0.2) + float32(0.4)) / 2, Pressure: 0.3, T2HitTokens: 4, T2QueryTokens: 6, ClientVersion: "v1", Reported: t0}},
	}
	if diff := cmp.Diff(want, r.Replicas("t", "m")); diff != "" {
		t.Error(diff)
	}
}

func TestStatsFromTheWireArePutInRange(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, c := range map[string]struct {
		in   *pb.ReplicaStats
		want Stats
	}{
		"in range":          {&pb.ReplicaStats{HitRate: 0.5, Pressure: 0.25, CacheMemoryBytes: 7}, Stats{HitRate: 0.5, Pressure: 0.25, MemoryBytes: 7}},
		"not finite":        {&pb.ReplicaStats{HitRate: nan, Pressure: inf}, Stats{}},
		"above":             {&pb.ReplicaStats{HitRate: 40, Pressure: 5}, Stats{HitRate: 1, Pressure: 1}},
		"below":             {&pb.ReplicaStats{HitRate: -1, Pressure: -5, CacheMemoryBytes: -1, T2HitTokens: -2, T2QueryTokens: -3}, Stats{}},
		"a version cut":     {&pb.ReplicaStats{ClientVersion: string(make([]byte, 127)) + "é"}, Stats{ClientVersion: string(make([]byte, 127))}},
		"nothing":           {nil, Stats{}},
		"a short version":   {&pb.ReplicaStats{ClientVersion: "0.3.1"}, Stats{ClientVersion: "0.3.1"}},
		"offload of tokens": {&pb.ReplicaStats{T2HitTokens: 2, T2QueryTokens: 3}, Stats{T2HitTokens: 2, T2QueryTokens: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, StatsFrom(c.in, time.Time{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadersAndWritersMeet(t *testing.T) {
	r := New(Config{})
	var work sync.WaitGroup
	for w := range 4 {
		work.Go(func() {
			h := holder(fmt.Sprint(w))
			for range 200 {
				_ = r.Join(scope, h, "x", t0)
				_ = r.SetStats("t", "m", h, Stats{Reported: t0}, t0)
				r.Learn(scope, h, 16, t0)
				r.Expire(t0)
				r.Leave(scope, h, "x", t0)
			}
		})
		work.Go(func() {
			for range 2000 {
				for _, m := range r.Members(scope).List {
					m.Stats()
				}
				r.Replicas("t", "m")
			}
		})
	}
	work.Wait()
	wantMembers(t, r)
}

func TestOnlyNarrowsTheMembers(t *testing.T) {
	r := New(Config{})
	for _, h := range []index.Holder{{Replica: "a"}, {Replica: "b"}, {Replica: "b", Rank: 1}, {Replica: "c"}} {
		if err := r.Report(scope, h, 16, t0); err != nil {
			t.Fatal(err)
		}
	}
	all := r.Members(scope)
	only := all.Only([]string{"x", "b", "a", "b"})
	want := []index.Holder{{Replica: "a"}, {Replica: "b"}, {Replica: "b", Rank: 1}}
	if len(only.List) != len(want) || len(all.List) != 4 || len(only.BlockSizes) != 1 {
		t.Fatalf("only %v of %v", only.List, all.List)
	}
	for i, m := range only.List {
		if m.Holder != want[i] {
			t.Errorf("member %d is %v, want %v", i, m.Holder, want[i])
		}
	}
	if _, found := only.Find(index.Holder{Replica: "c"}); found {
		t.Error("c is found")
	}
}

func TestTTLOfNowDecides(t *testing.T) {
	current := ttl
	r := New(Config{TTL: func(string) time.Duration { return current }})
	mustReport(t, r, scope, holder("a"), 0, t0)
	current = 2 * ttl
	r.Expire(t0.Add(ttl + time.Minute))
	wantMembers(t, r, "a/0")
	current = time.Minute
	r.Expire(t0.Add(ttl + time.Minute))
	wantMembers(t, r)
}

func TestEventOfThePastExtendsFromThen(t *testing.T) {
	r := New(Config{})
	if err := r.SetStats("t", "m", holder("a"), Stats{Reported: t0}, t0); err != nil {
		t.Fatal(err)
	}
	mustReport(t, r, scope, holder("a"), 0, t0)
	r.Seen("t", "m", "a", t0.Add(10*time.Minute), t0.Add(20*time.Minute))
	r.Seen("t", "m", "a", t0.Add(5*time.Minute), t0.Add(20*time.Minute)) // older: changes nothing
	if got := r.Replicas("t", "m"); len(got) != 1 || !got[0].Seen.Equal(t0.Add(10*time.Minute)) || !got[0].Reported.Equal(t0) {
		t.Errorf("replicas %+v", got)
	}
	r.Expire(t0.Add(10*time.Minute + ttl - time.Second))
	wantMembers(t, r, "a/0")
	r.Expire(t0.Add(10*time.Minute + ttl))
	wantMembers(t, r)
}

func TestViewsSayWhoVouchesForThemAndHowFar(t *testing.T) {
	r := New(Config{})
	sglang := scope
	sglang.Scheme = "sglang"
	mustJoin(t, r, scope, holder("b"), "x")
	mustJoin(t, r, sglang, holder("b"), "y")
	mustReport(t, r, scope, holder("a"), 0, t0)
	r.SetCertainty(scope, holder("b"), "x", pb.ViewCertainty_VIEW_CERTAINTY_UNCERTAIN)
	r.SetCertainty(sglang, holder("b"), "x", pb.ViewCertainty_VIEW_CERTAINTY_PARTIAL) // not x's
	r.SetCertainty(sglang, holder("b"), "y", pb.ViewCertainty_VIEW_CERTAINTY_EXACT)
	r.SetLive(scope, holder("b"), "x", false, t0)
	want := []View{
		{Holder: holder("a"), Scheme: "vllm", Live: true},
		{Holder: holder("b"), Scheme: "sglang", Agent: "y", Certainty: pb.ViewCertainty_VIEW_CERTAINTY_EXACT, Live: true},
		{Holder: holder("b"), Scheme: "vllm", Agent: "x", Certainty: pb.ViewCertainty_VIEW_CERTAINTY_UNCERTAIN},
	}
	if diff := cmp.Diff(want, r.Views("t", "m", t0)); diff != "" {
		t.Error(diff)
	}
	mustJoin(t, r, scope, holder("b"), "z") // who declares it anew has not said anything yet
	if got := r.Views("t", "m", t0)[2]; got.Certainty != 0 || got.Agent != "z" {
		t.Errorf("view %+v", got)
	}
}

func TestKnownCachesHaveTheNewestEvidence(t *testing.T) {
	r := New(Config{})
	mustReport(t, r, scope, holder("a"), 0, t0)
	r.Heard("t", "m", holder("a"), 20)
	r.Heard("t", "m", holder("a"), 10)
	r.Heard("t", "m", holder("nobody"), 30)
	want := []Known{{Tenant: "t", Model: "m", Holder: holder("a"), Event: 20}}
	if diff := cmp.Diff(want, r.Known()); diff != "" {
		t.Error(diff)
	}
}

// The membership is what a plain reading of every call says, whenever it is asked.
func TestMembersAgreeWithAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type plain struct {
			agent    string
			live     bool
			reported time.Time
		}
		r, now, model := New(Config{}), t0, map[index.Holder]*plain{}
		at := func(h index.Holder) *plain {
			if model[h] == nil {
				model[h] = &plain{}
			}
			return model[h]
		}
		holders := rapid.Custom(func(t *rapid.T) index.Holder {
			return index.Holder{Replica: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "replica"), Rank: rapid.Int32Range(0, 1).Draw(t, "rank")}
		})
		agents := rapid.SampledFrom([]string{"x", "y"})
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				h, agent := holders.Draw(t, "holder"), agents.Draw(t, "agent")
				if err := r.Join(scope, h, agent, now); err != nil {
					t.Fatal(err)
				}
				at(h).agent, at(h).live = agent, true
			},
			"leave": func(t *rapid.T) {
				h, agent := holders.Draw(t, "holder"), agents.Draw(t, "agent")
				r.Leave(scope, h, agent, now)
				if p := at(h); p.agent == agent {
					p.agent, p.live = "", false
				}
			},
			"lease": func(t *rapid.T) {
				h, agent, live := holders.Draw(t, "holder"), agents.Draw(t, "agent"), rapid.Bool().Draw(t, "live")
				r.SetLive(scope, h, agent, live, now)
				if p := at(h); p.agent == agent {
					p.live = live
				}
			},
			"report": func(t *rapid.T) {
				h := holders.Draw(t, "holder")
				if err := r.Report(scope, h, 0, now); err != nil {
					t.Fatal(err)
				}
				at(h).reported = now
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(ttl)).Draw(t, "pause")))
				r.Expire(now)
			},
			"": func(t *rapid.T) {
				want := []string{}
				for h, p := range model {
					if p.agent != "" && p.live || !p.reported.IsZero() && now.Sub(p.reported) < ttl {
						want = append(want, fmt.Sprintf("%s/%d", h.Replica, h.Rank))
					}
				}
				slices.Sort(want)
				if got := names(r.Members(scope)); !slices.Equal(got, want) {
					t.Fatalf("members %v, want %v", got, want)
				}
			},
		})
	})
}

// What n members cost that one agent declares, and one lookup after.
func BenchmarkJoin(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			holders := make([]index.Holder, n)
			for i := range holders {
				holders[i] = holder(fmt.Sprint("pod-", i))
			}
			b.ReportAllocs()
			for b.Loop() {
				r := New(Config{})
				for _, h := range holders {
					if err := r.Join(scope, h, "x", t0); err != nil {
						b.Fatal(err)
					}
				}
				if len(r.Members(scope).List) != n {
					b.Fatal("members are missing")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/member")
		})
	}
}
