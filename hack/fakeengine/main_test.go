package fakeengine

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests. Only a broken engine uses it up.
const patience = time.Minute

// start runs an engine until the test ends and checks that it then stops without an error.
func start(t *testing.T, change func(*Config)) *Engine {
	t.Helper()
	cfg := LoopbackConfig()
	if change != nil {
		change(&cfg)
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	select {
	case <-e.Ready():
	case <-time.After(patience):
		t.Fatal("engine is not ready")
	}
	return e
}

// complete computes a completion that must succeed.
func complete(t *testing.T, e *Engine, req Request) Response {
	t.Helper()
	resp, err := e.Complete(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// numbers returns n token ids from first on.
func numbers(first, n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(first + i)
	}
	return ids
}
