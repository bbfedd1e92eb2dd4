package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/inferencecache/inferencecache/hack/demo/fleet"
	"github.com/inferencecache/inferencecache/hack/demo/inspect"
	"github.com/inferencecache/inferencecache/hack/demo/replay"
	"github.com/inferencecache/inferencecache/hack/demo/report"
	"github.com/inferencecache/inferencecache/hack/demo/route"
	"github.com/inferencecache/inferencecache/hack/demo/workload"
)

// progressEvery is the time between two lines of progress.
const progressEvery = 2 * time.Second

// demo is one run.
type demo struct {
	options
	out, err io.Writer
	scenario scenario
	started  time.Time
	// interrupted says whether the user ended the run.
	interrupted func() bool
}

func (d *demo) run(ctx context.Context) error {
	d.started = time.Now()
	var err error
	if d.scenario, err = newScenario(d.options); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "inferencecache-demo-")
	if err != nil {
		return fmt.Errorf("make a folder for logs: %w", err)
	}
	limited, cancel := context.WithTimeoutCause(ctx, d.timeout, fmt.Errorf("not done after %s (see --timeout)", d.timeout))
	defer cancel()
	d.interrupted = func() bool { return ctx.Err() != nil }
	err = d.runIn(limited, dir)
	if d.interrupted() || err == nil && !d.keep {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// runIn runs the demo with its files in dir.
func (d *demo) runIn(ctx context.Context, dir string) error {
	d.progress("starting %d engines, agent and aggregator; their logs are in %s", engines, dir)
	f, ctx, err := fleet.Start(ctx, d.scenario.fleet(d.binDir, dir))
	if err != nil {
		return err
	}
	result, err := d.compare(ctx, f)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause // why everything else failed
		}
		return d.stop(f, err)
	}
	err = errors.Join(d.print(result), result.Err())
	if d.keep {
		return errors.Join(err, f.WriteCommands(d.err), f.Release())
	}
	return d.stop(f, err)
}

// stop ends the fleet. After an error it shows what the processes have logged, unless the user ended the
// run.
func (d *demo) stop(f *fleet.Fleet, err error) error {
	if err != nil && !d.interrupted() {
		fmt.Fprint(d.err, f.LogTails())
	}
	return errors.Join(err, f.Stop())
}

// compare plays both passes and judges them.
func (d *demo) compare(ctx context.Context, f *fleet.Fleet) (*report.Report, error) {
	if err := f.WarmUp(ctx); err != nil {
		return nil, fmt.Errorf("wait for the engines' first events: %w", err)
	}
	d.progress("replaying %s over %d engines of %d blocks each, twice", d.scenario.name, engines, d.scenario.blocks)
	r := &report.Report{Workload: d.scenario.name}
	var err error
	if r.RoundRobin, err = d.pass(ctx, f, "round robin", route.NewRoundRobin(engines)); err != nil {
		return nil, fmt.Errorf("replay by round robin: %w", err)
	}
	if err := f.Reset(ctx); err != nil {
		return nil, fmt.Errorf("empty the caches between the passes: %w", err)
	}
	byPrefix := route.NewByPrefix(f.Routes, fleet.Scope, f.Names())
	if r.ByPrefix, err = d.pass(ctx, f, "by prefix", byPrefix); err != nil {
		return nil, fmt.Errorf("replay by prefix: %w", err)
	}
	r.Seconds = time.Since(d.started).Seconds()
	r.Judge(d.scenario.minGain)
	return r, nil
}

// pass plays the workload once and compares index and engines when it is over.
func (d *demo) pass(ctx context.Context, f *fleet.Fleet, name string, router route.Router) (report.Pass, error) {
	before, err := inspect.ReadCounters(ctx, f.AgentMetrics())
	if err != nil {
		return report.Pass{}, err
	}
	var recorder report.Recorder
	start := time.Now()
	stopProgress := d.follow(name, &recorder)
	err = replay.New(d.scenario.replay, f.Engines, router, &recorder).Run(ctx, d.scenario.sessions)
	stopProgress()
	if err != nil {
		return report.Pass{}, err
	}
	p := report.Pass{Traffic: recorder.Traffic(f.Names()), Seconds: time.Since(start).Seconds()}
	if p.Caches, err = f.Settle(ctx); err != nil {
		return report.Pass{}, err
	}
	after, err := inspect.ReadCounters(ctx, f.AgentMetrics())
	if err != nil {
		return report.Pass{}, err
	}
	p.Uplink = after.Since(before)
	return p, nil
}

// follow prints progress until the function it returns is called.
func (d *demo) follow(name string, recorder *report.Recorder) (stop func()) {
	total := workload.Requests(d.scenario.sessions)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends when stop closes end
		defer close(ended)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		seen := 0
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				done, rate := recorder.Progress(seen)
				d.progress("%s: %d of %d requests, %.0f %% of the latest prompt tokens were cached", name, done, total, 100*rate)
				seen = done
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// progress prints a line that says how far the run is.
func (d *demo) progress(format string, args ...any) {
	if d.jsonOnly {
		return
	}
	fmt.Fprintf(d.out, "%5.1f s  %s\n", time.Since(d.started).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) print(r *report.Report) error {
	if d.jsonOnly {
		return r.WriteJSON(d.out)
	}
	fmt.Fprintln(d.out)
	if err := r.WriteTable(d.out); err != nil {
		return err
	}
	fmt.Fprintln(d.out)
	return r.WriteJSON(d.out)
}
