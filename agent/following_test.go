package agent

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inferencecache/inferencecache/agent/config"
)

func testEngine(id, name string) config.Engine {
	return config.Engine{
		ID: id, Name: name, Model: "m", Tenant: "ns", HashScheme: "vllm", Ranks: 1, Tier2: config.Tier2Observed, Events: "tcp://127.0.0.1:1",
	}
}

func makeEngine(cfg config.Engine, ref uint32) (*engine, error) {
	return newEngine(cfg, Options{Log: slog.New(slog.DiscardHandler), Now: time.Now}, ref, func() {})
}

func TestEnginesComeAndGo(t *testing.T) {
	cfg := testEngine("ns/a", "a")
	wakes := atomic.Int32{}
	f := newFollowing(makeEngine, func() { wakes.Add(1) }, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	refs := func() (all []uint32) {
		for _, c := range f.now().caches {
			all = append(all, c.View.Ref)
			for _, v := range c.Aliases {
				all = append(all, v.Ref)
			}
		}
		return all
	}
	want := func(when string, want ...uint32) {
		t.Helper()
		if diff := cmp.Diff(want, refs()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	cfg.ModelAliases, cfg.Ranks = []string{"n"}, 2
	for _, follow := range []func() error{
		func() error { return f.follow(ctx, cfg) },
		func() error { return f.follow(ctx, testEngine("ns/b", "b")) },
	} {
		if err := follow(); err != nil {
			t.Fatal(err)
		}
	}
	want("two engines, one under two names", 1, 2, 3, 4, 5)
	if err := f.follow(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	want("another process has other views", 5, 6, 7, 8, 9)
	clash := testEngine("ns/other", "a")
	clash.Model, clash.FirstRank = "n", 1
	if err := f.follow(ctx, clash); err == nil {
		t.Error("the same replica of the same model was taken twice")
	}
	clash.FirstRank = 2
	if err := f.follow(ctx, clash); err != nil {
		t.Errorf("other ranks of the replica: %v", err)
	}
	f.unfollow("ns/a")
	f.unfollow("ns/a")
	want("after one went", 5, 10)
	if n := wakes.Load(); n < 5 {
		t.Errorf("the uplinks were woken %d times", n)
	}
	cancel()
	f.wait()
}
