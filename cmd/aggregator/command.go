package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/aggregator/hot"
	"github.com/inferencecache/inferencecache/aggregator/kube"
	"github.com/inferencecache/inferencecache/cmd/internal/cli"
	"github.com/inferencecache/inferencecache/index"
)

// newCommand describes the aggregator's flags.
func newCommand() *cobra.Command {
	var config aggregator.Config
	var admin adminFlags
	cmd := &cobra.Command{
		Use:   "aggregator",
		Short: "Answer which replica holds the longest prefix of a prompt",
		Long: "The aggregator keeps an index of what every engine replica holds in its KV cache, as node agents report it,\n" +
			"and answers LookupRoute for LLM gateways.",
		Example: `  # alone on a machine
  aggregator

  # in a cluster, with a controller
  aggregator --allowed-controller-sa system:serviceaccount:inference-cache-system:inference-cache-controller-manager`,
	}
	cluster := addConfigFlags(cmd, &config)
	text := addTokenizerFlags(cmd)
	encryption := cli.AddServerTLSFlags(cmd)
	admin.add(cmd)
	addRankingFlags(cmd, &config)
	logging := cli.AddLogFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		err := text.read(&config)
		if err := errors.Join(check(config), admin.check(cmd.Flags()), err); err != nil {
			return cli.UsageError(err)
		}
		config.Log = logging.NewLogger(cmd.ErrOrStderr())
		config.Name, _ = os.Hostname() // only a name in a document
		config.Version = cli.BuildVersion().Short()
		if config.TLS, err = encryption.Load(config.Log); err != nil {
			return err
		}
		if err = cluster.connect(&config); err != nil {
			return err
		}
		var closeAll func()
		if config.Admin, closeAll, err = admin.connect(config.Log, cluster.kubeconfig); err != nil {
			return err
		}
		defer closeAll()
		return run(cmd.Context(), config)
	}
	return cmd
}

// clusterFlags say which Kubernetes cluster there is, and what comes from it.
type clusterFlags struct {
	policies   bool
	kubeconfig string
}

// addConfigFlags defines what needs no more than to be checked.
func addConfigFlags(cmd *cobra.Command, config *aggregator.Config) *clusterFlags {
	var cluster clusterFlags
	cli.Group(cmd, "Network", func(fs *pflag.FlagSet) {
		fs.StringVar(&config.GRPCAddress, "grpc-bind-address", ":9090", "host:port for gRPC")
		fs.StringVar(&config.HTTPAddress, "http-bind-address", ":8080", "host:port for /healthz, /readyz and /metrics")
	})
	cli.Group(cmd, "Index", func(fs *pflag.FlagSet) {
		fs.Int32Var(&config.BlockSize, "engine-block-size", 16, "tokens per KV block where no engine has shown its own")
		fs.Int64Var(&config.MaxIndexEntries, "max-index-entries", index.DefaultMaxPairs, "most pairs of block and cache that are kept")
		fs.Var(byteSize{&config.MaxIndexBytes}, "max-index-memory", "most memory that the index takes, as 512Mi or 4G; 0 bounds the entries alone")
		fs.Uint32Var(&config.HotPrefixUses, "hot-prefix-uses", hot.DefaultUses, "answers lately, which count half after 10 minutes, that make a prefix count as hot")
		fs.DurationVar(&config.AgentLease, "agent-lease", 30*time.Second,
			"how long an agent may be silent before its caches are no longer hinted, several of its beats; ten leases later they are dropped")
	})
	cli.Group(cmd, "Readiness", func(fs *pflag.FlagSet) {
		fs.IntVar(&config.ExpectedAgents, "expected-agents", 0, "agents that must have sent their whole table before /readyz says yes; 0: those that --warm-up finds")
		fs.DurationVar(&config.WarmUp, "warm-up", 3*time.Second, "how long after the start agents are waited for where no number is expected")
	})
	cli.Group(cmd, "Policy", func(fs *pflag.FlagSet) {
		fs.StringVar(&config.PolicyDir, "policy-dir", "", "`folder` of CachePolicy, CacheTenant and PromptTemplate manifests, which is followed; policies of the cluster, and then pushed ones, replace them tenant by tenant")
		fs.BoolVar(&cluster.policies, "policy-from-cluster", false, "follow the CachePolicy, CacheTenant and PromptTemplate objects of the Kubernetes cluster; pushed policies replace them tenant by tenant")
	})
	cli.Group(cmd, "Kubernetes", func(fs *pflag.FlagSet) {
		fs.StringVar(&cluster.kubeconfig, "kubeconfig", "", "kubeconfig `file` of the cluster that reviews tokens and states policies (default: the cluster this runs in)")
	})
	return &cluster
}

// connect prepares to read policies from the cluster, if that is asked for.
func (f *clusterFlags) connect(config *aggregator.Config) (err error) {
	if !f.policies {
		return nil
	}
	if config.PolicyCluster, err = kube.Config(f.kubeconfig); err != nil {
		return fmt.Errorf("--policy-from-cluster: %w", err)
	}
	return nil
}

func check(config aggregator.Config) error {
	switch {
	case config.BlockSize <= 0:
		return errors.New("--engine-block-size must be more than 0")
	case config.MaxIndexEntries <= 0:
		return errors.New("--max-index-entries must be more than 0")
	case config.HotPrefixUses == 0:
		return errors.New("--hot-prefix-uses must be more than 0")
	case config.AgentLease <= 0:
		return errors.New("--agent-lease must be more than 0")
	case config.ExpectedAgents < 0 || config.WarmUp < 0:
		return errors.New("--expected-agents and --warm-up must not be negative")
	default:
		return checkRanking(config.Ranking)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, config aggregator.Config) error {
	a, err := aggregator.New(config)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
