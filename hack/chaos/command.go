package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/inferencecache/inferencecache/hack/command"
)

// Defaults of the flags.
const (
	defaultDuration = 60 * time.Second
	defaultSettle   = 45 * time.Second
)

func newCommand() *cobra.Command {
	o := options{seed: uint64(rand.Uint32())}
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Break engines, agents and aggregators under load and see whether the index is right again",
		Long: `Break engines, agents and aggregators under load and see whether the index is right again.

Runs 8 engines of 2 ranks each (real but for the GPU), 2 agents and 2 aggregators as processes on loopback,
joined by relays. While conversations grow, processes are killed, stopped and started again, caches reset,
connections cut and stalled, live and replayed messages lost. Then all is quiet, and what each
aggregator knows is compared with the engines' pools, pair by pair. In the end every cache is emptied,
filled again and compared once more, now without any excuse.

Prints one line of JSON. Exit status: 0 when the indexes agree in time, 1 when they do not, 2 for wrong usage.`,
		Example: `  chaos --seed 7
  chaos --duration 10m --log-dir /tmp/chaos`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return command.Usage(fmt.Errorf("unexpected argument %q", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return command.Usage(err)
			}
			return execCommand(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.Uint64Var(&o.seed, "seed", o.seed, "`N` that faults and conversations follow from")
	fs.Lookup("seed").DefValue = "random, printed"
	fs.DurationVar(&o.duration, "duration", defaultDuration, "how long faults go on")
	fs.DurationVar(&o.settle, "settle", defaultSettle, "within which the indexes must agree once the faults are over")
	fs.BoolVar(&o.touch, "touch", false, "send every cache one more request when the faults are over, so that losses show without waiting for the agent's own check")
	fs.StringVar(&o.binDir, "bin-dir", "", "`FOLDER` of the programs to run; empty is that of this one")
	fs.StringVar(&o.logDir, "log-dir", "", "`FOLDER` to keep the logs of all processes in; empty keeps them only when the run fails")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return command.Usage(err) })
	return cmd
}

// check fills in what was left open and says what cannot work.
func (o *options) check() error {
	if o.duration <= 0 {
		return fmt.Errorf("--duration %s: must be more than 0", o.duration)
	}
	if o.settle <= 0 {
		return fmt.Errorf("--settle %s: must be more than 0", o.settle)
	}
	var err error
	o.binDir, err = command.ProgramFolder(o.binDir, "fakeengine", "agent", "aggregator")
	return err
}

// execCommand runs and prints. The logs of a run that went well are removed unless they were asked for.
func execCommand(ctx context.Context, o options, out, progress io.Writer) (err error) {
	if o.logDir == "" {
		if o.logDir, err = os.MkdirTemp("", "chaos-"); err != nil {
			return fmt.Errorf("make a folder for logs: %w", err)
		}
		defer func() {
			if err == nil {
				err = os.RemoveAll(o.logDir)
			}
		}()
	} else if err := os.MkdirAll(o.logDir, 0o750); err != nil {
		return fmt.Errorf("make a folder for logs: %w", err)
	}
	r, err := run(ctx, o, progress)
	if r == nil {
		return err
	}
	r.complete()
	if encodeErr := json.NewEncoder(out).Encode(r); encodeErr != nil {
		return errors.Join(err, fmt.Errorf("print the report: %w", encodeErr))
	}
	return errors.Join(err, r.failures())
}
