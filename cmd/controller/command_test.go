package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/inferencecache/inferencecache/cmd/internal/cli"
	"github.com/inferencecache/inferencecache/controller"
)

func execute(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = cli.Run(t.Context(), newCommand(), args, &out, &errs)
	return code, errs.String()
}

func TestBadFlagsAreUsageErrors(t *testing.T) {
	for name, c := range map[string]struct{ arg, want string }{
		"no time between polls":      {"--cacheindex-refresh-interval=0s", "--cacheindex-refresh-interval must be more than 0"},
		"no namespace":               {"--namespace=", "--namespace must not be empty"},
		"no address for health":      {"--health-probe-bind-address=", "--health-probe-bind-address must not be empty"},
		"no name of a configuration": {"--validating-webhook-configuration=", "--validating-webhook-configuration must not be empty"},
		"an address for a URL":       {"--server-snapshot-url=aggregator:8081", "--server-snapshot-url: URL \"aggregator:8081\""},
		"a format that is unknown":   {"--log-format=xml", "must be one of text, json"},
	} {
		t.Run(name, func(t *testing.T) {
			if code, stderr := execute(t, c.arg); code != cli.ExitUsage || !strings.Contains(stderr, c.want) {
				t.Errorf("exit code %d: %s", code, stderr)
			}
		})
	}
}

func TestNoClusterIsAnError(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	code, stderr := execute(t, "--kubeconfig="+filepath.Join(t.TempDir(), "none"))
	if code != cli.ExitError || !strings.Contains(stderr, "find the cluster, in which this runs or which --kubeconfig names") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// kubeconfig leads to an API server that has nothing.
func kubeconfig(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: server.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c"}},
		CurrentContext: "c",
	}, file)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestStartsThatFailAreErrors(t *testing.T) {
	config := kubeconfig(t)
	for name, c := range map[string]struct{ arg, want string }{
		"an address of nowhere":      {"--webhook-bind-address=256.0.0.1:1", "listen for webhooks"},
		"no certificate in a folder": {"--webhook-cert-dir=" + t.TempDir(), "load the certificate of the webhooks"},
		"an address that is in use ": {"--metrics-bind-address=" + strings.TrimPrefix(serverOf(t, config), "http://"), "listen for metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stderr := execute(t, "--kubeconfig="+config, "--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0", "--webhook-bind-address=127.0.0.1:0", c.arg)
			if code != cli.ExitError || !strings.Contains(stderr, c.want) {
				t.Errorf("exit code %d: %s", code, stderr)
			}
		})
	}
}

// serverOf returns the address that a kubeconfig file leads to.
func serverOf(t *testing.T, file string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return config.Clusters["c"].Server
}

func TestTheCertificateIsForTheService(t *testing.T) {
	config := controller.Config{Namespace: "n", HealthAddress: ":1", Interval: 1}
	config.Rotation.Secret.Name, config.Rotation.Mutating, config.Rotation.Validating = "s", "m", "v"
	config.Aggregators.URLs = []string{controller.DefaultSnapshotURL}
	if err := complete(&config, "hooks"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(config.Rotation.Names, " "); got != "hooks.n.svc hooks.n.svc.cluster.local" || config.Rotation.Secret.Namespace != "n" {
		t.Errorf("names %s, Secret %s", got, config.Rotation.Secret)
	}
}

func TestTheNamespaceOutsideOfAPod(t *testing.T) {
	if _, err := os.Stat("/var/run/secrets/kubernetes.io"); err == nil {
		t.Skip("this runs in a Pod")
	}
	if got := controller.NamespaceOfPod(); got != controller.DefaultNamespace {
		t.Errorf("namespace %q", got)
	}
}
