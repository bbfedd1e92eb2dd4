package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/auth"
	"github.com/inferencecache/inferencecache/aggregator/auth/authtest"
	"github.com/inferencecache/inferencecache/cmd/internal/cli"
	"github.com/inferencecache/inferencecache/tlsconfig/tlstest"
)

const controller = "system:serviceaccount:inference-cache-system:inference-cache-controller-manager"

func TestItIsRefusedToStartWhereItIsNotClearWhoMayCall(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"an address for nobody":             {[]string{"--snapshot-bind-address=127.0.0.1:0"}, "who may call --snapshot-bind-address?"},
		"an empty user":                     {[]string{"--allowed-controller-sa="}, "who may call --snapshot-bind-address?"},
		"a user and everybody":              {[]string{"--allowed-controller-sa", controller, "--insecure-disable-auth"}, "exclude each other"},
		"a user with a line end":            {[]string{"--allowed-controller-sa", controller + "\n"}, `--allowed-controller-sa "` + controller + `\n" must not be blank`},
		"a blank user":                      {[]string{"--allowed-controller-sa", " "}, "must not be blank"},
		"a blank audience":                  {[]string{"--allowed-controller-sa", controller, "--controller-audience", ""}, "--controller-audience"},
		"a policy audience with a space":    {[]string{"--allowed-controller-sa", controller, "--policy-audience", " x"}, "--policy-audience"},
		"a certificate without its key":     {[]string{"--insecure-disable-auth", "--tls-cert-file", "a"}, "needed together"},
		"a key without its certificate":     {[]string{"--insecure-disable-auth", "--tls-key-file", "a"}, "needed together"},
		"clients' authorities alone":        {[]string{"--insecure-disable-auth", "--mtls-client-ca-file", "a"}, "needs both"},
		"a password of no Redis":            {[]string{"--insecure-disable-auth", "--t2-redis-password-file", "a"}, "need --t2-redis-address"},
		"a Redis without a port":            {[]string{"--insecure-disable-auth", "--t2-redis-address", "redis"}, "must be host:port"},
		"a flag that is wrong beside those": {[]string{"--engine-block-size=0"}, "--engine-block-size"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := cli.Run(t.Context(), newCommand(), c.args, &stdout, &stderr); code != cli.ExitUsage {
				t.Errorf("exit code %d", code)
			}
			if !strings.Contains(stderr.String(), c.want) {
				t.Errorf("%q does not say %q", &stderr, c.want)
			}
		})
	}
}

func TestWhatCannotBeLoadedIsAnError(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // not in a cluster
	ca := tlstest.NewCA(t)
	one, other := ca.Server(t, "127.0.0.1"), ca.Server(t, "127.0.0.1")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a certificate that is not there":   {[]string{"--snapshot-bind-address=", "--tls-cert-file=none", "--tls-key-file", one.Key}, "no such file"},
		"a key of another certificate":      {[]string{"--snapshot-bind-address=", "--tls-cert-file", one.Certificate, "--tls-key-file", other.Key}, "does not match"},
		"a policy folder that is not there": {[]string{"--snapshot-bind-address=", "--policy-dir=none"}, "read the policy folder"},
		"no API server to ask":              {[]string{"--allowed-controller-sa", controller}, "kubeconfig"},
		"no cluster to read policies from":  {[]string{"--snapshot-bind-address=", "--policy-from-cluster"}, "--policy-from-cluster: find the Kubernetes API server"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			args := append([]string{"--grpc-bind-address=127.0.0.1:0", "--http-bind-address=127.0.0.1:0"}, c.args...)
			if code := cli.Run(t.Context(), newCommand(), args, &stdout, &stderr); code != cli.ExitError {
				t.Errorf("exit code %d", code)
			}
			if !strings.Contains(stderr.String(), c.want) {
				t.Errorf("%q does not say %q", &stderr, c.want)
			}
		})
	}
}

// log is what a command logs, read while it runs.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var adminAddress = regexp.MustCompile(`msg=serving .*admin=(\S+)`)

// serve runs the command until the test ends and returns the address of its guarded endpoints.
func serve(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stderr := &log{}
	done := make(chan int, 1)
	args = append([]string{
		"--grpc-bind-address=127.0.0.1:0", "--http-bind-address=127.0.0.1:0", "--snapshot-bind-address=127.0.0.1:0", "--log-format=text",
	}, args...)
	go func() { done <- cli.Run(ctx, newCommand(), args, io.Discard, stderr) }()
	t.Cleanup(func() {
		cancel()
		if code := <-done; code != cli.ExitOK {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	})
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if found := adminAddress.FindStringSubmatch(stderr.String()); found != nil {
			return "http://" + found[1]
		}
	}
	t.Fatalf("not serving: %s", stderr)
	return ""
}

func status(t *testing.T, url, token string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestFlagsSayWhoMayCall(t *testing.T) {
	server := authtest.Start(t, map[string]authtest.Token{
		"good": {User: controller, Audiences: []string{auth.ControllerAudience}},
	})
	at := serve(t, "--allowed-controller-sa", controller, "--kubeconfig", server.Kubeconfig)
	if got := status(t, at+"/snapshot", "good"); got != http.StatusOK {
		t.Errorf("status %d for the user that is allowed", got)
	}
	if got := status(t, at+"/snapshot", ""); got != http.StatusUnauthorized {
		t.Errorf("status %d for a stranger", got)
	}
}

func TestEverybodyMayCallIfFlagsSaySo(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at := serve(t, "--insecure-disable-auth", "--policy-dir", dir, "--t2-redis-address", "127.0.0.1:1")
	if got := status(t, at+"/snapshot", ""); got != http.StatusOK {
		t.Errorf("status %d", got)
	}
}
