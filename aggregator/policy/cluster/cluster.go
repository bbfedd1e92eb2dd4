// Package cluster takes policies and prompt templates from the objects of a Kubernetes cluster and follows
// their changes.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/policy/objects"
	"github.com/inferencecache/inferencecache/aggregator/prompts"
	"github.com/inferencecache/inferencecache/crds/admission"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

const (
	// settle is how long changes are collected before they are put in force.
	settle = 50 * time.Millisecond
	// lookEvery is how often the source says that it is still good where nothing changes.
	lookEvery = 30 * time.Second
	// sayEvery is how often another error is logged: its text may differ from try to try.
	sayEvery = time.Minute
	// maxProblems bounds the problems that an error lists.
	maxProblems = 8
)

// Config is what a Source reads, and whom it tells.
type Config struct {
	REST      *rest.Config
	Policies  *policy.Feed
	Templates *prompts.Feed
	Log       *slog.Logger
}

// Source follows CachePolicy, CacheTenant and PromptTemplate objects of all namespaces.
type Source struct {
	config    Config
	policies  *kind[v1alpha1.CachePolicy]
	tenants   *kind[v1alpha1.CacheTenant]
	templates *kind[v1alpha1.PromptTemplate]
	notices   chan struct{} // holds one while there is something new
	seen      [3]uint64     // the changes of each kind that are in force
	said      string        // the error that was logged last
	saidAt    time.Time
}

// New prepares a Source. The API server is not asked for anything before Run.
func New(config Config) (*Source, error) {
	client, err := dynamic.NewForConfig(config.REST)
	if err != nil {
		return nil, fmt.Errorf("make a client for policies of the cluster: %w", err)
	}
	s := &Source{config: config, notices: make(chan struct{}, 1)}
	s.policies = newKind(s, client, "cachepolicies", func(p *v1alpha1.CachePolicy) field.ErrorList {
		admission.DefaultCachePolicy(p)
		return admission.ValidateCachePolicy(p, nil)
	})
	s.tenants = newKind(s, client, "cachetenants", func(t *v1alpha1.CacheTenant) field.ErrorList {
		admission.DefaultCacheTenant(t)
		return admission.ValidateCacheTenant(t, nil)
	})
	s.templates = newKind(s, client, "prompttemplates", admission.ValidatePromptTemplate)
	return s, nil
}

func newKind[T any](s *Source, client dynamic.Interface, resource string, check func(*T) field.ErrorList) *kind[T] {
	return &kind[T]{
		resource: resource,
		client:   client.Resource(v1alpha1.GroupVersion.WithResource(resource)),
		check:    check,
		notify:   s.notify,
		objects:  map[string]object[T]{},
	}
}

func (s *Source) followers() []follower { return []follower{s.policies, s.tenants, s.templates} }

// notify wakes Run.
func (s *Source) notify() {
	select {
	case s.notices <- struct{}{}:
	default:
	}
}

// Run follows the objects until ctx ends, however often the API server goes and comes.
func (s *Source) Run(ctx context.Context) error {
	work, ctx := errgroup.WithContext(klog.NewContext(ctx, logr.Discard())) // what goes wrong is said by refresh
	for _, f := range s.followers() {
		work.Go(func() error {
			f.run(ctx)
			return nil
		})
	}
	work.Go(func() error {
		s.follow(ctx)
		return nil
	})
	return work.Wait()
}

func (s *Source) follow(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.notices:
			select {
			case <-ctx.Done():
				return
			case <-time.After(settle):
			}
		case <-ticker.C:
		}
		s.refresh()
	}
}

// refresh puts in force what has changed, and says how the source is. Kinds stand for themselves: one that
// cannot be read leaves the others, and what was read of it before, in force.
func (s *Source) refresh() {
	var changed [3]bool
	var trouble []error
	for i, f := range s.followers() {
		now := f.changes()
		changed[i], s.seen[i] = now != s.seen[i], now
		trouble = append(trouble, f.trouble())
	}
	templates, synced, wrongTemplates := sound(s.templates)
	if changed[2] && synced {
		s.config.Templates.Replace(templates)
	}
	set, synced, wrong := s.set()
	err := bounded(append(append(trouble, wrong...), wrongTemplates...))
	if synced && (err == nil || changed[0] || changed[1]) && s.config.Policies.Replace(set) {
		s.config.Log.Info("policies of the cluster read", "policies", len(set.Policies), "quotas", len(set.Quotas))
	}
	s.report(err)
}

// set returns what the policies and tenants state. synced is false until one of the kinds has been read.
func (s *Source) set() (set policy.Set, synced bool, wrong []error) {
	policies, readPolicies, wrongPolicies := sound(s.policies)
	tenants, readTenants, wrongTenants := sound(s.tenants)
	set, err := objects.Set(policies, tenants)
	return set, readPolicies || readTenants, append(append(wrongPolicies, wrongTenants...), err)
}

// sound returns the last sound states of a kind's objects, and what is wrong with the newest.
func sound[T any](k *kind[T]) (values []*T, synced bool, wrong []error) {
	all, synced := k.state()
	for _, o := range all {
		if o.value != nil {
			values = append(values, o.value)
		}
		if o.err != nil {
			wrong = append(wrong, o.err)
		}
	}
	return values, synced, wrong
}

// bounded joins errors, the first of them in full; nil if there are none.
func bounded(errs []error) error {
	var some []error
	more := 0
	for _, err := range errs {
		switch {
		case err == nil:
		case len(some) < maxProblems:
			some = append(some, err)
		default:
			more++
		}
	}
	if more > 0 {
		some = append(some, fmt.Errorf("and %d more", more))
	}
	return errors.Join(some...)
}

// report says what is wrong, and logs it once.
func (s *Source) report(err error) {
	if err == nil {
		if s.said != "" {
			s.config.Log.Info("policies of the cluster are followed again")
		}
		s.said = ""
		return
	}
	s.config.Policies.Fail(err)
	if s.said == "" || s.said != err.Error() && time.Since(s.saidAt) >= sayEvery {
		s.said, s.saidAt = err.Error(), time.Now()
		s.config.Log.Error("policies of the cluster are not all followed; what was in force stays", "error", err)
	}
}
