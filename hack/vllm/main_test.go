package vllm

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// environmentVariable names the folder that install.sh printed.
const environmentVariable = "INFERENCECACHE_VLLM"

// binaries is the folder of the programs under test.
var binaries string

func TestMain(m *testing.M) {
	if os.Getenv(environmentVariable) == "" {
		m.Run() // every test that needs an engine skips itself
		return
	}
	dir, err := os.MkdirTemp("", "vllm")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binaries = dir
	build := exec.Command("../with-tokenizers.sh", "1", "build", "-o", dir+string(filepath.Separator), "./cmd/agent", "./cmd/aggregator")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build the programs: %v\n%s", err, out))
	}
	go endOnInterrupt() // ends with the process
	m.Run()
	results.print(os.Stdout)
}

// endOnInterrupt ends what is running when the tests are interrupted: children have process groups of
// their own, which a key pressed in the terminal does not reach.
func endOnInterrupt() {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, syscall.SIGINT, syscall.SIGTERM)
	received := <-interrupts
	children.Range(func(group, _ any) bool {
		_ = syscall.Kill(-group.(int), syscall.SIGKILL)
		return true
	})
	signal.Reset()
	_ = syscall.Kill(os.Getpid(), received.(syscall.Signal)) // now with its usual effect
}

// environment returns the folder of the engine's virtual environment, or skips the test.
func environment(t *testing.T) string {
	t.Helper()
	dir := os.Getenv(environmentVariable)
	if dir == "" {
		t.Skipf("needs a real engine: run make test-vllm, or set %s to the folder that hack/vllm/install.sh prints", environmentVariable)
	}
	if _, err := os.Stat(filepath.Join(dir, "bin", "vllm")); err != nil {
		t.Fatalf("%s is no environment with vLLM: %v", environmentVariable, err)
	}
	return dir
}
