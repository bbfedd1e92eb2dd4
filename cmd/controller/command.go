package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/inferencecache/inferencecache/cmd/internal/cli"
	"github.com/inferencecache/inferencecache/controller"
)

// newCommand describes the controller's flags.
func newCommand() *cobra.Command {
	var config controller.Config
	var kubeconfig, service string
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Judge the objects of inferencecache.io and keep their status",
		Long: "The controller serves the admission webhooks of CacheBackend, CachePolicy and CacheTenant, and keeps the status of\n" +
			"these objects, and the CacheIndex, equal to what the aggregators report.",
		Example: `  # one of several in a cluster
  controller --leader-elect

  # statuses alone, from a machine that reaches the cluster and an aggregator
  controller --kubeconfig ~/.kube/config --webhook-bind-address= --server-snapshot-url http://127.0.0.1:8081/snapshot`,
	}
	cli.Group(cmd, "Network", func(fs *pflag.FlagSet) {
		fs.StringVar(&config.HealthAddress, "health-probe-bind-address", ":8081", "host:port for /healthz and /readyz")
		fs.StringVar(&config.MetricsAddress, "metrics-bind-address", ":8080", "host:port for /metrics; empty serves none")
		fs.StringVar(&config.WebhookAddress, "webhook-bind-address", ":9443", "host:port for the webhooks; empty serves none")
		fs.BoolVar(&config.HTTP2, "enable-http2", false, "offer HTTP/2 to callers of the webhooks")
	})
	cli.Group(cmd, "Kubernetes", func(fs *pflag.FlagSet) {
		fs.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: the cluster this runs in)")
		fs.StringVar(&config.Namespace, "namespace", controller.NamespaceOfPod(), "namespace of the controller: of its Lease, its certificate's Secret and its webhooks' Service")
		fs.BoolVar(&config.LeaderElect, "leader-elect", false, "write statuses only while holding Lease "+controller.LeaseName+"; needed where there are several controllers")
	})
	cli.Group(cmd, "Certificate of the webhooks", func(fs *pflag.FlagSet) {
		fs.StringVar(&config.CertDir, "webhook-cert-dir", "", "`folder` with tls.crt and tls.key, which are followed; empty: the controller makes and rotates its own")
		fs.StringVar(&config.Rotation.Secret.Name, "webhook-cert-secret", controller.DefaultSecret, "`name` of the Secret that its own certificate is kept in; it must exist and may be empty")
		fs.StringVar(&service, "webhook-service", controller.DefaultService, "`name` of the Service that its own certificate is for")
		fs.StringVar(&config.Rotation.Mutating, "mutating-webhook-configuration", controller.DefaultMutatingHooks, "`name` of the object that calls the webhooks and is given its own authority")
		fs.StringVar(&config.Rotation.Validating, "validating-webhook-configuration", controller.DefaultValidatingHooks, "`name` of the object that calls the webhooks and is given its own authority")
	})
	cli.Group(cmd, "Aggregators", func(fs *pflag.FlagSet) {
		fs.StringArrayVar(&config.Aggregators.URLs, "server-snapshot-url", []string{controller.DefaultSnapshotURL}, "`URL` of an aggregator's /snapshot (repeatable); a host with several addresses stands for several")
		fs.StringVar(&config.Aggregators.TokenFile, "snapshot-token-file", controller.DefaultTokenFile, "`file` with the bearer token for them, read for each poll; without the file none is sent")
		fs.DurationVar(&config.Interval, "cacheindex-refresh-interval", controller.DefaultInterval, "time between polls")
	})
	logging := cli.AddLogFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := complete(&config, service); err != nil {
			return cli.UsageError(err)
		}
		config.Log = logging.NewLogger(cmd.ErrOrStderr())
		config.Aggregators.Log = config.Log
		logLibraries(config.Log)
		var err error
		if config.Kubernetes, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
			return fmt.Errorf("find the cluster, in which this runs or which --kubeconfig names: %w", err)
		}
		return run(cmd.Context(), config)
	}
	return cmd
}

// complete checks the flags, and fills in what follows from them.
func complete(config *controller.Config, service string) error {
	for _, flag := range []struct{ name, value string }{
		{"--health-probe-bind-address", config.HealthAddress},
		{"--namespace", config.Namespace},
		{"--webhook-cert-secret", config.Rotation.Secret.Name},
		{"--webhook-service", service},
		{"--mutating-webhook-configuration", config.Rotation.Mutating},
		{"--validating-webhook-configuration", config.Rotation.Validating},
	} {
		if flag.value == "" {
			return errors.New(flag.name + " must not be empty")
		}
	}
	if config.Interval <= 0 {
		return errors.New("--cacheindex-refresh-interval must be more than 0")
	}
	if err := config.Aggregators.Check(); err != nil {
		return fmt.Errorf("--server-snapshot-url: %w", err)
	}
	config.Rotation.Secret.Namespace = config.Namespace
	host := service + "." + config.Namespace
	config.Rotation.Names = []string{host + ".svc", host + ".svc.cluster.local"}
	return nil
}

// logLibraries sends what the libraries of Kubernetes log to the same place.
func logLibraries(to *slog.Logger) {
	log.SetLogger(logr.FromSlogHandler(to.Handler()))
	klog.SetSlogLogger(to)
}

// run works until ctx ends.
func run(ctx context.Context, config controller.Config) error {
	c, err := controller.New(config)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}
