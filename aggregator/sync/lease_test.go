package sync

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/metrics"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/reference"
)

// leased is an agent of one cache at a service with a lease of 10 s and a clock that is set by hand.
type leased struct {
	t       *testing.T
	now     time.Time
	service *Service
	conn    *connection
	seq     uint64
}

func newLeased(t *testing.T) *leased {
	t.Helper()
	l := &leased{t: t, now: time.Unix(1_700_000_000, 0)}
	x := reference.New(index.Config{})
	l.service = New(Config{
		Index: x, Registry: registry.New(registry.Config{}), Metrics: metrics.New(x), Lease: 10 * time.Second,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: func() time.Time { return l.now },
	})
	l.connect()
	l.delta(&pb.Delta{Views: []*pb.View{{Ref: 1, ReplicaId: "a", TenantId: "t", ModelId: "m", HashScheme: "vllm"}}})
	return l
}

func (l *leased) connect() {
	l.t.Helper()
	l.conn = &connection{service: l.service, replaced: make(chan struct{}), refused: map[string]uint64{}}
	sess, applied, err := l.service.attach(l.conn, "node-1", 1, "v1")
	if err != nil {
		l.t.Fatal(err)
	}
	l.conn.session, l.seq = sess, applied
}

func (l *leased) delta(d *pb.Delta) {
	l.t.Helper()
	l.seq++
	d.Seq = l.seq
	if err := l.conn.take(d); err != nil {
		l.t.Fatal(err)
	}
}

// state lets time pass and says what the lease is worth then, and how many caches may be hinted.
func (l *leased) state(after time.Duration) (string, int) {
	l.now = l.now.Add(after)
	state := l.service.checkLease(l.conn.session)
	return state, len(l.service.Registry.Members(index.Scope{Tenant: "t", Model: "m", Scheme: "vllm"}).List)
}

func TestLease(t *testing.T) {
	beat := func(l *leased) { l.delta(&pb.Delta{}) }
	detach := func(l *leased) { l.conn.detach() }
	for name, tt := range map[string]struct {
		after   []time.Duration
		do      []func(*leased)
		state   string
		members int
	}{
		"an agent that beats keeps it": {
			[]time.Duration{9 * time.Second, 9 * time.Second}, []func(*leased){beat}, stateConnected, 1,
		},
		"an agent that is away for less than a lease is hinted": {
			[]time.Duration{time.Second, 8 * time.Second}, []func(*leased){detach}, stateAbsent, 1,
		},
		"an agent that is silent for a lease is not": {
			[]time.Duration{11 * time.Second}, nil, stateExpired, 0,
		},
		"the end of a stream is no sign of life": {
			[]time.Duration{9 * time.Second, 2 * time.Second}, []func(*leased){detach}, stateExpired, 0,
		},
		"a new stream brings the agent back, its first delta its caches": {
			[]time.Duration{11 * time.Second, time.Second}, []func(*leased){(*leased).connect}, stateConnected, 0,
		},
		"a beat brings the caches back": {
			[]time.Duration{11 * time.Second, time.Second}, []func(*leased){beat}, stateConnected, 1,
		},
		"an agent that is silent on an open stream is not given up": {
			[]time.Duration{500 * time.Second}, nil, stateExpired, 0,
		},
		"an agent without a stream is": {
			[]time.Duration{time.Second, 110 * time.Second}, []func(*leased){detach}, stateGone, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeased(t)
			var state string
			var members int
			for i, after := range tt.after {
				state, members = l.state(after)
				if i < len(tt.do) {
					tt.do[i](l)
				}
			}
			if state != tt.state || members != tt.members {
				t.Errorf("%s with %d members, want %s with %d", state, members, tt.state, tt.members)
			}
		})
	}
}
