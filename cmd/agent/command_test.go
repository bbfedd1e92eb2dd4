package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/inferencecache/inferencecache/cmd/internal/cli"
)

func TestFlagsThatCannotWorkAreNamed(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	const config = `{apiVersion: v1, kind: Config, clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}`
	if err := os.WriteFile(kubeconfig, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no engines":               {nil, "no engines: name the YAML file that lists them with --engines, or look for them with --discover-pods"},
		"a file that is not there": {[]string{"--engines", "/nowhere"}, "open engines file"},
		"no cluster to look in":    {[]string{"--discover-pods", "--node-name", "n"}, "outside a cluster, name a file with --kubeconfig"},
		"a cluster that is none":   {[]string{"--discover-pods", "--node-name", "n", "--kubeconfig", "/nowhere"}, "find the Kubernetes API server"},
		"no node":                  {[]string{"--discover-pods", "--kubeconfig", kubeconfig}, "node-name: missing"},
		"no aggregator":            {[]string{"--discover-pods", "--kubeconfig", kubeconfig, "--node-name", "n"}, "aggregator: none given"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			code := cli.Run(context.Background(), newCommand(), c.args, &stderr, &stderr)
			if code != cli.ExitUsage || !strings.Contains(stderr.String(), c.want) {
				t.Errorf("code %d, %q; want %q", code, stderr.String(), c.want)
			}
		})
	}
}
