package aggregator

import (
	"errors"
	"net/http"

	"github.com/inferencecache/inferencecache/aggregator/auth"
	"github.com/inferencecache/inferencecache/aggregator/hot"
	"github.com/inferencecache/inferencecache/aggregator/ingest"
	"github.com/inferencecache/inferencecache/aggregator/lookup"
	"github.com/inferencecache/inferencecache/aggregator/metrics"
	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/policy/push"
	"github.com/inferencecache/inferencecache/aggregator/probe"
)

// Admin is how /snapshot, /policy and /probe are served.
type Admin struct {
	// Address is host:port to listen on; empty means that they are not served.
	Address string
	// Open lets everybody in. Otherwise a Reviewer tells whose tokens callers bring, and User is set.
	Open     bool
	Reviewer auth.Reviewer
	// User is the only caller that is let in.
	User string
	// ControllerAudience is what tokens for /snapshot and /probe must be issued for, PolicyAudience
	// those for /policy.
	ControllerAudience, PolicyAudience string
	// Store is the remote cache store that /probe tests; nil if there is none.
	Store probe.Store
}

// check refuses a guard that is not complete: it must not look like one that is.
func (c Admin) check() error {
	switch guarded := c.Reviewer != nil && c.User != "" && c.ControllerAudience != "" && c.PolicyAudience != ""; {
	case c.Address == "":
		return nil
	case c.Open && c.Reviewer != nil:
		return errors.New("the guarded endpoints are open and have a reviewer: want one of the two")
	case !c.Open && !guarded:
		return errors.New("the guarded endpoints need a reviewer, a user and two audiences, or to be open")
	default:
		return nil
	}
}

// maxHeaderBytes bounds a request's headers, of which a token is the longest.
const maxHeaderBytes = 32 << 10

func (a *Aggregator) newAdminServer(config Config) *http.Server {
	mux := http.NewServeMux()
	handle := func(endpoint, audience string, h http.Handler) {
		if !config.Admin.Open {
			results := auth.Results(endpoint)
			a.metrics.Register(results)
			h = auth.New(auth.Config{
				Reviewer: config.Admin.Reviewer, Audience: audience, User: config.Admin.User, Results: results, Log: a.log, Now: a.now,
			}).Handler(h)
		}
		mux.Handle("/"+endpoint, h)
	}
	handle("snapshot", config.Admin.ControllerAudience, a.snapshots.Handler(a.log))
	handle("policy", config.Admin.PolicyAudience, push.Handler(a.policies.Feed(pushSource), a.log))
	handle("probe", config.Admin.ControllerAudience, a.newProber(config).Handler(a.log))
	server := newHTTPServer(mux)
	server.MaxHeaderBytes = maxHeaderBytes
	return server
}

// newProber returns a prober of handlers like those that callers use, over the same index. It counts
// in metrics of its own, which nobody reads: callers' calls are what the others count.
func (a *Aggregator) newProber(config Config) *probe.Prober {
	return probe.New(a.newService(config, metrics.New(a.index), nil), a.index, config.Admin.Store)
}

// newService returns the handlers of the public contract. uses, if not nil, counts what lookups are answered
// with.
func (a *Aggregator) newService(config Config, m *metrics.Metrics, uses *hot.Counter) *service {
	return &service{
		index: a.index, registry: a.registry, prompts: a.newPrompts(config, m), sync: a.sync, hot: a.hot, now: a.now, version: a.version,
		lookup: lookup.New(lookup.Config{
			Index: a.index, Registry: a.registry, Policy: a.policyOf, Rank: config.ranking().Score,
			Metrics: m, BlockSize: config.BlockSize, Tokenizer: a.models, Hot: uses, Now: a.now,
		}),
		ingest: ingest.New(ingest.Config{
			Index: a.index, Registry: a.registry, Policy: a.policyOf, Metrics: m, Stop: a.draining.Done(), Now: a.now,
		}),
	}
}

// withProbe gives the probe's tenant a policy of its own.
func withProbe(of policy.For) policy.For {
	own := probe.Policy()
	return func(tenant string) *policy.Policy {
		if tenant == probe.Tenant {
			return own
		}
		return of(tenant)
	}
}
