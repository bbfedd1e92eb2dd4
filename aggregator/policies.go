package aggregator

import (
	"context"

	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/policy/cluster"
	"github.com/inferencecache/inferencecache/aggregator/policy/folder"
	"github.com/inferencecache/inferencecache/aggregator/prompts"
)

// Sources of policy, weakest first: what is true without a cluster, what the cluster states, and what
// somebody decides elsewhere.
const (
	folderSource  = "folder"
	clusterSource = "cluster"
	pushSource    = "push"
)

// follower is a source that follows what it reads until ctx ends.
type follower interface {
	Run(ctx context.Context) error
}

// newPolicies returns the store of policies, with a feed for each source that is configured.
func newPolicies(config Config) *policy.Store {
	var sources []string
	if config.PolicyDir != "" {
		sources = append(sources, folderSource)
	}
	if config.PolicyCluster != nil {
		sources = append(sources, clusterSource)
	}
	if config.Admin.Address != "" {
		sources = append(sources, pushSource)
	}
	store := policy.NewStore(config.basePolicy(), sources...)
	store.Now = config.Now
	return store
}

// readPolicies reads the folder and prepares the cluster. Neither waits for an API server.
func (a *Aggregator) readPolicies(config Config) error {
	if config.PolicyDir == "" && config.PolicyCluster == nil {
		return nil
	}
	a.prompts = prompts.NewStore(a.log, folderSource, clusterSource)
	if config.PolicyDir != "" {
		source, err := folder.New(config.PolicyDir, a.policies.Feed(folderSource), a.log)
		if err != nil {
			return err
		}
		a.followed = append(a.followed, source, prompts.NewFolder(config.PolicyDir, a.prompts.Feed(folderSource)))
	}
	if config.PolicyCluster != nil {
		source, err := cluster.New(cluster.Config{
			REST: config.PolicyCluster, Policies: a.policies.Feed(clusterSource), Templates: a.prompts.Feed(clusterSource), Log: a.log,
		})
		if err != nil {
			return err
		}
		a.followed = append(a.followed, source)
	}
	return nil
}
