package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inferencecache/inferencecache/agent/blocktable"
	"github.com/inferencecache/inferencecache/agent/config"
	"github.com/inferencecache/inferencecache/agent/stats"
	"github.com/inferencecache/inferencecache/agent/uplink"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/kvevents"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// engine follows one engine process: its event sockets feed one table per rank.
type engine struct {
	id         string // in logs, metrics and the status
	cfg        config.Engine
	log        *slog.Logger
	now        func() time.Time
	subscriber *kvevents.Subscriber
	scraper    *stats.Scraper // nil without a metrics URL
	adapters   *adapters      // nil without an API
	ranks      []*rank
	started    float64 // of the engine process as its metrics say; used by observe alone
	drifts     atomic.Uint64
}

// rank is one data-parallel rank.
type rank struct {
	table     *blocktable.Table
	cache     *uplink.Cache
	connected atomic.Bool
	// once says that the socket has been connected at least once.
	once atomic.Bool
	// Of the message applied last; lastEvent is its time in nanoseconds since the Unix epoch, 0 before
	// the first.
	epoch, seq atomic.Uint64
	lastEvent  atomic.Int64
	// lag is how long it took, in nanoseconds, from the engine's own time of it into the table; 0 if the
	// engine gave none.
	lag atomic.Int64
	// Used by observe alone: the epoch at the last look, and since when the process is known to be another
	// one of which the stream has not told; zero if it is not.
	observed uint64
	suspect  time.Time
}

// tier2 maps the configuration's words.
var tier2 = map[config.Tier2]blocktable.Tier2{
	config.Tier2Observed: blocktable.Tier2Observed,
	config.Tier2Inferred: blocktable.Tier2Inferred,
	config.Tier2None:     blocktable.Tier2None,
}

// newEngine prepares an engine. ref numbers its views from firstRef on.
func newEngine(cfg config.Engine, o Options, firstRef uint32, notify func()) (*engine, error) {
	e := &engine{id: cmp.Or(cfg.ID, cfg.Name), cfg: cfg, now: o.Now}
	e.log = o.Log.With("engine", e.id)
	endpoints, err := kvevents.ParseEndpoints(cfg.Events, cfg.Replay, cfg.Topic, cfg.Ranks)
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", e.id, err)
	}
	if cfg.Metrics != "" {
		e.scraper = stats.New(stats.Config{
			Replica: cfg.Name, URL: cfg.Metrics, Scheme: cfg.HashScheme, Interval: o.StatsInterval,
			Ranks: len(endpoints), FirstRank: cfg.FirstRank, Ceiling: o.ConcurrencyCeiling, Client: &http.Client{}, Observe: e.observe, Log: e.log,
		})
	}
	if cfg.API != "" {
		e.adapters = newAdapters(cfg.API, cmp.Or(o.StatsInterval, stats.DefaultInterval), cfg.LoRANames, e.nameAdapters, e.log)
	}
	for r := range endpoints {
		e.ranks = append(e.ranks, e.newRank(r, firstRef, o, notify))
		firstRef += uint32(1 + len(cfg.ModelAliases))
	}
	e.subscriber, err = kvevents.NewSubscriber(kvevents.SubscriberConfig{Endpoints: endpoints, Handler: e, Logger: e.log})
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", e.id, err)
	}
	return e, nil
}

// newRank prepares a rank by its place among those of the engine. Its view is ref, its aliases those behind.
func (e *engine) newRank(number int, ref uint32, o Options, notify func()) *rank {
	table := blocktable.New(blocktable.Config{
		LoRANames: e.cfg.LoRANames, Tier2: tier2[e.cfg.Tier2], MaxBlocks: o.MaxBlocks,
		Once: e.cfg.FullReports,
		// A reset empties vLLM's GPU tier alone. Of SGLang that is not known.
		ClearsOffload: strings.HasPrefix(e.cfg.HashScheme, "sglang"),
		Uplinks:       blocktable.MaxUplinks, Notify: notify,
	})
	view := func(ref uint32, model string) *pb.View {
		return &pb.View{
			Ref: ref, ReplicaId: e.cfg.Name, Rank: int32(e.cfg.FirstRank + number), TenantId: e.cfg.Tenant, ModelId: model,
			HashScheme: e.cfg.HashScheme,
		}
	}
	cache := &uplink.Cache{Table: table, View: view(ref, e.cfg.Model)}
	for _, alias := range e.cfg.ModelAliases {
		ref++
		cache.Aliases = append(cache.Aliases, view(ref, alias))
	}
	if e.scraper != nil {
		cache.Stats = func() *pb.ReplicaStats { return e.scraper.Latest(number) }
	}
	return &rank{table: table, cache: cache}
}

// Run follows the engine until ctx ends.
func (e *engine) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return e.subscriber.Run(ctx) })
	if e.scraper != nil {
		g.Go(func() error { return e.scraper.Run(ctx) })
	}
	if e.adapters != nil {
		g.Go(func() error { return e.adapters.Run(ctx) })
	}
	return g.Wait()
}

// HandleMessage applies one batch. Whatever puts the table in doubt comes first: a new engine process
// holds nothing of the old one's, and after a gap removals may have been missed, so that a block
// still listed may be gone. A miss is better than a wrong hint.
func (e *engine) HandleMessage(m kvevents.Message) {
	r := e.ranks[m.Rank]
	table := r.table
	switch {
	case m.Duplicate:
		return
	case m.Restart:
		e.log.Warn("the engine restarted, its blocks are dropped", "rank", m.Rank, "seq", m.Seq)
		e.adapters.restarted()
		table.Reset(certaintyOf(m))
	case m.FirstGap:
		e.log.Info("the engine published before it was followed", "rank", m.Rank, "missed", m.Gap)
		table.Doubt(blocktable.Partial)
	case m.Gap > 0:
		e.log.Warn("events were missed, the blocks known are dropped", "rank", m.Rank, "seq", m.Seq, "missed", m.Gap)
		table.Reset(blocktable.Partial)
	}
	if m.Err != nil || m.Batch.Malformed > 0 {
		e.log.Warn("events could not be read", "rank", m.Rank, "seq", m.Seq, "events", m.Batch.Malformed,
			"first", m.Batch.FirstMalformed, "error", m.Err)
		table.Doubt(blocktable.Uncertain)
	}
	table.Apply(m.Batch.Events, index.At(e.now()))
	r.epoch.Store(m.Epoch)
	r.seq.Store(m.Seq)
	r.lastEvent.Store(m.Received.UnixNano())
	r.lag.Store(int64(lag(m.Batch.Timestamp, e.now())))
}

// lag is the time from the engine's clock, in seconds since the Unix epoch, until now. Engine and agent
// share a node, so that their clocks are one.
func lag(engine float64, now time.Time) time.Duration {
	if engine <= 0 {
		return 0
	}
	seconds := float64(now.UnixNano())/1e9 - engine
	return time.Duration(max(0, min(seconds, math.MaxInt32)) * float64(time.Second))
}

// certaintyOf is what a table starts as with the first message of an engine process.
func certaintyOf(m kvevents.Message) blocktable.Certainty {
	if m.Gap > 0 {
		return blocktable.Partial
	}
	return blocktable.Exact
}

// observe takes what the engine's metrics say of its process. The event stream knows better where it
// can replay; metrics are for what it does not show: a sleep, whose event comes only with the first
// batch after it, a restart of an engine that cannot replay or does not answer, and counts that drifted
// because the engine announced blocks again that it had not dropped.
func (e *engine) observe(p stats.Process) {
	restarted := e.started != 0 && p.Started != 0 && p.Started != e.started
	if p.Started != 0 {
		e.started = p.Started
	}
	for number, is := range p.Ranks {
		r := e.ranks[number]
		st := r.table.Stats()
		held, replaced := st.GPUCopies, e.replaced(r, restarted)
		switch {
		case held+st.Cells[1] == 0:
		case is.Asleep:
			e.resetRank(number, "the engine sleeps, its blocks are dropped")
		case replaced:
			e.resetRank(number, "the engine process is another one, its blocks are dropped")
		case is.GPUBlocks > 0 && held > is.GPUBlocks+is.GPUBlocks/4: // one block may have two hashes
			e.drifts.Add(1)
			e.resetRank(number, "more blocks are counted than the engine has, all are dropped", "counted", held, "has", is.GPUBlocks)
		}
	}
}

// replayGrace is how long the stream of a process that is another one has to show that: longer than the check
// of an idle stream and the attempts at a replay.
const replayGrace = 30 * time.Second

// replaced says whether the process behind a rank is another one, and the stream has not told that by itself
// although it had the time.
func (e *engine) replaced(r *rank, restarted bool) bool {
	epoch, now, grace := r.epoch.Load(), e.now(), replayGrace
	if e.cfg.Replay == "" {
		grace = 0
	}
	switch {
	case epoch != r.observed: // it has told
		r.observed, r.suspect = epoch, time.Time{}
	case restarted:
		r.suspect = now
	}
	if r.suspect.IsZero() || now.Sub(r.suspect) < grace {
		return false
	}
	r.suspect = time.Time{}
	return true
}

// reset drops the tables of all ranks. What the engine still holds is learned again as it is used.
func (e *engine) reset(why string, args ...any) {
	for number := range e.ranks {
		e.resetRank(number, why, args...)
	}
}

func (e *engine) resetRank(number int, why string, args ...any) {
	e.log.Warn(why, append(args, "rank", number)...)
	e.ranks[number].table.Reset(blocktable.Partial)
}

// nameAdapters tells the tables what adapter ids stand for.
func (e *engine) nameAdapters(names map[int64]string) {
	for _, r := range e.ranks {
		r.table.NameAdapters(names)
	}
}

// HandleState notes whether a rank's socket is connected. Behind a connection made anew may be another
// process, or removals that nobody heard. Replay tells; without it nothing may for as long as the engine is
// idle, so that what was known is dropped.
func (e *engine) HandleState(number int, connected bool) {
	r := e.ranks[number]
	r.table.Away(!connected)
	if connected && r.once.Swap(true) && e.cfg.Replay == "" {
		e.log.Warn("the connection was made anew and the engine does not replay, its blocks are dropped", "rank", number)
		r.table.Reset(blocktable.Partial)
	}
	if r.connected.Swap(connected) != connected {
		e.log.Info("engine connection", "rank", number, "endpoint", e.cfg.Events, "connected", connected)
	}
}

// reached says whether every rank has been connected at least once.
func (e *engine) reached() bool {
	for _, r := range e.ranks {
		if !r.once.Load() {
			return false
		}
	}
	return true
}
