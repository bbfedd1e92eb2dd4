package runs_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/inferencecache/inferencecache/fingerprint" //nolint:depguard // hashing and matching are measured together
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/indextest"
	"github.com/inferencecache/inferencecache/index/runs"
)

const (
	replicas  = 64
	batch     = 32
	headLen   = 64 // blocks that a group of chains shares in the shape "shared"
	groupSize = 16
	samples   = 20_000 // least number of timed lookups behind a percentile
)

// benchPairs is the size of the index: BENCH_PAIRS or 1 M.
func benchPairs(tb testing.TB) int {
	s := os.Getenv("BENCH_PAIRS")
	if s == "" {
		return 1_000_000
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		tb.Fatalf("BENCH_PAIRS=%q: want a number of pairs, 1 or more", s)
	}
	return n
}

// load is what a benchmark index holds: chains of some length, each block in some of the replicas.
type load struct {
	shape   string
	blocks  int // of a chain
	holders int // of a block
	pairs   int
}

func (l load) chains() int { return max(1, l.pairs/l.perChain()) }

// perChain is how many pairs a chain adds. In the shape "shared" caches have 9/16 of a chain behind its
// head on average, and each cache of a group has the head once.
func (l load) perChain() int {
	if l.shape != "shared" {
		return l.blocks * l.holders
	}
	return (l.blocks-headLen)*9/16*l.holders + headLen*min(groupSize*l.holders, replicas)/groupSize
}

// key is a number that looks like a hash (the finisher of splitmix64).
func (l load) key(chain, block int) uint64 {
	if l.shape == "shared" && block < headLen {
		chain = chain/groupSize | 1<<30
	}
	z := uint64(chain)<<32 | uint64(block)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// keys fills dst with blocks [from, to) of a chain.
func (l load) keys(dst []uint64, chain, from, to int) []uint64 {
	dst = dst[:0]
	for i := from; i < to; i++ {
		dst = append(dst, l.key(chain, i))
	}
	return dst
}

var pods = func() (all [replicas]index.Holder) {
	for i := range all {
		all[i] = indextest.Pod(fmt.Sprintf("engine-%02d", i))
	}
	return all
}()

// held returns how many blocks of a chain its j-th holder has.
func (l load) held(chain, j int) int {
	if l.shape != "shared" {
		return l.blocks
	}
	return headLen + (l.blocks-headLen)*(1+(chain*7+j*5)%8)/8
}

// run returns blocks of a chain as a report.
func (l load) run(dst []uint64, chain, from, to int, now index.Instant) index.Run {
	r := indextest.T1(index.Keys{Words: l.keys(dst, chain, from, to)}, now)
	r.StartTokens = int32(from) * 16
	if from > 0 {
		r.Parent, r.HasParent = l.key(chain, from-1), true
	}
	return r
}

// pod returns the j-th holder of a block. In the shape "fragmented" neighbours have different holders.
func (l load) pod(chain, block, j int) index.Holder {
	if l.shape == "fragmented" {
		return pods[(chain+block*l.holders+j)%replicas]
	}
	return pods[(chain*l.holders+j)%replicas]
}

// store puts a chain into the index, a batch at a time.
func (l load) store(x index.Index, buf []uint64, chain int, now index.Instant) {
	step := batch
	if l.shape == "fragmented" {
		step = 1
	}
	for j := range l.holders {
		n := l.held(chain, j)
		for from := 0; from < n; from += step {
			to := min(from+step, n)
			x.Store(indextest.Base, l.pod(chain, from, j), l.run(buf, chain, from, to, now), now)
		}
	}
}

func (l load) fill(x index.Index) {
	buf := make([]uint64, 0, l.blocks)
	for c := range l.chains() {
		l.store(x, buf, c, indextest.Start)
	}
}

var built struct {
	load load
	x    index.Index
}

// filled returns an index of the load, which benchmarks that leave it as it was share.
func filled(b *testing.B, l load) index.Index {
	b.Helper()
	if built.load != l {
		built.x = nil
		x := runs.New(index.Config{MaxPairs: 1 << 40})
		l.fill(x)
		built.load, built.x = l, x
		runtime.GC()
	}
	b.ReportAllocs()
	b.ResetTimer()
	return built.x
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkIndexMemory(b *testing.B) {
	for _, shape := range []string{"uniform", "shared", "fragmented"} {
		for _, holders := range []int{1, 8} {
			l := load{shape, 512, holders, benchPairs(b)}
			b.Run(fmt.Sprintf("shape=%s/holders=%d/pairs=%d", shape, holders, l.pairs), func(b *testing.B) {
				built.x, built.load = nil, load{}
				for b.Loop() {
					before := heap()
					x := runs.New(index.Config{MaxPairs: 1 << 40})
					l.fill(x)
					after := heap()
					b.ReportMetric(float64(after-before)/float64(x.Counts().Pairs), "B/pair")
					b.ReportMetric(float64(after-before)/(1<<20), "MiB-heap")
					b.ReportMetric(peakRSS(), "MiB-peak-rss")
					runtime.KeepAlive(x)
				}
			})
		}
	}
}

// peakRSS is the most memory, in MiB, that the process has had resident so far.
func peakRSS() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.ParseFloat(strings.Fields(kib)[0], 64)
			return n / 1024
		}
	}
	return 0
}

// latencies are timed calls in nanoseconds.
type latencies []int64

func (l *latencies) time(f func()) {
	start := time.Now()
	f()
	*l = append(*l, max(0, int64(time.Since(start))-clockCost))
}

// clockCost is what timing nothing shows: some 20 to 60 ns, as much as a miss takes.
var clockCost = func() int64 {
	var l latencies
	for range 10_001 {
		start := time.Now()
		l = append(l, int64(time.Since(start)))
	}
	return int64(l.at(0.5))
}()

// at returns the q-quantile.
func (l latencies) at(q float64) float64 {
	if len(l) == 0 {
		return 0
	}
	slices.Sort(l)
	return float64(l[min(len(l)-1, int(q*float64(len(l))))])
}

// sampler looks up random chains, whose keys it makes just before, as a gateway does.
type sampler struct {
	load load
	x    index.Index
	n    uint64
	buf  []uint64
	dst  []index.Match
	took latencies
}

func (s *sampler) next() int {
	s.n = s.n*6364136223846793005 + 1442695040888963407
	return int(s.n >> 33 % uint64(s.load.chains()))
}

func (s *sampler) lookup(b *testing.B, blocks, want int) {
	s.buf = s.load.keys(s.buf, s.next(), 0, blocks)
	q := index.Query{Partition: indextest.Base, Keys: index.Keys{Words: s.buf}, NotBefore: 1}
	s.took.time(func() { s.dst = s.x.Match(q, s.dst[:0]) })
	if want >= 0 && len(s.dst) != want {
		b.Fatalf("%d caches match, want %d", len(s.dst), want)
	}
}

// run times at least enough lookups for a percentile.
func (s *sampler) run(b *testing.B, one func()) {
	for b.Loop() {
		one()
	}
	b.StopTimer()
	for len(s.took) < samples {
		one()
	}
	b.ReportMetric(s.took.at(0.50), "p50-ns")
	b.ReportMetric(s.took.at(0.99), "p99-ns")
}

func BenchmarkIndexLookup(b *testing.B) {
	n := benchPairs(b)
	for _, l := range []load{
		{"uniform", 512, 8, n},
		{"uniform", 512, 1, n},
		{"uniform", 2048, 64, n},
		{"shared", 512, 8, n},
		{"fragmented", 512, 8, n},
	} {
		b.Run(fmt.Sprintf("shape=%s/blocks=%d/holders=%d/pairs=%d", l.shape, l.blocks, l.holders, n), func(b *testing.B) {
			s := sampler{load: l, x: filled(b, l)}
			want := l.holders
			if l.shape == "shared" {
				want = -1 // the head has more
			}
			s.run(b, func() { s.lookup(b, l.blocks, want) })
		})
	}
}

func BenchmarkIndexMiss(b *testing.B) {
	l := load{"uniform", 512, 8, benchPairs(b)}
	b.Run(fmt.Sprintf("pairs=%d", l.pairs), func(b *testing.B) {
		s := sampler{load: l, x: filled(b, l)}
		buf := make([]uint64, 0, 512)
		s.run(b, func() {
			buf = l.keys(buf, s.next()|1<<30, 0, 512)
			q := index.Query{Partition: indextest.Base, Keys: index.Keys{Words: buf}}
			s.took.time(func() { s.dst = s.x.Match(q, s.dst[:0]) })
			if len(s.dst) > 0 {
				b.Fatalf("%d caches match a chain that nobody holds", len(s.dst))
			}
		})
	})
}

// BenchmarkIndexLookupTokens hashes a prompt only as far as it matches.
func BenchmarkIndexLookupTokens(b *testing.B) {
	l := load{"uniform", 512, 8, benchPairs(b)}
	const distinct = 64
	var prompts [distinct][]uint32
	x := runs.New(index.Config{MaxPairs: 1 << 40})
	l.fill(x)
	for i := range prompts {
		prompts[i] = make([]uint32, 8192)
		for j := range prompts[i] {
			prompts[i][j] = uint32(l.key(i, j)) % 128_000
		}
		for j := range 8 {
			r := indextest.T1(index.Keys{Words: fingerprint.Chain(prompts[i], 16)}, indextest.Start)
			x.Store(indextest.Base, pods[(i+j)%replicas], r, indextest.Start)
		}
	}
	for _, hit := range []bool{true, false} {
		name := fmt.Sprintf("tokens=8192/pairs=%d", l.pairs)
		if !hit {
			name = fmt.Sprintf("tokens=8192/miss/pairs=%d", l.pairs)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			s := sampler{load: l, x: x}
			keys := make([]uint64, 0, 512)
			prompt := make([]uint32, 8192)
			s.run(b, func() {
				copy(prompt, prompts[s.next()%distinct])
				if !hit {
					prompt[0] ^= 1 << 20
				}
				s.took.time(func() {
					keys = keys[:0]
					q := index.Query{Partition: indextest.Base}
					s.dst = index.MatchGrowing(x, q, 512, func(n int) index.Keys {
						keys = growChain(keys, prompt, n)
						return index.Keys{Words: keys}
					}, s.dst[:0])
				})
				if (len(s.dst) > 0) != hit {
					b.Fatalf("%d caches match", len(s.dst))
				}
			})
		})
	}
}

// growChain lengthens the chain of a prompt to n blocks of 16 tokens.
func growChain(keys []uint64, prompt []uint32, n int) []uint64 {
	for i := len(keys); i < n; i++ {
		k := fingerprint.Content(prompt[16*i : 16*i+16])
		if i > 0 {
			k = fingerprint.Child(keys[i-1], k)
		}
		keys = append(keys, k)
	}
	return keys
}

// applied measures changes: each call of change returns the pairs it changed and is undone untimed.
func applied(b *testing.B, change func() int, undo func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pairs, took, cpu := 0, time.Duration(0), time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		start, startCPU := time.Now(), threadTime()
		pairs += change()
		took += time.Since(start)
		cpu += threadTime() - startCPU
		b.StopTimer()
		undo()
		b.StartTimer()
	}
	b.ReportMetric(float64(pairs)/took.Seconds(), "pairs/s")
	b.ReportMetric(float64(pairs)/cpu.Seconds(), "pairs/cpu-s")
}

// threadTime is the CPU time of the thread: on a machine that others use too, it says what one core
// could do.
func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

func BenchmarkIndexApply(b *testing.B) {
	n := benchPairs(b)
	const perRound = 256 // chains, or 512 single blocks each
	for _, holders := range []int{1, 8} {
		l := load{"uniform", 512, holders, n}
		bench := func(op string, f func(*testing.B, index.Index)) {
			b.Run(fmt.Sprintf("op=%s/holders=%d/pairs=%d", op, holders, n), func(b *testing.B) { f(b, filled(b, l)) })
		}
		bench("store32", func(b *testing.B, x index.Index) {
			p := prepare(l, func(i int) int { return l.chains() + i }, perRound)
			applied(b, func() int { return p.store(x) }, func() { p.removeTail(x) })
		})
		bench("removetail32", func(b *testing.B, x index.Index) {
			p := prepare(l, func(i int) int { return (i * 7919) % l.chains() }, min(perRound, l.chains()))
			applied(b, func() int { return p.removeTail(x) }, func() { p.store(x) })
		})
		for _, perCall := range []int{1, batch} {
			op := "removerandom"
			if perCall > 1 {
				op += strconv.Itoa(perCall)
			}
			bench(op, func(b *testing.B, x index.Index) {
				r := scattered{load: l, x: x, s: sampler{load: l}, perCall: perCall}
				r.choose()
				applied(b, r.remove, r.restore)
			})
		}
	}
}

// scattered is single blocks here and there, in calls of some each.
type scattered struct {
	load    load
	x       index.Index
	s       sampler
	perCall int
	chain   []int
	block   []int
	words   []uint64
}

// choose picks blocks. Those of a call have one cache in common.
func (r *scattered) choose() {
	r.chain, r.block, r.words = r.chain[:0], r.block[:0], r.words[:0]
	stride := max(1, replicas/r.load.holders)
	for len(r.chain) < 20_000 {
		first := r.s.next()
		for i := range r.perCall {
			c := first
			if i > 0 { // a chain of the same caches
				c = (r.s.next()/stride*stride + first%stride) % r.load.chains()
			}
			r.chain, r.block = append(r.chain, c), append(r.block, r.s.next()*31%r.load.blocks)
			r.words = append(r.words, r.load.key(c, r.block[len(r.block)-1]))
		}
	}
}

func (r *scattered) pod(i int) index.Holder {
	return r.load.pod(r.chain[i], 0, i/r.perCall%r.load.holders)
}

func (r *scattered) remove() (removed int) {
	for i := 0; i < len(r.words); i += r.perCall {
		removed += r.x.Remove(indextest.Base, r.pod(i), index.Keys{Words: r.words[i : i+r.perCall]})
	}
	return removed
}

func (r *scattered) restore() {
	for i, c := range r.chain {
		run := r.load.run(nil, c, r.block[i], r.block[i]+1, indextest.Start)
		r.x.Store(indextest.Base, r.pod(i), run, indextest.Start)
	}
	r.choose()
}

// prepared is reports made in advance, so that only the index is timed.
type prepared struct {
	holders []index.Holder
	runs    []index.Run
}

func prepare(l load, chain func(i int) int, n int) *prepared {
	p := &prepared{}
	for i := range n {
		for j := range l.holders {
			for from := 0; from < l.blocks; from += batch {
				p.holders = append(p.holders, l.pod(chain(i), 0, j))
				p.runs = append(p.runs, l.run(nil, chain(i), from, from+batch, indextest.Start))
			}
		}
	}
	return p
}

func (p *prepared) store(x index.Index) (pairs int) {
	for i := range p.runs {
		x.Store(indextest.Base, p.holders[i], p.runs[i], indextest.Start)
		pairs += p.runs[i].Keys.Len()
	}
	return pairs
}

func (p *prepared) removeTail(x index.Index) (pairs int) {
	for i := len(p.runs) - 1; i >= 0; i-- {
		pairs += x.Remove(indextest.Base, p.holders[i], p.runs[i].Keys)
	}
	return pairs
}

// BenchmarkIndexWorst shows that shapes nobody hopes for stay bounded.
func BenchmarkIndexWorst(b *testing.B) {
	fresh := func() index.Index { return runs.New(index.Config{MaxPairs: 1 << 40}) }
	lookups := func(b *testing.B, l load, x index.Index, blocks int) {
		b.ReportAllocs()
		s := sampler{load: l, x: x}
		s.run(b, func() { s.lookup(b, blocks, -1) })
	}
	b.Run("case=branches", func(b *testing.B) { // 5,000 chains part behind one block
		x := fresh()
		for c := range 5_000 {
			r := indextest.T1(index.Keys{Words: append([]uint64{1}, load{}.keys(nil, c, 1, 64)...)}, indextest.Start)
			x.Store(indextest.Base, pods[c%replicas], r, indextest.Start)
		}
		s := sampler{load: load{"uniform", 64, 1, 5_000 * 64}, x: x}
		s.run(b, func() {
			s.buf = append(append(s.buf[:0], 1), s.load.keys(nil, s.next(), 1, 64)...)
			q := index.Query{Partition: indextest.Base, Keys: index.Keys{Words: s.buf}}
			s.took.time(func() { s.dst = s.x.Match(q, s.dst[:0]) })
			if len(s.dst) != replicas {
				b.Fatalf("%d caches match, want %d", len(s.dst), replicas)
			}
		})
	})
	b.Run("case=holes", func(b *testing.B) { // every other block is gone
		l := load{"uniform", 512, 8, 1_000_000}
		before := heap()
		x := fresh()
		l.fill(x)
		for c := range l.chains() {
			for j := range l.holders {
				for i := j % 2; i < l.blocks; i += 2 {
					x.Remove(indextest.Base, l.pod(c, 0, j), index.Keys{Words: l.keys(nil, c, i, i+1)})
				}
			}
		}
		b.ReportMetric(float64(heap()-before)/float64(x.Counts().Pairs), "B/pair")
		lookups(b, l, x, 512)
	})
	b.Run("case=holders", func(b *testing.B) { // 1,000 caches share a head
		l := load{"uniform", 512, 1, 512}
		x := fresh()
		for j := range 1_000 {
			x.Store(indextest.Base, indextest.Pod(fmt.Sprint("engine-", j)), l.run(nil, 0, 0, 64+j%448, indextest.Start), indextest.Start)
		}
		lookups(b, l, x, 512)
	})
	b.Run("case=long", func(b *testing.B) { // one chain of 100,000 blocks
		l := load{"uniform", 100_000, 1, 100_000}
		x := fresh()
		l.fill(x)
		b.ReportAllocs()
		s := sampler{load: l, x: x}
		for b.Loop() {
			s.lookup(b, l.blocks, 1)
		}
		b.ReportMetric(s.took.at(0.50), "p50-ns")
	})
}

// BenchmarkMachine says what the machine is doing: loads from memory that wait for the one before, at random in 1 MiB (a
// core's own cache), 8 MiB (a cache that others share) and 128 MiB, and loads that do not wait. The other figures
// follow them: a lookup that finds nothing is one load, of a slot, and some 40 ns.
func BenchmarkMachine(b *testing.B) {
	const words = 32 << 20
	memory := make([]uint32, words)
	for i := range memory {
		memory[i] = uint32(i)
	}
	at := func(i, words uint64) uint64 { return i * 0x9e3779b97f4a7c15 >> 20 % words }
	var sum uint64
	for _, mib := range []uint64{1, 8, 128} {
		b.Run(fmt.Sprintf("load=dependent/MiB=%d", mib), func(b *testing.B) {
			for b.Loop() {
				sum += uint64(memory[at(sum, mib<<18)]) + 1
			}
		})
	}
	b.Run("load=independent/MiB=128", func(b *testing.B) {
		i := uint64(0)
		for b.Loop() {
			i++
			sum += uint64(memory[at(i, words)])
		}
	})
	runtime.KeepAlive(sum)
}

// BenchmarkIndexGC forces collections: ns/op is a whole one beside nothing else, pause-ns its longest
// stop of the world.
func BenchmarkIndexGC(b *testing.B) {
	l := load{"uniform", 512, 1, benchPairs(b)}
	b.Run(fmt.Sprintf("pairs=%d", l.pairs), func(b *testing.B) {
		x := filled(b, l)
		var m runtime.MemStats
		pause := uint64(0)
		for b.Loop() {
			runtime.GC()
			b.StopTimer()
			runtime.ReadMemStats(&m)
			pause = max(pause, m.PauseNs[(m.NumGC+255)%256])
			b.StartTimer()
		}
		b.ReportMetric(float64(pause), "pause-ns")
		runtime.KeepAlive(x)
	})
}

func BenchmarkIndexClear(b *testing.B) {
	const blocks = 100_000
	l := load{"uniform", 500, 1, benchPairs(b)}
	own := load{"uniform", 500, 1, blocks}
	b.Run(fmt.Sprintf("blocks=%d", blocks), func(b *testing.B) {
		x := filled(b, l)
		gone := indextest.Pod("gone")
		buf := make([]uint64, 0, own.blocks)
		for b.Loop() {
			b.StopTimer()
			for c := range own.chains() {
				x.Store(indextest.Base, gone, own.run(buf, c+1<<28, 0, own.blocks, indextest.Start), indextest.Start)
			}
			b.StartTimer()
			if n := x.Clear(index.Clear{Replica: gone.Replica}); n != blocks {
				b.Fatalf("cleared %d pairs, want %d", n, blocks)
			}
		}
	})
}

// BenchmarkIndexLookupDuring times lookups while something else goes on.
func BenchmarkIndexLookupDuring(b *testing.B) {
	n := benchPairs(b)
	l := load{"uniform", 512, 8, n}
	limits := index.Limits{}
	cfg := index.Config{MaxPairs: 1 << 40, Limits: func(string) index.Limits { return limits }}
	settle := func(x index.Index, now index.Instant) {
		for x.Maintain(now, nil) {
		}
	}
	for _, op := range []struct {
		name string
		busy func(x index.Index)
	}{
		{"apply", func(x index.Index) {
			p := prepare(l, func(i int) int { return l.chains() + i }, 64)
			for range 50 {
				p.store(x)
				p.removeTail(x)
			}
		}},
		{"ttl", func(x index.Index) { settle(x, indextest.Start+index.Instant(index.DefaultTTL.Seconds())) }},
		{"cap", func(x index.Index) { settle(x, indextest.Start) }},
		{"quota", func(x index.Index) {
			limits = index.Limits{Quota: true, MaxPrefixes: int64(n / l.holders * 9 / 10)}
			settle(x, indextest.Start)
			limits = index.Limits{}
		}},
		{"clear", func(x index.Index) {
			for _, p := range pods {
				x.Clear(index.Clear{Replica: p.Replica})
			}
		}},
	} {
		b.Run(fmt.Sprintf("op=%s/pairs=%d", op.name, n), func(b *testing.B) {
			built.x, built.load = nil, load{}
			s := sampler{load: l}
			for b.Loop() {
				b.StopTimer()
				c := cfg
				if op.name == "cap" {
					c.MaxPairs = int64(n * 9 / 10)
				}
				s.x = runs.New(c)
				l.fill(s.x)
				runtime.GC()
				b.StartTimer()
				during(&s, b, func() { op.busy(s.x) })
			}
			b.ReportMetric(s.took.at(0.99), "p99-ns")
			b.ReportMetric(s.took.at(1), "max-ns")
			b.ReportMetric(float64(len(s.took)), "lookups")
		})
	}
}

// during looks up until busy returns.
func during(s *sampler, b *testing.B, busy func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		busy()
	})
	for {
		select {
		case <-done:
			wg.Wait()
			return
		default:
			s.lookup(b, s.load.blocks, -1)
		}
	}
}
