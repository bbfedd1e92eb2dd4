// Package kube finds the Kubernetes API server.
package kube

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config returns how to reach the cluster that a kubeconfig file names, or, if kubeconfig is empty, the
// cluster that this process runs in. The server is not asked for anything.
func Config(kubeconfig string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		if config, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("find the Kubernetes API server (outside a cluster, name a kubeconfig file): %w", err)
		}
	} else if config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	config.UserAgent = rest.DefaultKubernetesUserAgent()
	return config, nil
}
