package sync

import (
	"encoding/binary"
	"testing"
	"time"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

// evidence returns the last evidence of the only entry.
func (l *leased) evidence() (at time.Time) {
	l.t.Helper()
	entries := 0
	l.service.Index.Dump(index.Filter{}, func(e index.Entry) bool {
		entries++
		at = e.Evidence.Time()
		return true
	})
	if entries != 1 {
		l.t.Fatalf("%d entries, want 1", entries)
	}
	return at
}

func states(c pb.ViewCertainty) []*pb.ViewState { return []*pb.ViewState{{View: 1, Certainty: c}} }

func TestAnUncertainViewIsNotConfirmed(t *testing.T) {
	const key = 7
	confirm := []*pb.Confirm{{View: 1, T1Count: 1, T1Xor: key}}
	for name, tt := range map[string]struct {
		certainty pb.ViewCertainty
		confirmed bool
	}{
		"an agent that does not say":      {pb.ViewCertainty_VIEW_CERTAINTY_UNSPECIFIED, true},
		"exact":                           {pb.ViewCertainty_VIEW_CERTAINTY_EXACT, true},
		"partial: what is known is right": {pb.ViewCertainty_VIEW_CERTAINTY_PARTIAL, true},
		"uncertain":                       {pb.ViewCertainty_VIEW_CERTAINTY_UNCERTAIN, false},
		"a word of a later version":       {9, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeased(t)
			begin := l.now
			l.delta(&pb.Delta{States: states(tt.certainty), Changes: []*pb.Change{{View: 1, Stored: []*pb.Run{{
				Keys: binary.BigEndian.AppendUint64(nil, key), BlockTokens: 16, Tier: pb.CacheTier_CACHE_TIER_T1,
			}}}}})
			l.now = l.now.Add(5 * time.Second)
			l.delta(&pb.Delta{Confirms: confirm})
			want := begin
			if tt.confirmed {
				want = l.now
			}
			if got := l.evidence(); !got.Equal(want) {
				t.Errorf("evidence of %s, want %s", got, want)
			}
			if known := l.service.Registry.Known(); len(known) != 1 || !known[0].Event.Time().Equal(want) {
				t.Errorf("known %+v, want an event at %s", known, want)
			}
		})
	}
}

func TestCertaintyIsThatOfTheLastState(t *testing.T) {
	l := newLeased(t)
	views := func() pb.ViewCertainty { return l.service.Registry.Views("t", "m", l.now)[0].Certainty }
	for _, c := range []pb.ViewCertainty{
		pb.ViewCertainty_VIEW_CERTAINTY_EXACT, pb.ViewCertainty_VIEW_CERTAINTY_UNCERTAIN, pb.ViewCertainty_VIEW_CERTAINTY_PARTIAL,
	} {
		l.delta(&pb.Delta{States: states(c)})
		l.delta(&pb.Delta{}) // says nothing of it
		if got := views(); got != c {
			t.Errorf("certainty %s, want %s", got, c)
		}
	}
	l.delta(&pb.Delta{Views: []*pb.View{{Ref: 1, ReplicaId: "a", TenantId: "t", ModelId: "m", HashScheme: "vllm"}}})
	if got := views(); got != pb.ViewCertainty_VIEW_CERTAINTY_PARTIAL {
		t.Errorf("certainty %s after the same declaration", got)
	}
	l.delta(&pb.Delta{States: []*pb.ViewState{{View: 2}}})
	if l.conn.refused["unknown_view"] != 1 {
		t.Errorf("refused %v, want one state of a view that was never declared", l.conn.refused)
	}
}

func TestVersionsAreThoseOfTheLastHello(t *testing.T) {
	l := newLeased(t)
	if got := l.service.Versions(); len(got) != 1 || got["node-1"] != "v1" {
		t.Errorf("versions %v", got)
	}
	if _, _, err := l.service.attach(&connection{service: l.service, replaced: make(chan struct{})}, "node-1", 1, "v2"); err != nil {
		t.Fatal(err)
	}
	if got := l.service.Versions(); len(got) != 1 || got["node-1"] != "v2" {
		t.Errorf("versions %v", got)
	}
}
