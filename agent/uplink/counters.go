package uplink

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// counters is what an uplink has done since it was made.
type counters struct {
	deltas, bytes, blocks            atomic.Uint64
	fullSyncs, resumes, sessionsLost atomic.Uint64
	repairs, confirms                atomic.Uint64
	waiting                          atomic.Int64
	lag, lagSum                      atomic.Int64 // nanoseconds
	lagCount                         atomic.Uint64

	mu      sync.Mutex
	refused map[string]uint64
}

// Stats is a reading of an uplink's counters.
type Stats struct {
	// Deltas sent, their encoded bytes, and the blocks in them.
	Deltas, Bytes, Blocks uint64
	// FullSyncs counts whole tables sent, Resumes streams taken up again, SessionsLost streams that
	// broke.
	FullSyncs, Resumes, SessionsLost uint64
	// Confirms counts digests of partitions sent, Repairs tables sent again because one differed.
	Confirms, Repairs uint64
	// Unacknowledged is the number of deltas that the aggregator has not confirmed yet.
	Unacknowledged int
	// Lag is how long the change acknowledged last took, from the table to the acknowledgement; LagSum
	// and LagCount are the totals over all deltas with changes.
	Lag, LagSum time.Duration
	LagCount    uint64
	// Refused counts, on the present stream, changes that the aggregator did not apply, by reason.
	Refused map[string]uint64
}

// maxRefusedReasons bounds the reasons kept, whatever an aggregator sends.
const maxRefusedReasons = 64

func (c *counters) setRefused(by map[string]uint64) {
	if len(by) > maxRefusedReasons {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = maps.Clone(by)
}

// WaitingBlocks returns how many blocks of all tables have changed since the aggregator was told of them.
func (u *Uplink) WaitingBlocks() (n int) {
	for _, c := range u.cfg.Caches() {
		n += c.Table.Waiting(u.cfg.Number)
	}
	return n
}

// Stats returns the counters.
func (u *Uplink) Stats() Stats {
	u.mu.Lock()
	defer u.mu.Unlock()
	return Stats{
		Deltas: u.deltas.Load(), Bytes: u.bytes.Load(), Blocks: u.blocks.Load(),
		FullSyncs: u.fullSyncs.Load(), Resumes: u.resumes.Load(), SessionsLost: u.sessionsLost.Load(),
		Confirms: u.confirms.Load(), Repairs: u.repairs.Load(), Unacknowledged: int(u.waiting.Load()), Lag: time.Duration(u.lag.Load()), LagSum: time.Duration(u.lagSum.Load()),
		LagCount: u.lagCount.Load(),
		Refused:  maps.Clone(u.refused),
	}
}
