package snapshot_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

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
	index    index.Index
	registry *registry.Registry
	source   *snapshot.Source
}

func newWorld() *world {
	w := &world{registry: registry.New(registry.Config{}), index: reference.New(index.Config{Reserved: hidden})}
	w.source = &snapshot.Source{Index: w.index, Registry: w.registry, Hidden: hidden}
	return w
}

func partition(tenant, model string) index.Partition {
	return index.Partition{Scope: index.Scope{Tenant: tenant, Model: model, Scheme: "vllm"}}
}

// store makes a cache hold keys, as a report does.
func (w *world) store(tenant, model string, h index.Holder, at time.Time, keys ...uint64) {
	run := index.Run{Keys: index.Keys{Words: keys}, BlockTokens: 16, Tier: index.T1, Evidence: index.At(at)}
	p := partition(tenant, model)
	if err := w.registry.Report(p.Scope, h, 16, at); err != nil {
		panic(err) // far fewer names than it takes
	}
	w.index.Store(p, h, run, index.At(at))
	w.registry.Heard(tenant, model, h, index.At(at))
}

// report makes a cache have statistics.
func (w *world) report(t testing.TB, tenant, model, replica string, s registry.Stats) {
	t.Helper()
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

func TestAnEventSaysThatAReplicaIsAlive(t *testing.T) {
	w := newWorld()
	w.registry.Seen("t", "m", "a", t0, t0)
	w.report(t, "t", "m", "a", registry.Stats{HitRate: 0.5, Reported: t0})
	w.registry.Seen("t", "m", "a", t0.Add(time.Minute), t0.Add(time.Minute))
	if got := w.source.Take().Replicas; len(got) != 1 || !got[0].LastUpdate.Equal(t0.Add(time.Minute)) || got[0].HitRate != 0.5 {
		t.Errorf("rows %+v", got)
	}
}

func TestCertaintyOfAReplicaIsThatOfItsWorstCache(t *testing.T) {
	w := newWorld()
	for rank, certainty := range []pb.ViewCertainty{pb.ViewCertainty_VIEW_CERTAINTY_EXACT, pb.ViewCertainty_VIEW_CERTAINTY_UNCERTAIN} {
		h := index.Holder{Replica: "a", Rank: int32(rank)}
		scope := partition("t", "m").Scope
		if err := w.registry.Join(scope, h, "agent", t0); err != nil {
			t.Fatal(err)
		}
		w.registry.SetCertainty(scope, h, "agent", certainty)
	}
	if got := w.source.Take().Replicas; got != nil {
		t.Errorf("rows %+v of a replica without statistics or entries", got)
	}
	w.store("t", "m", index.Holder{Replica: "a"}, t0, 1)
	w.store("t", "m", index.Holder{Replica: "b"}, t0, 1)
	got := w.source.Take().Replicas
	if len(got) != 2 || got[0].Certainty != "uncertain" || got[1].Certainty != "" {
		t.Errorf("rows %+v", got)
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
			"expire": func(*rapid.T) { w.registry.Expire(t0) },
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
