package fakeengine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	zmq "github.com/pebbe/zmq4"
	"golang.org/x/sync/errgroup"
)

// Engine is one replica. Run it once.
type Engine struct {
	cfg        Config
	log        *slog.Logger
	events     endpoint
	replay     endpoint // meaningful if cfg.Replay is set
	ranks      []*rank
	publishers []*publisher
	metrics    *metrics
	requests   atomic.Uint64 // breaks ties between equally loaded ranks, and numbers the answers
	stopped    chan struct{} // closed when Run returns
	ready      chan struct{} // closed once addrs is set
	addrs      Addresses
}

// Addresses are the bound addresses: the configured hosts, with real ports in place of 0.
type Addresses struct {
	HTTP   string   `json:"http"`   // host:port
	Events []string `json:"events"` // tcp://host:port of each rank
	Replay []string `json:"replay"` // as Events; empty if replay is off
}

// Request is one completion to compute.
type Request struct {
	Model     string   // the base model or an adapter; empty is the base model
	Prompt    []uint32 // token ids, at least one
	MaxTokens int      // tokens to generate, at least 1
	CacheSalt string   // keeps the blocks apart from those of other salts
	Rank      *int     // data-parallel rank; nil picks the least loaded
}

// Response is a computed completion.
type Response struct {
	ID           string
	Rank         int
	TokenIDs     []uint32 // generated tokens
	CachedTokens int      // prompt tokens that were not computed
	// TTFT is the modelled time to the first token: waiting for the rank's prefill unit, and for blocks
	// where there were none, then computing the uncached prompt tokens.
	TTFT time.Duration
}

// RequestError is a request that the engine refuses.
type RequestError struct {
	Status int // HTTP status
	Reason string
}

func (e *RequestError) Error() string { return e.Reason }

// New checks the configuration and returns an engine that opens nothing until it runs.
func New(cfg Config) (*Engine, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("check configuration: %w", err)
	}
	e := &Engine{cfg: cfg, log: cfg.Logger, stopped: make(chan struct{}), ready: make(chan struct{})}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.log = e.log.With("engine", cfg.Name)
	var err error
	if e.events, err = parseEndpoint("events", cfg.Events); err != nil {
		return nil, err
	}
	if cfg.Replay != "" {
		if e.replay, err = parseEndpoint("replay", cfg.Replay); err != nil {
			return nil, err
		}
	}
	if err := e.addRanks(); err != nil {
		return nil, err
	}
	e.metrics = newMetrics(e)
	return e, nil
}

func (e *Engine) addRanks() error {
	for i := range e.cfg.Ranks {
		root, err := noneHash(e.cfg.Seed)
		if err != nil {
			return err
		}
		p := newPublisher(&e.cfg, i, e.log.With("rank", i))
		e.publishers = append(e.publishers, p)
		publish := func(b batch) { p.publish(b, e.stopped) }
		e.ranks = append(e.ranks, newRank(&e.cfg, i, root, publish))
	}
	return nil
}

// Run binds all sockets and serves until ctx ends or a part fails. It returns after all parts have ended,
// nil if ctx ended it.
func (e *Engine) Run(ctx context.Context) error {
	defer close(e.stopped)
	zctx, err := zmq.NewContext()
	if err != nil {
		return fmt.Errorf("open ZMQ context: %w", err)
	}
	defer e.terminate(zctx)
	if err := e.bindSockets(zctx); err != nil {
		return err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", e.cfg.HTTPBindAddress)
	if err != nil {
		e.closeSockets()
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	e.addrs.HTTP = listener.Addr().String()
	close(e.ready)
	e.log.Info("engine is ready", "http", e.addrs.HTTP, "events", e.addrs.Events, "replay", e.addrs.Replay)
	return e.serve(ctx, listener)
}

// serve runs all parts. Publishers outlive the ranks, so that what a rank published is sent.
func (e *Engine) serve(ctx context.Context, listener net.Listener) error {
	publishCtx, stopPublishers := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPublishers()
	var publishers errgroup.Group
	for _, p := range e.publishers {
		publishers.Go(func() error { return p.run(publishCtx) })
	}
	parts, ctx := errgroup.WithContext(ctx)
	for _, r := range e.ranks {
		parts.Go(func() error { return r.run(ctx) })
	}
	parts.Go(func() error { return serveHTTP(ctx, listener, e.handler()) })
	err := parts.Wait()
	stopPublishers()
	return errors.Join(err, publishers.Wait())
}

func (e *Engine) bindSockets(zctx *zmq.Context) error {
	pubs, bound, err := bindRanks(zctx, zmq.PUB, e.events, e.cfg.Ranks, e.cfg.HighWaterMark)
	if err != nil {
		return fmt.Errorf("open event sockets: %w", err)
	}
	for i, p := range e.publishers {
		p.pub = pubs[i]
		e.addrs.Events = append(e.addrs.Events, bound.at(i))
	}
	if e.cfg.Replay == "" {
		return nil
	}
	// A replay is at most this many messages; with a lower mark ROUTER drops the rest without a word.
	hwm := 2 * (e.cfg.BufferSteps + 1)
	routers, bound, err := bindRanks(zctx, zmq.ROUTER, e.replay, e.cfg.Ranks, hwm)
	if err != nil {
		e.closeSockets()
		return fmt.Errorf("open replay sockets: %w", err)
	}
	for i, p := range e.publishers {
		p.router = routers[i]
		e.addrs.Replay = append(e.addrs.Replay, bound.at(i))
	}
	return nil
}

func (e *Engine) closeSockets() {
	for _, p := range e.publishers {
		p.close()
	}
}

// terminate waits until the sockets' last messages are sent or have lingered.
func (e *Engine) terminate(zctx *zmq.Context) {
	if err := zctx.Term(); err != nil {
		e.log.Error("close ZMQ context", "err", err)
	}
}

// Ready is closed when all sockets are bound. It stays open if Run fails before.
func (e *Engine) Ready() <-chan struct{} { return e.ready }

// Addresses returns the bound addresses. Call it after Ready is closed.
func (e *Engine) Addresses() Addresses { return e.addrs }

// Complete computes a completion. It waits for Run if that has not begun. Errors are *RequestError for a
// request that is refused, ErrStopped, or the context's.
func (e *Engine) Complete(ctx context.Context, req Request) (Response, error) {
	t, err := e.newTask(ctx, req)
	if err != nil {
		return Response{}, err
	}
	n := e.requests.Add(1)
	r, err := e.pickRank(req.Rank, n)
	if err != nil {
		return Response{}, err
	}
	done := make(chan outcome, 1)
	t.done = done
	if err := r.submit(t); err != nil {
		if errors.Is(err, errQueueFull) {
			return Response{}, &RequestError{http.StatusServiceUnavailable, err.Error()}
		}
		return Response{}, err
	}
	select {
	case o := <-done:
		if o.err != nil {
			return Response{}, o.err
		}
		return Response{
			ID:           fmt.Sprintf("cmpl-%s-%d", e.cfg.Name, n),
			Rank:         r.index,
			TokenIDs:     slices.Clone(t.seq.tokens[t.prompt:]),
			CachedTokens: t.cached,
			TTFT:         t.ttft,
		}, nil
	case <-ctx.Done():
		return Response{}, ctx.Err()
	case <-e.stopped:
		return Response{}, ErrStopped
	}
}

func (e *Engine) newTask(ctx context.Context, req Request) (*task, error) {
	id, err := e.identify(req)
	if err != nil {
		return nil, err
	}
	n := len(req.Prompt)
	switch {
	case n == 0:
		return nil, badRequest("prompt: is empty; want at least one token id")
	case req.MaxTokens < 1:
		return nil, badRequest("max_tokens: %d; want at least 1", req.MaxTokens)
	}
	// The last generated token needs no slot. In this order no sum overflows.
	if limit := e.ranks[0].pool.usable() * e.cfg.BlockSize; n > limit || req.MaxTokens-1 > limit-n {
		return nil, badRequest("prompt and max_tokens: %d + %d tokens do not fit; the KV cache holds %d tokens",
			n, req.MaxTokens, limit)
	}
	tokens := append(make([]uint32, 0, n+req.MaxTokens), req.Prompt...)
	return &task{
		gone:   ctx.Done(),
		seq:    &sequence{id: id, tokens: tokens},
		prompt: n,
		max:    req.MaxTokens,
		model:  newModel(req.Prompt, id.lora),
		cached: -1,
	}, nil
}

func (e *Engine) identify(req Request) (identity, error) {
	if req.Model == "" || req.Model == e.cfg.Model {
		return identity{salt: req.CacheSalt}, nil
	}
	id, ok := e.cfg.Adapters[req.Model]
	if !ok {
		reason := fmt.Sprintf("model: %q is not served here; GET /v1/models lists what is", req.Model)
		return identity{}, &RequestError{http.StatusNotFound, reason}
	}
	return identity{lora: req.Model, loraID: id, salt: req.CacheSalt}, nil
}

// pickRank returns the asked for rank or the least loaded one; equally loaded ones take turns.
func (e *Engine) pickRank(asked *int, turn uint64) (*rank, error) {
	n := len(e.ranks)
	if asked != nil {
		if *asked < 0 || *asked >= n {
			return nil, badRequest("data-parallel rank: %d; want 0 to %d", *asked, n-1)
		}
		return e.ranks[*asked], nil
	}
	var best *rank
	least := 0
	for i := range n {
		r := e.ranks[(int(turn%uint64(n))+i)%n]
		if load := r.load(); best == nil || load < least {
			best, least = r, load
		}
	}
	return best, nil
}

// Reset empties the prefix cache of every rank. It returns false if a rank kept its cache because requests
// are in progress there.
func (e *Engine) Reset() bool {
	done := true
	for _, r := range e.ranks {
		if !r.reset(e.cfg.EagerClear) {
			done = false
		}
	}
	return done
}

// Held returns every cached block hash of every rank: what a consumer of all events so far must arrive at.
// While requests are in progress it is ahead of the events, which are published at the end of a step.
func (e *Engine) Held() []HeldBlock {
	var blocks []HeldBlock
	for _, r := range e.ranks {
		blocks = append(blocks, r.held(e.cfg.HashForm == HashBytes)...)
	}
	return blocks
}

// Fingerprints returns the content fingerprints of what Held returns, less the salted blocks, ordered by
// rank and adapter; adapters without blocks are left out.
func (e *Engine) Fingerprints() []RankFingerprints {
	var sets []RankFingerprints
	for _, r := range e.ranks {
		sets = append(sets, r.fingerprints()...)
	}
	return sets
}

func badRequest(format string, args ...any) *RequestError {
	return &RequestError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}
