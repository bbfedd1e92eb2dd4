// Command chaos breaks engines, agents and aggregators under load, and compares what the aggregators know
// with what the engines hold once all is quiet.
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
	exitError = 1 // the run failed, or the index is not what the engines hold
	exitUsage = 2 // the command line is wrong; nothing was started
)

func main() { os.Exit(execute()) }

// execute returns the exit code. The first signal ends the run in order, a second one at once.
func execute() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := newCommand().ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
	if usage := (usageError{}); errors.As(err, &usage) {
		fmt.Fprintln(os.Stderr, "Run 'chaos --help' for usage.")
		return exitUsage
	}
	return exitError
}

// usageError is an error that the caller of the command has to mend.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
