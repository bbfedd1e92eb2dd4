// Package controller judges the objects of group inferencecache.io before they are stored, and keeps their
// status equal to what the aggregators report.
package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/inferencecache/inferencecache/controller/certs"
	"github.com/inferencecache/inferencecache/controller/fleet"
	"github.com/inferencecache/inferencecache/controller/status"
	"github.com/inferencecache/inferencecache/controller/webhooks"
)

// What flags say unless they say otherwise.
const (
	DefaultNamespace       = "inference-cache-system"
	DefaultSecret          = "webhook-server-cert"
	DefaultService         = "inference-cache-webhook-service"
	DefaultMutatingHooks   = "inference-cache-mutating-webhook-configuration"
	DefaultValidatingHooks = "inference-cache-validating-webhook-configuration"
	DefaultSnapshotURL     = "http://inference-cache-server:8081/snapshot"
	DefaultTokenFile       = "/var/run/secrets/inferencecache.io/controller-token/token"
	DefaultInterval        = 30 * time.Second
)

// LeaseName is the name of the Lease that the leader holds.
const LeaseName = "inference-cache-controller-leader-lock"

const (
	userAgent            = "inference-cache-controller" // also where Events come from
	accountNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	defaultLease         = 15 * time.Second
	gracefulShutdown     = 10 * time.Second
	requestsPerSecond    = 50 // to the API server
)

// Config is how a controller is set up.
type Config struct {
	// Kubernetes is the cluster.
	Kubernetes *rest.Config
	// Namespace is where the Lease and the certificate's Secret are.
	Namespace string
	// LeaderElect lets only the holder of the Lease write statuses and rotate certificates.
	LeaderElect bool
	// Lease is how long the Lease is held without a sign of life; 0 means 15 s.
	Lease time.Duration

	// HealthAddress, MetricsAddress and WebhookAddress are host:port to listen on. An empty one, but for
	// HealthAddress, serves nothing.
	HealthAddress, MetricsAddress, WebhookAddress string
	// HTTP2 offers it to the API server.
	HTTP2 bool
	// CertDir holds tls.crt and tls.key of the webhooks; empty means that the controller makes its own.
	CertDir string
	// Rotation is how it does, and which webhook configurations lead to it.
	Rotation certs.Rotation

	// Aggregators says whom to ask for snapshots, every Interval.
	Aggregators fleet.Config
	Interval    time.Duration

	Log *slog.Logger
}

// NamespaceOfPod returns the namespace of the Pod this runs in; DefaultNamespace outside of one.
func NamespaceOfPod() string {
	data, err := os.ReadFile(accountNamespaceFile)
	if name := strings.TrimSpace(string(data)); err == nil && name != "" {
		return name
	}
	return DefaultNamespace
}

// Controller is one process's worth of webhooks and status writer.
type Controller struct {
	config   Config
	scheme   *runtime.Scheme
	manager  manager.Manager
	registry *prometheus.Registry
	ready    func(context.Context) error

	healthAt, metricsAt, webhookAt net.Listener // the last two are nil if nothing is served there
}

// New listens on the addresses. Run must be called, and closes them.
func New(config Config) (*Controller, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	c := &Controller{config: config, scheme: scheme, registry: prometheus.NewRegistry()}
	if err := c.listen(); err != nil {
		return nil, err
	}
	if c.manager, err = c.newManager(); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare for the cluster: %w", err), c.close())
	}
	if err := c.build(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *Config) check() error {
	if c.Namespace == "" {
		return errors.New("the controller needs a namespace for its Lease and its Secret")
	}
	if c.Interval <= 0 {
		return fmt.Errorf("interval between polls is %s, must be more than 0s", c.Interval)
	}
	return c.Aggregators.Check()
}

// listen binds the addresses that are served, all or none.
func (c *Controller) listen() error {
	for _, at := range []struct {
		what, address string
		listener      *net.Listener
	}{
		{"health", c.config.HealthAddress, &c.healthAt},
		{"metrics", c.config.MetricsAddress, &c.metricsAt},
		{"webhooks", c.config.WebhookAddress, &c.webhookAt},
	} {
		if at.address == "" && at.what != "health" {
			continue
		}
		var err error
		var lc net.ListenConfig
		if *at.listener, err = lc.Listen(context.Background(), "tcp", at.address); err != nil { // does not wait
			return errors.Join(fmt.Errorf("listen for %s: %w", at.what, err), c.close())
		}
	}
	return nil
}

// close closes the addresses that are bound.
func (c *Controller) close() error {
	var errs []error
	for _, l := range []net.Listener{c.healthAt, c.metricsAt, c.webhookAt} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

// build makes the parts and hands them to the manager.
func (c *Controller) build() error {
	c.ready = func(context.Context) error { return nil }
	if c.webhookAt != nil {
		if err := c.buildWebhooks(); err != nil {
			return err
		}
	}
	if c.metricsAt != nil {
		if err := c.serve("metrics", c.metricsAt, c.metricsPage()); err != nil {
			return err
		}
	}
	if err := c.serve("health", c.healthAt, c.healthPages()); err != nil {
		return err
	}
	return c.manager.Add(status.NewWriter(status.Config{
		Client:    c.manager.GetClient(),
		Informers: c.manager.GetCache(),
		Poller:    fleet.NewPoller(c.config.Aggregators, fleet.NewMetrics(c.registry)),
		Interval:  c.config.Interval,
		Events:    c.manager.GetEventRecorder(userAgent),
		Metrics:   status.NewMetrics(c.registry),
		Log:       c.config.Log,
	}))
}

// buildWebhooks prepares the webhooks, their certificate and the check of both.
func (c *Controller) buildWebhooks() error {
	config, err := c.certificate()
	if err != nil {
		return err
	}
	config.NextProtos = []string{"http/1.1"}
	if c.config.HTTP2 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	check := certs.Check{
		Address:  c.webhookAt.Addr().String(),
		Mutating: c.config.Rotation.Mutating, Validating: c.config.Rotation.Validating,
		Reader: c.manager.GetClient(),
	}
	c.ready = check.Run
	mux := http.NewServeMux()
	hooks := webhooks.New(c.manager.GetAPIReader(), c.scheme, webhooks.NewMetrics(c.registry), c.config.Log)
	for path, handler := range hooks.Handlers() {
		mux.Handle(path, handler)
	}
	return c.serve("webhooks", tls.NewListener(c.webhookAt, config), mux)
}

// certificate returns the TLS configuration of the webhooks, and has the manager keep it up to date.
func (c *Controller) certificate() (*tls.Config, error) {
	log := c.config.Log
	if c.config.CertDir != "" {
		config, follow, err := certs.Files(c.config.CertDir, log)
		if err != nil {
			return nil, err
		}
		return config, c.manager.Add(everywhere(follow))
	}
	kept := certs.NewKept(c.config.Rotation.Secret.String(), c.manager.GetCache(), log)
	err := errors.Join(c.manager.Add(kept), c.manager.Add(certs.NewRotator(c.manager, c.config.Rotation, log)))
	return kept.Server(), err
}

// everywhere is a part that runs in every process, whoever is the leader.
type everywhere func(context.Context) error

// Start implements manager.Runnable.
func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (f everywhere) NeedLeaderElection() bool { return false }

// HealthAddr is the address of /healthz and /readyz.
func (c *Controller) HealthAddr() string { return c.healthAt.Addr().String() }

// MetricsAddr is the address of /metrics, empty if it is not served.
func (c *Controller) MetricsAddr() string { return addressOf(c.metricsAt) }

// WebhookAddr is the address of the webhooks, empty if they are not served.
func (c *Controller) WebhookAddr() string { return addressOf(c.webhookAt) }

func addressOf(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// Leading is closed when this process has become the leader, or at the start where none is elected.
func (c *Controller) Leading() <-chan struct{} { return c.manager.Elected() }

// Run works until ctx ends, and returns when everything has ended. An error ends the process, also that the
// Lease is lost: another process may have become the leader.
func (c *Controller) Run(ctx context.Context) error {
	c.config.Log.Info("serving", "health", c.HealthAddr(), "metrics", c.MetricsAddr(), "webhooks", c.WebhookAddr(),
		"namespace", c.config.Namespace, "aggregators", c.config.Aggregators.URLs)
	if err := c.manager.Start(ctx); err != nil {
		return fmt.Errorf("run the controller: %w", err)
	}
	c.config.Log.Info("stopped")
	return nil
}

// logger is what the libraries of Kubernetes log through.
func (c *Controller) logger() logr.Logger { return logr.FromSlogHandler(c.config.Log.Handler()) }
