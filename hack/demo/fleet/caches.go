package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/inferencecache/inferencecache/hack/demo/inspect"
	"github.com/inferencecache/inferencecache/hack/demo/report"
	"github.com/inferencecache/inferencecache/hack/demo/workload"
)

const (
	// quietLimit is how long events may take from an engine to the index once the engines are idle.
	quietLimit = 10 * time.Second
	// A subscription takes a moment to reach a publisher, which drops what it publishes before. So an
	// engine counts as followed when something of it has arrived.
	warmUpAttempts = 10
	warmUpLimit    = time.Second
)

// Settle waits until the index knows exactly what the engines hold, or gives up waiting, and returns how
// they compare.
func (f *Fleet) Settle(ctx context.Context) ([]report.Cache, error) {
	return inspect.Await(ctx, f.Inspection, f.Engines, quietLimit, inspect.Agree)
}

// Reset empties the engines' caches and waits until the index is empty too.
func (f *Fleet) Reset(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, quietLimit)
	defer cancel()
	for _, e := range f.Engines {
		if err := e.Reset(limited); err != nil {
			return err
		}
	}
	caches, err := inspect.Await(ctx, f.Inspection, f.Engines, quietLimit, inspect.Empty)
	if err != nil {
		return err
	}
	if !inspect.Empty(caches) {
		return fmt.Errorf("the caches were reset, but after %s blocks are left: %+v", quietLimit, caches)
	}
	return nil
}

// WarmUp sends small requests until something of every engine has arrived in the index, and resets the
// caches.
func (f *Fleet) WarmUp(ctx context.Context) error {
	followed := func(caches []report.Cache) bool {
		for _, c := range caches {
			if c.Held == 0 || !c.Agrees() {
				return false
			}
		}
		return true
	}
	for attempt := range uint64(warmUpAttempts) {
		for i, e := range f.Engines {
			prompt := workload.Span{Seed: workload.Mix(attempt, uint64(i)), Tokens: 2 * f.config.BlockTokens}.Append(nil)
			if _, err := e.Complete(ctx, prompt, 1, false); err != nil {
				return err
			}
		}
		caches, err := inspect.Await(ctx, f.Inspection, f.Engines, warmUpLimit, followed)
		if err != nil {
			return err
		}
		// What was missed stays missing, so the next attempt begins with empty caches.
		if err := f.Reset(ctx); err != nil {
			return err
		}
		if followed(caches) {
			return nil
		}
	}
	return fmt.Errorf("not every engine's events arrive in the index, after %d attempts", warmUpAttempts)
}
