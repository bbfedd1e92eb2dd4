package engine_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inferencecache/inferencecache/hack/demo/engine"
	"github.com/inferencecache/inferencecache/hack/demo/inspect"
	"github.com/inferencecache/inferencecache/hack/demo/workload"
	"github.com/inferencecache/inferencecache/hack/fakeengine"
)

// start runs an engine of four-token blocks and returns it with a client of it.
func start(t *testing.T) (*fakeengine.Engine, *engine.Client) {
	t.Helper()
	config := fakeengine.LoopbackConfig()
	config.BlockSize = 4
	config.Ranks = 2
	e, err := fakeengine.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := e.Run(ctx); err != nil {
			t.Errorf("engine: %v", err)
		}
	})
	<-e.Ready()
	c := engine.New("engine-0", e.Addresses().HTTP, config.Model, 4)
	t.Cleanup(func() {
		c.Close()
		cancel()
		running.Wait()
	})
	return e, c
}

func complete(t *testing.T, c *engine.Client, prompt []uint32, n int) engine.Answer {
	t.Helper()
	answer, err := c.Complete(t.Context(), prompt, n, true)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestClient_SeesWhatTheEngineHadCached(t *testing.T) {
	_, c := start(t)
	prompt := workload.Span{Seed: 1, Tokens: 41}.Append(nil)
	first := complete(t, c, prompt, 8)
	if len(first.TokenIDs) != 8 || first.CachedTokens != 0 || first.TTFT <= 0 {
		t.Errorf("first answer: %+v", first)
	}
	// Equally loaded ranks take turns, so that the next but one request meets the first one's blocks.
	complete(t, c, prompt, 8)
	again := complete(t, c, prompt, 8)
	if again.CachedTokens != 40 || !cmp.Equal(again.TokenIDs, first.TokenIDs) {
		t.Errorf("answer to the same prompt: %+v, want 40 cached tokens and the ids %v", again, first.TokenIDs)
	}
}

func TestClient_LeavesOutIDsThatAreNotWanted(t *testing.T) {
	_, c := start(t)
	answer, err := c.Complete(t.Context(), []uint32{1, 2, 3}, 8, false)
	if err != nil || answer.TokenIDs != nil || answer.TTFT <= 0 {
		t.Errorf("answer %+v, error %v", answer, err)
	}
}

func TestClient_ListsWhatTheEngineHolds(t *testing.T) {
	e, c := start(t)
	for seed := range uint64(3) {
		complete(t, c, workload.Span{Seed: seed, Tokens: 20}.Append(nil), 3)
	}
	want := make(inspect.Blocks)
	for _, set := range e.Fingerprints() {
		for _, hash := range set.Fingerprints {
			want.Add(inspect.Block{Rank: int32(set.Rank), Adapter: set.LoRA, Hash: hash})
		}
	}
	held, err := c.Held(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, held); diff != "" || len(held) != 15 {
		t.Errorf("%d blocks held (-want +got):\n%s", len(held), diff)
	}

	if err := c.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if held, err = c.Held(t.Context()); err != nil || len(held) != 0 {
		t.Errorf("after a reset: %v, %v", held, err)
	}
}

func TestClient_PassesOnWhyARequestWasRefused(t *testing.T) {
	_, c := start(t)
	_, err := c.Complete(t.Context(), nil, 1, true)
	var refused *engine.StatusError
	if !errors.As(err, &refused) || refused.Status != http.StatusBadRequest || !strings.Contains(err.Error(), "engine-0 for /v1/completions") {
		t.Errorf("error %v", err)
	}
}

func TestClient_OfAnEngineThatIsGoneFails(t *testing.T) {
	c := engine.New("engine-9", "127.0.0.1:1", "m", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.Reset(ctx); err == nil || !strings.Contains(err.Error(), "engine-9") {
		t.Errorf("Reset() = %v", err)
	}
	if _, err := c.Held(ctx); err == nil || !strings.Contains(err.Error(), "engine-9") {
		t.Errorf("Held() = %v", err)
	}
}
