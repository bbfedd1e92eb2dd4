// Package cli is what every command of the project has in common: signals, exit codes, environment
// twins of flags, grouped help, logging and the version.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes.
const (
	ExitOK    = 0
	ExitError = 1 // the command ran and failed
	ExitUsage = 2 // a flag, an argument or a configuration file is wrong; nothing was done
)

// usageError marks an error that the caller of the command has to mend.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// UsageError marks err as wrong usage or configuration, which exits with ExitUsage. It returns nil
// for nil.
func UsageError(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// Main runs the command with the process's arguments until it ends, or until SIGINT or SIGTERM
// cancels its context, and returns the exit code. A second signal ends the process at once.
func Main(newCommand func() *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return Run(ctx, newCommand(), os.Args[1:], os.Stdout, os.Stderr)
}

// Run runs the command with the given arguments and returns the exit code. An error is printed to
// stderr in one place, here.
func Run(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	started := false
	prepare(root, &started)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)

	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	_, _ = fmt.Fprintf(stderr, "%s: %v\n", cmd.CommandPath(), err)
	if usage := (usageError{}); started && !errors.As(err, &usage) {
		return ExitError
	}
	_, _ = fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", cmd.CommandPath())
	return ExitUsage
}

// prepare gives the root and its subcommands the common behaviour. started is set once a command's
// own code runs: every error before that is wrong usage.
func prepare(root *cobra.Command, started *bool) {
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.Version = BuildVersion().String()
	if child, _, err := root.Find([]string{"version"}); err != nil || child == root {
		root.AddCommand(newVersionCommand())
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetUsageFunc(printUsage)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		return applyEnvironment(cmd.Flags(), os.LookupEnv)
	}
	eachCommand(root, func(cmd *cobra.Command) {
		run := cmd.RunE
		if run == nil {
			return
		}
		if cmd.Args == nil {
			cmd.Args = cobra.NoArgs
		}
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return run(cmd, args)
		}
	})
}

func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, child := range cmd.Commands() {
		eachCommand(child, visit)
	}
}

// groupAnnotation is the flag annotation that holds the help heading.
const groupAnnotation = "inferencecache_group"

// Group puts the flags that define adds to the command under one heading of --help, in the order of
// their definition.
func Group(cmd *cobra.Command, heading string, define func(*pflag.FlagSet)) {
	fs := pflag.NewFlagSet(heading, pflag.ContinueOnError)
	fs.SortFlags = false
	define(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		// The flag is in the set, so the annotation cannot fail.
		_ = fs.SetAnnotation(f.Name, groupAnnotation, []string{heading})
	})
	cmd.Flags().SortFlags = false
	cmd.Flags().AddFlagSet(fs)
}
