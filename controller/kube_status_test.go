package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/aggregator/auth"
	"github.com/inferencecache/inferencecache/controller"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// server is a running aggregator.
type server struct {
	pb.InferenceCacheClient
	name, address string // of its Pod, and of /snapshot
	stop          func() // stops it and waits; may be called again
}

// serve runs an aggregator that follows the cluster's policies, and lets in the account of the controller.
func (w *world) serve(t *testing.T, name string) *server {
	t.Helper()
	reviewer, err := auth.NewKubernetes(w.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	a, err := aggregator.New(aggregator.Config{
		Name: name, GRPCAddress: "127.0.0.1:0", HTTPAddress: "127.0.0.1:0", BlockSize: 16,
		PolicyCluster: w.Config(),
		Admin: aggregator.Admin{
			Address: "127.0.0.1:0", Reviewer: reviewer, User: "system:serviceaccount:" + system + ":" + account,
			ControllerAudience: auth.ControllerAudience, PolicyAudience: auth.PolicyAudience,
		},
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	conn, err := grpc.NewClient(a.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{InferenceCacheClient: pb.NewInferenceCacheClient(conn), name: name, address: a.AdminAddr()}
	s.stop = sync.OnceFunc(func() {
		_ = conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("aggregator %s ends with %v", name, err)
		}
	})
	t.Cleanup(s.stop)
	return s
}

func (s *server) url() string { return "http://" + s.address + "/snapshot" }

// report says that a replica holds a number of prefixes, and how it fares.
func (s *server) report(t testing.TB, tenant, replica string, prefixes int, stats *pb.ReplicaStats) {
	t.Helper()
	stream, err := s.ReportCacheState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	update := &pb.CacheStateUpdate{ReplicaId: replica, ModelId: "m", TenantId: tenant, HashScheme: "vllm", Stats: stats}
	for i := range prefixes {
		update.Prefixes = append(update.Prefixes, &pb.PrefixEntry{PrefixHash: fmt.Appendf(nil, "%8d", i), TokenCount: 16})
	}
	if err := stream.Send(update); err != nil {
		t.Fatal(err)
	}
	if ack, err := stream.CloseAndRecv(); err != nil || !ack.GetAccepted() {
		t.Fatalf("ack %v, %v", ack, err)
	}
}

// asks has a controller ask aggregators, with a token of its account for an audience.
func (w *world) asks(t testing.TB, audience string, servers ...*server) func(*controller.Config) {
	t.Helper()
	file := filepath.Join(t.(*testing.T).TempDir(), "token")
	if err := os.WriteFile(file, []byte(w.Token(t, system, account, audience)), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(c *controller.Config) {
		c.WebhookAddress = ""
		c.Aggregators.URLs, c.Aggregators.TokenFile, c.Interval = nil, file, 200*time.Millisecond
		for _, s := range servers {
			c.Aggregators.URLs = append(c.Aggregators.URLs, s.url())
		}
	}
}

// awaitPolls waits until a controller has asked some more times.
func (p *process) awaitPolls(t testing.TB, result string, more int) {
	t.Helper()
	count := func() (n int) {
		_, _ = fmt.Sscan(p.metric(t, `inferencecache_controller_snapshot_polls_total{result="`+result+`"}`), &n)
		return n
	}
	first := count()
	eventually(t, "polls with result "+result, func() error {
		if n := count(); n < first+more {
			return fmt.Errorf("%d until now", n-first)
		}
		return nil
	})
}

// awaitConditions waits until an object has conditions.
func awaitConditions(t testing.TB, w *world, o client.Object, of func() []metav1.Condition, want string) {
	t.Helper()
	eventually(t, "conditions of "+o.GetName(), func() error {
		w.get(t, o)
		if got := conditions(of()); got != want {
			return fmt.Errorf("it has %q, want %q", got, want)
		}
		return nil
	})
}

func (w *world) awaitEvents(t testing.TB, about client.Object, want string) {
	t.Helper()
	eventually(t, "Events on "+about.GetName(), func() error {
		if got := w.events(t, about); got != want {
			return fmt.Errorf("there are %q, want %q", got, want)
		}
		return nil
	})
}

func pointer[T any](v T) *T { return &v }

// objects are one of each kind whose status is kept, beside the CacheIndex.
type objects struct {
	index   *v1alpha1.CacheIndex
	backend *v1alpha1.CacheBackend
	tenant  *v1alpha1.CacheTenant
	policy  *v1alpha1.CachePolicy
}

func (w *world) makeObjects(t testing.TB) *objects {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: "team-a", Name: "o"}
	o := &objects{
		index: &v1alpha1.CacheIndex{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.CacheIndexName}},
		backend: &v1alpha1.CacheBackend{ObjectMeta: meta, Spec: v1alpha1.CacheBackendSpec{
			Runtime:        v1alpha1.RuntimeVLLM,
			Integration:    &v1alpha1.Integration{Mode: v1alpha1.ModeEventsOnly},
			EngineSelector: &v1alpha1.EngineSelector{MatchLabels: map[string]string{v1alpha1.LabelCacheDomain: "chat"}},
		}},
		tenant: &v1alpha1.CacheTenant{ObjectMeta: meta, Spec: v1alpha1.CacheTenantSpec{TenantID: "team-a", Quota: &v1alpha1.TenantQuota{MaxIndexEntries: pointer(int64(100))}}},
		policy: &v1alpha1.CachePolicy{ObjectMeta: meta},
	}
	w.create(t, o.backend, o.tenant, o.policy, pod("pod-0", map[string]string{v1alpha1.LabelCacheDomain: "chat"}, nil),
		pod("pod-1", map[string]string{v1alpha1.LabelCacheDomain: "moved"}, map[string]string{v1alpha1.AnnotationInjectedBy: "team-a/o"}), pod("other", nil, nil))
	return o
}

func pod(name string, labels, annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, Labels: labels, Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "vllm", Image: "vllm"}}},
	}
}

// versions are those of all objects; they stay while nothing is written.
func (o *objects) versions(t testing.TB, w *world) string {
	t.Helper()
	var all []string
	for _, object := range []client.Object{o.index, o.backend, o.tenant, o.policy} {
		w.get(t, object)
		all = append(all, object.GetResourceVersion())
	}
	return strings.Join(all, " ")
}

func TestKubeStatus(t *testing.T) {
	w := newWorld(t)
	server := w.serve(t, "server-0")
	o := w.makeObjects(t)
	p := w.start(t, w.asks(t, auth.ControllerAudience, server), func(c *controller.Config) { c.LeaderElect = true })

	t.Run("of a cluster without engines", func(t *testing.T) {
		awaitConditions(t, w, o.tenant, func() []metav1.Condition { return o.tenant.Status.Conditions }, "Ready=True/Observed QuotaExceeded=False/WithinBudget")
		awaitConditions(t, w, o.policy, func() []metav1.Condition { return o.policy.Status.Conditions }, "Accepted=True/Accepted InForce=True/InForceEverywhere")
		w.get(t, o.index)
		w.get(t, o.backend)
		if *o.tenant.Status.IndexEntries != 0 || o.index.Status.ObservedServer != server.address || o.backend.Status.IndexParticipation != nil {
			t.Errorf("tenant %+v, index %+v, backend %+v", o.tenant.Status, o.index.Status, o.backend.Status)
		}
		if a := o.policy.Status.Aggregators; len(a) != 1 || a[0].Name != "server-0" || a[0].Generation != 1 || !a[0].Since.Equal(o.policy.Status.InForceSince) {
			t.Errorf("policy %+v", o.policy.Status)
		}
		w.awaitEvents(t, o.policy, "Normal InForceEverywhere")
	})

	t.Run("of what replicas report", func(t *testing.T) {
		server.report(t, "team-a", "pod-0", 3, &pb.ReplicaStats{HitRate: 0.5, CacheMemoryBytes: 7, T2HitTokens: 1, T2QueryTokens: 4})
		server.report(t, "team-a", "pod-1", 5, nil)
		server.report(t, "team-a", "other", 7, nil)
		eventually(t, "the CacheBackend has its replicas", func() error {
			w.get(t, o.backend)
			s := o.backend.Status.IndexParticipation
			if s == nil || s.PrefixCount != 8 || s.LastEventAt == nil || s.HitRate == nil || *s.HitRate != "0.5" || s.T2HitRate == nil || *s.T2HitRate != "0.25" {
				return fmt.Errorf("it has %+v", s)
			}
			return nil
		})
		eventually(t, "tenant and index have their entries", func() error {
			w.get(t, o.tenant)
			w.get(t, o.index)
			if *o.tenant.Status.IndexEntries != 7 || o.index.Status.Prefixes.Summary.Total != 7 || len(o.index.Status.Replicas) != 1 || o.index.Status.Replicas[0].ID != "pod-0" {
				return fmt.Errorf("tenant %+v, index %+v", o.tenant.Status, o.index.Status)
			}
			return nil
		})
		if got := p.metric(t, `inferencecache_backend_t2_hit_rate{backend="team-a/o"}`); got != "0.25" {
			t.Errorf("hit rate %q", got)
		}
	})

	t.Run("nothing is written while nothing changes", func(t *testing.T) {
		p.awaitPolls(t, "ok", 2) // what is on its way arrives
		before := o.versions(t, w)
		p.awaitPolls(t, "ok", 5)
		if after := o.versions(t, w); before != after {
			t.Errorf("versions %s, then %s: %+v", before, after, o.index.Status)
		}
	})

	t.Run("follows what authors change", func(t *testing.T) {
		o.tenant.Spec.Quota.MaxIndexEntries = pointer(int64(5))
		o.policy.Spec.Eviction = v1alpha1.EvictionLFU
		twin := &v1alpha1.CacheTenant{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "twin"}, Spec: o.tenant.Spec}
		second := &v1alpha1.CachePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "p"}}
		for _, object := range []client.Object{o.tenant, o.policy} {
			if err := w.Update(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
		w.create(t, twin, second)
		awaitConditions(t, w, twin, func() []metav1.Condition { return twin.Status.Conditions }, "Ready=False/DuplicateTenantID QuotaExceeded=False/NotEffective")
		awaitConditions(t, w, second, func() []metav1.Condition { return second.Status.Conditions }, "Accepted=False/DuplicatePolicy InForce=False/NotAccepted")
		eventually(t, "the new generation is in force", func() error {
			w.get(t, o.policy)
			if s := o.policy.Status; s.ObservedGeneration != 2 || s.InForceSince == nil || s.Aggregators[0].Generation != 2 {
				return fmt.Errorf("it has %+v", s)
			}
			return nil
		})
		w.awaitEvents(t, twin, "Warning DuplicateTenantID")
		w.awaitEvents(t, second, "Warning DuplicatePolicy")
		if err := w.Delete(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		if err := w.Delete(t.Context(), twin); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("stays while no aggregator answers, and says so", func(t *testing.T) {
		w.get(t, o.tenant)
		held := *o.tenant.Status.IndexEntries
		before := o.index.Status.Prefixes
		server.stop()
		awaitConditions(t, w, o.policy, func() []metav1.Condition { return o.policy.Status.Conditions }, "Accepted=True/Accepted InForce=Unknown/NoAggregators")
		eventually(t, "the tenant is not Ready", func() error {
			w.get(t, o.tenant)
			if got := conditions(o.tenant.Status.Conditions); !strings.HasPrefix(got, "Ready=Unknown/NoAggregators QuotaExceeded=") {
				return errors.New(got)
			}
			return nil
		})
		p.awaitPolls(t, "unreachable", 3)
		w.get(t, o.index)
		w.get(t, o.backend)
		if *o.tenant.Status.IndexEntries != held || o.index.Status.Prefixes.Summary.Total == 0 || o.backend.Status.IndexParticipation.PrefixCount == 0 || o.policy.Status.InForceSince == nil {
			t.Errorf("figures are lost: tenant %+v, index %+v (was %+v)", o.tenant.Status, o.index.Status, before)
		}
		w.awaitEvents(t, o.index, "Warning AggregatorsUnreachable")
		if got := p.metric(t, `inferencecache_controller_aggregators{state="failing"}`); got != "1" {
			t.Errorf("%q aggregators are failing", got)
		}
	})
}

func TestKubeIndexIsMadeWhileAggregatorsAreDown(t *testing.T) {
	w := newWorld(t)
	w.start(t, func(c *controller.Config) { c.WebhookAddress, c.Interval = "", 200*time.Millisecond })
	index := &v1alpha1.CacheIndex{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.CacheIndexName}}
	exists := func() error { return w.Get(t.Context(), client.ObjectKeyFromObject(index), index) }
	eventually(t, "there is a CacheIndex", exists)

	w.StopAPIServer(t)
	w.StartAPIServer(t)
	if err := w.Delete(t.Context(), index); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is a CacheIndex again, after the API server was away", exists)
}

func TestKubeStartsBeforeTheAPIServerAndTheDefinitions(t *testing.T) {
	w := newWorld(t)
	definition := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}
	definition.SetName("cachetenants.inferencecache.io")
	if err := w.Delete(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	w.grant(t, &controller.Config{Namespace: system})
	as := w.ServiceAccount(t, system, account)
	w.StopAPIServer(t)
	p := w.startAs(t, as, func(c *controller.Config) {
		c.WebhookAddress, c.LeaderElect, c.Interval = "", true, 200*time.Millisecond
	})
	if code, body := page(t, p.HealthAddr(), "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz %d %s", code, body)
	}
	w.StartAPIServer(t)
	<-p.Leading()
	w.InstallCRDs(t)
	tenant := &v1alpha1.CacheTenant{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "t"}, Spec: v1alpha1.CacheTenantSpec{TenantID: "team-a"}}
	w.create(t, tenant)
	awaitConditions(t, w, tenant, func() []metav1.Condition { return tenant.Status.Conditions }, "Ready=Unknown/NoAggregators QuotaExceeded=False/NoQuota")
}

func TestKubeTwoAggregators(t *testing.T) {
	w := newWorld(t)
	first, second := w.serve(t, "server-0"), w.serve(t, "server-1")
	o := w.makeObjects(t)
	w.start(t, w.asks(t, auth.ControllerAudience, first, second))
	first.report(t, "team-a", "pod-0", 3, nil)
	second.report(t, "team-a", "pod-0", 3, nil)
	second.report(t, "team-a", "pod-1", 4, nil) // the first has not heard of it
	both := first.address + "," + second.address
	if second.address < first.address {
		both = second.address + "," + first.address
	}
	expect := func(observed string, names string) {
		t.Helper()
		eventually(t, "statuses show what both know together", func() error {
			if err := w.Get(t.Context(), client.ObjectKeyFromObject(o.index), o.index); err != nil {
				return err
			}
			w.get(t, o.backend)
			w.get(t, o.policy)
			var in []string
			for _, a := range o.policy.Status.Aggregators {
				in = append(in, a.Name)
			}
			p := o.backend.Status.IndexParticipation
			if o.index.Status.ObservedServer != observed || p == nil || p.PrefixCount != 7 || strings.Join(in, ",") != names ||
				conditions(o.policy.Status.Conditions) != "Accepted=True/Accepted InForce=True/InForceEverywhere" {
				return fmt.Errorf("index %+v, backend %+v, policy %+v", o.index.Status, p, o.policy.Status)
			}
			return nil
		})
	}
	expect(both, "server-0,server-1")
	since := o.policy.Status.InForceSince
	first.stop()
	expect(second.address, "server-1")
	if !o.policy.Status.InForceSince.Equal(since) {
		t.Errorf("in force since %v, was %v", o.policy.Status.InForceSince, since)
	}
}

func TestKubeTokensForAggregators(t *testing.T) {
	w := newWorld(t)
	server := w.serve(t, "server-0")
	var file string
	p := w.start(t, w.asks(t, auth.PolicyAudience, server), func(c *controller.Config) { file = c.Aggregators.TokenFile })
	p.awaitPolls(t, "refused", 1)
	// The kubelet replaces a projected token before it ends.
	if err := os.WriteFile(file, []byte(w.Token(t, system, account, auth.ControllerAudience)), 0o600); err != nil {
		t.Fatal(err)
	}
	p.awaitPolls(t, "ok", 1)
}

func TestKubeLeaderHandsOver(t *testing.T) {
	w := newWorld(t)
	quick := func(c *controller.Config) {
		c.WebhookAddress, c.LeaderElect, c.Lease, c.Interval = "", true, 3*time.Second, 100*time.Millisecond
	}
	first := w.start(t, quick)
	<-first.Leading()
	second := w.start(t, quick)
	second.awaitReady(t)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: controller.LeaseName}}
	w.get(t, lease)
	holder := *lease.Spec.HolderIdentity
	select {
	case <-second.Leading():
		t.Error("both lead")
	default:
	}
	if n := second.metric(t, `inferencecache_controller_snapshot_polls_total{result="unreachable"}`); n != "0" {
		t.Errorf("%s polls by the one that does not lead", n)
	}
	if err := first.stop(); err != nil {
		t.Errorf("the first ends with %v", err)
	}
	<-second.Leading()
	w.get(t, lease)
	if *lease.Spec.HolderIdentity == holder {
		t.Errorf("the Lease is still held by %s", holder)
	}
	second.awaitPolls(t, "unreachable", 2)
}
