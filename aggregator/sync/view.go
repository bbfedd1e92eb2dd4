package sync

import (
	"slices"
	"sync"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// view is one cache as one agent declared it.
type view struct {
	id    cacheID
	agent string

	mu sync.Mutex // held while the view's entries change
	// lost says that the view is closed, or that the cache was declared again by another agent or
	// under another number. Its changes are then no longer taken.
	lost  bool
	sizes []int32 // block sizes that the registry was told of
	// certainty is how far the agent trusts the view, as the registry was told.
	certainty pb.ViewCertainty

	repaired    time.Time     // when the agent was asked last for the whole view
	repairAfter time.Duration // how long it is not asked again
}

// Times between two repairs of a view. They double while repairs do not help, as when the index is
// too small for the view and evicts what it is sent.
const (
	minRepair = 5 * time.Second
	maxRepair = 10 * time.Minute
)

// repair says whether the agent is to be asked for the whole view now. The caller holds the view.
func (v *view) repair(now time.Time) bool {
	switch since := now.Sub(v.repaired); {
	case since < v.repairAfter:
		return false
	case since > 4*v.repairAfter:
		v.repairAfter = minRepair
	default:
		v.repairAfter = min(2*v.repairAfter, maxRepair)
	}
	v.repaired = now
	return true
}

func idOf(v *pb.View) cacheID {
	return cacheID{
		scope:  index.Scope{Tenant: v.GetTenantId(), Model: v.GetModelId(), Scheme: v.GetHashScheme()},
		holder: index.Holder{Replica: v.GetReplicaId(), Rank: v.GetRank()},
	}
}

func checkView(v *pb.View) string {
	if reason := contract.CheckNames(v.GetReplicaId(), v.GetTenantId(), v.GetModelId(), v.GetHashScheme()); reason != "" {
		return reason
	}
	switch {
	case v.GetTenantId() == contract.ReservedTenant:
		return contract.Reserved
	case v.GetHashScheme() == "":
		return contract.EmptyScheme
	case v.GetRank() < 0:
		return contract.InvalidRank
	default:
		return ""
	}
}

// claim makes v the owner of its cache. What another view had stored is dropped: v's agent sends the
// whole table.
func (s *Service) claim(v *view) error {
	v.mu.Lock() // whoever claims the cache next waits
	defer v.mu.Unlock()
	s.mu.Lock()
	old := s.owners[v.id]
	s.owners[v.id] = v
	s.mu.Unlock()
	if old != nil {
		// Waits until a change that is under way is stored. No circle of views can wait: each waits
		// for one that was claimed before it.
		old.mu.Lock()
		old.lost = true
		old.mu.Unlock()
	}
	if err := s.Registry.Join(v.id.scope, v.id.holder, v.agent, s.Now()); err != nil {
		s.disown(v)
		return err
	}
	s.clear(v)
	return nil
}

// release gives up the cache: its entries are dropped and it leaves its scope.
func (s *Service) release(v *view) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost {
		return
	}
	v.lost = true
	s.clear(v)
	s.Registry.Leave(v.id.scope, v.id.holder, v.agent, s.Now())
	s.disown(v) // last: whoever claims the cache before this waits for v.mu
}

func (s *Service) disown(v *view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owners[v.id] == v {
		delete(s.owners, v.id)
	}
}

// clear drops every entry of the cache.
func (s *Service) clear(v *view) {
	if s.Index.HeldBy(v.id.scope, v.id.holder) == 0 {
		return
	}
	rank := v.id.holder.Rank
	s.Index.Clear(index.Clear{
		Replica: v.id.holder.Replica, Rank: &rank,
		Tenant: v.id.scope.Tenant, Model: v.id.scope.Model, Scheme: v.id.scope.Scheme,
	})
}

// learn tells the registry of a block size that is new. The caller holds the view.
func (s *Service) learn(v *view, size int32) {
	if len(v.sizes) >= maxViewSizes || slices.Contains(v.sizes, size) {
		return
	}
	v.sizes = append(v.sizes, size)
	s.Registry.Learn(v.id.scope, v.id.holder, size, s.Now())
}

// doubt tells the registry how far the agent trusts a view, if that is new. The caller holds the view.
func (s *Service) doubt(v *view, certainty pb.ViewCertainty) {
	if v.certainty == certainty {
		return
	}
	s.Log.Info("the certainty of a cache's view has changed", "agent", v.agent, "replica", v.id.holder.Replica,
		"rank", v.id.holder.Rank, "from", contract.CertaintyName(v.certainty), "to", contract.CertaintyName(certainty))
	v.certainty = certainty
	s.Registry.SetCertainty(v.id.scope, v.id.holder, v.agent, certainty)
}

// maxViewSizes bounds the block sizes of a view. An engine has one.
const maxViewSizes = 4
