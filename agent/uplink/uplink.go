// Package uplink carries block tables to one aggregator over the CacheSync stream.
//
// Deltas are numbered; those not yet acknowledged are kept, at most a window of them, and sent again
// when a stream breaks and the same aggregator process is met again. In every other case the
// aggregator is told the whole table. While the window is full nothing is collected: the tables'
// dirty sets coalesce instead.
package uplink

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/inferencecache/inferencecache/agent/blocktable"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// Cache is one KV cache to report: one rank of one replica.
type Cache struct {
	// View identifies it. Ref is unique in the agent process and never used again.
	View *pb.View
	// Aliases are further views of the same cache, under other names of its model. They are told what View
	// is told.
	Aliases []*pb.View
	// Table is what it holds.
	Table *blocktable.Table
	// Stats returns the replica's latest statistics, or nil when there are none.
	Stats func() *pb.ReplicaStats
}

// Config describes one uplink.
type Config struct {
	// Target is the aggregator's address, for logs and metrics.
	Target string
	// Number is the uplink's number in the tables, from 0.
	Number int
	// AgentID and Epoch identify this agent process.
	AgentID string
	Epoch   uint64
	// Version is that of the agent's build, empty if unknown.
	Version string
	// Window is how long changes coalesce before they are sent; Beat how often statistics and
	// confirmations are sent, which is also the sign of life.
	Window, Beat time.Duration
	// DeltaBlocks bounds the blocks of one delta; Unacked the deltas kept for a resume.
	DeltaBlocks, Unacked int
	// Caches returns what is to be reported now.
	Caches func() []*Cache
	// Whole says whether Caches lists all that there is; until then nothing claims that the whole table
	// was sent. Nil means always.
	Whole func() bool
	// Now is the clock.
	Now func() time.Time
	Log *slog.Logger
}

// Defaults of Config.
const (
	DefaultWindow      = 20 * time.Millisecond
	DefaultBeat        = 2 * time.Second
	defaultDeltaBlocks = 8192
	defaultUnacked     = 32
)

// Retry bounds of a broken stream.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 2 * time.Second // less than an aggregator waits for agents before it says that it is ready
	// helloTimeout bounds how long an aggregator may take to say Welcome.
	helloTimeout = 10 * time.Second
)

// Uplink is the stream to one aggregator. Run owns every field but the atomics.
type Uplink struct {
	cfg    Config
	client pb.CacheSyncClient
	wake   chan struct{}

	bootID   uint64
	seq      uint64            // of the newest delta
	unacked  []unacked         // oldest first, contiguous, ending at seq
	changed  time.Time         // when the oldest change that is not in a delta yet was seen; zero if none
	views    map[uint32]uint64 // views declared, by number: the delta that closed it, 0 while it is open
	first    int               // where the next collection starts, so that no cache starves
	complete bool              // the whole table has been put into deltas since the last full sync
	stalled  bool              // there was more to send than the window of unacknowledged deltas let through

	counters
	inStep    atomic.Bool
	connected atomic.Bool
}

// unacked is a delta that may have to be sent again.
type unacked struct {
	*pb.Delta
	changed time.Time // when the oldest of its changes was seen; zero if it has none
}

// New returns an uplink over conn.
func New(conn grpc.ClientConnInterface, cfg Config) *Uplink {
	if cfg.Window <= 0 {
		cfg.Window = DefaultWindow
	}
	if cfg.Beat <= 0 {
		cfg.Beat = DefaultBeat
	}
	if cfg.DeltaBlocks <= 0 {
		cfg.DeltaBlocks = defaultDeltaBlocks
	}
	if cfg.Unacked <= 0 {
		cfg.Unacked = defaultUnacked
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Whole == nil {
		cfg.Whole = func() bool { return true }
	}
	return &Uplink{
		cfg: cfg, client: pb.NewCacheSyncClient(conn), wake: make(chan struct{}, 1),
		views: make(map[uint32]uint64),
	}
}

// Wake says that a table has changed. It never blocks.
func (u *Uplink) Wake() {
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// Target returns the aggregator's address.
func (u *Uplink) Target() string { return u.cfg.Target }

// InStep says whether the aggregator has confirmed the whole table on the present stream.
func (u *Uplink) InStep() bool { return u.inStep.Load() }

// Connected says whether a stream is open.
func (u *Uplink) Connected() bool { return u.connected.Load() }

// Run keeps a stream open until ctx ends.
func (u *Uplink) Run(ctx context.Context) error {
	backoff := minBackoff
	for ctx.Err() == nil {
		began := u.cfg.Now()
		err := u.session(ctx)
		u.connected.Store(false)
		u.inStep.Store(false)
		if ctx.Err() != nil {
			break
		}
		if u.cfg.Now().Sub(began) > maxBackoff {
			backoff = minBackoff
		}
		u.sessionsLost.Add(1)
		u.cfg.Log.Warn("aggregator stream ended, retrying", "aggregator", u.cfg.Target, "in", backoff, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(backoff/2 + rand.N(backoff)):
		}
		backoff = min(2*backoff, maxBackoff)
	}
	return nil
}

type stream = grpc.BidiStreamingClient[pb.SyncRequest, pb.SyncResponse]

// flush sends deltas until the tables have nothing more or the window is full, and says whether it
// sent any.
func (u *Uplink) flush(s stream, beat, declare bool) (sent bool, err error) {
	u.stalled = false
	for len(u.unacked) < u.cfg.Unacked {
		d, more := u.build(beat, declare)
		if d == nil {
			return sent, nil
		}
		if err := s.Send(&pb.SyncRequest{Message: &pb.SyncRequest_Delta{Delta: d}}); err != nil {
			return sent, err
		}
		u.waiting.Store(int64(len(u.unacked)))
		u.confirms.Add(uint64(len(d.Confirms)))
		u.bytes.Add(uint64(proto.Size(d)))
		u.deltas.Add(1)
		sent, beat, declare = true, false, false
		if !more {
			return sent, nil
		}
	}
	u.stalled = true
	return sent, nil
}

func (u *Uplink) handle(r *pb.SyncResponse) {
	ack := r.GetAck()
	if ack == nil {
		return
	}
	u.acknowledge(ack.Seq)
	u.setRefused(ack.Refused)
	u.resend(ack.Resend)
	if u.complete && len(u.unacked) == 0 {
		u.inStep.Store(true)
	}
}

// resend makes the tables of the views that the aggregator has got wrong be sent whole again.
func (u *Uplink) resend(refs []uint32) {
	for _, c := range u.cfg.Caches() {
		if c.has(refs) {
			u.cfg.Log.Warn("the aggregator's digest differs, sending the table again", "aggregator", u.cfg.Target,
				"replica", c.View.ReplicaId, "rank", c.View.Rank)
			c.Table.Resend(u.cfg.Number)
			u.repairs.Add(1)
		}
	}
}

// acknowledge lets go of the deltas up to seq.
func (u *Uplink) acknowledge(seq uint64) {
	for len(u.unacked) > 0 && u.unacked[0].Seq <= seq {
		if since := u.unacked[0].changed; !since.IsZero() {
			lag := u.cfg.Now().Sub(since)
			u.lag.Store(int64(lag))
			u.lagSum.Add(int64(lag))
			u.lagCount.Add(1)
		}
		u.unacked[0] = unacked{}
		u.unacked = u.unacked[1:]
	}
	u.waiting.Store(int64(len(u.unacked)))
	for ref, closedAt := range u.views {
		if closedAt != 0 && closedAt <= seq {
			delete(u.views, ref)
		}
	}
}
