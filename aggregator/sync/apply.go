package sync

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/aggregator/metrics"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// keyBytes is the size of a fingerprint on the wire.
const keyBytes = 8

// apply applies a delta in the order that the protocol states. The caller holds the session.
func (c *connection) apply(sess *session, d *pb.Delta) {
	now := c.service.Now()
	for _, v := range d.GetViews() {
		c.declare(sess, v)
	}
	for _, st := range d.GetStates() {
		c.with(sess, st.GetView(), 1, func(v *view) { c.service.doubt(v, contract.CertaintyIn(st.GetCertainty())) })
	}
	for _, ref := range d.GetCleared() {
		c.with(sess, ref, 1, c.service.clear)
	}
	for _, ch := range d.GetChanges() {
		c.with(sess, ch.GetView(), changes(ch), func(v *view) { c.change(v, ch, now) })
	}
	for _, cf := range d.GetConfirms() {
		c.with(sess, cf.GetView(), 1, func(v *view) { c.confirm(v, cf, now) })
	}
	for _, st := range d.GetStats() {
		c.with(sess, st.GetView(), 1, func(v *view) { c.stats(v, st, now) })
	}
	for _, ref := range d.GetClosed() {
		if v := sess.refs[ref]; v != nil {
			c.service.release(v)
			delete(sess.refs, ref)
		} else {
			c.refuse(contract.UnknownView, 1)
		}
	}
}

// with hands a view that still has its cache to act, or refuses the n changes of it.
func (c *connection) with(sess *session, ref uint32, n int, act func(*view)) {
	v := sess.refs[ref]
	if v == nil {
		c.refuse(contract.UnknownView, n)
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost {
		c.refuse(contract.ViewTaken, n)
		return
	}
	act(v)
}

// declare takes up a view. A number that stood for another cache now stands for this one.
func (c *connection) declare(sess *session, declared *pb.View) {
	if reason := checkView(declared); reason != "" {
		c.refuse(reason, 1)
		return
	}
	ref, id := declared.GetRef(), idOf(declared)
	if old := sess.refs[ref]; old != nil {
		if old.id == id {
			return
		}
		c.service.release(old)
		delete(sess.refs, ref)
	}
	v := &view{id: id, agent: sess.agent}
	if len(sess.refs) >= maxViews || c.service.claim(v) != nil {
		c.refuse(contract.TooManyNames, 1)
		return
	}
	sess.refs[ref] = v
}

// changes counts what a change asks for.
func changes(ch *pb.Change) int {
	n := len(ch.GetStored())
	if len(ch.GetRemoved()) > 0 {
		n++
	}
	return n
}

// change applies what became of some blocks of a view. The caller holds the view.
func (c *connection) change(v *view, ch *pb.Change, now time.Time) {
	if len(ch.GetAdapterId()) > contract.MaxNameBytes {
		c.refuse(contract.NameTooLong, changes(ch))
		return
	}
	p := index.Partition{Scope: v.id.scope, Adapter: ch.GetAdapterId()}
	var newest index.Instant
	if removed := ch.GetRemoved(); len(removed)%keyBytes != 0 {
		c.refuse(contract.RaggedKeys, 1)
	} else if len(removed) > 0 {
		c.service.Metrics.Applied(metrics.SourceSync, c.service.Index.Remove(p, v.id.holder, c.keys(removed)))
	}
	for _, r := range ch.GetStored() {
		newest = max(newest, c.store(p, v, r, now))
	}
	if newest > 0 {
		c.service.Registry.Heard(p.Tenant, p.Model, v.id.holder, newest)
	}
}

// store puts a run into the index and returns its evidence, 0 if it was refused.
func (c *connection) store(p index.Partition, v *view, r *pb.Run, now time.Time) index.Instant {
	if reason := checkRun(r); reason != "" {
		c.refuse(reason, 1)
		return 0
	}
	run := index.Run{
		Keys:        c.keys(r.GetKeys()),
		Parent:      r.GetParent(),
		HasParent:   r.Parent != nil,
		StartTokens: int32(r.GetStartTokens()), // checkRun has bounded both
		BlockTokens: int32(r.GetBlockTokens()),
		Tier:        contract.TierIn(r.GetTier()),
		Evidence:    index.At(now.Add(-time.Duration(r.GetAgeMs()) * time.Millisecond)),
	}
	c.service.Index.Store(p, v.id.holder, run, index.At(now))
	c.service.learn(v, run.BlockTokens)
	c.service.Metrics.Applied(metrics.SourceSync, run.Keys.Len())
	return run.Evidence
}

func checkRun(r *pb.Run) string {
	blocks := int64(len(r.GetKeys()) / keyBytes)
	switch {
	case blocks == 0 || len(r.GetKeys())%keyBytes != 0:
		return contract.RaggedKeys
	case r.GetBlockTokens() == 0:
		return contract.InvalidBlockSize
	case int64(r.GetStartTokens())+blocks*int64(r.GetBlockTokens()) > math.MaxInt32:
		return contract.TokenOverflow
	case r.GetTier() < pb.CacheTier_CACHE_TIER_UNSPECIFIED || r.GetTier() > pb.CacheTier_CACHE_TIER_T3:
		return contract.InvalidTier
	default:
		return ""
	}
}

// keys decodes packed fingerprints. They are good until the next call.
func (c *connection) keys(packed []byte) index.Keys {
	c.words = c.words[:0]
	for ; len(packed) > 0; packed = packed[keyBytes:] {
		c.words = append(c.words, binary.BigEndian.Uint64(packed))
	}
	return index.Keys{Words: c.words}
}

// confirm refreshes the tiers of a partition whose digests are equal, and asks for the view again where
// one differs. A view whose T2 entries are predictions is compared in T1 alone: nothing confirms those. A
// view that its own agent does not trust is not confirmed at all, and ages.
func (c *connection) confirm(v *view, cf *pb.Confirm, now time.Time) {
	if v.certainty == pb.ViewCertainty_VIEW_CERTAINTY_UNCERTAIN {
		c.service.Metrics.Confirms.WithLabelValues("uncertain").Inc()
		return
	}
	digest := index.Digest{
		Count: [2]uint64{cf.GetT1Count(), cf.GetT2Count()},
		XOR:   [2]uint64{cf.GetT1Xor(), cf.GetT2Xor()},
	}
	p := index.Partition{Scope: v.id.scope, Adapter: cf.GetAdapterId()}
	if cf.GetT1Only() { // an empty sum must not count as an answer for predictions that are gone
		digest.Count[1], digest.XOR[1] = math.MaxUint64, 0
	}
	equal := c.service.Index.Confirm(p, v.id.holder, digest, index.At(now))
	if (equal[0] && digest.Count[0] > 0) || (equal[1] && digest.Count[1] > 0) {
		c.service.Registry.Heard(p.Tenant, p.Model, v.id.holder, index.At(now))
	}
	if equal[0] && (equal[1] || cf.GetT1Only()) {
		c.service.Metrics.Confirms.WithLabelValues("equal").Inc()
		return
	}
	c.service.Metrics.Confirms.WithLabelValues("different").Inc()
	c.refuse(contract.DigestMismatch, 1)
	if v.repair(now) {
		c.resend = append(c.resend, cf.GetView())
	}
}

func (c *connection) stats(v *view, st *pb.ViewStats, now time.Time) {
	if st.GetStats() == nil {
		c.refuse(contract.MissingStats, 1)
		return
	}
	err := c.service.Registry.SetStats(v.id.scope.Tenant, v.id.scope.Model, v.id.holder, registry.StatsFrom(st.GetStats(), now), now)
	if err != nil {
		c.refuse(contract.TooManyNames, 1)
	}
}
