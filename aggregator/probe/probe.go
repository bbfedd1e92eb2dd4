// Package probe tests on request what callers depend on: that a reported block is found again by a
// lookup, through the handlers that callers use, and that the remote cache store keeps what it is
// given.
package probe

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/aggregator/policy"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// Tenant is what the reserved tenant is called inside the process. It is no valid UTF-8, so that no
// message can carry it: the probe alone reaches it, by the same handlers that refuse the reserved
// tenant to everybody else.
const Tenant = contract.ReservedTenant + "\xff"

// Policy returns the policy of Tenant: one block is enough for a match, and nothing is kept for long
// should it not be cleaned up.
func Policy() *policy.Policy {
	return &policy.Policy{TTL: time.Minute, ChainMatching: true}
}

// blockTokens is the size of the block that is reported.
const blockTokens = 16

// Stages of a probe, and how they end.
const (
	stageIngest  = "ingest"
	stageRouting = "routing"
	stageT2      = "t2"

	resultOK      = "ok"
	resultFailed  = "failed"
	resultSkipped = "skipped"
)

// Request says which backend to test, in words of the caller's.
type Request struct {
	Backend     string `json:"backend"`
	Model       string `json:"model"`
	HashScheme  string `json:"hashScheme"`
	BackendType string `json:"backendType"`
}

// Response says how each stage ended.
type Response struct {
	Backend string `json:"backend"`
	Ingest  string `json:"ingest"`
	Routing string `json:"routing"`
	T2      string `json:"t2"`
	// Errors say why stages failed, Skipped why they did not run.
	Errors  []Finding `json:"errors,omitempty"`
	Skipped []Finding `json:"skipped,omitempty"`
}

// Finding explains how a stage ended.
type Finding struct {
	Stage   string `json:"stage"`
	Message string `json:"message"`
}

// Store is a remote cache store.
type Store interface {
	// PutGet stores the value, reads it again, compares, and removes it.
	PutGet(ctx context.Context, name string, value []byte) error
}

// Prober runs probes.
type Prober struct {
	server pb.InferenceCacheServer
	index  index.Index
	store  Store // nil if none is configured

	mu      sync.Mutex
	running map[subject]chan struct{} // closed when the probe of the subject ends
}

// subject is what one probe at a time may use.
type subject struct{ backend, model string }

// New returns a Prober of handlers that take Tenant, and of the index behind them. store may be nil.
func New(server pb.InferenceCacheServer, x index.Index, store Store) *Prober {
	return &Prober{server: server, index: x, store: store, running: map[subject]chan struct{}{}}
}

// Probe tests one backend. Probes of the same backend and model run one after the other. The error is
// that of ctx, which ended before it was this one's turn.
func (p *Prober) Probe(ctx context.Context, req Request) (*Response, error) {
	leave, err := p.enter(ctx, subject{req.Backend, req.Model})
	if err != nil {
		return nil, err
	}
	defer leave()
	r := newRun(p, req)
	defer r.cleanUp(context.WithoutCancel(ctx))
	for _, stage := range []struct {
		name   string
		result *string
		test   func(context.Context) error
	}{
		{stageIngest, &r.response.Ingest, r.ingest},
		{stageRouting, &r.response.Routing, r.routing},
		{stageT2, &r.response.T2, r.t2},
	} {
		*stage.result = r.stage(ctx, stage.name, stage.test)
	}
	return &r.response, nil
}

// enter waits for the probe of the same subject to end.
func (p *Prober) enter(ctx context.Context, s subject) (leave func(), err error) {
	for {
		p.mu.Lock()
		other, busy := p.running[s]
		if !busy {
			ended := make(chan struct{})
			p.running[s] = ended
			p.mu.Unlock()
			return func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				delete(p.running, s)
				close(ended)
			}, nil
		}
		p.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another probe of %s: %w", s.backend, ctx.Err())
		}
	}
}

// run is one probe.
type run struct {
	*Prober
	request  Request
	replica  string
	digest   []byte
	keys     [][]byte
	response Response
	failed   string // the stage that failed, which ends the probe
}

func newRun(p *Prober, req Request) *run {
	digest := fingerprint(req)
	return &run{
		Prober: p, request: req, replica: replicaOf(req.Backend), digest: digest,
		// The index keeps keys of 8 bytes, which are what engines' blocks have, apart from others.
		keys:     [][]byte{digest[:8], digest},
		response: Response{Backend: req.Backend},
	}
}

func replicaOf(backend string) string { return "__probe-" + backend }

// fingerprint is the block hash of a probe. It is the same each time.
func fingerprint(req Request) []byte {
	h := sha256.New()
	h.Write([]byte("inferencecache.io/probe/v1\n"))
	for _, part := range []string{req.HashScheme, req.Model, req.Backend} {
		var size [4]byte
		binary.BigEndian.PutUint32(size[:], uint32(len(part))) // names are short
		h.Write(size[:])
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}

// skip is why a stage did not run.
type skip string

func (s skip) Error() string { return string(s) }

// stage runs a test unless one before it failed, and notes how it ended.
func (r *run) stage(ctx context.Context, name string, test func(context.Context) error) string {
	var err error
	if r.failed != "" {
		err = skip("the stage before it, " + r.failed + ", did not succeed")
	} else {
		err = test(ctx)
	}
	if err == nil {
		return resultOK
	}
	finding := Finding{Stage: name, Message: err.Error()}
	if skipped := skip(""); errors.As(err, &skipped) {
		r.response.Skipped = append(r.response.Skipped, finding)
		return resultSkipped
	}
	r.failed = name
	r.response.Errors = append(r.response.Errors, finding)
	return resultFailed
}

// ingest reports one block and looks for it in the index.
func (r *run) ingest(ctx context.Context) error {
	update := &pb.CacheStateUpdate{
		ReplicaId: r.replica, TenantId: Tenant, ModelId: r.request.Model, HashScheme: r.request.HashScheme,
		Stats: &pb.ReplicaStats{HitRate: 1},
	}
	for _, key := range r.keys {
		update.Prefixes = append(update.Prefixes, &pb.PrefixEntry{
			BlockHashes: [][]byte{key}, BlockTokenCounts: []int32{blockTokens},
		})
	}
	ack, err := report(ctx, r.server, update)
	if err != nil {
		return fmt.Errorf("report a block: %w", err)
	}
	if !ack.GetAccepted() {
		return fmt.Errorf("report a block: refused: %s", ack.GetReasonCode())
	}
	for _, key := range r.keys {
		if !r.held(key) {
			return fmt.Errorf("find the reported block: the index does not have it (key of %d bytes)", len(key))
		}
	}
	return nil
}

func (r *run) held(key []byte) bool {
	keys := index.Keys{Wide: []string{string(key)}}
	if len(key) == 8 {
		keys = index.Keys{Words: []uint64{binary.BigEndian.Uint64(key)}}
	}
	scope := index.Scope{Tenant: Tenant, Model: r.request.Model, Scheme: r.request.HashScheme}
	matches := r.index.Match(index.Query{Partition: index.Partition{Scope: scope}, Keys: keys}, nil)
	return slices.ContainsFunc(matches, func(m index.Match) bool { return m.Holder.Replica == r.replica })
}

// routing asks for the block as a gateway does.
func (r *run) routing(ctx context.Context) error {
	for _, key := range r.keys {
		resp, err := r.server.LookupRoute(ctx, &pb.LookupRouteRequest{
			TenantId: Tenant, ModelId: r.request.Model, HashScheme: r.request.HashScheme,
			BlockHashes: [][]byte{key}, BlockTokenCounts: []int32{blockTokens},
		})
		if err != nil {
			return fmt.Errorf("look the block up: %w", err)
		}
		if resp.GetReasonCode() != contract.PrefixMatch {
			return fmt.Errorf("look the block up: the answer is %s, want %s", resp.GetReasonCode(), contract.PrefixMatch)
		}
		found := func(s *pb.ReplicaScore) bool { return s.GetReplicaId() == r.replica }
		if !slices.ContainsFunc(resp.GetReplicaScores(), found) {
			return fmt.Errorf("look the block up: the answer names %d replicas, but not the one that reported it", len(resp.GetReplicaScores()))
		}
	}
	return nil
}

// t2Type is the type of backend whose blocks go to the remote store. No type at all means that one.
const t2Type = "LMCache"

// t2Timeout bounds the test of the remote store. Callers wait 5 s for the whole probe.
const t2Timeout = 3 * time.Second

// t2 stores something in the remote store and reads it again.
func (r *run) t2(ctx context.Context) error {
	switch {
	case r.request.BackendType != "" && r.request.BackendType != t2Type:
		return skip(fmt.Sprintf("backends of type %.64q keep nothing in the remote store", r.request.BackendType))
	case r.store == nil:
		return skip("no remote store is configured (--t2-redis-address)")
	}
	ctx, cancel := context.WithTimeout(ctx, t2Timeout)
	defer cancel()
	return r.store.PutGet(ctx, fmt.Sprintf("%x", r.digest), append([]byte("probe-payload-v1\n"), r.digest...))
}

// cleanUp takes back what the probe reported, and nothing else: the replica is the probe's own.
func (r *run) cleanUp(ctx context.Context) {
	// A refusal has been found by ingest, which sent the same names; what stays expires.
	_, _ = r.server.PublishEvent(ctx, &pb.CacheEvent{
		Type: pb.CacheEvent_ALL_CLEARED, ReplicaId: r.replica, TenantId: Tenant, ModelId: r.request.Model,
	})
}
