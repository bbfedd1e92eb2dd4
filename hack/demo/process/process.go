// Package process runs child processes: each has files for what it prints, is ended by its id, and tells
// when it ends by itself.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// tailBytes bounds what Tail returns.
const tailBytes = 4 << 10

// Process is one child.
type Process struct {
	name string
	cmd  *exec.Cmd
	out  string        // file of its standard output
	log  string        // file of its standard error
	done chan struct{} // closed when it has ended and err is set
	err  error
}

// Start starts a program. Its standard output goes to NAME.out and its standard error to NAME.log in dir:
// plain files, so that the child can outlive this process.
func Start(ctx context.Context, dir, name, program string, args ...string) (*Process, error) {
	p := &Process{
		name: name,
		out:  filepath.Join(dir, name+".out"),
		log:  filepath.Join(dir, name+".log"),
		done: make(chan struct{}),
	}
	out, err := os.Create(p.out)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close() // the child has its own handle
	log, err := os.Create(p.log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()

	// A child ends by Stop alone, in the order that its owner wants: not by ctx, nor, being in a
	// process group of its own, by a key pressed in the terminal.
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	p.cmd.Stdout, p.cmd.Stderr = out, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go p.wait() // ends with the child
	return p, nil
}

func (p *Process) wait() {
	p.err = p.cmd.Wait()
	close(p.done)
}

// Name returns the name given to Start.
func (p *Process) Name() string { return p.name }

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// LogFile returns the path of what the child writes to standard error.
func (p *Process) LogFile() string { return p.log }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the process ended, with the last lines of its log. Call it after Done is closed.
func (p *Process) Err() error {
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s (process %d) ended by itself: %s; its log %s ends with:\n%s", p.name, p.PID(), how, p.log, p.Tail())
}

// Output returns what the process has printed on standard output so far.
func (p *Process) Output() ([]byte, error) {
	b, err := os.ReadFile(p.out)
	if err != nil {
		return nil, fmt.Errorf("read output of %s: %w", p.name, err)
	}
	return b, nil
}

// Tail returns the end of the log, or why it cannot be read.
func (p *Process) Tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-tailBytes):])
}

// Stop asks the process to end, and ends it by force if it has not within the grace time. It returns
// when the process has ended. The error says that force was needed.
func (p *Process) Stop(grace time.Duration) error {
	// An error means that the process has ended already, which done tells as well.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	}
	err := p.cmd.Process.Kill()
	<-p.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return errors.Join(fmt.Errorf("%s (process %d) did not end within %s of being asked and was killed", p.name, p.PID(), grace), err)
}
