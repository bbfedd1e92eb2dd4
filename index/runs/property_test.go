package runs_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/indextest"
	"github.com/inferencecache/inferencecache/index/reference"
	"github.com/inferencecache/inferencecache/index/runs"
)

// opsVariable names the environment variable that asks for a long random run of so many operations.
const opsVariable = "INDEX_TEST_OPS"

// source picks what happens next: drawn by rapid, which shrinks failures, or by a seeded generator.
type source interface{ below(n int) int }

type drawn struct{ *rapid.T }

func (d drawn) below(n int) int { return rapid.IntRange(0, n-1).Draw(d.T, "n") }

type seeded struct{ *rand.Rand }

func (s seeded) below(n int) int { return s.IntN(n) }

// world is one index under test beside the reference. Its chains form a tree: they part after 20, 30
// and 45 of 60 blocks; some blocks have keys of odd width.
type world struct {
	source
	got, want index.Index
	now       index.Instant
	hostile   bool // made-up chains and token counts too; then without eviction, whose order they upset
	ops       int
}

const (
	chains   = 12
	chainLen = 60
)

func (w *world) blockKey(chain, i int) string {
	group := 0
	switch {
	case i >= 45:
		group = chain + 100
	case i >= 30:
		group = chain/2 + 50
	case i >= 20:
		group = chain/4 + 20
	}
	if chain%4 == 3 && i%7 == 5 && i >= 45 {
		return fmt.Sprint("wide-", group, "-", i)
	}
	return indextest.Bytes(uint64(group)<<32 | uint64(i))
}

func keys(names []string) index.Keys {
	var k index.Keys
	for _, s := range names {
		if len(s) != 8 {
			return index.Keys{Wide: names}
		}
		k.Words = append(k.Words, binary.BigEndian.Uint64([]byte(s)))
	}
	return k
}

func (w *world) partition() index.Partition {
	return []index.Partition{
		indextest.Base,
		{Scope: indextest.Base.Scope, Adapter: "sql"},
		{Scope: index.Scope{Tenant: "team-b", Model: "llama", Scheme: "vllm"}},
		{Scope: index.Scope{Tenant: "probe", Model: "qwen", Scheme: "vllm"}},
	}[w.below(4)]
}

func (w *world) holder() index.Holder {
	return index.Holder{Replica: fmt.Sprint("pod-", w.below(3)), Rank: int32(w.below(2))}
}

// piece returns blocks [from, to) of a chain.
func (w *world) piece() (chain, from, to int) {
	chain = w.below(chains)
	from = w.below(chainLen)
	if w.below(3) == 0 {
		from = 0
	}
	return chain, from, from + 1 + w.below(chainLen-from)
}

func (w *world) names(chain, from, to int) []string {
	var names []string
	for i := from; i < to; i++ {
		names = append(names, w.blockKey(chain, i))
	}
	return names
}

// store stores a piece of a chain. None begins behind a key of odd width, which a report can't name as the parent: of a
// block that nobody held for a while, one index may still know what is in front of it and another not, and then they
// evict in different orders.
func (w *world) store() {
	chain, from, to := w.piece()
	for from > 0 && len(w.blockKey(chain, from-1)) != 8 {
		from--
	}
	r := index.Run{
		Keys: keys(w.names(chain, from, to)), StartTokens: int32(from) * 16, BlockTokens: 16,
		Tier: index.Tier(1 + w.below(3)), Evidence: w.now - index.Instant(w.below(20)),
	}
	if w.below(8) == 0 {
		r.Evidence = w.now + 5
	}
	if from > 0 {
		r.Parent, r.HasParent = binary.BigEndian.Uint64([]byte(w.blockKey(chain, from-1))), true
	}
	if w.hostile && w.below(4) == 0 {
		r.Keys = keys(w.scattered())
		r.StartTokens, r.BlockTokens = int32(w.below(5)-1)<<29, int32(w.below(4)-1)<<w.below(24)
		r.Parent, r.HasParent = uint64(w.below(3))<<32, w.below(2) == 0
	}
	p, h := w.partition(), w.holder()
	w.got.Store(p, h, r, w.now)
	w.want.Store(p, h, r, w.now)
}

// scattered returns keys from anywhere, some twice.
func (w *world) scattered() []string {
	var names []string
	for range 1 + w.below(6) {
		names = append(names, w.blockKey(w.below(chains), w.below(chainLen)))
	}
	return names
}

func (w *world) remove(t fataler) {
	names := w.scattered()
	if w.below(2) == 0 {
		names = w.names(w.piece())
		if w.below(2) == 0 {
			slices.Reverse(names)
		}
	}
	p, h, k := w.partition(), w.holder(), keys(names)
	w.same(t, "removed", w.got.Remove(p, h, k), w.want.Remove(p, h, k))
}

func (w *world) evict(t fataler) {
	e := index.Evict{Replica: w.holder().Replica, Tenant: "team-a", Model: "llama", Key: w.scattered()[0]}
	if w.below(2) == 0 {
		e.Adapter = "sql"
	}
	w.same(t, "evicted", w.got.Evict(e), w.want.Evict(e))
}

func (w *world) clear(t fataler) {
	h := w.holder()
	c := index.Clear{Replica: h.Replica}
	if w.below(2) == 0 {
		c.Tenant = w.partition().Tenant
	}
	if w.below(2) == 0 {
		c.Rank = &h.Rank
	}
	w.same(t, "cleared", w.got.Clear(c), w.want.Clear(c))
}

func (w *world) confirm(t fataler) {
	p, h := w.partition(), w.holder()
	var d index.Digest
	w.want.Dump(index.Filter{Tenant: p.Tenant, Replica: h.Replica}, func(e index.Entry) bool {
		if e.Partition == p && e.Holder == h && len(e.Key) == 8 {
			d.Add(e.Tier, binary.BigEndian.Uint64([]byte(e.Key)), 1)
		}
		return true
	})
	if w.below(5) == 0 {
		d.XOR[0] ^= 1
	}
	at := w.now - index.Instant(w.below(6)/5*3)
	w.same(t, "confirmed", w.got.Confirm(p, h, d, at), w.want.Confirm(p, h, d, at))
}

func (w *world) query() index.Query {
	chain, from, to := w.piece()
	q := index.Query{Partition: w.partition(), Keys: keys(w.names(chain, from, to))}
	if w.below(3) == 0 {
		q.NotBefore = w.now - index.Instant(w.below(20))
	}
	if w.hostile && w.below(3) == 0 {
		q.Keys = keys(w.scattered())
	}
	return q
}

func (w *world) match(t fataler) {
	q := w.query()
	w.same(t, "match", indextest.Sorted(w.got.Match(q, nil)), indextest.Sorted(w.want.Match(q, nil)))
}

func (w *world) credit() {
	q, h, n := w.query(), w.holder(), w.below(chainLen)
	w.got.Credit(q, h, n)
	w.want.Credit(q, h, n)
}

func (w *world) settle(t fataler) {
	w.same(t, "removed by housekeeping", indextest.Settle(w.got, w.now), indextest.Settle(w.want, w.now))
}

// compare compares all that can be asked.
func (w *world) compare(t fataler) {
	w.same(t, "entries", indextest.Dump(w.got, index.Filter{}), indextest.Dump(w.want, index.Filter{}))
	w.same(t, "counts", w.got.Counts(), w.want.Counts())
	w.same(t, "by model", w.got.PrefixesByModel(), w.want.PrefixesByModel())
	p, h := w.partition(), w.holder()
	for _, s := range []index.Scope{p.Scope, {Tenant: p.Tenant}, {Tenant: p.Tenant, Model: p.Model}} {
		w.same(t, "held", w.got.HeldBy(s, h), w.want.HeldBy(s, h))
		w.same(t, "scheme held", w.got.SchemeHeld(s), w.want.SchemeHeld(s))
		w.same(t, "prefixes", w.got.PrefixesOf(s.Tenant, s.Model), w.want.PrefixesOf(s.Tenant, s.Model))
	}
	if err := runs.Check(w.got); err != nil {
		t.Fatalf("after %d operations: %v", w.ops, err)
	}
}

type fataler interface{ Fatalf(string, ...any) }

func (w *world) same(t fataler, what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		d := gocmp.Diff(want, got, cmpopts.EquateEmpty())
		if d == "" {
			return
		}
		t.Fatalf("%s after %d operations (-want +got):\n%s", what, w.ops, d)
	}
}

func (w *world) step(t fataler) {
	w.ops++
	switch n := w.below(100); {
	case n < 40:
		w.store()
	case n < 60:
		w.remove(t)
	case n < 80:
		w.match(t)
	case n < 83:
		w.evict(t)
	case n < 84:
		w.clear(t)
	case n < 89:
		w.confirm(t)
	case n < 93:
		w.credit()
	case n < 97:
		w.now += index.Instant(w.below(12))
	default:
		w.settle(t)
	}
}

func newWorld(s source, hostile bool, lfu bool) *world {
	cfg := index.Config{Reserved: "probe", MaxPairs: 700, Limits: func(tenant string) index.Limits {
		l := index.Limits{TTL: 60e9, LFU: lfu}
		if tenant == "team-b" {
			l.Quota, l.MaxPrefixes = true, 90
		}
		return l
	}}
	if hostile {
		cfg.MaxPairs, cfg.Limits = 0, nil
	}
	return &world{source: s, got: runs.New(cfg), want: reference.New(cfg), now: indextest.Start, hostile: hostile}
}

func TestRuns_EqualTheReference(t *testing.T) {
	for name, v := range map[string]struct{ hostile, lfu bool }{
		"under a cap and a quota, by age": {false, false},
		"under a cap and a quota, by use": {false, true},
		"with made-up chains":             {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				w := newWorld(drawn{t}, v.hostile, v.lfu)
				for range rapid.IntRange(1, 80).Draw(t, "steps") {
					w.step(t)
				}
				w.compare(t)
			})
			longRun(t, v.hostile, v.lfu)
		})
	}
}

// TestRuns_KeepTheirLimits evicts among made-up chains, parents and token counts, cycles included, where
// no order of victims is right, but limits hold all the same.
func TestRuns_KeepTheirLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := index.Config{MaxPairs: 100, Limits: func(tenant string) index.Limits {
			return index.Limits{LFU: tenant == "team-a", Quota: tenant == "team-b", MaxPrefixes: 30}
		}}
		w := &world{source: drawn{t}, got: runs.New(cfg), want: reference.New(index.Config{}), now: indextest.Start, hostile: true}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w.store()
			w.credit()
			if w.below(3) > 0 {
				continue
			}
			for steps := 0; w.got.Maintain(w.now, nil); steps++ {
				if steps > 10_000 {
					t.Fatalf("housekeeping does not end")
				}
			}
			if err := runs.Check(w.got); err != nil {
				t.Fatalf("%v", err)
			}
			if c, n := w.got.Counts(), w.got.PrefixesOf("team-b", ""); c.Pairs > 100 || n > 30 {
				t.Fatalf("%+v and %d prefixes of team-b, want at most 100 pairs and 30 prefixes", c, n)
			}
		}
	})
}

// longRun compares some thousand operations, or as many as the environment asks for, beside readers.
func longRun(t *testing.T, hostile, lfu bool) {
	ops := askedOps(t, 5_000)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := newWorld(seeded{rand.New(rand.NewPCG(seed, 1))}, hostile, lfu)
	turns := make(chan struct{}, 64)
	var readers sync.WaitGroup
	for i := range uint64(2) {
		readers.Go(func() { read(turns, w.got, seed+i, hostile) })
	}
	defer readers.Wait()
	defer close(turns)
	for range ops {
		select {
		case turns <- struct{}{}:
		default:
		}
		if w.step(t); w.ops%1024 == 0 {
			w.compare(t)
		}
	}
	w.compare(t)
}

// askedOps is the number of operations that the environment asks for.
func askedOps(t *testing.T, otherwise int) int {
	s := os.Getenv(opsVariable)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", opsVariable, err)
	}
	return n
}

// read looks things up, a few for each turn, until there are no more turns.
func read(turns <-chan struct{}, x index.Index, seed uint64, hostile bool) {
	w := newWorld(seeded{rand.New(rand.NewPCG(seed, 2))}, hostile, false)
	var dst []index.Match
	n := 0
	for range turns {
		for range 4 {
			dst = x.Match(w.query(), dst[:0])
		}
		if n++; n%64 == 0 {
			x.Dump(index.Filter{Tenant: w.partition().Tenant}, func(index.Entry) bool { return w.below(50) > 0 })
			x.HeldBy(w.partition().Scope, w.holder())
			x.PrefixesByModel()
		}
	}
}
