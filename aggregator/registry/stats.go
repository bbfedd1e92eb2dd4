package registry

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// Stats is the load and cache efficiency of one cache, in range.
type Stats struct {
	MemoryBytes   int64
	HitRate       float32 // 0 to 1
	Pressure      float32 // 0 to 1
	ClientVersion string
	T2HitTokens   int64
	T2QueryTokens int64
	Reported      time.Time
}

// StatsFrom reads statistics from the wire and puts every value into its range.
func StatsFrom(s *pb.ReplicaStats, reported time.Time) Stats {
	return Stats{
		MemoryBytes:   max(0, s.GetCacheMemoryBytes()),
		HitRate:       unit(s.GetHitRate()),
		Pressure:      unit(s.GetPressure()),
		ClientVersion: contract.Version(s.GetClientVersion()),
		T2HitTokens:   max(0, s.GetT2HitTokens()),
		T2QueryTokens: max(0, s.GetT2QueryTokens()),
		Reported:      reported,
	}
}

// unit clamps to 0..1. What is not a finite number becomes 0.
func unit(v float32) float32 {
	if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return min(1, max(0, v))
}

// SetStats records the statistics of a cache unless newer ones are known. A cache that is a member of
// no scope is remembered for a TTL. The error is contract.ErrTooManyNames.
func (r *Registry) SetStats(tenant, model string, h index.Holder, s Stats, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.cacheLocked(modelKey{tenant, model}, h)
	if err != nil {
		return err
	}
	c.reported = later(c.reported, now)
	if old := c.stats.Load(); old == nil || !s.Reported.Before(old.Reported) {
		c.stats.Store(&s)
	}
	return nil
}

// ClearStats forgets the statistics of every rank of a replica.
func (r *Registry) ClearStats(tenant, model, replica string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for h, c := range r.caches[modelKey{tenant, model}] {
		if h.Replica == replica {
			c.stats.Store(nil)
		}
	}
}

// ReplicaStats is what is known of one replica, its ranks taken together.
type ReplicaStats struct {
	Replica string
	Stats
	// Seen is when an event last said that the replica is alive; zero if none did.
	Seen time.Time
}

// Replicas returns the replicas of a model that reported statistics, sorted by id. Of several ranks
// it gives sums of bytes and tokens, the mean hit rate, and the highest pressure.
func (r *Registry) Replicas(tenant, model string) []ReplicaStats {
	type total struct {
		Stats
		seen  time.Time
		ranks int
	}
	totals := map[string]*total{}
	r.mu.RLock()
	for h, c := range r.caches[modelKey{tenant, model}] {
		s := c.stats.Load()
		if s == nil {
			continue
		}
		t := totals[h.Replica]
		if t == nil {
			t = &total{}
			totals[h.Replica] = t
		}
		t.ranks++
		t.seen = later(t.seen, c.seen)
		t.add(s)
	}
	r.mu.RUnlock()
	out := make([]ReplicaStats, 0, len(totals))
	for id, t := range totals {
		t.HitRate /= float32(t.ranks)
		out = append(out, ReplicaStats{id, t.Stats, t.seen})
	}
	slices.SortFunc(out, func(a, b ReplicaStats) int { return cmp.Compare(a.Replica, b.Replica) })
	return out
}

func (s *Stats) add(o *Stats) {
	s.MemoryBytes += o.MemoryBytes
	s.HitRate += o.HitRate
	s.Pressure = max(s.Pressure, o.Pressure)
	s.ClientVersion = max(s.ClientVersion, o.ClientVersion)
	s.T2HitTokens += o.T2HitTokens
	s.T2QueryTokens += o.T2QueryTokens
	if o.Reported.After(s.Reported) {
		s.Reported = o.Reported
	}
}
