package fleet

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inferencecache/inferencecache/hack/chaos/plan"
	"github.com/inferencecache/inferencecache/hack/chaos/relay"
)

// aftermath is how long a fault may still be felt where it was: connections are made anew, replays are
// asked for.
const aftermath = 3 * time.Second

// trouble remembers, by site, the last fault.
type trouble struct {
	mu   sync.Mutex
	last map[string]trace
}

// trace is what is left of a fault.
type trace struct {
	kind         plan.Kind
	began, ended time.Time // ended is zero while it lasts
}

func (t *trouble) begin(f plan.Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last[f.Site()] = trace{kind: f.Kind, began: time.Now()}
}

func (t *trouble) end(f plan.Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.last[f.Site()]
	last.ended = time.Now()
	t.last[f.Site()] = last
}

// Trouble returns the kind of the fault that was last between an engine and an aggregator and may still be
// felt; empty if there is none.
func (f *Fleet) Trouble(engine, aggregator int) plan.Kind {
	agent := f.Engines[engine].Agent
	path := []plan.Fault{
		{Kind: plan.KillEngine, Engine: engine},
		{Kind: plan.KillAgent, Agent: agent},
		{Kind: plan.KillAggregator, Aggregator: aggregator},
		{Kind: plan.CutUplink, Agent: agent, Aggregator: aggregator},
	}
	for rank := range Ranks {
		path = append(path, plan.Fault{Kind: plan.CutEvents, Engine: engine, Rank: rank},
			plan.Fault{Kind: plan.CutReplay, Engine: engine, Rank: rank})
	}
	f.trouble.mu.Lock()
	defer f.trouble.mu.Unlock()
	var latest trace
	for _, part := range path {
		t := f.trouble.last[part.Site()]
		if felt := t.ended.IsZero() || time.Since(t.ended) < aftermath; felt && t.began.After(latest.began) {
			latest = t
		}
	}
	return latest.kind
}

// ReplayDisturbed says whether there ever was a fault between a cache's replay socket and its agent.
func (f *Fleet) ReplayDisturbed(engine, rank int) bool {
	f.trouble.mu.Lock()
	defer f.trouble.mu.Unlock()
	_, ever := f.trouble.last[plan.Fault{Kind: plan.CutReplay, Engine: engine, Rank: rank}.Site()]
	return ever
}

// Silenced says whether an agent has been stopped, or not been there, for longer than an aggregator may
// believe it: a lease and a grace, in which neither an aggregator out of order nor a stalled uplink held up what
// was sent before.
func (f *Fleet) Silenced(agent, aggregator int, grace time.Duration) bool {
	f.trouble.mu.Lock()
	defer f.trouble.mu.Unlock()
	for _, part := range []plan.Fault{
		{Kind: plan.KillAggregator, Aggregator: aggregator}, {Kind: plan.CutUplink, Agent: agent, Aggregator: aggregator},
	} {
		t := f.trouble.last[part.Site()]
		if t.kind != "" && t.kind != plan.CutUplink && (t.ended.IsZero() || time.Since(t.ended) < Lease+grace) {
			return false
		}
	}
	silent := f.trouble.last[plan.Fault{Kind: plan.KillAgent, Agent: agent}.Site()]
	return silent.kind != "" && silent.ended.IsZero() && time.Since(silent.began) > Lease+grace
}

// Inject carries a plan out and returns when every fault is over. When ctx ends, no further one begins.
func (f *Fleet) Inject(ctx context.Context, faults []plan.Fault) error {
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for _, fault := range faults {
		if !sleep(ctx, time.Until(began.Add(fault.At))) {
			break
		}
		g.Go(func() error {
			f.trouble.begin(fault)
			defer f.trouble.end(fault)
			if err := f.apply(ctx, fault); err != nil {
				return fmt.Errorf("%s of %s: %w", fault.Kind, fault.Site(), err)
			}
			return nil
		})
	}
	return g.Wait()
}

// sleep returns false if ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// apply makes one fault begin and end. It ends it even if ctx ends.
func (f *Fleet) apply(ctx context.Context, fault plan.Fault) error {
	e, agg := f.Engines[fault.Engine], f.Aggregators[fault.Aggregator]
	agent := f.Agents[fault.Agent]
	switch fault.Kind {
	case plan.KillEngine:
		return e.replace(ctx, fault.For, e.unbind)
	case plan.KillAgent:
		return agent.replace(ctx, fault.For, func() {})
	case plan.KillAggregator:
		return agg.replace(ctx, fault.For, agg.unbind)
	case plan.ResetEngine:
		return e.tryReset(ctx)
	case plan.PauseAgent, plan.PauseAgentBriefly:
		return agent.freeze(ctx, fault.For)
	case plan.PauseAggregator, plan.PauseAggregatorBriefly:
		return agg.freeze(ctx, fault.For)
	case plan.CutEvents:
		cut(ctx, e.events[fault.Rank], fault.For)
	case plan.CutReplay:
		cut(ctx, e.replay[fault.Rank], fault.For)
	case plan.CutUplink:
		cut(ctx, agg.uplinks[fault.Agent], fault.For)
	case plan.StallEvents:
		stall(ctx, e.events[fault.Rank], fault.For)
	case plan.StallReplay:
		stall(ctx, e.replay[fault.Rank], fault.For)
	case plan.StallUplink:
		stall(ctx, agg.uplinks[fault.Agent], fault.For)
	case plan.DropEvents:
		drop(ctx, e.events[fault.Rank], fault)
	case plan.DropReplay:
		drop(ctx, e.replay[fault.Rank], fault)
	default:
		return fmt.Errorf("the kind is unknown")
	}
	return nil
}

// replace kills the process and starts another one after a while. In between its ports may be anybody's:
// unbind makes relays forget them.
func (g *program) replace(ctx context.Context, away time.Duration, unbind func()) error {
	if err := g.kill(); err != nil {
		return err
	}
	unbind()
	sleep(ctx, away)
	return g.start(context.WithoutCancel(ctx))
}

// freeze stops the process for a while.
func (g *program) freeze(ctx context.Context, d time.Duration) error {
	if err := g.pause(true); err != nil {
		return err
	}
	sleep(ctx, d)
	return g.pause(false)
}

// resetTime bounds the attempts to reset a cache that is in use.
const resetTime = 2 * time.Second

// tryReset empties the cache if it is free for a moment.
func (e *Engine) tryReset(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, resetTime)
	defer cancel()
	if err := e.Reset(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func cut(ctx context.Context, r *relay.Relay, d time.Duration) {
	r.Refuse(true)
	defer r.Refuse(false)
	r.Cut()
	sleep(ctx, d)
}

func stall(ctx context.Context, r *relay.Relay, d time.Duration) {
	r.Stall(true)
	defer r.Stall(false)
	sleep(ctx, d)
}

func drop(ctx context.Context, r *relay.Relay, f plan.Fault) {
	r.Drop(f.Messages)
	defer r.Drop(0)
	sleep(ctx, f.For)
}
