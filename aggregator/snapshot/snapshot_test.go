package snapshot_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/registry"
	"github.com/inferencecache/inferencecache/aggregator/snapshot"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/index/reference"
)

const hidden = "hidden"

var t0 = time.Unix(1_700_000_000, 0).UTC()

// world is what a snapshot is taken of.
type world struct {
	index     index.Index
	registry  *registry.Registry
	directory *snapshot.Directory
	source    *snapshot.Source
}

func newWorld() *world {
	w := &world{registry: registry.New(registry.Config{}), directory: snapshot.NewDirectory()}
	w.index = w.directory.Watch(reference.New(index.Config{Reserved: hidden}))
	w.source = &snapshot.Source{Index: w.index, Registry: w.registry, Directory: w.directory, Hidden: hidden}
	return w
}

func partition(tenant, model string) index.Partition {
	return index.Partition{Scope: index.Scope{Tenant: tenant, Model: model, Scheme: "vllm"}}
}

// store makes a cache hold keys.
func (w *world) store(tenant, model string, h index.Holder, at time.Time, keys ...uint64) {
	run := index.Run{Keys: index.Keys{Words: keys}, BlockTokens: 16, Tier: index.T1, Evidence: index.At(at)}
	w.index.Store(partition(tenant, model), h, run, index.At(at))
}

// report makes a cache have statistics, as the message of a producer does.
func (w *world) report(t testing.TB, tenant, model, replica string, s registry.Stats) {
	t.Helper()
	w.directory.Message(&pb.CacheStateUpdate{TenantId: tenant, ModelId: model, ReplicaId: replica})
	if err := w.registry.SetStats(tenant, model, index.Holder{Replica: replica}, s, s.Reported); err != nil {
		t.Fatal(err)
	}
}

func (w *world) get(t testing.TB) string {
	t.Helper()
	r := httptest.NewRecorder()
	w.source.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/snapshot", nil))
	if r.Code != http.StatusOK || r.Header().Get("Content-Type") != "application/json" {
		t.Errorf("status %d, type %q", r.Code, r.Header().Get("Content-Type"))
	}
	return r.Body.String()
}

func TestDocumentIsAsTheContractStates(t *testing.T) {
	w := newWorld()
	w.store("t", "m", index.Holder{Replica: "b"}, t0, 1, 2, 3)
	w.store("t", "n", index.Holder{Replica: "b"}, t0.Add(time.Minute), 1)
	w.store("t", "m", index.Holder{Replica: "a"}, t0, 1, 2)
	w.store("s", "m", index.Holder{Replica: "z"}, t0, 9)
	w.store(hidden, "m", index.Holder{Replica: "__probe-x"}, t0, 1)
	w.report(t, "t", "m", "b", registry.Stats{HitRate: 0.9, Reported: t0})
	w.report(t, "t", "n", "b", registry.Stats{
		MemoryBytes: 1000, HitRate: 0.5, Pressure: 0.25, T2HitTokens: 7, T2QueryTokens: 8, Reported: t0.Add(time.Second),
	})
	w.report(t, "t", "m", "c", registry.Stats{HitRate: 0.7, Reported: t0})
	want := `{"replicas":[` +
		`{"replicaId":"z","tenant":"s","cacheMemoryBytes":0,"hitRate":0,"pressure":0,"lastUpdate":"0001-01-01T00:00:00Z","prefixCount":1,"lastEventAt":"2023-11-14T22:13:20Z"},` +
		`{"replicaId":"a","tenant":"t","cacheMemoryBytes":0,"hitRate":0,"pressure":0,"lastUpdate":"0001-01-01T00:00:00Z","prefixCount":2,"lastEventAt":"2023-11-14T22:13:20Z"},` +
		`{"replicaId":"b","tenant":"t","cacheMemoryBytes":1000,"hitRate":0.5,"pressure":0.25,"lastUpdate":"2023-11-14T22:13:21Z","prefixCount":4,"lastEventAt":"2023-11-14T22:14:20Z","statsReported":true,"t2HitTokens":7,"t2QueryTokens":8},` +
		`{"replicaId":"c","tenant":"t","cacheMemoryBytes":0,"hitRate":0.7,"pressure":0,"lastUpdate":"2023-11-14T22:13:20Z","prefixCount":0,"lastEventAt":"0001-01-01T00:00:00Z","statsReported":true}],` +
		`"tenants":[{"tenantId":"s","indexEntries":1,"hitRate":0,"memoryUsed":0},` +
		`{"tenantId":"t","indexEntries":4,"hitRate":0.6,"hitRateReported":true,"memoryUsed":0}],` +
		`"totalPrefixes":5,"hotPrefixes":0,"policy":[]}` + "\n"
	if diff := cmp.Diff(want, w.get(t)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestNothingKnownIsNull(t *testing.T) {
	if got := newWorld().get(t); got != `{"replicas":null,"tenants":null,"totalPrefixes":0,"hotPrefixes":0,"policy":[]}`+"\n" {
		t.Errorf("document %s", got)
	}
}

func TestOtherMethodsAreRefused(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodHead} {
		r := httptest.NewRecorder()
		newWorld().source.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(r, httptest.NewRequest(method, "/snapshot", nil))
		if r.Code != http.StatusMethodNotAllowed || r.Header().Get("Allow") != "GET" {
			t.Errorf("%s: status %d, Allow %q", method, r.Code, r.Header().Get("Allow"))
		}
	}
}

func TestRanksOfAReplicaAreOneRow(t *testing.T) {
	w := newWorld()
	for rank := range int32(3) {
		w.store("t", "m", index.Holder{Replica: "a", Rank: rank}, t0.Add(time.Duration(rank)*time.Second), uint64(rank))
	}
	got := w.source.Take().Replicas
	if len(got) != 1 || got[0].PrefixCount != 3 || !got[0].LastEventAt.Equal(t0.Add(2*time.Second)) {
		t.Errorf("rows %+v", got)
	}
}

func TestConfirmationIsNews(t *testing.T) {
	w := newWorld()
	h := index.Holder{Replica: "a"}
	w.store("t", "m", h, t0, 5)
	var digest index.Digest
	digest.Add(index.T1, 5, 1)
	later := t0.Add(time.Hour)
	w.index.Confirm(partition("t", "m"), h, index.Digest{Count: [2]uint64{1}, XOR: [2]uint64{6}}, index.At(later))
	if got := w.source.Take().Replicas[0].LastEventAt; !got.Equal(t0) {
		t.Errorf("last event %s after a digest that differs", got)
	}
	w.index.Confirm(partition("t", "m"), h, digest, index.At(later))
	if got := w.source.Take().Replicas[0].LastEventAt; !got.Equal(later) {
		t.Errorf("last event %s after one that is equal", got)
	}
}

func TestAgentsModelsAreKnownBeforeTheyHoldAnything(t *testing.T) {
	w := newWorld()
	w.directory.Message(&pb.SyncRequest{Message: &pb.SyncRequest_Delta{Delta: &pb.Delta{Views: []*pb.View{
		{ReplicaId: "a", TenantId: "t", ModelId: "m", HashScheme: "vllm"},
	}}}})
	if err := w.registry.SetStats("t", "m", index.Holder{Replica: "a"}, registry.Stats{Reported: t0}, t0); err != nil {
		t.Fatal(err)
	}
	if got := w.source.Take().Replicas; len(got) != 1 || !got[0].StatsReported {
		t.Errorf("rows %+v", got)
	}
}

func TestNamesThatAreRefusedElsewhereAreNotRemembered(t *testing.T) {
	w := newWorld()
	for _, m := range []*pb.CacheStateUpdate{
		{TenantId: contract.ReservedTenant, ModelId: "m", ReplicaId: "a"},
		{TenantId: "", ModelId: "m", ReplicaId: "a"},
		{TenantId: "t", ModelId: "", ReplicaId: "a"},
		{TenantId: "t", ModelId: "m"},
		{TenantId: strings.Repeat("t", contract.MaxNameBytes+1), ModelId: "m", ReplicaId: "a"},
	} {
		w.directory.Message(m)
	}
	if models, holders := w.directory.Size(); models != 0 || holders != 0 {
		t.Errorf("%d models and %d caches are remembered", models, holders)
	}
}

func TestNamesAreBounded(t *testing.T) {
	w := newWorld()
	for i := range 10_000 {
		w.directory.Message(&pb.CacheStateUpdate{TenantId: "t", ModelId: fmt.Sprint(i), ReplicaId: "a"})
	}
	if models, _ := w.directory.Size(); models != 8192 {
		t.Errorf("%d models are remembered", models)
	}
}

func TestNamesOfNothingAreForgotten(t *testing.T) {
	w := newWorld()
	clock := t0
	w.directory.SetClock(func() time.Time { return clock })
	h := index.Holder{Replica: "a"}
	w.store("t", "holds", h, t0, 1)
	w.store("t", "held", h, t0, 2)
	w.report(t, "t", "reports", "a", registry.Stats{Reported: t0})
	w.directory.Message(&pb.CacheStateUpdate{TenantId: "t", ModelId: "names", ReplicaId: "a"})
	scope := index.Scope{Tenant: "t", Model: "declares", Scheme: "vllm"}
	w.directory.Message(&pb.CacheStateUpdate{TenantId: "t", ModelId: "declares", ReplicaId: "a"})
	if err := w.registry.Join(scope, h, "agent", t0); err != nil {
		t.Fatal(err)
	}
	w.index.Remove(partition("t", "held"), h, index.Keys{Words: []uint64{2}})

	w.source.Prune()
	if models, holders := w.directory.Size(); models != 3 || holders != 1 {
		t.Errorf("%d models and %d caches at first, want all that were named: their state may be on its way", models, holders)
	}
	clock = clock.Add(time.Minute)
	w.source.Prune()
	if models, holders := w.directory.Size(); models != 2 || holders != 1 {
		t.Errorf("%d models and %d caches, want those that report or declare, and that hold", models, holders)
	}
	w.index.Clear(index.Clear{Replica: "a"})
	w.registry.ClearStats("t", "reports", "a")
	w.registry.Leave(scope, h, "agent", t0)
	w.source.Prune()
	if models, holders := w.directory.Size(); models != 0 || holders != 0 {
		t.Errorf("%d models and %d caches are left", models, holders)
	}
}

// A snapshot says what a search of the whole index finds.
func TestSnapshotAgreesWithADump(t *testing.T) {
	tenants, models, replicas := []string{"s", "t", hidden}, []string{"m", "n"}, []string{"a", "b"}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		draw := func(t *rapid.T) (string, string, index.Holder) {
			return rapid.SampledFrom(tenants).Draw(t, "tenant"), rapid.SampledFrom(models).Draw(t, "model"),
				index.Holder{Replica: rapid.SampledFrom(replicas).Draw(t, "replica"), Rank: rapid.Int32Range(0, 1).Draw(t, "rank")}
		}
		keys := rapid.SliceOfN(rapid.Uint64Range(0, 9), 1, 4)
		t.Repeat(map[string]func(*rapid.T){
			"store": func(t *rapid.T) {
				tenant, model, h := draw(t)
				w.store(tenant, model, h, t0, keys.Draw(t, "keys")...)
			},
			"remove": func(t *rapid.T) {
				tenant, model, h := draw(t)
				w.index.Remove(partition(tenant, model), h, index.Keys{Words: keys.Draw(t, "keys")})
			},
			"clear": func(t *rapid.T) {
				tenant, _, h := draw(t)
				w.index.Clear(index.Clear{Replica: h.Replica, Tenant: tenant})
			},
			"prune": func(*rapid.T) { w.source.Prune() },
			"": func(t *rapid.T) {
				pairs, prefixes := map[[2]string]int64{}, map[string]map[string]bool{}
				w.index.Dump(index.Filter{}, func(e index.Entry) bool {
					if e.Partition.Tenant == hidden {
						return true
					}
					pairs[[2]string{e.Partition.Tenant, e.Holder.Replica}]++
					if prefixes[e.Partition.Tenant] == nil {
						prefixes[e.Partition.Tenant] = map[string]bool{}
					}
					prefixes[e.Partition.Tenant][e.Partition.Model+e.Key] = true
					return true
				})
				got, total := w.source.Take(), int64(0)
				for _, r := range got.Replicas {
					if want := pairs[[2]string{r.Tenant, r.ReplicaID}]; r.PrefixCount != want {
						t.Fatalf("%s/%s has %d, want %d", r.Tenant, r.ReplicaID, r.PrefixCount, want)
					}
				}
				for _, tenant := range got.Tenants {
					if want := int64(len(prefixes[tenant.TenantID])); tenant.IndexEntries != want {
						t.Fatalf("tenant %s has %d, want %d", tenant.TenantID, tenant.IndexEntries, want)
					}
					total += tenant.IndexEntries
				}
				if len(got.Replicas) != len(pairs) || len(got.Tenants) != len(prefixes) || got.TotalPrefixes != total {
					t.Fatalf("%d rows, %d tenants, %d prefixes; want %d, %d, %d",
						len(got.Replicas), len(got.Tenants), got.TotalPrefixes, len(pairs), len(prefixes), total)
				}
			},
		})
	})
}

// The cost grows with the replicas; what they hold does not matter.
func BenchmarkTake(b *testing.B) {
	for _, blocks := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("replicas=64/blocks=%d", blocks), func(b *testing.B) {
			w := newWorld()
			keys := make([]uint64, blocks/64)
			for i := range keys {
				keys[i] = uint64(i)
			}
			for i := range 64 {
				w.store("t", "m", index.Holder{Replica: fmt.Sprint(i)}, t0, keys...)
			}
			b.ReportAllocs()
			for b.Loop() {
				w.source.Take()
			}
		})
	}
}

func TestSnapshotSaysWhichPoliciesAreInForce(t *testing.T) {
	w := newWorld()
	store := policy.NewStore(policy.Default(), "cluster", "push")
	w.source.Policies = store
	store.Feed("push").Replace(policy.Set{Policies: map[string]policy.Spec{"team-b": {}}})
	store.Feed("cluster").Replace(policy.Set{
		Policies: map[string]policy.Spec{"team-a": {}, "team-b": {LFU: true}},
		Origins:  map[string]policy.Origin{"team-a": {Name: "default", Generation: 3, ResourceVersion: "77"}},
	})
	got := w.source.Take().Policy
	for i := range got {
		if got[i].Since.IsZero() || got[i].Since.Location() != time.UTC {
			t.Errorf("since %v", got[i].Since)
		}
		got[i].Since = time.Time{}
	}
	want := []snapshot.Policy{
		{Namespace: "team-a", Name: "default", Source: "cluster", Generation: 3, ResourceVersion: "77"},
		{Namespace: "team-b", Source: "push"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
