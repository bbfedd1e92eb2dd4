package conformance

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/inferencecache/inferencecache/fingerprint"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// prompt returns n token ids that seed tells from others.
func prompt(n int, seed uint32) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = seed<<16 + uint32(i)
	}
	return ids
}

// hashes returns the block hashes of a prompt in blocks of 16 tokens.
func hashes(ids []uint32) (out [][]byte) {
	for _, h := range fingerprint.Chain(ids, 16) {
		key := fingerprint.Key(h)
		out = append(out, key[:])
	}
	return out
}

// all are the acts in order.
func all(acts ...act) []act { return acts }

// report sends updates of one stream. The tenant "t" stands for the row's.
func report(updates ...*pb.CacheStateUpdate) act {
	return func(s *session) (*pb.Ack, error) {
		stream, err := s.ReportCacheState(s.ctx)
		if err != nil {
			return nil, err
		}
		for _, u := range updates {
			if u.GetTenantId() == "t" {
				u = proto.CloneOf(u) // acts are used by several rows
				u.TenantId = s.tenant
			}
			if err := stream.Send(u); err != nil {
				return nil, err
			}
		}
		return stream.CloseAndRecv()
	}
}

// event publishes one event of replica a of the row's tenant and of model m.
func event(kind pb.CacheEvent_Type, change ...func(*pb.CacheEvent)) act {
	return func(s *session) (*pb.Ack, error) {
		e := &pb.CacheEvent{Type: kind, ReplicaId: "a", TenantId: s.tenant, ModelId: "m"}
		for _, f := range change {
			f(e)
		}
		return s.PublishEvent(s.ctx, e, grpc.WaitForReady(true))
	}
}

// update is one of the row's tenant, model m and scheme vllm.
func update(replica string, entries ...*pb.PrefixEntry) *pb.CacheStateUpdate {
	return &pb.CacheStateUpdate{ReplicaId: replica, TenantId: "t", ModelId: "m", HashScheme: "vllm", Prefixes: entries}
}

func updateWith(replica string, change func(*pb.CacheStateUpdate), entries ...*pb.PrefixEntry) act {
	u := update(replica, entries...)
	change(u)
	return report(u)
}

// blocks is a prompt as an entry, in blocks of 16 tokens.
func blocks(ids []uint32) *pb.PrefixEntry {
	e := &pb.PrefixEntry{BlockHashes: hashes(ids)}
	e.BlockTokenCounts = slices.Repeat([]int32{16}, len(e.BlockHashes))
	return e
}

// whole is one opaque hash as an entry.
func whole(hash string, tokens int32) *pb.PrefixEntry {
	return &pb.PrefixEntry{PrefixHash: []byte(hash), TokenCount: tokens}
}

// chainOf is a chain of opaque hashes, a letter each, as an entry.
func chainOf(letters string, counts ...int32) *pb.PrefixEntry {
	e := &pb.PrefixEntry{BlockTokenCounts: counts}
	for _, letter := range letters {
		e.BlockHashes = append(e.BlockHashes, []byte("opaque-"+string(letter)))
	}
	return e
}

// hold reports that a replica holds a prompt, holdWhole that it holds one opaque prefix.
func hold(replica string, ids []uint32) act { return report(update(replica, blocks(ids))) }

// together is hold of several replicas as of one moment: entries are as old as each other, also where
// a second passes meanwhile.
func together(ids []uint32, replicas ...string) act {
	return func(s *session) (ack *pb.Ack, err error) {
		now := time.Now().UnixMicro()
		for _, replica := range replicas {
			at := func(u *pb.CacheStateUpdate) { u.TimestampUs = now }
			if ack, err = updateWith(replica, at, blocks(ids))(s); err != nil || !ack.GetAccepted() {
				break
			}
		}
		return ack, err
	}
}

func holdWhole(replica, hash string, tokens int32) act {
	return report(update(replica, whole(hash, tokens)))
}

// aged is hold as of some time ago.
func aged(age time.Duration, replica string, ids []uint32) act {
	return func(s *session) (*pb.Ack, error) { // the time is that of the row
		return updateWith(replica, ago(age), blocks(ids))(s)
	}
}

func ago(age time.Duration) func(*pb.CacheStateUpdate) {
	return func(u *pb.CacheStateUpdate) { u.TimestampUs = time.Now().Add(-age).UnixMicro() }
}

// stats reports load alone.
func stats(replica string, hitRate, pressure float32) act {
	return updateWith(replica, func(u *pb.CacheStateUpdate) { u.Stats = &pb.ReplicaStats{HitRate: hitRate, Pressure: pressure} })
}

func agedStats(age time.Duration, replica string, hitRate, pressure float32) act {
	return func(s *session) (*pb.Ack, error) {
		return updateWith(replica, func(u *pb.CacheStateUpdate) {
			u.Stats = &pb.ReplicaStats{HitRate: hitRate, Pressure: pressure}
			ago(age)(u)
		})(s)
	}
}

// join makes replicas members that hold nothing.
func join(replicas ...string) act {
	var updates []*pb.CacheStateUpdate
	for _, r := range replicas {
		u := update(r)
		u.Stats = &pb.ReplicaStats{}
		updates = append(updates, u)
	}
	return report(updates...)
}

// A request is of the row's tenant, which "t" stands for.

type change = func(*pb.LookupRouteRequest)

func ask(changes ...change) *pb.LookupRouteRequest {
	r := &pb.LookupRouteRequest{TenantId: "t", ModelId: "m", HashScheme: "vllm"}
	for _, f := range changes {
		f(r)
	}
	return r
}

func tokens(ids []uint32) change { return func(r *pb.LookupRouteRequest) { r.TokenIds = ids } }

func chain(ids []uint32) change {
	return func(r *pb.LookupRouteRequest) {
		e := blocks(ids)
		r.BlockHashes, r.BlockTokenCounts = e.BlockHashes, e.BlockTokenCounts
	}
}

func packed(ids []uint32) change {
	return func(r *pb.LookupRouteRequest) {
		r.BlockSize = 16
		for _, h := range hashes(ids) {
			r.PackedBlockHashes = append(r.PackedBlockHashes, h...)
		}
	}
}

// opaque asks by a chain of letters, as chainOf reports it.
func opaque(letters string, counts ...int32) change {
	return func(r *pb.LookupRouteRequest) {
		e := chainOf(letters, counts...)
		r.BlockHashes, r.BlockTokenCounts = e.BlockHashes, e.BlockTokenCounts
	}
}

func hash(key string, tokens int32) change {
	return func(r *pb.LookupRouteRequest) { r.PrefixHash, r.PrefixTokenCount = []byte(key), tokens }
}

func text(r *pb.LookupRouteRequest) { r.PromptText = "hello" }

func tenant(id string) change  { return func(r *pb.LookupRouteRequest) { r.TenantId = id } }
func model(id string) change   { return func(r *pb.LookupRouteRequest) { r.ModelId = id } }
func scheme(id string) change  { return func(r *pb.LookupRouteRequest) { r.HashScheme = id } }
func adapter(id string) change { return func(r *pb.LookupRouteRequest) { r.AdapterId = id } }
func ttft(ms int32) change     { return func(r *pb.LookupRouteRequest) { r.Slo = &pb.SLO{TtftMs: ms} } }

// chainSeed and pick restate the affinity rule of the contract.
func chainSeed(keys [][]byte) (seed []byte) {
	for _, k := range keys {
		seed = binary.BigEndian.AppendUint32(seed, uint32(len(k)))
		seed = append(seed, k...)
	}
	return seed
}

func pick(seed []byte, replicas ...string) string {
	slices.Sort(replicas)
	sum := sha256.Sum256(seed)
	return replicas[binary.BigEndian.Uint64(sum[:8])%uint64(len(replicas))]
}
