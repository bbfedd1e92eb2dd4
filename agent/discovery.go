package agent

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/inferencecache/inferencecache/agent/config"
	"github.com/inferencecache/inferencecache/agent/status"
)

// Discovery finds engines while the agent runs.
type Discovery interface {
	// Run calls follow for engines as they come or change, and unfollow, with the id of one that follow has
	// taken, when it goes, until ctx ends. follow takes the place of what it took under the same id before.
	Run(ctx context.Context, follow func(config.Engine) error, unfollow func(id string)) error
	// Settled says whether the engines that were there at first have been told.
	Settled() bool
	// Status says what was found, and what is wrong with it.
	Status() *status.Discovery
	prometheus.Collector
}

// discover follows what Discovery finds until ctx ends.
func (a *Agent) discover(ctx context.Context) error {
	err := a.opts.Discovery.Run(ctx,
		func(cfg config.Engine) error { return a.following.follow(ctx, cfg) },
		a.following.unfollow)
	if err != nil {
		return fmt.Errorf("find engines: %w", err)
	}
	return nil
}

// settled says whether all engines that are there are followed, as far as can be known.
func (a *Agent) settled() bool { return a.opts.Discovery == nil || a.opts.Discovery.Settled() }
