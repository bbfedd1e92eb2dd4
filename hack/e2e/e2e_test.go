package e2e

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/fakeengine"
)

const blockSize = 16

// engine returns the configuration of a small engine: its pool overflows within a few dozen requests.
func engine(change func(*fakeengine.Config)) fakeengine.Config {
	cfg := fakeengine.LoopbackConfig()
	cfg.Blocks, cfg.BlockSize = 200, blockSize
	cfg.Adapters = map[string]int{"sql": 1, "chat": 2}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

// conversations sends growing conversations over a shared head, with adapters and salts, from several
// clients at a time.
func (s *stack) conversations(seed uint64, turns int) {
	s.t.Helper()
	head := tokens(rand.New(rand.NewPCG(seed, 0)), 3*blockSize)
	var wg sync.WaitGroup
	for client := range uint64(4) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, client+1))
			prompt := append([]uint32(nil), head...)
			adapter := []string{"", "", "sql", "chat"}[r.IntN(4)]
			for range turns {
				prompt = append(prompt, tokens(r, 1+r.IntN(4*blockSize))...)
				req := fakeengine.Request{Model: adapter, Prompt: prompt, MaxTokens: 1 + r.IntN(2*blockSize)}
				if r.IntN(8) == 0 {
					req.CacheSalt = "secret"
				}
				resp, err := s.engines[r.IntN(len(s.engines))].Complete(context.Background(), req)
				if err != nil {
					s.t.Errorf("complete: %v", err)
					return
				}
				if prompt = append(prompt, resp.TokenIDs...); len(prompt) > 40*blockSize {
					prompt = append([]uint32(nil), head...)
				}
			}
		})
	}
	wg.Wait()
}

func tokens(r *rand.Rand, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = r.Uint32N(50_000)
	}
	return out
}

func TestIndexEqualsTheEnginesPools(t *testing.T) {
	t.Parallel()
	s := newStack(t, 2,
		engine(nil),
		engine(func(c *fakeengine.Config) { c.Ranks, c.Topic, c.HashForm = 2, "kv@pod", fakeengine.HashBytes }),
		engine(func(c *fakeengine.Config) { c.EventForm, c.ArrayFields = fakeengine.EventArray, 12 }),
	)
	s.conversations(1, 40)
	s.mustAgree("after stores and evictions")
	if n := len(s.truth()); n < 300 {
		t.Errorf("only %d blocks were compared", n)
	}
	for _, e := range s.engines {
		if !e.Reset() {
			t.Error("an engine refused to reset")
		}
	}
	s.mustAgree("after a clear")
	s.conversations(2, 10)
	s.mustAgree("after the clear and more traffic")
}

func TestAKilledAggregatorIsWholeAgainWithoutTheEnginesRepeatingAnything(t *testing.T) {
	t.Parallel()
	s := newStack(t, 2, engine(nil), engine(func(c *fakeengine.Config) { c.Ranks = 2 }))
	s.conversations(3, 20)
	s.mustAgree("before the kill")
	s.kill(s.aggregators[0])
	s.conversations(4, 5)
	s.start(s.aggregators[0])
	s.mustAgree("after the restart")
}

func TestAKilledAgentReplaysWhatTheEnginesPublished(t *testing.T) {
	t.Parallel()
	s := newStack(t, 1, engine(nil), engine(func(c *fakeengine.Config) { c.Ranks, c.ReplayForm = 2, fakeengine.ReplayTwoFrame }))
	s.conversations(8, 20)
	s.mustAgree("before the kill")
	s.kill(s.agent)
	s.conversations(9, 5)
	s.start(s.agent)
	s.mustAgree("after the restart, with idle engines")
	s.conversations(10, 5)
	s.mustAgree("with more traffic")
}

func TestAnEngineThatRestartsIsFollowedFromItsFirstBlock(t *testing.T) {
	t.Parallel()
	s := newStack(t, 1, engine(nil))
	s.conversations(11, 10)
	s.mustAgree("before the restart")
	s.restartEngine(0)
	s.mustAgree("with an empty, idle engine")
	s.conversations(12, 5)
	s.mustAgree("with more traffic")
}

// TestLookupPredictsWhatTheEngineFinds asks for a route before each request and compares the matched
// tokens of the chosen engine with what the engine itself then finds in its cache.
func TestLookupPredictsWhatTheEngineFinds(t *testing.T) {
	t.Parallel()
	s := newStack(t, 1, engine(nil), engine(nil))
	client := pb.NewInferenceCacheClient(s.dial(s.aggregators[0]))
	r := rand.New(rand.NewPCG(5, 0))
	prompt := tokens(r, 8*blockSize)
	matches := 0
	for turn := range 10 {
		e := s.engines[turn/5]
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		reply, err := client.LookupRoute(ctx, &pb.LookupRouteRequest{
			TenantId: tenant, ModelId: model, HashScheme: scheme, TokenIds: prompt,
		})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		predicted := 0
		for _, score := range reply.ReplicaScores {
			if score.ReplicaId == e.name {
				predicted = int(score.MatchedTokens)
			}
		}
		resp, err := e.Complete(context.Background(), fakeengine.Request{Prompt: prompt, MaxTokens: 20})
		if err != nil {
			t.Fatal(err)
		}
		// The engine always computes the last token, so that it never finds a whole prompt.
		if limit := (len(prompt) - 1) / blockSize * blockSize; min(predicted, limit) != resp.CachedTokens {
			t.Errorf("turn %d: predicted %d tokens, the engine found %d (%s)", turn, predicted, resp.CachedTokens, reply.ReasonCode)
		}
		if resp.CachedTokens > 0 {
			matches++
		}
		prompt = append(append(prompt, resp.TokenIDs...), tokens(r, 10)...)
		s.mustAgree("between turns")
	}
	if matches < 6 {
		t.Errorf("only %d turns found anything cached", matches)
	}
}

func TestAnEngineThatIsAwayDisturbsNoOther(t *testing.T) {
	t.Parallel()
	s := newStack(t, 1, engine(nil), engine(nil))
	s.conversations(6, 5)
	s.mustAgree("with both engines")
	s.engines[1].stop()
	e := s.engines[0]
	for range 5 {
		prompt := tokens(rand.New(rand.NewPCG(7, 0)), 100)
		if _, err := e.Complete(context.Background(), fakeengine.Request{Prompt: prompt, MaxTokens: 5}); err != nil {
			t.Fatal(err)
		}
	}
	s.mustAgree("with one engine away")
}
