package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/inferencecache/inferencecache/hack/chaos/fleet"
	"github.com/inferencecache/inferencecache/hack/chaos/load"
	"github.com/inferencecache/inferencecache/hack/chaos/plan"
)

// options are what a run is told.
type options struct {
	seed     uint64
	duration time.Duration // of the faults
	settle   time.Duration // within which index and engines must agree once the faults are over
	touch    bool          // every cache gets a last request when the faults are over
	binDir   string
	logDir   string // kept; a temporary folder that is removed if empty
}

// renewal is how long the load goes on over emptied caches.
const renewal = time.Second

// run breaks a fleet under load and returns what came of it. The report is nil if the run itself failed;
// what it found is in its failures.
func run(ctx context.Context, o options, progress io.Writer) (_ *report, err error) {
	faults := plan.New(o.seed, o.duration, fleet.Shape)
	fmt.Fprintf(progress, "chaos: seed %d, %d faults in %s, logs in %s\n", o.seed, len(faults), o.duration, o.logDir)
	f, err := fleet.Start(ctx, fleet.Config{Dir: o.logDir, BinDir: o.binDir})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	r := &report{Seed: o.seed, DurationSeconds: o.duration.Seconds(), Faults: plan.Count(faults)}
	s := settler{f, o.settle}
	if _, err := s.settle(ctx, nothing); err != nil {
		return nil, fmt.Errorf("before the first fault: %w", err)
	}

	l := load.New(f, o.seed)
	if err := under(ctx, l, func(ctx context.Context) error { return f.Inject(ctx, faults) }); err != nil {
		return nil, err
	}
	if err := load.Touch(ctx, f, func(e *fleet.Engine) bool { return o.touch || e.Silent() }); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "chaos: faults are over\n")
	if r.After, err = s.settle(ctx, unknowable(f)); err != nil {
		return nil, err
	}
	r.Counts = l.Counts()
	r.LostLive, r.LostReplayed = f.Lost()

	if err := s.renew(ctx, l); err != nil {
		return nil, err
	}
	if r.Renewed, err = s.settle(ctx, nothing); err != nil {
		return nil, err
	}
	return r, nil
}

// under runs a task under load.
func under(ctx context.Context, l *load.Load, task func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		l.Run(ctx)
	}()
	err := task(ctx)
	cancel()
	<-done
	return err
}

// renew empties every cache and fills it again, so that nothing is left that is older than a replay buffer.
func (s settler) renew(ctx context.Context, l *load.Load) error {
	for _, e := range s.fleet.Engines {
		if err := e.Reset(ctx); err != nil {
			return err
		}
	}
	if err := load.Touch(ctx, s.fleet, (*fleet.Engine).Silent); err != nil {
		return err
	}
	return under(ctx, l, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(renewal):
			return nil
		}
	})
}
