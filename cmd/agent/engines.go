package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/inferencecache/inferencecache/agent"
	"github.com/inferencecache/inferencecache/agent/blocktable"
	"github.com/inferencecache/inferencecache/agent/config"
	"github.com/inferencecache/inferencecache/agent/discover"
	"github.com/inferencecache/inferencecache/agent/stats"
	"github.com/inferencecache/inferencecache/cmd/internal/cli"
)

// engineFlags say which engines to follow: those of a file, and those found in a cluster.
type engineFlags struct {
	file                        string
	pods                        bool
	node, namespace, kubeconfig string
}

func (f *engineFlags) add(cmd *cobra.Command, o *agent.Options) {
	cli.Group(cmd, "Engines", func(fs *pflag.FlagSet) {
		fs.StringVar(&f.file, "engines", "", "YAML file that lists engines to follow")
		fs.IntVar(&o.MaxBlocks, "max-blocks-per-rank", blocktable.DefaultMaxBlocks, "blocks followed per rank; more are refused and counted")
		fs.DurationVar(&o.StatsInterval, "stats-interval", stats.DefaultInterval, "how often engine metrics are read")
		fs.IntVar(&o.ConcurrencyCeiling, "max-concurrency-ceiling", stats.DefaultCeiling, "running and waiting requests that saturate a data-parallel rank")
	})
	cli.Group(cmd, "Kubernetes", func(fs *pflag.FlagSet) {
		fs.BoolVar(&f.pods, "discover-pods", false, "find the engines among the pods of the node")
		fs.StringVar(&f.node, "node-name", "", "the node that this agent is on, from spec.nodeName (required with --discover-pods)")
		fs.StringVar(&f.namespace, "discover-namespace", "", "look at pods of this namespace only (default: of all)")
		fs.StringVar(&f.kubeconfig, "kubeconfig", "", "file that says how to reach the API server (default: the pod's service account)")
	})
}

var errEngines = errors.New("no engines: name the YAML file that lists them with --engines, or look for them with --discover-pods")

// apply adds the engines to the agent's options.
func (f *engineFlags) apply(o *agent.Options) (err error) {
	o.ID = cmp.Or(o.ID, f.node)
	if f.file == "" && !f.pods {
		return errEngines
	}
	if f.file != "" {
		if o.Engines, err = config.Load(f.file); err != nil {
			return err
		}
	}
	if !f.pods {
		return nil
	}
	cluster, err := f.config()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return fmt.Errorf("reach the Kubernetes API server: %w", err)
	}
	d, err := discover.New(discover.Config{Client: client, Node: f.node, Namespace: f.namespace, Log: o.Log})
	if err != nil {
		return err
	}
	o.Discovery = d
	return nil
}

// config says how to reach the API server. It is not asked for anything.
func (f *engineFlags) config() (config *rest.Config, err error) {
	if f.kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	} else {
		config, err = rest.InClusterConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API server (outside a cluster, name a file with --kubeconfig): %w", err)
	}
	config.UserAgent = "inferencecache-agent/" + cli.BuildVersion().Version
	return config, nil
}
