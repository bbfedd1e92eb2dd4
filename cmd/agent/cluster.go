package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/inferencecache/inferencecache/agent"
	"github.com/inferencecache/inferencecache/agent/discover"
	"github.com/inferencecache/inferencecache/cmd/internal/cli"
)

// clusterFlags say whether and where to look for engines in a cluster.
type clusterFlags struct {
	pods                        bool
	node, namespace, kubeconfig string
}

func (f *clusterFlags) add(cmd *cobra.Command) {
	cli.Group(cmd, "Kubernetes", func(fs *pflag.FlagSet) {
		fs.BoolVar(&f.pods, "discover-pods", false, "find the engines among the pods of the node")
		fs.StringVar(&f.node, "node-name", "", "the node that this agent is on, from spec.nodeName (required with --discover-pods)")
		fs.StringVar(&f.namespace, "discover-namespace", "", "look at pods of this namespace only (default: of all)")
		fs.StringVar(&f.kubeconfig, "kubeconfig", "", "file that says how to reach the API server (default: the pod's service account)")
	})
}

// apply adds what the flags say to the agent's options.
func (f *clusterFlags) apply(o *agent.Options) error {
	o.ID = cmp.Or(o.ID, f.node)
	if !f.pods {
		return nil
	}
	config, err := f.config()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
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
func (f *clusterFlags) config() (config *rest.Config, err error) {
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
