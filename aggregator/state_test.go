package aggregator_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/inferencecache/inferencecache/aggregator"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// clock is a time that tests set, apart from that of the machine.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.at.Store(time.Unix(1_700_000_000, 0).UnixNano())
	return c
}

func (c *clock) now() time.Time          { return time.Unix(0, c.at.Load()) }
func (c *clock) pass(d time.Duration)    { c.at.Add(int64(d)) }
func (c *clock) of(a *aggregator.Config) { a.Now = c.now }

// notes is a log that a test reads while it is written.
type notes struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *notes) say(text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Contains(n.text.String(), text)
}

func (s *server) state(t *testing.T) *pb.GetCacheStateResponse {
	t.Helper()
	got, err := s.GetCacheState(t.Context(), &pb.GetCacheStateRequest{TenantId: "t", ModelId: "m"})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestStateSaysWhoVouchesForWhatAndHowFar(t *testing.T) {
	log := &notes{}
	s := start(t, func(c *aggregator.Config) { c.Version, c.Log = "v2", slog.New(slog.NewTextHandler(log, nil)) })
	a := s.greet(t, &pb.Hello{AgentId: "node-1", AgentEpoch: 1, AgentVersion: "v1"})
	if a.welcome.AggregatorVersion != "v2" {
		t.Errorf("welcome %v", a.welcome)
	}
	if !log.say("agent is of another version") {
		t.Error("the skew is not logged")
	}
	a.apply(&pb.Delta{
		Seq: 1, Views: []*pb.View{view(1, "pod-a", 0), view(2, "pod-a", 1)},
		States: []*pb.ViewState{
			{View: 1, Certainty: pb.ViewCertainty_VIEW_CERTAINTY_EXACT}, {View: 2, Certainty: pb.ViewCertainty_VIEW_CERTAINTY_PARTIAL},
		},
	})
	s.report(t, chainUpdate("pod-b", tokens(64, 1)))
	want := []*pb.CacheView{
		{ReplicaId: "pod-a", HashScheme: "vllm", Certainty: pb.ViewCertainty_VIEW_CERTAINTY_EXACT, AgentId: "node-1", AgentVersion: "v1", Live: true},
		{ReplicaId: "pod-a", Rank: 1, HashScheme: "vllm", Certainty: pb.ViewCertainty_VIEW_CERTAINTY_PARTIAL, AgentId: "node-1", AgentVersion: "v1", Live: true},
		{ReplicaId: "pod-b", HashScheme: "vllm", Live: true},
	}
	got := s.state(t)
	if diff := cmp.Diff(want, got.Views, protocmp.Transform()); diff != "" || got.AggregatorVersion != "v2" {
		t.Errorf("version %q, -want +got\n%s", got.AggregatorVersion, diff)
	}
	s.series(t, `inferencecache_views{certainty="exact"} 1`)
	s.series(t, `inferencecache_views{certainty="partial"} 1`)
	s.series(t, `inferencecache_views{certainty="uncertain"} 0`)
	s.series(t, `inferencecache_agent_versions{version="v1"} 1`)
}

func TestReplicasThatDisagreeAboutTheirClientVersionShow(t *testing.T) {
	log := &notes{}
	s := start(t, func(c *aggregator.Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	of := func(replica, version string) *pb.CacheStateUpdate {
		u := idle(replica)
		u.Stats.ClientVersion = version
		return u
	}
	s.report(t, of("pod-a", "0.3.1"), of("pod-b", "0.3.1"))
	s.series(t, `inferencecache_client_versions{version="0.3.1"} 2`)
	s.report(t, of("pod-b", "0.4.0"))
	s.series(t, `inferencecache_client_versions{version="0.4.0"} 1`)
	eventually(t, "the disagreement is logged", func() bool { return log.say(`versions="0.3.1, 0.4.0"`) })
	if got := s.state(t).Replicas; len(got) != 2 || got[0].ClientVersion != "0.3.1" || got[1].ClientVersion != "0.4.0" {
		t.Errorf("replicas %v", got)
	}
}

// Agents send ages, so that clocks that disagree by hours change nothing; and the aggregator's own time is
// what entries age by.
func TestAgesCountWhateverTheClocksSay(t *testing.T) {
	c := newClock() // years behind the agent's, which is the machine's
	s := start(t, open, c.of)
	a := s.connect(t, "node-1", 1)
	ids := tokens(128, 1)
	old := run(ids, 16)
	old.AgeMs = uint32((10 * time.Minute).Milliseconds())
	a.apply(&pb.Delta{Seq: 1, Views: []*pb.View{view(1, "pod-a", 0), view(2, "pod-b", 0)}, Changes: []*pb.Change{stored(1, old)}, Complete: true})
	age := func() int64 {
		t.Helper()
		entries := s.dump(t, &pb.DumpIndexRequest{})
		if len(entries) != 8 {
			t.Fatalf("%d entries", len(entries))
		}
		return entries[0].AgeSeconds
	}
	if got := age(); got != 600 {
		t.Errorf("an entry of 10 minutes is %d s old", got)
	}
	c.pass(5 * time.Minute)
	a.apply(&pb.Delta{Seq: 2})
	if got := age(); got != 900 {
		t.Errorf("5 minutes later it is %d s old", got)
	}
	resp := s.lookupRoute(t, byTokens(ids))
	if resp.ReasonCode != "PREFIX_MATCH" || resp.ReplicaScores[0].EstimatedCacheHitProb != 0.5 {
		t.Errorf("response %v, want half of the 30 minutes gone", resp)
	}
	c.pass(15 * time.Minute)
	a.apply(&pb.Delta{Seq: 3})
	if got := s.lookupRoute(t, byTokens(ids)).ReasonCode; got == "PREFIX_MATCH" {
		t.Errorf("reason %s at the end of its time to live", got)
	}
	eventually(t, "the entries are dropped", func() bool { return len(s.dump(t, &pb.DumpIndexRequest{})) == 0 })
}

func TestTimestampsOfProducersAreClampedToTheAggregatorsTime(t *testing.T) {
	c := newClock()
	s := start(t, open, c.of)
	ahead, behind := chainUpdate("pod-a", tokens(64, 1)), chainUpdate("pod-b", tokens(64, 1))
	ahead.TimestampUs = c.now().Add(1000 * time.Hour).UnixMicro()
	behind.TimestampUs = c.now().Add(-10 * time.Minute).UnixMicro()
	s.report(t, ahead, behind)
	ages := map[string]int64{}
	for _, e := range s.dump(t, &pb.DumpIndexRequest{}) {
		ages[e.ReplicaId] = e.AgeSeconds
	}
	if ages["pod-a"] != 0 || ages["pod-b"] != 600 {
		t.Errorf("ages %v", ages)
	}
}

func TestHotPrefixesAreThoseThatAnswersRestOnOften(t *testing.T) {
	c := newClock()
	s := start(t, open, c.of, func(a *aggregator.Config) { a.HotPrefixUses = 3 })
	ids := tokens(256, 1)
	s.report(t, chainUpdate("pod-a", ids), idle("pod-b"))
	hot := func() (state, snapshot int64) {
		t.Helper()
		_, body := s.send(t, http.MethodGet, "/snapshot", "", "")
		var doc struct{ HotPrefixes int64 }
		if err := json.Unmarshal([]byte(body), &doc); err != nil {
			t.Fatal(err)
		}
		return s.state(t).Summary.HotPrefixes, doc.HotPrefixes
	}
	want := func(n int64) {
		t.Helper()
		if state, snapshot := hot(); state != n || snapshot != n {
			t.Errorf("%d hot prefixes in the state, %d in the snapshot, want %d", state, snapshot, n)
		}
	}
	for range 2 {
		s.lookupRoute(t, byTokens(ids))
		s.lookupRoute(t, byTokens(ids[:128]))
		s.lookupRoute(t, byTokens(tokens(128, 7777))) // matches nothing
	}
	want(0)
	s.lookupRoute(t, byTokens(ids))
	want(1)
	s.lookupRoute(t, byTokens(append(ids[:128:128], tokens(64, 99)...))) // the longest match counts
	want(2)
	c.pass(10 * time.Minute)
	eventually(t, "uses are forgotten", func() bool { n, _ := hot(); return n == 0 })
}

func TestAnEventMovesTheLastUpdateToItsTime(t *testing.T) {
	c := newClock()
	s := start(t, open, c.of)
	s.report(t, idle("pod-a"))
	updated := func(ago time.Duration) string {
		t.Helper()
		_, err := s.PublishEvent(t.Context(), &pb.CacheEvent{
			Type: pb.CacheEvent_REPLICA_UPDATED, ReplicaId: "pod-a", TenantId: "t", ModelId: "m", TimestampUs: c.now().Add(-ago).UnixMicro(),
		})
		if err != nil {
			t.Fatal(err)
		}
		_, body := s.send(t, http.MethodGet, "/snapshot", "", "")
		var doc struct{ Replicas []struct{ LastUpdate string } }
		if err := json.Unmarshal([]byte(body), &doc); err != nil || len(doc.Replicas) != 1 {
			t.Fatalf("snapshot %s, %v", body, err)
		}
		return doc.Replicas[0].LastUpdate
	}
	c.pass(10 * time.Minute)
	for _, step := range []struct {
		ago  time.Duration
		want string
	}{
		{4 * time.Minute, "2023-11-14T22:19:20Z"},
		{8 * time.Minute, "2023-11-14T22:19:20Z"}, // older than what is known
		{-time.Hour, "2023-11-14T22:23:20Z"},      // the future is now
	} {
		if got := updated(step.ago); got != step.want {
			t.Errorf("an event of %s ago: last update %s, want %s", step.ago, got, step.want)
		}
	}
}
