// Package ingest takes reports and events from producers that are not node agents.
//
// Everything that can be applied is applied; what cannot is counted by reason, in a metric and in
// the Ack. Nothing that a producer sends is trusted to be in range.
package ingest

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/aggregator/metrics"
	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	"github.com/inferencecache/inferencecache/aggregator/stream"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// Config is what a Service needs. Every field but Now is required.
type Config struct {
	Index    index.Index
	Registry *registry.Registry
	Policy   policy.For
	Metrics  *metrics.Metrics
	// Stop, once closed, ends the streams that are open.
	Stop <-chan struct{}
	// Now tells the time; default time.Now.
	Now func() time.Time
}

// Service applies reports and events.
type Service struct{ Config }

// New returns a Service.
func New(config Config) *Service {
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Service{config}
}

// ReportCacheState applies the updates of one stream and answers when the producer closes its side.
func (s *Service) ReportCacheState(updates grpc.ClientStreamingServer[pb.CacheStateUpdate, pb.Ack]) error {
	p := newProducer()
	err := stream.Receive(updates.Recv, s.Stop, nil, func(u *pb.CacheStateUpdate) error {
		s.update(u, p)
		return nil
	})
	switch {
	case errors.Is(err, io.EOF):
		return updates.SendAndClose(p.ack())
	case errors.Is(err, stream.ErrStopped):
		return status.Error(codes.Unavailable, "the aggregator is shutting down; report again on another connection")
	default:
		return err
	}
}

// Bounds on one producer.
const (
	// maxEntries bounds the entries of one update.
	maxEntries = 65536
	// maxNames bounds the distinct partitions and replicas, each with each, that one stream names.
	maxNames = 4096
)

// producer is one stream.
type producer struct {
	tally
	names map[name]bool
}

// name is what an entry costs memory for beside itself.
type name struct {
	partition index.Partition
	replica   string
}

func newProducer() *producer { return &producer{tally: tally{}, names: map[name]bool{}} }

// admit says whether the stream may still use a name.
func (p *producer) admit(n name) bool {
	if !p.names[n] && len(p.names) >= maxNames {
		return false
	}
	p.names[n] = true
	return true
}

// update applies one update.
func (s *Service) update(u *pb.CacheStateUpdate, p *producer) {
	drop := s.dropper(metrics.SourceReport, p.tally)
	if u.GetTenantId() == contract.ReservedTenant {
		s.Metrics.Dropped(metrics.SourceReport, contract.Reserved, 1)
		return
	}
	if reason := contract.CheckNames(u.GetReplicaId(), u.GetTenantId(), u.GetModelId(), u.GetHashScheme(), u.GetAdapterId()); reason != "" {
		drop(reason, max(1, len(u.GetPrefixes())))
		return
	}
	now := s.Now()
	at, ok := evidence(u.GetTimestampUs(), now, s.Policy(u.GetTenantId()).TTL)
	if !ok {
		drop(contract.StaleTimestamp, max(1, len(u.GetPrefixes())))
		return
	}
	r := report{
		scope:  index.Scope{Tenant: u.GetTenantId(), Model: u.GetModelId(), Scheme: u.GetHashScheme()},
		holder: index.Holder{Replica: u.GetReplicaId()},
		at:     at,
		drop:   drop,
		admit:  p.admit,
	}
	s.stats(u, r, now)
	s.entries(u, r, now)
}

// report is one update on its way into the index.
type report struct {
	scope  index.Scope
	holder index.Holder
	at     time.Time
	drop   func(reason string, n int)
	admit  func(name) bool
}

func (s *Service) stats(u *pb.CacheStateUpdate, r report, now time.Time) {
	if u.GetStats() == nil {
		return
	}
	if !r.admit(name{index.Partition{Scope: r.scope}, r.holder.Replica}) {
		r.drop(contract.TooManyNames, 1)
		return
	}
	err := s.Registry.SetStats(r.scope.Tenant, r.scope.Model, r.holder, registry.StatsFrom(u.GetStats(), r.at), now)
	if err == nil && r.scope.Scheme != "" {
		err = s.Registry.Report(r.scope, r.holder, 0, now)
	}
	if err != nil {
		r.drop(contract.TooManyNames, 1)
	}
}

func (s *Service) entries(u *pb.CacheStateUpdate, r report, now time.Time) {
	entries := u.GetPrefixes()
	if len(entries) == 0 {
		return
	}
	if r.scope.Scheme == "" {
		r.drop(contract.EmptyScheme, len(entries))
		return
	}
	if len(entries) > maxEntries {
		r.drop(contract.TooManyEntries, len(entries)-maxEntries)
		entries = entries[:maxEntries]
	}
	if err := s.Registry.Report(r.scope, r.holder, blockSize(entries), now); err != nil {
		r.drop(contract.TooManyNames, len(entries))
		return
	}
	stored := false
	for _, e := range entries {
		adapter := e.GetAdapterId()
		if adapter == "" {
			adapter = u.GetAdapterId()
		}
		if runs := s.runs(e, adapter, r); len(runs) > 0 {
			stored = s.store(index.Partition{Scope: r.scope, Adapter: adapter}, runs, r, now) || stored
		}
	}
	if stored {
		s.Registry.Heard(r.scope.Tenant, r.scope.Model, r.holder, index.At(r.at))
	}
}

// store puts runs into the index, and says whether the stream may still name what they are of.
func (s *Service) store(p index.Partition, runs []index.Run, r report, now time.Time) bool {
	if !r.admit(name{p, r.holder.Replica}) {
		r.drop(contract.TooManyNames, 1)
		return false
	}
	for _, run := range runs {
		s.Index.Store(p, r.holder, run, index.At(now))
		s.Metrics.Applied(metrics.SourceReport, run.Keys.Len())
	}
	return true
}

// blockSize returns the block size that a report shows, 0 if it shows none.
func blockSize(entries []*pb.PrefixEntry) int32 {
	for _, e := range entries {
		if counts := e.GetBlockTokenCounts(); len(counts) > 0 && len(counts) == len(e.GetBlockHashes()) {
			return counts[0]
		}
	}
	return 0
}

// evidence reads a producer's timestamp: 0 is now, and so is the future. A time that is a TTL or
// more ago says nothing any more.
func evidence(us int64, now time.Time, ttl time.Duration) (time.Time, bool) {
	if us == 0 {
		return now, true
	}
	at := time.UnixMicro(us)
	if at.After(now) {
		return now, true
	}
	return at, now.Sub(at) < ttl
}

// tally counts what one caller sent that was not applied, by reason.
type tally map[string]int

func (t tally) ack() *pb.Ack {
	reasons := make([]string, 0, len(t))
	for _, reason := range slices.Sorted(maps.Keys(t)) {
		reasons = append(reasons, fmt.Sprintf("%s=%d", reason, t[reason]))
	}
	return &pb.Ack{Accepted: len(t) == 0, ReasonCode: strings.Join(reasons, ",")}
}

func (s *Service) dropper(source string, t tally) func(string, int) {
	return func(reason string, n int) {
		t[reason] += n
		s.Metrics.Dropped(source, reason, n)
	}
}
