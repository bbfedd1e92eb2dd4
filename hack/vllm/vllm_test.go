package vllm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/hack/demo/inspect"
	"github.com/inferencecache/inferencecache/hack/demo/route"
)

const (
	roundRobin = "round robin"
	byPrefix   = "by the answers"
	// equalShare is the share of predictions that must be exact.
	equalShare = 0.99
)

// TestOneEngine follows one engine through evictions, adapters, salts, resets, sleep and kills.
func TestOneEngine(t *testing.T) {
	s := newStack(t, tiny(t), 1)
	r := rand.New(rand.NewPCG(1, 1))
	all := conversations(12, heads(r, 1, 3*blockSize+7), "", "", "sql", "chat")
	steps := []func(*rand.Rand, []*conversation){
		s.evictions, s.salts, s.reset, s.sleep, s.killAgent, s.killAggregator, s.killBoth, s.killEngine, s.manyClients,
	}
	for _, step := range steps {
		step(r, all)
	}
	mustPredict(t, 1)
}

// mustPredict asserts what the table of the requests to so many engines shows.
func mustPredict(t *testing.T, engines int) {
	t.Helper()
	sum := results.counted(engines)
	if float64(sum.Equal) < equalShare*float64(sum.Requests) {
		t.Errorf("%d of %d predictions are exact; at least %.0f %% must be", sum.Equal, sum.Requests, 100*equalShare)
	}
	if sum.TooHigh > 0 {
		t.Errorf("%d predictions are too high; none may be", sum.TooHigh)
	}
	if sum.CachedTokens == 0 {
		t.Error("nothing was ever cached, so that nothing was shown")
	}
}

func (s *stack) evictions(r *rand.Rand, all []*conversation) {
	s.rounds(results.phase(1, "growing conversations over a shared head, evictions", false), r, 10, all)
	counters, err := inspect.ReadCounters(s.t.Context(), "http://"+s.agentHTTP+"/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	events := counters.Since(inspect.Counters{}).Events
	if events["removed"] == 0 {
		s.t.Error("the engine evicted nothing")
	}
	results.notes = append(results.notes, fmt.Sprintf("events of the first row: %d stored, %d removed", events["stored"], events["removed"]))
}

// salts sends prompts with a cache salt, which are not indexed, and then the same prompts without.
func (s *stack) salts(r *rand.Rand, all []*conversation) {
	e := s.engines[0]
	salted := results.phase(1, "prompts with a cache salt, each sent twice", true)
	plain := results.phase(1, "the same prompts without salt", false)
	for range 4 {
		req := request{Prompt: tokens(r, 5*blockSize+r.IntN(blockSize)), MaxTokens: 8, Salt: "secret"}
		for range 2 {
			s.askBusy(salted, e, req)
			time.Sleep(settle)
		}
		req.Salt = ""
		s.ask(plain, e, req)
	}
	if salted.TooHigh > 0 || salted.PredictedTokens > 0 {
		s.t.Errorf("%d tokens were predicted of prompts with a salt", salted.PredictedTokens)
	}
	s.rounds(results.phase(1, "after salts", false), r, 1, all)
}

// reset empties the engine's cache. The engine says so with its next batch of events, which only the
// next request causes.
func (s *stack) reset(r *rand.Rand, all []*conversation) {
	s.engines[0].post("/reset_prefix_cache")
	first := all[0].next(r)
	all[0].heard(first, s.ask(results.phase(1, "the first request after a reset", true), s.engines[0], first))
	s.rounds(results.phase(1, "after a reset", false), r, 2, all)
}

// sleep lets the engine sleep, which empties its cache without an event.
func (s *stack) sleep(r *rand.Rand, all []*conversation) {
	e := s.engines[0]
	e.post("/sleep?level=1")
	s.awaitEmpty(e, all, "going to sleep")
	e.post("/wake_up")
	s.rounds(results.phase(1, "after sleep and wake, the first request included", false), r, 2, all)
}

// awaitEmpty waits until the index holds nothing of any conversation at the engine.
func (s *stack) awaitEmpty(e *engine, all []*conversation, after string) {
	s.t.Helper()
	start := time.Now()
	for _, c := range all {
		s.awaitMatch(e, c.adapter, c.prompt, 0)
	}
	s.waited(e.name+" known to be empty after "+after, start)
}

func (s *stack) waited(what string, start time.Time) {
	results.notes = append(results.notes, fmt.Sprintf("%s: %.2f s", what, time.Since(start).Seconds()))
}

// unseen sends requests that nobody compares, while agent or aggregator is away, and returns the last.
func (s *stack) unseen(r *rand.Rand, all []*conversation) (request, answer) {
	var req request
	var a answer
	for _, c := range all {
		req = c.next(r)
		a = s.engines[0].complete(req)
		c.heard(req, a)
	}
	return req, a
}

// killAndRestart kills programs, lets the engine serve without them, and starts them again.
func (s *stack) killAndRestart(r *rand.Rand, all []*conversation, name string, programs ...*program) {
	for _, p := range programs {
		p.kill()
	}
	req, a := s.unseen(r, all)
	start := time.Now()
	for _, p := range programs {
		p.start()
	}
	s.awaitReady()
	s.awaitLearned(s.engines[0], req, a)
	s.waited("index whole after a restart of the "+name, start)
	s.rounds(results.phase(1, "after kill -9 of the "+name+" and traffic meanwhile", false), r, 2, all)
}

func (s *stack) killAgent(r *rand.Rand, all []*conversation) {
	s.killAndRestart(r, all, "agent", s.agent)
}

func (s *stack) killAggregator(r *rand.Rand, all []*conversation) {
	s.killAndRestart(r, all, "aggregator", s.aggregator)
}

func (s *stack) killBoth(r *rand.Rand, all []*conversation) {
	s.killAndRestart(r, all, "agent and the aggregator", s.agent, s.aggregator)
}

// restartEngine kills an engine, starts it again, and waits until the index knows that it is empty.
// What is to happen meanwhile takes part of the half minute that an engine needs to start.
func (s *stack) restartEngine(e *engine, all []*conversation, meanwhile func()) {
	s.t.Helper()
	e.kill()
	e.start()
	meanwhile()
	e.awaitHealthy()
	s.awaitEmpty(e, all, "a restart")
}

func (s *stack) killEngine(r *rand.Rand, all []*conversation) {
	s.restartEngine(s.engines[0], all, func() {})
	s.rounds(results.phase(1, "after kill -9 of the engine, the first request included", false), r, 4, all)
}

// manyClients sends from several clients at a time: between lookup and request the cache changes.
func (s *stack) manyClients(r *rand.Rand, all []*conversation) {
	busy := results.phase(1, "four clients at once", true)
	var mu sync.Mutex // of busy
	var wg sync.WaitGroup
	for client := range 4 {
		own := rand.New(rand.NewPCG(2, uint64(client)))
		mine := all[client*len(all)/4 : (client+1)*len(all)/4]
		wg.Go(func() {
			for range 4 {
				for _, c := range mine {
					req := c.next(own)
					matched, err := s.matched(s.engines[0], c.adapter, req.Prompt)
					if err != nil {
						s.t.Error(err)
						return
					}
					a, err := s.engines[0].tryComplete(req)
					if err != nil {
						s.t.Error(err)
						return
					}
					c.heard(req, a)
					mu.Lock()
					busy.add(len(req.Prompt), predict(matched, len(req.Prompt)), a.Cached)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	time.Sleep(settle)
	s.rounds(results.phase(1, "after four clients at once", false), r, 1, all)
}

// TestTwoEngines routes the same conversations in turns and by the answers, and then kills an engine.
func TestTwoEngines(t *testing.T) {
	s := newStack(t, tiny(t), 2)
	s.compareRouting(1)
	turns, by, last := s.compareRouting(4)
	if by.CachedTokens <= turns.CachedTokens {
		t.Errorf("%d tokens were cached with routing by the answers, %d in turns", by.CachedTokens, turns.CachedTokens)
	}

	r := rand.New(rand.NewPCG(4, 0))
	s.restartEngine(s.engines[1], last, func() {
		s.rounds(results.phase(2, "one engine, while the other starts after kill -9", false), r, 2, last)
	})
	s.routed(results.phase(2, "by the answers, with both engines again", false), r, 3, last, s.byPrefix())
	mustPredict(t, 2)
}

// compareRouting sends the same conversations twice, each time to empty caches: in turns and by the
// answers. They fit two pools, though not one. With one head in all of them, whoever holds it first is
// hinted for every new conversation; with several heads the conversations can be told apart.
func (s *stack) compareRouting(n int) (turns, by tally, last []*conversation) {
	s.t.Helper()
	turns, _ = s.route(roundRobin, n, route.NewRoundRobin(2))
	by, last = s.route(byPrefix, n, s.byPrefix())
	return turns, by, last
}

func (s *stack) byPrefix() route.Router {
	scope := route.Scope{Tenant: tenant, Model: s.model, HashScheme: scheme}
	return route.NewByPrefix(s.client, scope, []string{s.engines[0].name, s.engines[1].name})
}

// route empties the caches and sends conversations over n heads.
func (s *stack) route(name string, n int, router route.Router) (tally, []*conversation) {
	s.t.Helper()
	flush := results.phase(2, "the first request after a reset, three tokens", true)
	for _, e := range s.engines {
		e.post("/reset_prefix_cache")
		s.ask(flush, e, request{Prompt: []uint32{3, 4, 5}, MaxTokens: blockSize})
	}
	name = fmt.Sprintf("%s, heads shared: %d", name, n)
	r := rand.New(rand.NewPCG(3, 0))
	all := conversations(16, heads(r, n, 3*blockSize+7), "")
	p := results.phase(2, name, false)
	s.routed(p, r, 8, all, router)
	results.routing = append(results.routing, routing{name, p.tally})
	return p.tally, all
}

// routed lets every conversation speak n times, each time at the engine that the router chooses.
func (s *stack) routed(p *phase, r *rand.Rand, n int, all []*conversation, router route.Router) {
	s.t.Helper()
	given := make([]int, len(s.engines)) // requests, by engine
	for range n {
		for _, i := range r.Perm(len(all)) {
			req := all[i].next(r)
			choice, err := router.Choose(context.Background(), req.Prompt)
			if err != nil {
				s.t.Fatal(err)
			}
			given[choice.Engine]++
			a := s.ask(p, s.engines[choice.Engine], req)
			router.Done(choice)
			all[i].heard(req, a)
		}
	}
	results.notes = append(results.notes, fmt.Sprintf("requests of each engine, %s: %d", p.name, given))
}
