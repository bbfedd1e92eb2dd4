package fleet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/inferencecache/inferencecache/hack/demo/process"
)

const (
	// readyTime bounds the start of one process on a loaded machine.
	readyTime = time.Minute
	readyPoll = 10 * time.Millisecond
	stopGrace = 30 * time.Second
)

// program is one process, and those that take its place after it was killed.
type program struct {
	name, path, dir string
	args            []string
	// ready reads from what the process prints that it serves, and where. It fails until then.
	ready func(*process.Process) error

	mu     sync.Mutex // held while the process is changed
	p      *process.Process
	paused bool
	logs   []string // of every process
}

// start starts a process and waits until it serves.
func (g *program) start(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, err := process.Start(ctx, g.dir, fmt.Sprintf("%s.%d", g.name, len(g.logs)), g.path, g.args...)
	if err != nil {
		return err
	}
	g.p, g.paused = p, false
	g.logs = append(g.logs, p.LogFile())
	limit := time.After(readyTime)
	for {
		err := g.ready(p)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.Done():
			return p.Err()
		case <-limit:
			return fmt.Errorf("%s is not ready after %s: %w; its log ends with:\n%s", p.Name(), readyTime, err, p.Tail())
		case <-time.After(readyPoll):
		}
	}
}

// kill ends the process without warning, and returns when it has ended.
func (g *program) kill() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-g.p.Done()
	return nil
}

// pause stops the process, or lets it go on.
func (g *program) pause(pause bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	sig := syscall.SIGCONT
	if pause {
		sig = syscall.SIGSTOP
	}
	if err := g.signal(sig); err != nil {
		return err
	}
	g.paused = pause
	return nil
}

// signal is an error if the process has ended by itself. The caller holds the lock.
func (g *program) signal(sig syscall.Signal) error {
	select {
	case <-g.p.Done():
		return g.p.Err()
	default:
	}
	p, err := os.FindProcess(g.p.PID())
	if err == nil {
		err = p.Signal(sig)
	}
	if err != nil {
		return fmt.Errorf("send %s to %s: %w", sig, g.p.Name(), err)
	}
	return nil
}

// stop ends the process in order. It is an error if it has ended before, or any process of the program
// printed what none may.
func (g *program) stop() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.p == nil {
		return nil
	}
	var errs []error
	select {
	case <-g.p.Done():
		errs = append(errs, g.p.Err())
	default:
		if g.paused {
			errs = append(errs, g.signal(syscall.SIGCONT))
		}
		errs = append(errs, g.p.Stop(stopGrace))
	}
	for _, log := range g.logs {
		errs = append(errs, sound(log))
	}
	return errors.Join(errs...)
}

// maxLogLine bounds a line of a log that is read.
const maxLogLine = 1 << 20

// sound reads a log and is an error where it tells of a defect.
func sound(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLogLine)
	for lines.Scan() {
		for _, word := range []string{"DATA RACE", "panic:", "fatal error:"} {
			if strings.Contains(lines.Text(), word) {
				return fmt.Errorf("%s says %q", path, lines.Text())
			}
		}
	}
	return lines.Err()
}

// announced reads the line with the given message from a process's log into fields.
func announced(p *process.Process, message string, fields any) error {
	b, err := os.ReadFile(p.LogFile())
	if err != nil {
		return err
	}
	for line := range bytes.Lines(b) {
		var head struct {
			Msg string `json:"msg"`
		}
		if json.Unmarshal(line, &head) == nil && head.Msg == message {
			return json.Unmarshal(line, fields)
		}
	}
	return fmt.Errorf("no line %q yet", message)
}

func binary(dir, name string) string { return filepath.Join(dir, name) }
