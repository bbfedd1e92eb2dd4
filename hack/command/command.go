// Package command is what the commands under hack have in common: signals, exit codes, and the folder
// of the programs that they run.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitError = 1 // the run failed, or its outcome is not what it must be
	exitUsage = 2 // the command line is wrong; nothing was started
)

// UsageError is an error that the caller of the command has to mend.
type UsageError struct{ error }

// Usage marks an error as one of usage.
func Usage(err error) UsageError { return UsageError{err} }

// Unwrap returns the error that was marked.
func (e UsageError) Unwrap() error { return e.error }

// Run runs a command with the process's arguments and returns the exit code. The first signal ends the
// run in order, a second one at once.
func Run(cmd *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
	if usage := (UsageError{}); errors.As(err, &usage) {
		fmt.Fprintf(os.Stderr, "Run '%s --help' for usage.\n", cmd.Name())
		return exitUsage
	}
	return exitError
}

// ProgramFolder returns the folder of the programs to run, dir or if that is empty the one of this
// program, and says which of them it lacks.
func ProgramFolder(dir string, programs ...string) (string, error) {
	if dir == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find the folder of the programs: %w", err)
		}
		dir = filepath.Dir(self)
	}
	var errs []error
	for _, program := range programs {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			errs = append(errs, fmt.Errorf("--bin-dir: %w (make build builds it)", err))
		}
	}
	return dir, errors.Join(errs...)
}
