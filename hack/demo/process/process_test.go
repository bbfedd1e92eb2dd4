package process_test

import (
	"strings"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/hack/demo/process"
)

func start(t *testing.T, script string) *process.Process {
	t.Helper()
	p, err := process.Start(t.Context(), t.TempDir(), "child", "/bin/sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(0) })
	return p
}

// eventually waits until the process has printed text.
func eventually(t *testing.T, p *process.Process, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		out, err := p.Output()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(out), text) {
			return
		}
	}
	t.Fatalf("no %q in the output", text)
}

func TestProcess_ThatEndsByItselfTellsHowAndWhatItLogged(t *testing.T) {
	p := start(t, "echo out; echo cannot bind >&2; exit 3")
	<-p.Done()
	for _, want := range []string{"child (process ", "exit status 3", "cannot bind"} {
		if err := p.Err(); !strings.Contains(err.Error(), want) {
			t.Errorf("error %q has no %q", err, want)
		}
	}
	if out, err := p.Output(); string(out) != "out\n" || err != nil {
		t.Errorf("output %q, %v", out, err)
	}
	if err := p.Stop(time.Second); err != nil {
		t.Errorf("stopping what has ended: %v", err)
	}
}

func TestProcess_IsAskedToEndFirst(t *testing.T) {
	p := start(t, `trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
	eventually(t, p, "ready")
	if err := p.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	eventually(t, p, "bye")
}

func TestProcess_ThatDoesNotListenIsKilled(t *testing.T) {
	p := start(t, `trap '' TERM; echo ready; while :; do sleep 0.01; done`)
	eventually(t, p, "ready")
	err := p.Stop(50 * time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Fatalf("Stop() = %v", err)
	}
	<-p.Done()
}

func TestStart_OfAMissingProgramNamesIt(t *testing.T) {
	_, err := process.Start(t.Context(), t.TempDir(), "child", "/no/such/program")
	if err == nil || !strings.Contains(err.Error(), "start child: ") {
		t.Fatalf("error %v", err)
	}
}
