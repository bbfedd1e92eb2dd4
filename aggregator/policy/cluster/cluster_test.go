package cluster_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/policy/cluster"
	"github.com/inferencecache/inferencecache/aggregator/prompts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// followed is a store that follows an API server.
type followed struct {
	*policy.Store
	templates *prompts.Store
}

func follow(t *testing.T, a *api) *followed {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	f := &followed{policy.NewStore(policy.Default(), "cluster"), prompts.NewStore(log, "cluster")}
	source, err := cluster.New(cluster.Config{
		REST: a.config(), Policies: f.Feed("cluster"), Templates: f.templates.Feed("cluster"), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }() // waited for below
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f
}

// wait waits until something is so.
func (f *followed) wait(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s in vain; the source %s", what, f.Status()[0])
		}
	}
}

func (f *followed) ok() bool { return f.Status()[0].Err == nil && !f.Status()[0].Read.IsZero() }

func (f *followed) says(text string) func() bool {
	return func() bool { err := f.Status()[0].Err; return err != nil && strings.Contains(err.Error(), text) }
}

func (a *api) putPolicy(namespace, name string, generation int64, spec object) {
	a.put("CachePolicy", "cachepolicies", namespace, name, generation, spec)
}

func TestObjectsOfTheClusterAreInForceAsTheyChange(t *testing.T) {
	a := newAPI(t)
	a.putPolicy("team-a", "default", 1, object{"minimumPrefixTokens": 100})
	a.put("CacheTenant", "cachetenants", "team-a", "team-a", 1, object{"tenantID": "team-a", "quota": object{"maxIndexEntries": 7}})
	a.put("PromptTemplate", "prompttemplates", "team-a", "chat", 1, object{"body": "hello"})
	f := follow(t, a)
	f.wait(t, "the first state", func() bool {
		_, found, err := f.templates.Find("chat", "team-a")
		return f.ok() && found && err == nil && f.For("team-a").MinimumPrefixTokens == 100 && f.Limits("team-a").MaxPrefixes == 7
	})
	a.putPolicy("team-a", "default", 2, object{"minimumPrefixTokens": 200})
	f.wait(t, "a change", func() bool { return f.For("team-a").MinimumPrefixTokens == 200 })
	if in := f.InForce(); len(in) != 1 || in[0].Source != "cluster" || in[0].Origin.Name != "default" || in[0].Origin.Generation != 2 || in[0].Origin.ResourceVersion == "" {
		t.Errorf("in force %+v", in)
	}
	a.putPolicy("team-a", "another", 1, object{"minimumPrefixTokens": 300})
	f.wait(t, "the policy with the smaller name", func() bool { return f.For("team-a").MinimumPrefixTokens == 300 })
	a.remove("cachepolicies", "team-a/another")
	a.remove("cachepolicies", "team-a/default")
	a.remove("cachetenants", "team-a/team-a")
	f.wait(t, "removals", func() bool { return f.For("team-a").MinimumPrefixTokens == 0 && !f.Limits("team-a").Quota })
}

func TestAnObjectThatCannotBeUsedCostsNothingElse(t *testing.T) {
	a := newAPI(t)
	a.putPolicy("team-a", "default", 1, object{"minimumPrefixTokens": 100})
	a.putPolicy("team-b", "default", 1, object{"evictionTTL": "soon"})
	f := follow(t, a)
	f.wait(t, "a problem", f.says("CachePolicy team-b/default"))
	f.wait(t, "the sound policy", func() bool { return f.For("team-a").MinimumPrefixTokens == 100 })

	a.putPolicy("team-a", "default", 2, object{"strategy": object{"requireChain": true, "enableChainMatching": false}})
	a.putPolicy("team-b", "default", 2, object{"minimumPrefixTokens": 50})
	f.wait(t, "the problem of the other", f.says("CachePolicy team-a/default: spec.strategy"))
	f.wait(t, "the policy that was mended", func() bool { return f.For("team-b").MinimumPrefixTokens == 50 })
	if got := f.For("team-a").MinimumPrefixTokens; got != 100 {
		t.Errorf("the last sound state is gone: %d", got)
	}
	a.putPolicy("team-a", "default", 3, object{"minimumPrefixTokens": 1})
	f.wait(t, "all to be well", func() bool { return f.ok() && f.For("team-a").MinimumPrefixTokens == 1 })
}

func TestWhatWasReadStaysWhileTheAPIServerIsAway(t *testing.T) {
	a := newAPI(t)
	a.putPolicy("team-a", "default", 1, object{"minimumPrefixTokens": 100})
	f := follow(t, a)
	f.wait(t, "the first state", func() bool { return f.ok() && f.For("team-a").MinimumPrefixTokens == 100 })
	a.answer("", http.StatusServiceUnavailable)
	f.wait(t, "the outage to show", f.says("follow cachepolicies"))
	a.putPolicy("team-a", "default", 2, object{"minimumPrefixTokens": 200})
	if got := f.For("team-a").MinimumPrefixTokens; got != 100 {
		t.Errorf("the policy is %d while the API server is away", got)
	}
	a.answer("", 0)
	f.wait(t, "what happened meanwhile", func() bool { return f.ok() && f.For("team-a").MinimumPrefixTokens == 200 })
}

func TestAStartWithoutTheAPIServerBecomesWholeLater(t *testing.T) {
	a := newAPI(t)
	a.putPolicy("team-a", "default", 1, object{"minimumPrefixTokens": 100})
	a.answer("", http.StatusServiceUnavailable)
	f := follow(t, a)
	f.wait(t, "the outage to show", f.says("follow cachepolicies"))
	if s := f.Status()[0]; !strings.Contains(s.String(), "nothing of it is in force") {
		t.Errorf("status %s", s)
	}
	a.answer("", 0)
	f.wait(t, "the policy", func() bool { return f.ok() && f.For("team-a").MinimumPrefixTokens == 100 })
}

func TestAKindThatMayNotBeReadLeavesTheOthers(t *testing.T) {
	a := newAPI(t)
	a.putPolicy("team-a", "default", 1, object{"minimumPrefixTokens": 100})
	a.answer("prompttemplates", http.StatusForbidden)
	f := follow(t, a)
	f.wait(t, "the refusal to show", f.says("follow prompttemplates"))
	f.wait(t, "the policy", func() bool { return f.For("team-a").MinimumPrefixTokens == 100 })
	a.putPolicy("team-a", "default", 2, object{"minimumPrefixTokens": 200})
	f.wait(t, "a change", func() bool { return f.For("team-a").MinimumPrefixTokens == 200 })
	a.answer("prompttemplates", 0)
	f.wait(t, "all to be well", f.ok)
}
