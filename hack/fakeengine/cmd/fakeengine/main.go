// Command fakeengine serves one vLLM replica in which everything is real but the GPU.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/inferencecache/inferencecache/hack/fakeengine"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	cfg := fakeengine.DefaultConfig()
	level := "info"
	cmd := &cobra.Command{
		Use:   "fakeengine",
		Short: "Serve one vLLM replica in which everything is real but the GPU",
		Long: `Serve one vLLM replica in which everything is real but the GPU: block pool, prefix cache, KV events on
ZMQ with replay, HTTP and metrics. Once all sockets are bound it prints their addresses as one line of
JSON on standard output; logs go to standard error.`,
		Example: `  fakeengine --name a --http-bind-address 127.0.0.1:8000 --events tcp://127.0.0.1:5557 --blocks 2048
  curl -s 127.0.0.1:8000/v1/completions -d '{"model":"fake-model","prompt":[1,2,3],"max_tokens":8}'`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, err := newLogger(cmd.ErrOrStderr(), level)
			if err != nil {
				return err
			}
			cfg.Logger = logger
			return run(cmd.Context(), cfg, cmd.OutOrStdout())
		},
	}
	addFlags(cmd, &cfg, &level)
	return cmd
}

func addFlags(cmd *cobra.Command, c *fakeengine.Config, level *string) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&c.Name, "name", c.Name, "replica name, in logs and completion ids")
	f.StringVar(&c.Model, "model", c.Model, "name under which the base model is served")
	f.StringToIntVar(&c.Adapters, "lora", nil, "LoRA adapters as name=id, separated by commas; ids start at 1")
	f.StringVar(&c.HTTPBindAddress, "http-bind-address", c.HTTPBindAddress, "host:port of the HTTP server; port 0 picks a free one")
	f.StringVar(&c.Events, "events", c.Events, "endpoint that rank 0 publishes KV events on; always bound; rank r uses port + r; port 0 picks free ones")
	f.StringVar(&c.Replay, "replay", c.Replay, "endpoint that rank 0 serves replays on, likewise; empty turns replay off")
	f.StringVar(&c.Topic, "topic", c.Topic, "topic of the published messages")
	f.IntVar(&c.BufferSteps, "buffer-steps", c.BufferSteps, "batches kept for replay")
	f.IntVar(&c.HighWaterMark, "hwm", c.HighWaterMark, "messages queued for one subscriber before further ones are dropped; 0 is no limit")
	f.StringVar(&c.EventForm, "event-form", c.EventForm, "form of an event: map (vLLM 0.24.0 and later) or array (before)")
	f.IntVar(&c.ArrayFields, "array-fields", c.ArrayFields, "with --event-form array, elements of a BlockStored: 6, 7, 8, 9, 10 or 12; a BlockRemoved then has 2, 3, 3, 3, 4 or 4")
	f.StringVar(&c.HashForm, "hash-form", c.HashForm, "form of a block hash: int (64 bits) or bytes (32 bytes)")
	f.StringVar(&c.ReplayForm, "replay-form", c.ReplayForm, "form of a replay reply: three-frame (topic, seq, payload; vLLM 0.26.0 and later) or two-frame (before)")
	f.BoolVar(&c.EagerClear, "eager-clear", c.EagerClear, "publish a cache reset at once; false keeps it for the next batch with other events, as vLLM does")
	f.IntVar(&c.Ranks, "ranks", c.Ranks, "data-parallel ranks, each with its own pool and sockets")
	f.IntVar(&c.Blocks, "blocks", c.Blocks, "KV blocks of each rank, one of which is reserved, as in vLLM")
	f.IntVar(&c.BlockSize, "block-size", c.BlockSize, "tokens in a block")
	f.Float64Var(&c.PrefillMicros, "prefill-us-per-token", c.PrefillMicros, "modelled microseconds to compute one uncached prompt token")
	f.Float64Var(&c.TimeScale, "time-scale", c.TimeScale, "how many times faster than modelled to run; 0 does not wait at all")
	f.IntVar(&c.MaxWaiting, "max-waiting", c.MaxWaiting, "requests that may wait in a rank before further ones are refused with 503")
	f.StringVar(&c.Seed, "seed", c.Seed, "seed of the block hashes; empty is a random one for each process and rank")
	f.StringVar(level, "log-level", *level, "debug, info, warn or error")
}

func newLogger(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log-level: %q is unknown; want debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})), nil
}

// ready is the line printed once all sockets are bound.
type ready struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	fakeengine.Addresses
}

// run serves until ctx ends, and prints the addresses when they are bound.
func run(ctx context.Context, cfg fakeengine.Config, out io.Writer) error {
	engine, err := fakeengine.New(cfg)
	if err != nil {
		return err
	}
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return engine.Run(ctx) })
	parts.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-engine.Ready():
			return json.NewEncoder(out).Encode(ready{cfg.Name, os.Getpid(), engine.Addresses()})
		}
	})
	return parts.Wait()
}
