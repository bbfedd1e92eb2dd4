package ingest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/aggregator/metrics"
	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/reference"
)

var t0 = time.Unix(1_700_000_000, 0)

func newService() *Service {
	x := reference.New(index.Config{Reserved: contract.ReservedTenant})
	return New(Config{
		Index: x, Registry: registry.New(registry.Config{MaxMembers: 8}), Metrics: metrics.New(x),
		Policy: policy.Same(policy.Default()), Now: func() time.Time { return t0 },
	})
}

// send applies updates as one stream and returns what the Ack says.
func (s *Service) send(updates ...*pb.CacheStateUpdate) string {
	p := newProducer()
	for _, u := range updates {
		s.update(u, p)
	}
	ack := p.ack()
	if ack.Accepted != (ack.ReasonCode == "") {
		return fmt.Sprintf("accepted %v with reason %q", ack.Accepted, ack.ReasonCode)
	}
	return ack.ReasonCode
}

// held lists the index's entries, sorted: scheme/adapter/replica key tokens/prefix tier age.
func (s *Service) held() []string {
	out := []string{}
	s.Index.Dump(index.Filter{}, func(e index.Entry) bool {
		out = append(out, fmt.Sprintf("%s/%s/%s %s %d/%d %v %ds", e.Partition.Scheme, e.Partition.Adapter, e.Holder.Replica,
			strings.TrimLeft(e.Key, "\x00"), e.Tokens, e.PrefixTokens, e.Tier, index.At(t0)-e.Evidence))
		return true
	})
	slices.Sort(out)
	return out
}

func update(change func(*pb.CacheStateUpdate), entries ...*pb.PrefixEntry) *pb.CacheStateUpdate {
	u := &pb.CacheStateUpdate{ReplicaId: "a", TenantId: "t", ModelId: "m", HashScheme: "vllm", Prefixes: entries}
	if change != nil {
		change(u)
	}
	return u
}

func whole(hash string, tokens int32) *pb.PrefixEntry {
	return &pb.PrefixEntry{PrefixHash: []byte(hash), TokenCount: tokens}
}

// chainOf makes a chain of blocks of the given sizes, named by letters.
func chainOf(hashes string, counts ...int32) *pb.PrefixEntry {
	e := &pb.PrefixEntry{BlockTokenCounts: counts}
	for _, h := range hashes {
		e.BlockHashes = append(e.BlockHashes, []byte("0000000"+string(h)))
	}
	return e
}

func TestReports(t *testing.T) {
	const good = "vllm//a good 16/16 T1 0s"
	for name, c := range map[string]struct {
		update *pb.CacheStateUpdate
		ack    string
		held   []string
	}{
		"a whole prefix": {update(nil, whole("good", 16)), "", []string{good}},
		"a chain, block by block": {
			update(nil, chainOf("xy", 16, 16)), "",
			[]string{"vllm//a 0000000x 16/16 T1 0s", "vllm//a 0000000y 16/32 T1 0s"},
		},
		"a chain of changing block sizes": {
			update(nil, chainOf("xyz", 16, 16, 4)), "",
			[]string{"vllm//a 0000000x 16/16 T1 0s", "vllm//a 0000000y 16/32 T1 0s", "vllm//a 0000000z 4/36 T1 0s"},
		},
		"a chain and a whole prefix in one entry": {
			update(nil, &pb.PrefixEntry{PrefixHash: []byte("good"), TokenCount: 16, BlockHashes: [][]byte{[]byte("w")}, BlockTokenCounts: []int32{8}}), "",
			[]string{good, "vllm//a w 8/8 T1 0s"},
		},
		"the entry's adapter goes before the update's": {
			update(func(u *pb.CacheStateUpdate) { u.AdapterId = "base" }, whole("good", 16), &pb.PrefixEntry{PrefixHash: []byte("h"), TokenCount: 1, AdapterId: "own"}), "",
			[]string{"vllm/base/a good 16/16 T1 0s", "vllm/own/a h 1/1 T1 0s"},
		},
		"a tier is kept, an unknown one is the coldest": {
			update(nil, &pb.PrefixEntry{PrefixHash: []byte("h2"), TokenCount: 1, Tier: 2}, &pb.PrefixEntry{PrefixHash: []byte("h9"), TokenCount: 1, Tier: 9}, &pb.PrefixEntry{PrefixHash: []byte("hm"), TokenCount: 1, Tier: -1}), "",
			[]string{"vllm//a h2 1/1 T2 0s", "vllm//a h9 1/1 unspecified 0s", "vllm//a hm 1/1 unspecified 0s"},
		},
		"a time in the past ages the entry": {update(func(u *pb.CacheStateUpdate) { u.TimestampUs = t0.Add(-time.Minute).UnixMicro() }, whole("good", 16)), "", []string{"vllm//a good 16/16 T1 60s"}},
		"a time in the future is now":       {update(func(u *pb.CacheStateUpdate) { u.TimestampUs = math.MaxInt64 }, whole("good", 16)), "", []string{good}},
		"a time a TTL ago is stale":         {update(func(u *pb.CacheStateUpdate) { u.TimestampUs = t0.Add(-30 * time.Minute).UnixMicro() }, whole("x", 16), whole("y", 16)), "stale_timestamp=2", nil},
		"a time before 1970 is stale":       {update(func(u *pb.CacheStateUpdate) { u.TimestampUs = -5 }, whole("x", 16)), "stale_timestamp=1", nil},
		"a ragged chain goes, its neighbour stays": {
			update(nil, chainOf("xy", 16), whole("good", 16), &pb.PrefixEntry{BlockTokenCounts: []int32{1}}), "ragged_chain=2", []string{good},
		},
		"a ragged chain takes its whole prefix along": {update(nil, &pb.PrefixEntry{PrefixHash: []byte("p"), TokenCount: 16, BlockHashes: [][]byte{[]byte("x")}}), "ragged_chain=1", nil},
		"an empty block hash":                         {update(nil, &pb.PrefixEntry{BlockHashes: [][]byte{{}}, BlockTokenCounts: []int32{1}}, whole("good", 16)), "empty_block_hash=1", []string{good}},
		"no hash at all":                              {update(nil, &pb.PrefixEntry{TokenCount: 16}, whole("good", 16)), "empty_prefix_hash=1", []string{good}},
		"token counts of 0 and below":                 {update(nil, whole("x", 0), whole("y", -1), chainOf("z", 0), whole("good", 16)), "invalid_token_count=3", []string{good}},
		"a chain of more tokens than fit":             {update(nil, chainOf("xy", math.MaxInt32, 16), whole("good", 16)), "token_count_overflow=1", []string{good}},
		"a hash beyond reason":                        {update(nil, whole(strings.Repeat("h", 257), 16), whole("good", 16)), "hash_too_long=1", []string{good}},
		"an adapter beyond reason":                    {update(nil, &pb.PrefixEntry{PrefixHash: []byte("h"), TokenCount: 1, AdapterId: strings.Repeat("a", 513)}, whole("good", 16)), "name_too_long=1", []string{good}},
		"no hash scheme":                              {update(func(u *pb.CacheStateUpdate) { u.HashScheme = "" }, whole("x", 16)), "empty_hash_scheme=1", nil},
		"no replica":                                  {update(func(u *pb.CacheStateUpdate) { u.ReplicaId = "" }, whole("x", 16)), "empty_replica_id=1", nil},
		"no tenant":                                   {update(func(u *pb.CacheStateUpdate) { u.TenantId = "" }, whole("x", 16)), "empty_tenant_id=1", nil},
		"no model, and nothing else":                  {update(func(u *pb.CacheStateUpdate) { u.ModelId = "" }), "empty_model_id=1", nil},
		"a model beyond reason":                       {update(func(u *pb.CacheStateUpdate) { u.ModelId = strings.Repeat("m", 513) }, whole("x", 16)), "name_too_long=1", nil},
		"the reserved tenant, silently":               {update(func(u *pb.CacheStateUpdate) { u.TenantId = contract.ReservedTenant }, whole("x", 16)), "", nil},
		"several reasons in order":                    {update(nil, whole("x", 0), whole("", 1), whole("y", 0)), "empty_prefix_hash=1,invalid_token_count=2", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService()
			if ack := s.send(c.update); ack != c.ack {
				t.Errorf("ack %q, want %q", ack, c.ack)
			}
			if got := s.held(); !slices.Equal(got, c.held) {
				t.Errorf("held %q, want %q", got, c.held)
			}
		})
	}
}

func TestReportsAreAdditiveAndTheLastTierWins(t *testing.T) {
	s := newService()
	s.send(update(nil, whole("x", 16)), update(nil, whole("y", 16)), update(nil, &pb.PrefixEntry{PrefixHash: []byte("x"), TokenCount: 16, Tier: 2}))
	if got := s.held(); !slices.Equal(got, []string{"vllm//a x 16/16 T2 0s", "vllm//a y 16/16 T1 0s"}) {
		t.Errorf("held %q", got)
	}
	s.send(update(func(u *pb.CacheStateUpdate) { u.TimestampUs = t0.Add(-time.Minute).UnixMicro() }, whole("x", 16)))
	if got := s.held()[0]; got != "vllm//a x 16/16 T2 0s" {
		t.Errorf("an older report moved the entry: %q", got)
	}
}

func TestStatisticsNeedNoHashScheme(t *testing.T) {
	s := newService()
	ack := s.send(update(func(u *pb.CacheStateUpdate) {
		u.HashScheme = ""
		u.Stats = &pb.ReplicaStats{ReplicaId: "ignored", HitRate: 0.5}
	}, whole("x", 16)))
	if ack != "empty_hash_scheme=1" {
		t.Errorf("ack %q", ack)
	}
	if got := s.Registry.Replicas("t", "m"); len(got) != 1 || got[0].Replica != "a" || got[0].HitRate != 0.5 {
		t.Errorf("replicas %v", got)
	}
}

func TestAReplicaThatHoldsNothingIsAMember(t *testing.T) {
	s := newService()
	s.send(update(func(u *pb.CacheStateUpdate) { u.Stats = &pb.ReplicaStats{} }))
	if m := s.Registry.Members(index.Scope{Tenant: "t", Model: "m", Scheme: "vllm"}); len(m.List) != 1 {
		t.Errorf("members %v", m.List)
	}
}

func TestNamesOfOneProducerAreBounded(t *testing.T) {
	s := newService()
	var updates []*pb.CacheStateUpdate
	for i := range 20 {
		updates = append(updates, update(func(u *pb.CacheStateUpdate) { u.ReplicaId = fmt.Sprint(i) }, whole("x", 16)))
	}
	if ack := s.send(updates...); ack != "too_many_names=12" {
		t.Errorf("ack %q", ack)
	}
	if n := len(s.held()); n != 8 {
		t.Errorf("%d entries", n)
	}
}

func TestEvents(t *testing.T) {
	event := func(kind pb.CacheEvent_Type, change func(*pb.CacheEvent)) *pb.CacheEvent {
		e := &pb.CacheEvent{Type: kind, ReplicaId: "a", TenantId: "t", ModelId: "m"}
		if change != nil {
			change(e)
		}
		return e
	}
	x := func(e *pb.CacheEvent) { e.PrefixHash = []byte("x") }
	all := []string{"sglang//a x 16/16 T1 0s", "vllm//a x 16/16 T1 0s", "vllm//a y 16/16 T1 0s", "vllm//b x 16/16 T1 0s", "vllm/lora/a x 16/16 T1 0s"}
	for name, c := range map[string]struct {
		event *pb.CacheEvent
		ack   string
		gone  []int // of all
	}{
		"an eviction reaches every scheme and adapter": {event(pb.CacheEvent_PREFIX_EVICTED, x), "", []int{0, 1, 4}},
		"an eviction of one adapter":                   {event(pb.CacheEvent_PREFIX_EVICTED, func(e *pb.CacheEvent) { x(e); e.AdapterId = "lora" }), "", []int{4}},
		"an eviction of nothing known":                 {event(pb.CacheEvent_PREFIX_EVICTED, func(e *pb.CacheEvent) { e.PrefixHash = []byte("q") }), "", nil},
		"an eviction that names nothing":               {event(pb.CacheEvent_PREFIX_EVICTED, nil), "empty_prefix_hash=1", nil},
		"a clear":                                      {event(pb.CacheEvent_ALL_CLEARED, func(e *pb.CacheEvent) { e.AdapterId = "ignored" }), "", []int{0, 1, 2, 4}},
		"a clear of another model":                     {event(pb.CacheEvent_ALL_CLEARED, func(e *pb.CacheEvent) { e.ModelId = "other" }), "", nil},
		"a clear without a replica":                    {event(pb.CacheEvent_ALL_CLEARED, func(e *pb.CacheEvent) { e.ReplicaId = "" }), "empty_replica_id=1", nil},
		"a clear without a tenant":                     {event(pb.CacheEvent_ALL_CLEARED, func(e *pb.CacheEvent) { e.TenantId = "" }), "empty_tenant_id=1", nil},
		"a clear of the reserved tenant, silently":     {event(pb.CacheEvent_ALL_CLEARED, func(e *pb.CacheEvent) { e.TenantId = contract.ReservedTenant }), "", nil},
		"an addition changes nothing":                  {event(pb.CacheEvent_PREFIX_ADDED, x), "", nil},
		"a sign of life changes nothing here":          {event(pb.CacheEvent_REPLICA_UPDATED, nil), "", nil},
		"no type changes nothing":                      {event(pb.CacheEvent_UNSPECIFIED, x), "", nil},
		"a type of a later version changes nothing":    {event(99, x), "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService()
			s.send(
				update(nil, whole("x", 16), whole("y", 16), &pb.PrefixEntry{PrefixHash: []byte("x"), TokenCount: 16, AdapterId: "lora"}),
				update(func(u *pb.CacheStateUpdate) { u.HashScheme = "sglang" }, whole("x", 16)),
				update(func(u *pb.CacheStateUpdate) { u.ReplicaId = "b" }, whole("x", 16)),
			)
			if ack := s.PublishEvent(c.event); ack.ReasonCode != c.ack || ack.Accepted != (c.ack == "") {
				t.Errorf("ack %v, want %q", ack, c.ack)
			}
			var want []string
			for i, e := range all {
				if !slices.Contains(c.gone, i) {
					want = append(want, e)
				}
			}
			if got := s.held(); !slices.Equal(got, want) {
				t.Errorf("held %q, want %q", got, want)
			}
		})
	}
}

func TestClearForgetsStatisticsAndKeepsTheMember(t *testing.T) {
	s := newService()
	s.send(update(func(u *pb.CacheStateUpdate) { u.Stats = &pb.ReplicaStats{HitRate: 1} }, whole("x", 16)))
	s.PublishEvent(&pb.CacheEvent{Type: pb.CacheEvent_ALL_CLEARED, ReplicaId: "a", TenantId: "t", ModelId: "m"})
	if got := s.Registry.Replicas("t", "m"); len(got) != 0 {
		t.Errorf("replicas %v", got)
	}
	if m := s.Registry.Members(index.Scope{Tenant: "t", Model: "m", Scheme: "vllm"}); len(m.List) != 1 {
		t.Errorf("members %v", m.List)
	}
}

func FuzzUpdate(f *testing.F) {
	seed, err := proto.Marshal(update(nil, whole("x", 16), chainOf("xy", 16, 16)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		u := &pb.CacheStateUpdate{}
		if proto.Unmarshal(b, u) != nil {
			return
		}
		s := newService()
		s.send(u)
		s.Index.Dump(index.Filter{}, func(e index.Entry) bool {
			if e.Key == "" || e.Tokens <= 0 || e.PrefixTokens <= 0 || e.Evidence > index.At(t0) || e.Holder.Replica == "" || e.Partition.Scheme == "" {
				t.Errorf("stored %+v", e)
			}
			return true
		})
	})
}
