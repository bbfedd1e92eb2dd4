package main

import (
	"context"
	"time"

	"github.com/inferencecache/inferencecache/hack/chaos/fleet"
)

const (
	// lookEvery is the time between two comparisons.
	lookEvery = 200 * time.Millisecond
	// stays is how long an agreement must last to count: longer than what may still be on its way.
	stays = time.Second
)

// excuse says whether a pair may be missing from an index, given what the agent says of the cache.
type excuse func(fleet.Pair, fleet.View) bool

func nothing(fleet.Pair, fleet.View) bool { return false }

// unknowable excuses blocks of caches that the agent knows in part, where that can be: their engine
// replays little or nothing, or its replay was disturbed.
func unknowable(f *fleet.Fleet) excuse {
	possible := map[fleet.Cache]bool{}
	for i, e := range f.Engines {
		for rank := range fleet.Ranks {
			possible[fleet.Cache{Engine: e.Name, Rank: int32(rank)}] = e.Forgets() || f.ReplayDisturbed(i, rank)
		}
	}
	return func(p fleet.Pair, v fleet.View) bool { return v.Certainty == "partial" && possible[p.Cache] }
}

// settler waits until every index is what the engines hold.
type settler struct {
	fleet *fleet.Fleet
	limit time.Duration
}

// settle compares until indexes and engines agree and go on agreeing for a while, or the time is up. It
// returns the last comparison. The engines must be quiet.
func (s settler) settle(ctx context.Context, ok excuse) (comparison, error) {
	began := time.Now()
	var since time.Time // of the present agreement
	for {
		at := time.Now()
		c, err := s.compare(ctx, ok)
		if err != nil {
			return c, err
		}
		switch {
		case !c.agrees():
			since = time.Time{}
		case since.IsZero():
			since = at
		}
		c.Seconds = seconds(at.Sub(began))
		if !since.IsZero() {
			c.Seconds = seconds(since.Sub(began))
		}
		if c.Settled = !since.IsZero() && time.Since(since) >= stays; c.Settled || at.Sub(began) > s.limit+stays {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return c, context.Cause(ctx)
		case <-time.After(lookEvery):
		}
	}
}

// seconds rounds to what can be measured here.
func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// compare looks once. An aggregator or agent that does not answer is an error: all of them run.
func (s settler) compare(ctx context.Context, ok excuse) (comparison, error) {
	ctx, cancel := context.WithTimeout(ctx, compareTime)
	defer cancel()
	c := comparison{Certainty: map[string]string{}}
	truth, err := s.fleet.Truth(ctx)
	if err != nil {
		return c, err
	}
	views, err := s.fleet.Views(ctx)
	if err != nil {
		return c, err
	}
	c.Held = len(truth)
	for cache, v := range views {
		c.Certainty[cache.String()] = v.Certainty
		if !v.Connected {
			c.Disconnected++
		}
	}
	for _, a := range s.fleet.Aggregators {
		known, err := a.Known(ctx)
		if err != nil {
			return c, err
		}
		for _, p := range known.Without(truth) {
			c.Extra++
			c.example(p, "extra")
		}
		for _, p := range truth.Without(known) {
			if ok(p, views[p.Cache]) {
				c.Unknowable++
				continue
			}
			c.Missing++
			c.example(p, "missing")
		}
	}
	return c, nil
}

// compareTime bounds one comparison.
const compareTime = time.Minute
