package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/inferencecache/inferencecache/agent/config"
	"github.com/inferencecache/inferencecache/agent/uplink"
)

const (
	// maxFollowed bounds the engines of one agent.
	maxFollowed = 1024
	// runAgainAfter is how long an engine that was found is left alone when its sockets failed.
	runAgainAfter = 5 * time.Second
)

// following is the engines that are followed now. It changes while the agent runs: engines that are
// found come and go. Numbers of views are never used twice.
type following struct {
	make    func(cfg config.Engine, ref uint32) (*engine, error)
	changed func() // wakes the uplinks
	log     *slog.Logger

	mu      sync.Mutex
	nextRef uint32
	stop    map[string]context.CancelFunc // of engines that were found, by id
	running sync.WaitGroup
	current atomic.Pointer[roster]
}

// roster is the engines at one time, in the order in which they came, and their caches.
type roster struct {
	engines []*engine
	caches  []*uplink.Cache
}

func newFollowing(create func(config.Engine, uint32) (*engine, error), changed func(), log *slog.Logger) *following {
	f := &following{make: create, changed: changed, log: log, nextRef: 1, stop: map[string]context.CancelFunc{}}
	f.current.Store(&roster{})
	return f
}

// now returns the engines that are followed.
func (f *following) now() *roster { return f.current.Load() }

// add takes up an engine without running it.
func (f *following) add(cfg config.Engine) (*engine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.addLocked(cfg)
}

func (f *following) addLocked(cfg config.Engine) (*engine, error) {
	old := f.now()
	if len(old.engines) >= maxFollowed {
		return nil, fmt.Errorf("%d engines are followed already, which is the most", maxFollowed)
	}
	for _, e := range old.engines {
		if e.clashes(cfg) {
			return nil, fmt.Errorf("engine %s is the same replica of the same model", e.id)
		}
	}
	e, err := f.make(cfg, f.nextRef)
	if err != nil {
		return nil, err
	}
	caches := slices.Clip(old.caches)
	for _, r := range e.ranks {
		caches = append(caches, r.cache)
		f.nextRef += uint32(1 + len(r.cache.Aliases)) //nolint:gosec // a handful
	}
	f.current.Store(&roster{append(slices.Clip(old.engines), e), caches})
	return e, nil
}

// follow takes up an engine that was found, in the place of the one with the same id, and runs it until
// ctx ends or it is let go. Nothing of the old one is left: neither its blocks nor its sockets.
func (f *following) follow(ctx context.Context, cfg config.Engine) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropLocked(cfg.ID)
	e, err := f.addLocked(cfg)
	if err != nil {
		f.changed()
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	f.stop[e.id] = cancel
	f.running.Go(func() { f.run(ctx, e) })
	f.log.Info("following an engine", "engine", e.id, "model", cfg.Model, "events", cfg.Events, "ranks", len(e.ranks))
	f.changed()
	return nil
}

// run runs an engine that was found. If its sockets fail they are opened again, and what was known of it
// is dropped; others are not disturbed.
func (f *following) run(ctx context.Context, e *engine) {
	for {
		err := e.Run(ctx)
		if ctx.Err() != nil {
			return
		}
		e.reset("the engine's sockets failed, they are opened again", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(runAgainAfter):
		}
	}
}

// unfollow lets an engine go: the aggregators are told at once that it is gone.
func (f *following) unfollow(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropLocked(id) {
		f.log.Info("an engine is gone", "engine", id)
		f.changed()
	}
}

func (f *following) dropLocked(id string) bool {
	stop, ok := f.stop[id]
	if !ok {
		return false
	}
	delete(f.stop, id)
	stop()
	next := &roster{}
	for _, e := range f.now().engines {
		if e.id == id {
			continue
		}
		next.engines = append(next.engines, e)
		for _, r := range e.ranks {
			next.caches = append(next.caches, r.cache)
		}
	}
	f.current.Store(next)
	return true
}

// wait returns when no engine runs any more. The context that they were given must have ended.
func (f *following) wait() { f.running.Wait() }

// clashes says whether an engine that is to be followed would be the same cache in the index, or have the
// same name here.
func (e *engine) clashes(other config.Engine) bool {
	if e.id == cmp.Or(other.ID, other.Name) {
		return true
	}
	if e.cfg.Name != other.Name || e.cfg.Tenant != other.Tenant || e.cfg.HashScheme != other.HashScheme {
		return false
	}
	ranks := e.cfg.FirstRank < other.FirstRank+other.Ranks && other.FirstRank < e.cfg.FirstRank+e.cfg.Ranks
	names := append([]string{other.Model}, other.ModelAliases...)
	return ranks && slices.ContainsFunc(append([]string{e.cfg.Model}, e.cfg.ModelAliases...), func(name string) bool {
		return slices.Contains(names, name)
	})
}
