package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/inferencecache/inferencecache/controller"
	"github.com/inferencecache/inferencecache/controller/certs"
	"github.com/inferencecache/inferencecache/controller/fleet"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
	"github.com/inferencecache/inferencecache/hack/kube/kubetest"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // these are global
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(m.Run()) //nolint:forbidigo // as any TestMain
}

const (
	system  = "inference-cache-system"
	account = "inference-cache-controller-manager"
)

// world is a cluster as an administrator sees it.
type world struct {
	*kubetest.Cluster
	client.Client
	warnings *warnings
}

// warnings are those that the API server has sent.
type warnings struct {
	mu  sync.Mutex
	all []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// take returns what has come since the last call.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}

func kinds(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// newWorld starts a cluster with the definitions of the kinds, some namespaces, and the webhooks' Secret.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Cluster: kubetest.Start(t), warnings: &warnings{}}
	config := w.Config()
	config.WarningHandler = w.warnings
	var err error
	if w.Client, err = client.New(config, client.Options{Scheme: kinds(t)}); err != nil {
		t.Fatal(err)
	}
	w.InstallCRDs(t)
	for _, name := range []string{system, "team-a", "team-b", "b"} {
		w.Namespace(t, name)
	}
	w.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: controller.DefaultSecret}})
	return w
}

func (w *world) create(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := w.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// get reads an object again.
func (w *world) get(t testing.TB, o client.Object) {
	t.Helper()
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
}

// grant gives an account the permissions that a controller with the configuration needs, and no more.
func (w *world) grant(t testing.TB, config *controller.Config) {
	t.Helper()
	p := controller.PermissionsOf(config)
	subject := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: system, Name: account}}
	meta := metav1.ObjectMeta{Name: account}
	inside := metav1.ObjectMeta{Name: account, Namespace: system}
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: p.Cluster},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subject, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account}},
		&rbacv1.Role{ObjectMeta: inside, Rules: p.Namespace},
		&rbacv1.RoleBinding{ObjectMeta: inside, Subjects: subject, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account}},
	} {
		err := w.Create(t.Context(), o)
		if apierrors.IsAlreadyExists(err) {
			err = w.Update(t.Context(), o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// process is a running controller.
type process struct {
	*controller.Controller
	stop func() error // stops it and waits; may be called again
}

// configOf returns the configuration of a controller which, unless it is changed, asks an aggregator that does
// not exist.
func configOf(t testing.TB, change []func(*controller.Config)) controller.Config {
	t.Helper()
	config := controller.Config{
		Namespace:     system,
		HealthAddress: "127.0.0.1:0", MetricsAddress: "127.0.0.1:0", WebhookAddress: "127.0.0.1:0",
		Rotation: certs.Rotation{
			Secret:   types.NamespacedName{Namespace: system, Name: controller.DefaultSecret},
			Names:    []string{"localhost"},
			Mutating: controller.DefaultMutatingHooks, Validating: controller.DefaultValidatingHooks,
		},
		Aggregators: fleet.Config{URLs: []string{"http://127.0.0.1:1/snapshot"}, Timeout: 2 * time.Second},
		Interval:    time.Hour,
		Log:         slog.New(slog.DiscardHandler),
	}
	if testing.Verbose() {
		config.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	for _, f := range change {
		f(&config)
	}
	config.Aggregators.Log = config.Log
	return config
}

// start runs a controller under its own account, with its permissions alone, until the test ends.
func (w *world) start(t *testing.T, change ...func(*controller.Config)) *process {
	t.Helper()
	config := configOf(t, change)
	w.grant(t, &config)
	return w.startAs(t, w.ServiceAccount(t, system, account), change...)
}

// startAs runs a controller under an account until the test ends.
func (w *world) startAs(t *testing.T, as *rest.Config, change ...func(*controller.Config)) *process {
	t.Helper()
	config := configOf(t, change)
	as.WarningHandler = rest.NoWarnings{}
	config.Kubernetes = as
	c, err := controller.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	p := &process{Controller: c, stop: sync.OnceValue(func() error {
		cancel()
		return <-done
	})}
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Errorf("the controller ends with %v", err)
		}
	})
	return p
}

// page reads a page of a controller.
func page(t testing.TB, address, path string) (status int, body string) {
	t.Helper()
	response, err := http.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

// metric returns the value of a series, "" if there is none.
func (p *process) metric(t testing.TB, series string) string {
	t.Helper()
	_, body := page(t, p.MetricsAddr(), "/metrics")
	for line := range strings.Lines(body) {
		if value, found := strings.CutPrefix(line, series+" "); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

const patience = time.Minute

// eventually waits for a condition, which says why it does not hold yet.
func eventually(t testing.TB, what string, holds func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = holds(); err == nil {
			return
		}
	}
	t.Fatalf("not within %s: %s: %v", patience, what, err)
}

func (p *process) awaitReady(t testing.TB) {
	t.Helper()
	eventually(t, "the controller is ready", func() error {
		if code, body := page(t, p.HealthAddr(), "/readyz"); code != http.StatusOK {
			return errors.New(body)
		}
		return nil
	})
}

// install makes the API server call the webhooks of a controller.
func (w *world) install(t testing.TB, p *process) {
	t.Helper()
	_, port, _ := strings.Cut(p.WebhookAddr(), ":")
	none, fail, equivalent := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail, admissionregistrationv1.Equivalent
	timeout := int32(10)
	config := func(path string) admissionregistrationv1.WebhookClientConfig {
		url := "https://localhost:" + port + path
		return admissionregistrationv1.WebhookClientConfig{URL: &url}
	}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: controller.DefaultMutatingHooks}}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: controller.DefaultValidatingHooks}}
	for kind, resource := range map[string]string{"cachebackend": "cachebackends", "cachepolicy": "cachepolicies", "cachetenant": "cachetenants"} {
		rules := []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{"inferencecache.io"}, APIVersions: []string{"v1alpha1"}, Resources: []string{resource},
			},
		}}
		mutating.Webhooks = append(mutating.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: "m" + kind + ".inferencecache.io", Rules: rules, ClientConfig: config("/mutate-inferencecache-io-v1alpha1-" + kind),
			SideEffects: &none, FailurePolicy: &fail, MatchPolicy: &equivalent, TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"},
		})
		validating.Webhooks = append(validating.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: "v" + kind + ".inferencecache.io", Rules: rules, ClientConfig: config("/validate-inferencecache-io-v1alpha1-" + kind),
			SideEffects: &none, FailurePolicy: &fail, MatchPolicy: &equivalent, TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"},
		})
	}
	w.create(t, mutating, validating)
}

// events returns the Events on an object, as TYPE REASON, oldest first.
func (w *world) events(t testing.TB, about client.Object) string {
	t.Helper()
	var list eventsv1.EventList
	if err := w.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range list.Items {
		if e.Regarding.Name == about.GetName() && e.Regarding.Namespace == about.GetNamespace() && e.Regarding.UID == about.GetUID() {
			all = append(all, e.Type+" "+e.Reason)
		}
	}
	return strings.Join(all, ", ")
}

// conditions renders type=status/reason of each condition.
func conditions(list []metav1.Condition) string {
	var all []string
	for _, c := range list {
		all = append(all, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
	}
	return strings.Join(all, " ")
}

// convert copies an object through its JSON form.
func convert(from, to any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}
