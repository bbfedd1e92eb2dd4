package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/agent/config"
	"github.com/inferencecache/inferencecache/aggregator"
)

// names is a name server: one name, whose addresses change.
type names struct {
	mu        sync.Mutex
	addresses []string
	err       error
}

func (n *names) set(err error, addresses ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addresses, n.err = addresses, err
}

func (n *names) resolve(context.Context, string) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.addresses), n.err
}

func startAggregator(t *testing.T) string {
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	agg, err := aggregator.New(aggregator.Config{GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: 16, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agg.Run(ctx) }() // waited for in the clean-up
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return agg.GRPCAddr()
}

// TestUplinksFollowTheAddressesOfAName resolves by hand instead of every few seconds.
func TestUplinksFollowTheAddressesOfAName(t *testing.T) {
	first, second := startAggregator(t), startAggregator(t)
	var server names
	a, err := New(Options{
		Engines:     []config.Engine{{Name: "a", Model: "m", Tenant: "t", HashScheme: "vllm", Ranks: 1, Events: "tcp://127.0.0.1:1"}},
		Aggregators: []string{"aggregators:9090"}, HTTPAddress: "127.0.0.1:0", Beat: 20 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.listener.Close() }()
	a.uplinks.resolve = server.resolve
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var reports []error
	update := func(times int) {
		for range times {
			a.uplinks.update(ctx, &running, func(err error) { reports = append(reports, err) })
		}
	}
	inStep := func(want ...string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			var got []string
			for _, u := range a.uplinks.all() {
				if u.InStep() {
					got = append(got, u.Target())
				}
			}
			if fmt.Sprint(got) == fmt.Sprint(want) && len(a.uplinks.all()) == len(want) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("in step: %v, want %v", got, want)
			}
		}
	}

	server.set(nil, first)
	update(1)
	inStep(first)
	server.set(nil, first, second)
	update(1)
	inStep(first, second)
	server.set(errors.New("the name server is away"))
	update(forgetAfter + 1)
	inStep(first, second)
	if len(reports) != 1 {
		t.Errorf("reported %v, want the failure once", reports)
	}
	server.set(nil, second)
	update(forgetAfter - 1)
	inStep(first, second)
	update(1)
	inStep(second)
	server.set(nil, second, first)
	update(1)
	inStep(second, first)
	if n := a.uplinks.links[1].number; n != 0 {
		t.Errorf("the new uplink has number %d, want the free 0", n)
	}
}
