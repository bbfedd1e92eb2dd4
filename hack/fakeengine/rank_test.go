package fakeengine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// ranked is a rank without sockets, and what it published.
type ranked struct {
	*rank
	batches []batch
}

func newRanked(change func(*Config)) *ranked {
	cfg := LoopbackConfig()
	cfg.BlockSize = testBlock
	cfg.PrefillMicros = 1000
	if change != nil {
		change(&cfg)
	}
	r := &ranked{}
	r.rank = newRank(&cfg, 0, blockHash{1}, func(b batch) { r.batches = append(r.batches, b) })
	return r
}

func newTestTask(ctx context.Context, prompt []uint32, n int) (*task, chan outcome) {
	done := make(chan outcome, 1)
	return &task{
		gone: ctx.Done(), seq: seqOf(prompt), prompt: len(prompt), max: n,
		model: newModel(prompt, ""), cached: -1, done: done,
	}, done
}

// submitted queues a request that must be accepted.
func (r *ranked) submitted(t *testing.T, prompt []uint32, n int) (*task, chan outcome) {
	t.Helper()
	task, done := newTestTask(t.Context(), prompt, n)
	if err := r.submit(task); err != nil {
		t.Fatal(err)
	}
	return task, done
}

// stepUntilIdle steps until the rank has no request, at most limit times.
func (r *ranked) stepUntilIdle(t *testing.T, limit int) {
	t.Helper()
	for range limit {
		if r.load() > 0 {
			r.step(t.Context())
		}
	}
	if n := r.load(); n > 0 {
		t.Fatalf("%d requests are left after %d steps", n, limit)
	}
}

func TestRankPrefillsOneRequestAtATime(t *testing.T) {
	r := newRanked(nil)
	first, _ := r.submitted(t, numbers(0, 10), 1)
	second, _ := r.submitted(t, numbers(0, 13), 1) // finds two blocks, computes 5 tokens
	third, _ := r.submitted(t, numbers(100, 4), 1)
	r.stepUntilIdle(t, 3)
	for i, c := range []struct {
		task   *task
		cached int
		ttft   time.Duration
	}{
		{first, 0, 10 * time.Millisecond},
		{second, 8, 15 * time.Millisecond},
		{third, 0, 19 * time.Millisecond},
	} {
		if c.task.cached != c.cached || c.task.ttft != c.ttft {
			t.Errorf("request %d: %d cached, TTFT %v; want %d, %v", i, c.task.cached, c.task.ttft, c.cached, c.ttft)
		}
	}
	later, _ := r.submitted(t, numbers(200, 4), 1)
	r.stepUntilIdle(t, 1)
	if later.ttft != 4*time.Millisecond {
		t.Errorf("TTFT on an idle rank: %v, want 4ms", later.ttft)
	}
}

func TestRankPreemptsTheNewestRequestWhenBlocksRunOut(t *testing.T) {
	r := newRanked(func(c *Config) { c.Blocks = 5 }) // 4 usable; each request needs 3
	_, first := r.submitted(t, numbers(0, 4), 9)
	task, second := r.submitted(t, numbers(100, 4), 9)
	r.stepUntilIdle(t, 100)
	<-first
	<-second
	if r.stats.preemptions == 0 {
		t.Error("no request was preempted")
	}
	want := newModel(numbers(100, 4), "")
	for i, got := range task.seq.tokens[4:] {
		if w := nextToken(want); got != w {
			t.Errorf("token %d after preemption: %d, want %d", i, got, w)
		}
	}
	if r.pool.used() != 0 {
		t.Errorf("%d blocks are still in use", r.pool.used())
	}
}

func TestRankAdmitsAWaitingRequestOnceBlocksAreFree(t *testing.T) {
	r := newRanked(func(c *Config) { c.Blocks = 4 })
	r.submitted(t, numbers(0, 8), 3)
	waiting, _ := r.submitted(t, numbers(100, 8), 1)
	r.step(t.Context())
	r.step(t.Context())
	if !waiting.blocked || len(r.waiting) != 1 {
		t.Error("the second request found room that is not there")
	}
	r.stepUntilIdle(t, 10)
}

func TestRankBoundsItsQueue(t *testing.T) {
	r := newRanked(func(c *Config) { c.MaxWaiting = 1 })
	r.submitted(t, numbers(0, 4), 1)
	extra, _ := newTestTask(t.Context(), numbers(0, 4), 1)
	if err := r.submit(extra); !errors.Is(err, errQueueFull) {
		t.Errorf("got %v, want %v", err, errQueueFull)
	}
}

func TestRankForgetsRequestsWhoseCallerHasGone(t *testing.T) {
	r := newRanked(nil)
	ctx, cancel := context.WithCancel(t.Context())
	running, _ := newTestTask(ctx, numbers(0, 8), 100)
	waiting, _ := newTestTask(ctx, numbers(100, 8), 100)
	for _, task := range []*task{running, waiting} {
		if err := r.submit(task); err != nil {
			t.Fatal(err)
		}
	}
	r.step(t.Context())
	cancel()
	r.stepUntilIdle(t, 1)
	if r.pool.used() != 0 {
		t.Errorf("%d blocks are still in use", r.pool.used())
	}
}

func TestRankCachesGeneratedTokensButTheLast(t *testing.T) {
	for _, c := range []struct {
		name           string
		prompt, tokens int
		blocks         int
	}{
		{"one token adds nothing to the prompt's blocks", 7, 1, 1},
		{"the last token is never an input", 7, 2, 2},
		{"its block stays unfinished", 7, 1 + 4, 2},
		{"until one more is generated", 7, 1 + 5, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRanked(nil)
			r.submitted(t, numbers(0, c.prompt), c.tokens)
			r.stepUntilIdle(t, 20)
			if got := len(r.pool.cached); got != c.blocks {
				t.Errorf("%d cached blocks, want %d", got, c.blocks)
			}
		})
	}
}

func TestRankPublishesOnlyBatchesWithEvents(t *testing.T) {
	r := newRanked(nil)
	r.submitted(t, numbers(0, 4), 9) // 12 tokens are computed: a block each time another 4 are
	r.stepUntilIdle(t, 20)
	if len(r.batches) != 3 {
		t.Errorf("%d batches, want 3", len(r.batches))
	}
}

func TestRankKeepsAResetForTheNextBatchUnlessEager(t *testing.T) {
	kinds := func(b batch) (ks []eventKind) {
		for _, ev := range b.events {
			ks = append(ks, ev.kind)
		}
		return ks
	}
	for _, eager := range []bool{false, true} {
		r := newRanked(nil)
		r.submitted(t, numbers(0, 4), 1)
		r.stepUntilIdle(t, 1)
		if !r.reset(eager) {
			t.Fatal("no reset")
		}
		r.submitted(t, numbers(0, 4), 1)
		r.stepUntilIdle(t, 1)
		got := [][]eventKind{}
		for _, b := range r.batches[1:] {
			got = append(got, kinds(b))
		}
		want := [][]eventKind{{allCleared, blockStored}}
		if eager {
			want = [][]eventKind{{allCleared}, {blockStored}}
		}
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("eager %v: batches %v, want %v", eager, got, want)
		}
	}
}
