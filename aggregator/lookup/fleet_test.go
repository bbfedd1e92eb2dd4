package lookup

import (
	"cmp"
	"container/heap"
	"container/list"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/runs"
)

// The simulated fleet: replicas that prefill one prompt after another, decode side by side, and keep
// the blocks that they used last. Times are modelled; the answers are the real service's.
const (
	fleetReplicas = 16
	fleetBlock    = 512                   // tokens
	fleetCapacity = 2000                  // blocks of one replica: a million tokens
	fleetPrefill  = 8000                  // tokens of uncached prompt that a replica computes in a second
	fleetPerToken = 20 * time.Millisecond // of decoding
	fleetStats    = 2 * time.Second       // between reports of one replica
	fleetCeiling  = 256                   // requests at which pressure is 1, the agent's default
	fleetHead     = 1 << 32               // name of the block that all generated prompts begin with
)

// prompted is one request of a workload.
type prompted struct {
	at     time.Duration
	blocks []uint64 // names of its blocks, each of which tells the whole prefix
	tokens int      // of the prompt, the last partial block included
	output int      // tokens to decode
}

// fakeReplica is one engine.
type fakeReplica struct {
	holder   index.Holder
	blocks   map[uint64]*list.Element
	recent   *list.List // of uint64, the last used in front
	free     time.Duration
	ends     []time.Duration // of the requests that are not finished
	requests int
}

// fleet is a workload under way.
type fleet struct {
	*world
	replicas []*fakeReplica
	pending  storeQueue
	reported time.Duration
	next     int // of the round robin that a gateway falls back to
	// holdersOnly makes replicas members from their first block on, not before.
	holdersOnly bool
	ceiling     float32 // requests at which pressure is 1
	silent      bool    // no replica reports statistics
}

// stored is a prompt that a replica will have in its cache.
type stored struct {
	at      time.Duration
	replica *fakeReplica
	blocks  []uint64
}

type storeQueue []stored

func (q storeQueue) Len() int           { return len(q) }
func (q storeQueue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q storeQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *storeQueue) Push(x any)        { *q = append(*q, x.(stored)) }
func (q *storeQueue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}

func newFleet(t testing.TB, p policy.Policy) *fleet {
	f := &fleet{world: newWorld(t), ceiling: fleetCeiling}
	f.Index = runs.New(index.Config{})
	f.policy = p
	f.policy.TTL = 24 * time.Hour // agents confirm what is held
	for i := range fleetReplicas {
		f.replicas = append(f.replicas, &fakeReplica{
			holder: index.Holder{Replica: fmt.Sprintf("pod-%02d", i)}, blocks: map[uint64]*list.Element{}, recent: list.New(),
		})
	}
	return f
}

func (f *fleet) declare(r *fakeReplica) {
	if err := f.Registry.Join(scope, r.holder, "node", f.now); err != nil {
		f.t.Fatal(err)
	}
}

// fleetOutcome is what a workload came to.
type fleetOutcome struct {
	spread float64         // requests of the busiest replica over the mean
	top    int             // its requests
	hits   float64         // share of prompt tokens that were cached
	wait   []time.Duration // until the first token, sorted
}

func (o *fleetOutcome) percentile(p int) time.Duration { return o.wait[(len(o.wait)-1)*p/100] }

func (o *fleetOutcome) mean() time.Duration {
	total := time.Duration(0)
	for _, w := range o.wait {
		total += w
	}
	return total / time.Duration(len(o.wait))
}

// run sends a workload where route says and returns what came of it.
func (f *fleet) run(work []prompted, route func(prompted) *fakeReplica) fleetOutcome {
	if !f.holdersOnly {
		for _, r := range f.replicas {
			f.declare(r)
		}
	}
	cached, total := 0, 0
	var out fleetOutcome
	for _, p := range work {
		f.advance(p.at)
		r := route(p)
		hit := r.touch(p.blocks) * fleetBlock
		cached, total = cached+hit, total+p.tokens
		done := max(p.at, r.free) + time.Duration(p.tokens-hit)*time.Second/fleetPrefill
		out.wait = append(out.wait, done-p.at)
		r.free = done
		r.ends = append(r.ends, done+time.Duration(p.output)*fleetPerToken)
		r.requests++
		heap.Push(&f.pending, stored{done, r, p.blocks})
	}
	out.hits = float64(cached) / float64(total)
	for _, r := range f.replicas {
		out.top = max(out.top, r.requests)
	}
	out.spread = float64(out.top*fleetReplicas) / float64(len(work))
	slices.Sort(out.wait)
	return out
}

// advance lets happen what is due until a time: prompts reach caches, replicas report.
func (f *fleet) advance(until time.Duration) {
	for {
		switch store := len(f.pending) > 0 && f.pending[0].at <= until; {
		case f.reported+fleetStats <= until && (!store || f.reported+fleetStats <= f.pending[0].at):
			f.reported += fleetStats
			f.now = t0.Add(f.reported)
			for _, r := range f.replicas {
				if !f.silent {
					f.report(r)
				}
			}
		case store:
			s := heap.Pop(&f.pending).(stored)
			f.now = t0.Add(s.at)
			f.keep(s.replica, s.blocks)
		default:
			f.now = t0.Add(until)
			return
		}
	}
}

func (f *fleet) report(r *fakeReplica) {
	r.ends = slices.DeleteFunc(r.ends, func(end time.Duration) bool { return end <= f.reported })
	s := registry.Stats{Pressure: min(1, float32(len(r.ends))/f.ceiling), Reported: f.now}
	if err := f.Registry.SetStats("t", "m", r.holder, s, f.now); err != nil {
		f.t.Fatal(err)
	}
}

// keep puts a prompt into a cache and takes the blocks out that were not used for longest.
func (f *fleet) keep(r *fakeReplica, blocks []uint64) {
	if f.holdersOnly {
		f.declare(r)
	}
	part := index.Partition{Scope: scope}
	for _, b := range blocks {
		if r.blocks[b] == nil {
			r.blocks[b] = r.recent.PushBack(b)
		}
	}
	r.touch(blocks)
	f.Index.Store(part, r.holder, index.Run{Keys: index.Keys{Words: blocks}, BlockTokens: fleetBlock, Tier: index.T1, Evidence: index.At(f.now)}, index.At(f.now))
	for len(r.blocks) > fleetCapacity {
		last := r.recent.Back()
		b := r.recent.Remove(last).(uint64)
		delete(r.blocks, b)
		f.Index.Remove(part, r.holder, index.Keys{Words: []uint64{b}})
	}
}

// touch marks the leading blocks that the cache holds as used, the first of them last, and counts
// them.
func (r *fakeReplica) touch(blocks []uint64) int {
	n := 0
	for n < len(blocks) && r.blocks[blocks[n]] != nil {
		n++
	}
	for i := n - 1; i >= 0; i-- {
		r.recent.MoveToFront(r.blocks[blocks[i]])
	}
	return n
}

// route asks the service as a gateway does, and takes turns where there is no hint.
func (f *fleet) route(p prompted) *fakeReplica {
	resp := f.ask(request(func(req *pb.LookupRouteRequest) {
		for _, b := range p.blocks {
			req.PackedBlockHashes = binary.BigEndian.AppendUint64(req.PackedBlockHashes, b)
		}
		req.BlockSize = fleetBlock
	}))
	if len(resp.ReplicaScores) == 0 {
		return f.turn(p)
	}
	i, _ := slices.BinarySearchFunc(f.replicas, resp.ReplicaScores[0].ReplicaId, func(r *fakeReplica, id string) int {
		return cmp.Compare(r.holder.Replica, id)
	})
	return f.replicas[i]
}

// turn takes replicas in turns.
func (f *fleet) turn(prompted) *fakeReplica {
	f.next++
	return f.replicas[f.next%fleetReplicas]
}
