package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/inferencecache/inferencecache/agent"
	"github.com/inferencecache/inferencecache/agent/uplink"
	"github.com/inferencecache/inferencecache/cmd/internal/cli"
)

func newCommand() *cobra.Command {
	var o agent.Options
	var engines engineFlags
	cmd := &cobra.Command{
		Use:   "agent (--engines FILE | --discover-pods) --aggregator HOST:PORT",
		Short: "Follow the KV-cache events of engines and tell aggregators what they hold",
		Long: `The agent subscribes to the KV-cache events of the vLLM and SGLang engines named in a file,
or found among the pods of its Kubernetes node, keeps a table of the blocks that each data-parallel rank
holds, and streams what changes to every aggregator. Token ids never leave the agent: aggregators get fingerprints.`,
		Example: `  agent --engines engines.yaml --aggregator aggregator:9090

  # engines.yaml
  engines:
    - name: pod-a                         # replica id
      model: Qwen/Qwen3-8B
      tenant: serving                     # default: default
      events: tcp://10.0.0.7:5557         # rank r publishes on port + r
      metrics: http://10.0.0.7:8000/metrics`,
	}
	engines.add(cmd, &o)
	cli.Group(cmd, "Aggregators", func(fs *pflag.FlagSet) {
		fs.StringArrayVar(&o.Aggregators, "aggregator", nil, "host:port of an aggregator (repeatable, required)")
		fs.StringVar(&o.ID, "agent-id", "", "stable name of this agent (default: the node's name, or the host name)")
		fs.DurationVar(&o.Window, "window", uplink.DefaultWindow, "how long changes coalesce before they are sent")
		fs.DurationVar(&o.Beat, "beat", uplink.DefaultBeat, "how often statistics and confirmations are sent")
	})
	encryption := cli.AddClientTLSFlags(cmd)
	cli.Group(cmd, "Serving", func(fs *pflag.FlagSet) {
		fs.StringVar(&o.HTTPAddress, "http-bind-address", ":8082", "address of /healthz, /readyz and /metrics")
	})
	logs := cli.AddLogFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.Log = logs.NewLogger(cmd.ErrOrStderr())
		o.Version = cli.BuildVersion().Short()
		err := engines.apply(&o)
		if err != nil {
			return cli.UsageError(err)
		}
		if o.TLS, err = encryption.Load(o.Log); err != nil {
			return err
		}
		o.TLSServerName = encryption.ServerName
		a, err := agent.New(o)
		if err != nil {
			return cli.UsageError(err)
		}
		return a.Run(cmd.Context())
	}
	return cmd
}
