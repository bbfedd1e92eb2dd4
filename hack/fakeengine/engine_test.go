package fakeengine

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

func TestNewNamesTheFaultyField(t *testing.T) {
	for field, change := range map[string]func(*Config){
		"ranks: 0":           func(c *Config) { c.Ranks = 0 },
		"blocks: 1":          func(c *Config) { c.Blocks = 1 },
		"block size: 0":      func(c *Config) { c.BlockSize = 0 },
		"buffer steps: 0":    func(c *Config) { c.BufferSteps = 0 },
		"hwm: -1":            func(c *Config) { c.HighWaterMark = -1 },
		"max waiting: 0":     func(c *Config) { c.MaxWaiting = 0 },
		"model: is empty":    func(c *Config) { c.Model = "" },
		"event form":         func(c *Config) { c.EventForm = "json" },
		"array fields: 11":   func(c *Config) { c.ArrayFields = 11 },
		"hash form":          func(c *Config) { c.HashForm = "hex" },
		"replay form":        func(c *Config) { c.ReplayForm = "" },
		"time scale: -1":     func(c *Config) { c.TimeScale = -1 },
		"prefill":            func(c *Config) { c.PrefillMicros = -1 },
		"lora: adapter name": func(c *Config) { c.Adapters = map[string]int{c.Model: 1} },
		"has id 0":           func(c *Config) { c.Adapters = map[string]int{"a": 0} },
		"share id 1":         func(c *Config) { c.Adapters = map[string]int{"a": 1, "b": 1} },
		"holds a comma":      func(c *Config) { c.Adapters = map[string]int{"a,b": 1} },
		"events:":            func(c *Config) { c.Events = "127.0.0.1:5557" },
		"replay:":            func(c *Config) { c.Replay = "tcp://127.0.0.1" },
		"want a host or *":   func(c *Config) { c.Events = "tcp://:5557" },
		"from 0 to 65535":    func(c *Config) { c.Events = "tcp://*:65536" },
	} {
		t.Run(field, func(t *testing.T) {
			cfg := LoopbackConfig()
			change(&cfg)
			if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("error %v, want one that says %q", err, field)
			}
		})
	}
}

func TestRunFailsWhenAnAddressIsTaken(t *testing.T) {
	taken := start(t, nil).Addresses()
	for name, change := range map[string]func(*Config){
		"open event sockets":  func(c *Config) { c.Events = taken.Events[0] },
		"open replay sockets": func(c *Config) { c.Replay = taken.Replay[0] },
		"listen for HTTP":     func(c *Config) { c.HTTPBindAddress = taken.HTTP },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := LoopbackConfig()
			change(&cfg)
			e, err := New(cfg)
			must(t, err)
			if err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("error %v, want one that says %q", err, name)
			}
			if _, err := e.Complete(t.Context(), Request{Prompt: numbers(0, 1), MaxTokens: 1}); !errors.Is(err, ErrStopped) {
				t.Errorf("complete: %v, want %v", err, ErrStopped)
			}
		})
	}
}

func TestRanksBindConsecutivePorts(t *testing.T) {
	e := start(t, func(c *Config) { c.Ranks = 4 })
	for _, eps := range [][]string{e.Addresses().Events, e.Addresses().Replay} {
		base, err := parseEndpoint("events", eps[0])
		must(t, err)
		for i, ep := range eps {
			if ep != base.at(i) {
				t.Errorf("rank %d at %s, want %s", i, ep, base.at(i))
			}
		}
	}
}

func TestRequestsGoToTheAskedRankOrTakeTurns(t *testing.T) {
	e := start(t, func(c *Config) { c.Ranks = 3 })
	seen := map[int]int{}
	for range 6 {
		seen[complete(t, e, Request{Prompt: numbers(0, 4), MaxTokens: 1}).Rank]++
	}
	if seen[0] != 2 || seen[1] != 2 || seen[2] != 2 {
		t.Errorf("requests by rank: %v, want 2 each", seen)
	}
	asked := 2
	if got := complete(t, e, Request{Prompt: numbers(0, 4), MaxTokens: 1, Rank: &asked}).Rank; got != asked {
		t.Errorf("rank %d, want %d", got, asked)
	}
}

func TestRefusedRequestsSayWhy(t *testing.T) {
	e := start(t, func(c *Config) { c.Blocks, c.BlockSize = 5, 4 }) // room for 16 tokens
	beyond := 1
	for _, c := range []struct {
		name   string
		req    Request
		status int
		reason string
	}{
		{"no prompt", Request{MaxTokens: 1}, http.StatusBadRequest, "prompt: is empty"},
		{"no tokens asked for", Request{Prompt: numbers(0, 1)}, http.StatusBadRequest, "max_tokens: 0"},
		{"an unknown model", Request{Model: "x", Prompt: numbers(0, 1), MaxTokens: 1}, http.StatusNotFound, `"x"`},
		{"an unknown rank", Request{Prompt: numbers(0, 1), MaxTokens: 1, Rank: &beyond}, http.StatusBadRequest, "rank: 1"},
		{"more than the cache holds", Request{Prompt: numbers(0, 10), MaxTokens: 8}, http.StatusBadRequest, "16 tokens"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := e.Complete(t.Context(), c.req)
			refused, ok := errors.AsType[*RequestError](err)
			if !ok || refused.Status != c.status || !strings.Contains(refused.Reason, c.reason) {
				t.Errorf("got %v, want status %d and %q", err, c.status, c.reason)
			}
		})
	}
	if got := len(complete(t, e, Request{Prompt: numbers(0, 10), MaxTokens: 7}).TokenIDs); got != 7 {
		t.Errorf("the largest request got %d tokens, want 7", got)
	}
}

func TestGeneratedTokensDependOnPromptAndAdapterAlone(t *testing.T) {
	adapters := func(c *Config) { c.Adapters = map[string]int{"a": 1} }
	one, two := start(t, adapters), start(t, adapters)
	req := Request{Prompt: numbers(0, 50), MaxTokens: 20}
	want := complete(t, one, req).TokenIDs
	for name, e := range map[string]*Engine{"again, from the cache": one, "on another engine": two} {
		if got := complete(t, e, req).TokenIDs; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	req.Model = "a"
	if got := complete(t, one, req).TokenIDs; slices.Equal(got, want) {
		t.Error("an adapter generates what the base model does")
	}
}

func TestTimeScaleMakesPrefillTakeTime(t *testing.T) {
	e := start(t, func(c *Config) { c.PrefillMicros, c.TimeScale = 1000, 10 })
	began := time.Now()
	resp := complete(t, e, Request{Prompt: numbers(0, 200), MaxTokens: 1})
	if took := time.Since(began); took < 20*time.Millisecond {
		t.Errorf("200 ms of prefill at 10 times the speed took %v, want at least 20ms", took)
	}
	if resp.TTFT != 200*time.Millisecond {
		t.Errorf("TTFT %v, want 200ms", resp.TTFT)
	}
}

func TestStoppingEndsRequestsInProgress(t *testing.T) {
	cfg := LoopbackConfig()
	cfg.TimeScale, cfg.PrefillMicros = 1, 1e9 // a prefill that never ends
	e, err := New(cfg)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var parts errgroup.Group
	parts.Go(func() error { return e.Run(ctx) })
	for range 3 {
		parts.Go(func() error {
			_, err := e.Complete(t.Context(), Request{Prompt: numbers(0, 40), MaxTokens: 1})
			if !errors.Is(err, ErrStopped) {
				return err
			}
			return nil
		})
	}
	inProgress := func() bool {
		s := e.ranks[0].snapshot()
		return s.running == 1 && s.waiting == 2
	}
	for deadline := time.Now().Add(patience); !inProgress() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if e.Reset() {
		t.Error("reset while a request is in progress")
	}
	cancel()
	if err := parts.Wait(); err != nil {
		t.Error(err)
	}
}

func TestCompleteReturnsWhenItsCallerGivesUp(t *testing.T) {
	e := start(t, func(c *Config) { c.TimeScale, c.PrefillMicros = 1, 1e9 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := e.Complete(ctx, Request{Prompt: numbers(0, 40), MaxTokens: 1})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
}
