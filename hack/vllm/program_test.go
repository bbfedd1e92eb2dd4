package vllm

import (
	"context"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/hack/demo/process"
)

// children are the process groups that are running, by number.
var children sync.Map

// program is a child process, with all that it starts itself, that can be started again.
type program struct {
	t          *testing.T
	name, path string
	args       []string
	grace      time.Duration // from being asked to end to being made to
	process    *process.Process
}

func (p *program) start() {
	p.t.Helper()
	child, err := process.Start(context.Background(), p.t.TempDir(), p.name, p.path, p.args...)
	if err != nil {
		p.t.Fatal(err)
	}
	p.process = child
	children.Store(child.PID(), nil)
	p.t.Cleanup(func() {
		_ = child.Stop(p.grace)
		_ = syscall.Kill(-child.PID(), syscall.SIGKILL)
		children.Delete(child.PID())
		if p.t.Failed() {
			p.t.Logf("%s printed last:\n%s", p.name, child.Tail())
		}
	})
}

// kill ends the program and all that it started without warning, as the kernel ends a container.
func (p *program) kill() {
	p.t.Helper()
	if err := syscall.Kill(-p.process.PID(), syscall.SIGKILL); err != nil {
		p.t.Fatalf("kill %s: %v", p.name, err)
	}
	<-p.process.Done()
}

// await tries until check succeeds, and returns how long that took. A program that ends by itself
// meanwhile fails the test.
func await(t *testing.T, what string, limit time.Duration, check func() error, running ...*program) time.Duration {
	t.Helper()
	var err error
	start := time.Now()
	for time.Since(start) < limit {
		if err = check(); err == nil {
			return time.Since(start)
		}
		for _, p := range running {
			select {
			case <-p.process.Done():
				t.Fatalf("waiting for %s: %v", what, p.process.Err())
			default:
			}
		}
		time.Sleep(pollEvery)
	}
	t.Fatalf("waited %s in vain for %s: %v", limit, what, err)
	return 0
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }
