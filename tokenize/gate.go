package tokenize

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// gate lets a bounded number of requests compute, and a bounded number wait. It is made for work that a CPU is
// busy with: more at a time would only make each of them slower.
type gate struct {
	slots   chan struct{} // one element for each request inside
	waiting atomic.Int64
	queue   int64
}

func newGate(concurrency, queue int) *gate {
	return &gate{slots: make(chan struct{}, concurrency), queue: int64(queue)}
}

// enter waits for a slot, for at most half of the time that ctx leaves: the other half is for the work.
func (g *gate) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	select {
	case g.slots <- struct{}{}:
		return nil
	default:
	}
	defer g.waiting.Add(-1)
	if g.waiting.Add(1) > g.queue {
		return refuse(ReasonOverloaded, fmt.Errorf("%d requests wait already", g.queue))
	}
	patience := time.Hour
	if deadline, ok := ctx.Deadline(); ok {
		patience = time.Until(deadline) / 2
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case g.slots <- struct{}{}:
		return nil
	case <-timer.C:
		return refuse(ReasonOverloaded, fmt.Errorf("no turn within %v, half of the time left", patience.Round(time.Millisecond)))
	case <-ctx.Done():
		return ended(ctx)
	}
}

func (g *gate) leave() { <-g.slots }
