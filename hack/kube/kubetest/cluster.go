// Package kubetest gives tests a real Kubernetes API server: etcd and kube-apiserver as processes on
// loopback, with role-based access control on, and kwok where nodes and pods must seem to run. Nothing
// schedules, no controller of Kubernetes runs: a test sets spec.nodeName itself, and deletes what it made
// only where that matters.
//
// The programs are those that hack/kube/install.sh builds. Tests are skipped unless INFERENCECACHE_KUBE
// names their folder; a test's name starts with TestKube, so that make test-kube finds it.
package kubetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/inferencecache/inferencecache/hack/demo/process"
)

const (
	// programsVariable names the folder of the programs.
	programsVariable = "INFERENCECACHE_KUBE"
	// patience bounds every wait; a loaded machine needs a part of it.
	patience = 2 * time.Minute
	// pause is the time between two looks at what is waited for.
	pause = 20 * time.Millisecond
)

// Cluster is a running API server with its store.
type Cluster struct {
	t        testing.TB // that the cluster ends with
	programs string     // folder
	dir      string     // of data, keys and logs
	server   server
	apiserver,
	etcd *process.Process

	config  *rest.Config
	client  kubernetes.Interface
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

// Programs returns the folder of the programs, and skips the test where there is none.
func Programs(t testing.TB) string {
	t.Helper()
	folder := os.Getenv(programsVariable)
	if folder == "" {
		t.Skipf("no API server to test against: set %s to the folder that hack/kube/install.sh prints, or run make test-kube", programsVariable)
	}
	if runtime.GOOS != "linux" {
		t.Skip("tests against an API server listen on many addresses of 127.0.0.0/8, which Linux alone has without being told")
	}
	return folder
}

// Start starts a cluster, which ends with the test. It takes about 5 s on a quiet machine, so the subtests
// of a test share one. The test is skipped unless INFERENCECACHE_KUBE names the folder of the programs.
func Start(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{t: t, programs: Programs(t), dir: t.TempDir()}
	host := Host()
	etcd, peers := "http://"+host+":2379", "http://"+host+":2380"
	c.etcd = c.start(t, "etcd",
		"--data-dir="+filepath.Join(c.dir, "etcd"),
		"--unsafe-no-fsync", // a test's data need not outlive a power cut
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers)
	var err error
	if c.server, err = newServer(c.dir, etcd, host); err != nil {
		t.Fatal(err)
	}
	c.StartAPIServer(t)
	if err := c.connect(); err != nil {
		t.Fatal(err)
	}
	c.await(t, "namespaces made by the API server", func(ctx context.Context) (bool, error) {
		return c.namespaceExists(ctx, "default")
	})
	return c
}

// Config returns what a client needs to act as an administrator of the cluster, without limit to its rate.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Client returns a client that acts as an administrator.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Dynamic returns a client for any kind that acts as an administrator.
func (c *Cluster) Dynamic() dynamic.Interface { return c.dynamic }

// connect makes the administrator's clients.
func (c *Cluster) connect() (err error) {
	if c.config, err = c.server.config(adminToken); err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if c.dynamic, err = dynamic.NewForConfig(c.config); err != nil {
		return fmt.Errorf("make a dynamic client: %w", err)
	}
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	return nil
}

// start starts one of the programs; it ends with the cluster, also if a subtest starts it.
func (c *Cluster) start(t testing.TB, program string, args ...string) *process.Process {
	t.Helper()
	path := filepath.Join(c.programs, program)
	// A test that is interrupted or runs out of time does not clean up: there the system ends the program.
	if setpriv, err := exec.LookPath("setpriv"); err == nil {
		path, args = setpriv, slices.Concat([]string{"--pdeathsig=KILL", path}, args)
	}
	p, err := process.Start(t.Context(), c.dir, program, path, args...)
	if err != nil {
		t.Fatalf("%v (hack/kube/install.sh builds the programs)", err)
	}
	c.t.Cleanup(func() { _ = p.Stop(0) }) // nothing that it holds is needed any more
	return p
}

// await waits until the condition holds; an error of it ends the wait.
func (c *Cluster) await(t testing.TB, what string, condition wait.ConditionWithContextFunc) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), pause, patience, true, func(ctx context.Context) (bool, error) {
		for _, p := range []*process.Process{c.etcd, c.apiserver} {
			select {
			case <-p.Done():
				return false, p.Err()
			default:
			}
		}
		return condition(ctx)
	})
	if err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
}

// Await tries until check succeeds.
func Await(t testing.TB, what string, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), pause, patience, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("wait for %s: %v", what, last)
	}
}
