package sync

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/inferencecache/inferencecache/aggregator/metrics"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/reference"
)

// FuzzDelta applies two deltas, whatever they contain, and checks that what is stored is sound.
func FuzzDelta(f *testing.F) {
	v := &pb.View{Ref: 1, ReplicaId: "a", TenantId: "t", ModelId: "m", HashScheme: "vllm"}
	change := &pb.Change{View: 1, Stored: []*pb.Run{{Keys: make([]byte, 16), BlockTokens: 16}}}
	for _, d := range []*pb.Delta{
		{Views: []*pb.View{v}, Changes: []*pb.Change{change}},
		{Cleared: []uint32{1}, Changes: []*pb.Change{{View: 1, Removed: make([]byte, 8)}}, Closed: []uint32{1}},
		{Confirms: []*pb.Confirm{{View: 1, T1Count: 1}}, Stats: []*pb.ViewStats{{View: 1, Stats: &pb.ReplicaStats{}}}},
	} {
		b, err := proto.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		x := reference.New(index.Config{})
		s := New(Config{
			Index: x, Registry: registry.New(registry.Config{}), Metrics: metrics.New(x),
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: func() time.Time { return time.Unix(1_700_000_000, 0) },
		})
		c := &connection{service: s, replaced: make(chan struct{}), refused: map[string]uint64{}}
		sess, _, err := s.attach(c, "node-1", 1, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range [][]byte{first, second} {
			d := &pb.Delta{}
			if proto.Unmarshal(b, d) == nil {
				c.apply(sess, d)
			}
		}
		x.Dump(index.Filter{}, func(e index.Entry) bool {
			if len(e.Key) != keyBytes || e.Tokens <= 0 || e.PrefixTokens < e.Tokens || e.Evidence > index.At(s.Now()) || e.Partition.Scheme == "" {
				t.Errorf("stored %+v", e)
			}
			return true
		})
		s.reset(sess)
		if n := x.Counts().Pairs; n != 0 {
			t.Errorf("%d pairs are left of an agent that is gone", n)
		}
	})
}
