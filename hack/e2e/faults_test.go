package e2e

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/hack/fakeengine"
)

// outage is how long a fault lasts that has a length. INFERENCECACHE_OUTAGE sets another one: 30s outlasts
// leases, heartbeats and keepalives.
func outage(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("INFERENCECACHE_OUTAGE")
	if text == "" {
		return 3 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		t.Fatalf("INFERENCECACHE_OUTAGE=%q is no duration", text)
	}
	return d
}

// small is two engines of three ranks in all.
func small() []fakeengine.Config {
	return []fakeengine.Config{engine(nil), engine(func(c *fakeengine.Config) { c.Ranks = 2 })}
}

// TestAfterAnOutageTheIndexEqualsTheEnginesPools breaks one part while conversations go on, mends it, and
// compares: first with engines that are idle since the fault, then with more traffic.
func TestAfterAnOutageTheIndexEqualsTheEnginesPools(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct{ begin, end func(*stack) }{
		"agent and aggregators are killed": {
			func(s *stack) {
				for _, p := range append(s.aggregators, s.agent) {
					s.kill(p)
				}
			},
			func(s *stack) {
				for _, p := range append(s.aggregators, s.agent) {
					s.start(p)
				}
			},
		},
		"the agent stands still": {
			func(s *stack) { s.signal(s.agent, syscall.SIGSTOP) },
			func(s *stack) { s.signal(s.agent, syscall.SIGCONT) },
		},
		"an aggregator stands still": {
			func(s *stack) { s.signal(s.aggregators[0], syscall.SIGSTOP) },
			func(s *stack) { s.signal(s.aggregators[0], syscall.SIGCONT) },
		},
		"the network passes nothing on": {
			func(s *stack) { s.aggregators[0].relay.Stall(true) },
			func(s *stack) { s.aggregators[0].relay.Stall(false) },
		},
		"the network is cut": {
			func(s *stack) { s.aggregators[0].relay.Refuse(true); s.aggregators[0].relay.Cut() },
			func(s *stack) { s.aggregators[0].relay.Refuse(false) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, 2, small()...)
			s.conversations(21, 10)
			s.mustAgree("before")
			fault.begin(s)
			s.conversationsFor(outage(t))
			fault.end(s)
			s.mustAgree("afterwards")
			s.conversations(22, 3)
			s.mustAgree("with more traffic")
		})
	}
}

// conversationsFor keeps the engines busy for a while, or once if that takes longer.
func (s *stack) conversationsFor(d time.Duration) {
	s.t.Helper()
	for began, seed := time.Now(), uint64(100); ; seed++ {
		s.conversations(seed, 3)
		if time.Since(began) >= d {
			return
		}
		time.Sleep(min(100*time.Millisecond, d-time.Since(began)))
	}
}

func TestAnAggregatorThatLagsDoesNotHoldUpAnother(t *testing.T) {
	t.Parallel()
	s := newStack(t, 2, small()...)
	s.conversations(23, 10)
	s.mustAgree("before")
	s.signal(s.aggregators[1], syscall.SIGSTOP)
	s.conversationsFor(outage(t))
	s.mustAgreeAt(s.aggregators[0], "while the other one stands still")
	s.signal(s.aggregators[1], syscall.SIGCONT)
	s.mustAgree("afterwards")
}

// TestASlowAggregatorIsToldInTheEnd lets an aggregator run for a fifth of the time only.
func TestASlowAggregatorIsToldInTheEnd(t *testing.T) {
	t.Parallel()
	s := newStack(t, 1, small()...)
	ctx, cancel := context.WithCancel(context.Background())
	var slow sync.WaitGroup
	defer slow.Wait()
	defer cancel()
	slow.Go(func() {
		for ctx.Err() == nil {
			_ = signal(s.aggregators[0].process, syscall.SIGSTOP)
			time.Sleep(80 * time.Millisecond)
			_ = signal(s.aggregators[0].process, syscall.SIGCONT)
			time.Sleep(20 * time.Millisecond)
		}
	})
	s.conversationsFor(outage(t))
	s.mustAgree("while it is slow")
	cancel()
	slow.Wait()
	s.mustAgree("afterwards")
}

func TestOneAgentFollowsAHundredEngines(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a hundred engines")
	}
	configs := make([]fakeengine.Config, 100)
	for i := range configs {
		configs[i] = engine(func(c *fakeengine.Config) { c.Blocks = 40 })
	}
	s := newStack(t, 1, configs...)
	s.oneEach(1)
	s.mustAgree("at first")
	s.kill(s.agent)
	s.oneEach(2)
	s.start(s.agent)
	s.mustAgree("after the agent was killed")
	for i := range 10 {
		s.restartEngine(10 * i)
	}
	s.oneEach(3)
	s.mustAgree("after ten engines restarted")
	if n := len(s.truth()); n < 100 {
		t.Errorf("only %d blocks were compared", n)
	}
}

// oneEach sends every engine a prompt of its own.
func (s *stack) oneEach(round int) {
	s.t.Helper()
	for i, e := range s.engines {
		prompt := make([]uint32, 4*blockSize)
		prompt[0], prompt[blockSize] = uint32(i), uint32(round)
		if _, err := e.Complete(context.Background(), fakeengine.Request{Prompt: prompt, MaxTokens: blockSize}); err != nil {
			s.t.Fatal(fmt.Errorf("complete at %s: %w", e.name, err))
		}
	}
}
