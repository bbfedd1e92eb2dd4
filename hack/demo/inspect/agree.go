package inspect

import (
	"context"
	"time"

	icpb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/demo/report"
)

// pollEvery is the time between two looks at index and engines.
const pollEvery = 100 * time.Millisecond

// Engine is one engine whose cache can be listed.
type Engine interface {
	Name() string
	Held(context.Context) (Blocks, error)
}

// Caches compares the index with every engine once. A replica that is none of the engines is listed with
// nothing held.
func Caches[E Engine](ctx context.Context, client icpb.CacheInspectionClient, engines []E) ([]report.Cache, error) {
	known, err := Known(ctx, client)
	if err != nil {
		return nil, err
	}
	caches := make([]report.Cache, 0, len(engines))
	for _, e := range engines {
		held, err := e.Held(ctx)
		if err != nil {
			return nil, err
		}
		caches = append(caches, Compare(e.Name(), held, known[e.Name()]))
		delete(known, e.Name())
	}
	for name, blocks := range known {
		caches = append(caches, Compare(name, nil, blocks))
	}
	return caches, nil
}

// Await compares until done accepts the result or the time is up, and returns the last result: whoever
// wants to know which of the two it was asks done again.
func Await[E Engine](ctx context.Context, client icpb.CacheInspectionClient, engines []E, limit time.Duration, done func([]report.Cache) bool) ([]report.Cache, error) {
	deadline := time.Now().Add(limit)
	for {
		caches, err := Caches(ctx, client, engines)
		if err != nil || done(caches) || time.Now().After(deadline) {
			return caches, err
		}
		select {
		case <-ctx.Done():
			return caches, context.Cause(ctx)
		case <-time.After(pollEvery):
		}
	}
}

// Agree says that the index knows exactly what every engine holds.
func Agree(caches []report.Cache) bool {
	for _, c := range caches {
		if !c.Agrees() {
			return false
		}
	}
	return true
}

// Empty says that no engine holds anything and the index knows of nothing.
func Empty(caches []report.Cache) bool {
	for _, c := range caches {
		if c.Held > 0 || c.Known > 0 {
			return false
		}
	}
	return true
}
