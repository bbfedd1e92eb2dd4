package fakeengine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// ErrStopped is returned for requests that the engine stopped under, or that came after.
var ErrStopped = errors.New("engine is stopped")

// errQueueFull is returned for a request when a rank has Config.MaxWaiting requests waiting.
var errQueueFull = errors.New("engine is overloaded: the waiting queue is full; try again later")

// task is one request inside a rank.
type task struct {
	gone    <-chan struct{} // closed when the caller no longer waits
	seq     *sequence
	prompt  int // tokens of the prompt
	max     int // tokens to generate
	model   *rand.Rand
	arrival time.Duration // modelled time
	blocked bool          // found no room once, so its wait is not the prefill queue's alone
	cached  int           // prompt tokens found in the cache when first admitted; -1 before
	ttft    time.Duration
	done    chan<- outcome // takes one value without blocking
}

// outcome ends a task.
type outcome struct {
	task *task
	err  error
}

func (t *task) cancelled() bool {
	select {
	case <-t.gone:
		return true
	default:
		return false
	}
}

// generated is the number of tokens generated so far.
func (t *task) generated() int { return len(t.seq.tokens) - t.prompt }

// rank is one engine core: it runs requests step by step over a pool. A step gives every running request
// the slot for its next token, admits at most one waiting request, lets the modelled prefill time pass,
// and then gives every running request a token.
type rank struct {
	index         int
	prefillMicros float64
	timeScale     float64
	maxWaiting    int
	started       time.Time
	publish       func(batch)
	wake          chan struct{} // holds a value when there may be work

	mu      sync.Mutex
	pool    *pool
	waiting []*task
	running []*task // oldest first
	stopped bool
	// clock is the modelled time at which the prefill unit is free, counted from started.
	clock time.Duration
	stats stats
}

// stats are counters since the start.
type stats struct {
	queries, hits uint64 // prompt tokens looked up and found in the cache
	prompt        uint64 // prompt tokens of admitted requests
	generation    uint64 // tokens generated
	preemptions   uint64
}

func newRank(cfg *Config, index int, root blockHash, publish func(batch)) *rank {
	return &rank{
		index:         index,
		prefillMicros: cfg.PrefillMicros,
		timeScale:     cfg.TimeScale,
		maxWaiting:    cfg.MaxWaiting,
		started:       time.Now(),
		publish:       publish,
		wake:          make(chan struct{}, 1),
		pool:          newPool(cfg.Blocks, cfg.BlockSize, root),
	}
}

// submit queues a task. Its outcome arrives on its done channel unless submit returns an error.
func (r *rank) submit(t *task) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return ErrStopped
	}
	if len(r.waiting) >= r.maxWaiting {
		return errQueueFull
	}
	t.arrival = r.nowLocked()
	r.waiting = append(r.waiting, t)
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return nil
}

// load is the number of requests the rank has.
func (r *rank) load() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting) + len(r.running)
}

// nowLocked is the modelled time.
func (r *rank) nowLocked() time.Duration {
	if r.timeScale == 0 {
		return r.clock
	}
	return time.Duration(float64(time.Since(r.started)) * r.timeScale)
}

// run serves requests until ctx ends; those it still has then fail with ErrStopped.
func (r *rank) run(ctx context.Context) error {
	defer r.stop()
	for ctx.Err() == nil {
		if r.load() > 0 {
			r.step(ctx)
			continue
		}
		select {
		case <-ctx.Done():
		case <-r.wake:
		}
	}
	return nil
}

func (r *rank) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	for _, t := range slices.Concat(r.running, r.waiting) {
		t.done <- outcome{t, ErrStopped}
	}
	r.running, r.waiting = nil, nil
}

// step runs one scheduling step. Its events are published before its results are delivered, so whoever has
// an answer can rely on the events being on their way.
func (r *rank) step(ctx context.Context) {
	r.mu.Lock()
	r.dropCancelledLocked()
	admitted := r.decodeLocked() && r.admitLocked()
	until := r.clock
	r.mu.Unlock()

	if admitted && !r.sleep(ctx, until) {
		return
	}

	r.mu.Lock()
	finished := r.sampleLocked()
	r.publishLocked()
	r.mu.Unlock()
	for _, t := range finished {
		t.done <- outcome{task: t}
	}
}

// sleep waits until a modelled time is reached. It returns false if ctx ended before.
func (r *rank) sleep(ctx context.Context, until time.Duration) bool {
	if r.timeScale == 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(time.Until(r.started.Add(time.Duration(float64(until) / r.timeScale))))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// dropCancelledLocked forgets requests whose caller has gone.
func (r *rank) dropCancelledLocked() {
	r.waiting = slices.DeleteFunc(r.waiting, (*task).cancelled)
	r.running = slices.DeleteFunc(r.running, func(t *task) bool {
		if t.cancelled() {
			r.pool.release(t.seq)
			return true
		}
		return false
	})
}

// decodeLocked gives each running request, the oldest first, the slot for its next token. Where no block is
// left it preempts the newest request. It returns false if it preempted one: then nothing is admitted in
// this step.
func (r *rank) decodeLocked() (undisturbed bool) {
	undisturbed = true
	for i := 0; i < len(r.running); i++ {
		for i < len(r.running) && !r.pool.grow(r.running[i].seq) {
			r.preemptLocked()
			undisturbed = false
		}
	}
	return undisturbed
}

// preemptLocked takes the blocks of the newest running request and puts it first in the queue. It will be
// computed again, but for what it then finds in the cache.
func (r *rank) preemptLocked() {
	last := len(r.running) - 1
	t := r.running[last]
	r.running = r.running[:last]
	r.pool.release(t.seq)
	r.waiting = slices.Insert(r.waiting, 0, t)
	r.stats.preemptions++
}

// admitLocked starts the first waiting request if there is room for it, and books its prefill time.
func (r *rank) admitLocked() bool {
	if len(r.waiting) == 0 {
		return false
	}
	t := r.waiting[0]
	cached, ok := r.pool.admit(t.seq)
	if !ok {
		t.blocked = true
		return false
	}
	r.waiting = slices.Delete(r.waiting, 0, 1)
	r.running = append(r.running, t)

	start := max(r.clock, t.arrival)
	if t.blocked {
		start = max(start, r.nowLocked())
	}
	uncached := len(t.seq.tokens) - cached
	r.clock = start + time.Duration(float64(uncached)*r.prefillMicros*float64(time.Microsecond))
	if t.cached < 0 {
		t.cached, t.ttft = cached, r.clock-t.arrival
		r.stats.queries += uint64(t.prompt)
		r.stats.prompt += uint64(t.prompt)
		r.stats.hits += uint64(cached)
	}
	return true
}

// sampleLocked generates a token for every running request and returns those that are complete. The last
// token of a request is never computed as an input, so it is in no block.
func (r *rank) sampleLocked() (finished []*task) {
	r.stats.generation += uint64(len(r.running))
	r.running = slices.DeleteFunc(r.running, func(t *task) bool {
		t.seq.tokens = append(t.seq.tokens, nextToken(t.model))
		if t.generated() < t.max {
			return false
		}
		r.pool.release(t.seq)
		finished = append(finished, t)
		return true
	})
	return finished
}

// publishLocked hands the events on, in a batch of their own, if there are any.
func (r *rank) publishLocked() {
	if events := r.pool.takeEvents(); len(events) > 0 {
		r.publish(batch{time.Now(), events})
	}
}

// reset empties the prefix cache. It returns false while a block is in use.
func (r *rank) reset(eager bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.pool.reset() {
		return false
	}
	if eager {
		r.publishLocked()
	}
	return true
}
