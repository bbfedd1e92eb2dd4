package replay_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/hack/demo/engine"
	"github.com/inferencecache/inferencecache/hack/demo/replay"
	"github.com/inferencecache/inferencecache/hack/demo/report"
	"github.com/inferencecache/inferencecache/hack/demo/route"
	"github.com/inferencecache/inferencecache/hack/demo/workload"
	"github.com/inferencecache/inferencecache/hack/fakeengine"
)

const blockTokens = 16

// start runs engines that are large enough to keep everything, and returns clients of them.
func start(t *testing.T, names ...string) []*engine.Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	clients := make([]*engine.Client, len(names))
	t.Cleanup(func() {
		for _, c := range clients {
			c.Close()
		}
		cancel()
		running.Wait()
	})
	for i, name := range names {
		config := fakeengine.LoopbackConfig()
		config.BlockSize = blockTokens
		e, err := fakeengine.New(config)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := e.Run(ctx); err != nil {
				t.Errorf("engine %s: %v", name, err)
			}
		})
		<-e.Ready()
		clients[i] = engine.New(name, e.Addresses().HTTP, config.Model, 4)
	}
	return clients
}

// shape is a small chat whose users do not wait.
func shape(requests int) workload.Config {
	c := workload.Chat(3, requests)
	c.SystemTokens = workload.Between{Min: 40, Max: 80}
	c.UserTokens = workload.Between{Min: 5, Max: 40}
	c.AnswerTokens = workload.Between{Min: 5, Max: 40}
	c.Pause = workload.Between{Min: 0, Max: 2}
	return c
}

func TestRun_ContinuesEachSessionWithItsAnswers(t *testing.T) {
	engines := start(t, "a")
	sessions := workload.Generate(shape(40))
	var recorder report.Recorder
	player := replay.New(replay.Config{Users: 4, InFlight: 2, TimeScale: 10}, engines, route.NewRoundRobin(1), &recorder)
	if err := player.Run(t.Context(), sessions); err != nil {
		t.Fatal(err)
	}
	got := recorder.Traffic([]string{"a"})

	// On one engine that forgets nothing, a turn finds at least the full blocks of everything said
	// before it, but for the last token of the answer, which was never an input.
	prompts, cached := 0, 0
	for _, s := range sessions {
		said := 0
		for i, turn := range s {
			if i > 0 {
				cached += (said - 1) / blockTokens * blockTokens
			}
			said += turn.InputTokens()
			prompts += said
			said += turn.Output
		}
	}
	if got.Requests != 40 || int(got.PromptTokens) != prompts || int(got.CachedTokens) < cached {
		t.Errorf("%d requests, %d prompt tokens of which %d cached; want 40, %d, at least %d",
			got.Requests, got.PromptTokens, got.CachedTokens, prompts, cached)
	}
}

func TestRun_SpreadsARoundRobinEvenly(t *testing.T) {
	engines := start(t, "a", "b")
	var recorder report.Recorder
	player := replay.New(replay.Config{Users: 3, InFlight: 3, TimeScale: 10}, engines, route.NewRoundRobin(2), &recorder)
	if err := player.Run(t.Context(), workload.Generate(shape(20))); err != nil {
		t.Fatal(err)
	}
	if got := recorder.Traffic([]string{"a", "b"}).Engines; got[0].Requests != 10 || got[1].Requests != 10 {
		t.Errorf("load %v, want 10 requests each", got)
	}
}

func TestRun_EndsAtTheFirstFailureAndNamesIt(t *testing.T) {
	gone := []*engine.Client{engine.New("gone", "127.0.0.1:1", "m", 1)}
	player := replay.New(replay.Config{Users: 2, InFlight: 2, TimeScale: 1e6}, gone, route.NewRoundRobin(1), &report.Recorder{})
	err := player.Run(t.Context(), workload.Generate(shape(20)))
	if err == nil || !strings.Contains(err.Error(), "session ") || !strings.Contains(err.Error(), "turn 0: ask gone for /v1/completions") {
		t.Errorf("error %v", err)
	}
}

func TestRun_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	session := workload.Session{{Input: []workload.Span{{Tokens: 1}}, Output: 1, Pause: time.Hour}}
	player := replay.New(replay.Config{Users: 1, InFlight: 1, TimeScale: 1}, nil, route.NewRoundRobin(1), &report.Recorder{})
	cancel()
	if err := player.Run(ctx, []workload.Session{session}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
}
