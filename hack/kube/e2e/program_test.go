package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	agentstatus "github.com/inferencecache/inferencecache/agent/status"
	"github.com/inferencecache/inferencecache/hack/demo/process"
)

const (
	// patience bounds every wait; a loaded machine needs a part of it.
	patience = 90 * time.Second
	// namespace is where the manifests install everything.
	namespace = "inference-cache-system"
	// ServiceAccounts of the manifests.
	agentAccount      = "inference-cache-agent"
	controllerAccount = "inference-cache-controller-manager"
)

// binaries is the folder of the programs under test, built once with the race detector.
var binaries string

func TestMain(m *testing.M) {
	if os.Getenv("INFERENCECACHE_KUBE") != "" { // else every test is skipped
		dir, err := os.MkdirTemp("", "kube-e2e")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		binaries = dir
		build := exec.Command("go", "build", "-race", "-o", dir+string(filepath.Separator), "../../../cmd/...")
		if out, err := build.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("build the programs: %v\n%s", err, out))
		}
	}
	m.Run()
}

// program is a child process that can be started again on the same addresses.
type program struct {
	name, path string
	args       []string
	grpc, http, admin, metrics,
	webhooks string // host:port, as far as it serves them
	process *process.Process
	conn    *grpc.ClientConn // see dial
}

// start starts a program, which ends with the test.
func (p *program) start(t *testing.T, dir string) {
	t.Helper()
	child, err := process.Start(context.Background(), dir, p.name, filepath.Join(binaries, p.path), p.args...)
	if err != nil {
		t.Fatal(err)
	}
	p.process = child
	t.Cleanup(func() {
		_ = child.Stop(10 * time.Second)
		if strings.Contains(child.Tail(), "DATA RACE") || t.Failed() {
			t.Errorf("%s printed:\n%s", p.name, child.Tail())
		}
	})
}

// kill ends a program without warning.
func (p *program) kill(t *testing.T) {
	t.Helper()
	child, err := os.FindProcess(p.process.PID())
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.process.Done()
}

// ready returns why a program is not ready, nil if it is.
func (p *program) ready() error {
	select {
	case <-p.process.Done():
		return p.process.Err()
	default:
	}
	return status(p.http+"/readyz", "", http.StatusOK)
}

// leads reports whether a controller holds the Lease, which its metrics tell.
func (p *program) leads(t *testing.T) bool {
	t.Helper()
	response, err := http.Get("http://" + p.metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^leader_election_master_status\{.*\} 1$`).Match(page)
}

// report returns what an agent says of itself.
func (p *program) report(t *testing.T) (report agentstatus.Report) {
	t.Helper()
	response, err := http.Get("http://" + p.http + "/status")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&report); err != nil {
		t.Fatalf("status of %s: %v", p.name, err)
	}
	return report
}

// status returns an error unless a GET is answered with the status.
func status(url, token string, want int) error {
	request, err := http.NewRequest(http.MethodGet, "http://"+url, nil)
	if err != nil {
		return err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != want {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // as far as it helps to understand
		return fmt.Errorf("GET %s: status %d, want %d: %s", url, response.StatusCode, want, body)
	}
	return nil
}

// await tries until check succeeds, and returns how long that took.
func await(t *testing.T, what string, check func() error) time.Duration {
	t.Helper()
	var err error
	begin := time.Now()
	for time.Since(begin) < patience {
		if err = check(); err == nil {
			return time.Since(begin)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("waited in vain for %s: %v", what, err)
	return 0
}
