package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/inferencecache/inferencecache/hack/command"
)

// options are the flags.
type options struct {
	seed     uint64
	trace    string
	requests int
	blocks   int
	keep     bool
	jsonOnly bool
	binDir   string
	timeout  time.Duration
}

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Compare routing by prefix with round robin, on real processes",
		Long: `Compare routing by prefix with round robin, on real processes.

Starts four engines (real but for the GPU), one agent and one aggregator on free loopback ports, and
replays one workload twice, the caches emptied in between. Prints progress, a table, and the same figures
as one line of JSON.

Exit status: 0 when after each pass the index knows exactly what the engines hold and, unless a trace is
replayed, the hit rate by prefix is at least 1.5 times that of round robin; else 1, and 2 for wrong usage.`,
		Example: `  demo
  demo --trace conversation_trace.jsonl --requests 500
  demo --keep`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return command.Usage(fmt.Errorf("unexpected argument %q", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return command.Usage(err)
			}
			return (&demo{options: o, out: cmd.OutOrStdout(), err: cmd.ErrOrStderr()}).run(cmd.Context())
		},
	}
	o.define(cmd.Flags())
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return command.Usage(err) })
	return cmd
}

func (o *options) define(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.Uint64Var(&o.seed, "seed", 1, "`N` that the generated workload follows from")
	fs.StringVar(&o.trace, "trace", "", "`FILE` of requests to replay instead, JSON Lines in Mooncake's format")
	fs.IntVar(&o.requests, "requests", 0, fmt.Sprintf("number `N` of requests; 0 is %d, or the first %d of a trace", chatRequests, traceRequests))
	fs.IntVar(&o.blocks, "blocks", 0, "`N` blocks in the cache of each engine; 0 chooses what keeps some pressure on it")
	fs.BoolVar(&o.keep, "keep", false, "leave everything running and print the commands to query and to end it")
	fs.BoolVar(&o.jsonOnly, "json-only", false, "print nothing but the line of JSON")
	fs.DurationVar(&o.timeout, "timeout", 5*time.Minute, "give up after this time")
	fs.StringVar(&o.binDir, "bin-dir", "", "`FOLDER` of the programs to run; empty is that of this one")
}

// complete checks the flags and fills in what was left open.
func (o *options) complete() error {
	if o.requests < 0 {
		return fmt.Errorf("--requests %d: must not be negative", o.requests)
	}
	if o.blocks < 0 {
		return fmt.Errorf("--blocks %d: must not be negative", o.blocks)
	}
	if o.timeout <= 0 {
		return fmt.Errorf("--timeout %s: must be more than 0", o.timeout)
	}
	var err error
	o.binDir, err = command.ProgramFolder(o.binDir, "fakeengine", "agent", "aggregator")
	return err
}
