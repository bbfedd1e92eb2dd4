// Package replay plays a workload against engines, as fast as its users' pauses allow.
package replay

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/inferencecache/inferencecache/hack/demo/engine"
	"github.com/inferencecache/inferencecache/hack/demo/report"
	"github.com/inferencecache/inferencecache/hack/demo/route"
	"github.com/inferencecache/inferencecache/hack/demo/workload"
)

// Config says how to play.
type Config struct {
	// Users is the number of sessions under way at once. Each user plays one to its end, then takes
	// the next.
	Users int
	// InFlight bounds the requests under way at once.
	InFlight int
	// TimeScale is how many times faster than modelled users are, more than 0.
	TimeScale float64
}

// Player plays one workload.
type Player struct {
	config   Config
	engines  []*engine.Client
	router   route.Router
	recorder *report.Recorder
	slots    *semaphore.Weighted
}

// New returns a player that records each request.
func New(config Config, engines []*engine.Client, router route.Router, recorder *report.Recorder) *Player {
	return &Player{config, engines, router, recorder, semaphore.NewWeighted(int64(config.InFlight))}
}

// Run plays all sessions and returns when the last has ended, or one failed.
func (p *Player) Run(ctx context.Context, sessions []workload.Session) error {
	var next atomic.Int64
	users, ctx := errgroup.WithContext(ctx)
	for range p.config.Users {
		users.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(sessions) {
					return nil
				}
				if err := p.play(ctx, sessions[i]); err != nil {
					return fmt.Errorf("session %d: %w", i, err)
				}
			}
		})
	}
	return users.Wait()
}

// play plays one session: each prompt is all that was said before, answers included, and what the turn
// adds.
func (p *Player) play(ctx context.Context, session workload.Session) error {
	var said []uint32
	for i, turn := range session {
		if err := p.pause(ctx, turn.Pause); err != nil {
			return err
		}
		for _, span := range turn.Input {
			said = span.Append(said)
		}
		last := i == len(session)-1
		answer, err := p.request(ctx, said, turn.Output, !last)
		if err != nil {
			return fmt.Errorf("turn %d: %w", i, err)
		}
		said = append(said, answer...)
	}
	return nil
}

func (p *Player) pause(ctx context.Context, modelled time.Duration) error {
	if modelled == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(time.Duration(float64(modelled) / p.config.TimeScale))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// request routes and sends one request, records it and returns the ids of the answer, if they are wanted.
func (p *Player) request(ctx context.Context, prompt []uint32, output int, wantIDs bool) ([]uint32, error) {
	if err := p.slots.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer p.slots.Release(1)
	choice, err := p.router.Choose(ctx, prompt)
	if err != nil {
		return nil, err
	}
	defer p.router.Done(choice)
	e := p.engines[choice.Engine]
	answer, err := e.Complete(ctx, prompt, output, wantIDs)
	if err != nil {
		return nil, err
	}
	p.recorder.Add(report.Sample{
		Engine: e.Name(), PromptTokens: len(prompt), CachedTokens: answer.CachedTokens, TTFT: answer.TTFT,
		Lookup: choice.Lookup, Hinted: choice.Hinted,
	})
	return answer.TokenIDs, nil
}
