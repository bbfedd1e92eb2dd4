// Command demo runs engines, the agent and the aggregator on this machine, replays one workload twice,
// once routing in turns and once by prefix, and compares the two.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes.
const (
	exitError = 1 // the run failed, or its outcome is not what it must be
	exitUsage = 2 // the command line is wrong; nothing was started
)

func main() { os.Exit(run()) }

// run returns the exit code. The first signal ends the run in order, a second one at once.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := newCommand().ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "demo: %v\n", err)
	if usage := (usageError{}); errors.As(err, &usage) {
		fmt.Fprintln(os.Stderr, "Run 'demo --help' for usage.")
		return exitUsage
	}
	return exitError
}

// usageError is an error that the caller of the command has to mend.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
