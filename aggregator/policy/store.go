package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/inferencecache/inferencecache/index"
)

// Store holds the policies in force. Readers see all of a change or nothing of it, and take no lock.
type Store struct {
	// Now tells the time; default time.Now. It is set before anything else is done.
	Now func() time.Time

	base    Policy
	current atomic.Pointer[snapshot]

	mu    sync.Mutex // guards the feeds
	feeds []*Feed
}

// NewStore returns a Store with a feed for each of the named sources, weakest first: a policy of a
// later source replaces, as a whole, the one that an earlier source has for the same tenant, and so
// does a quota. base is the policy of tenants that no source names.
func NewStore(base Policy, sources ...string) *Store {
	s := &Store{Now: time.Now, base: base}
	for _, name := range sources {
		s.feeds = append(s.feeds, &Feed{store: s, status: Status{Source: name}})
	}
	s.current.Store(&snapshot{})
	return s
}

// Feed returns the feed of a source. The source must be one that the store was made with.
func (s *Store) Feed(source string) *Feed {
	for _, f := range s.feeds {
		if f.status.Source == source {
			return f
		}
	}
	panic(fmt.Sprintf("policy: no source %q", source))
}

// For returns the policy of a tenant. It implements the function type For.
func (s *Store) For(tenant string) *Policy {
	if p := s.current.Load().policies[tenant]; p != nil {
		return p
	}
	return &s.base
}

// Limits returns what a tenant may keep in the index.
func (s *Store) Limits(tenant string) index.Limits {
	now := s.current.Load()
	p := now.policies[tenant]
	if p == nil {
		p = &s.base
	}
	quota, limited := now.quotas[tenant]
	return index.Limits{TTL: p.TTL, LFU: p.LFU, MaxPrefixes: quota, Quota: limited}
}

// InForce returns where each tenant's policy comes from, by tenant id.
func (s *Store) InForce() []InForce {
	return slices.SortedFunc(maps.Values(s.current.Load().inForce), func(a, b InForce) int {
		return cmp.Compare(a.Tenant, b.Tenant)
	})
}

// Status returns the state of each source, weakest first.
func (s *Store) Status() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Status, 0, len(s.feeds))
	for _, f := range s.feeds {
		out = append(out, f.status)
	}
	return out
}

// Feed is how a source, whatever it is, tells a Store what it states. Its methods may be called from
// any goroutine.
type Feed struct {
	store  *Store
	set    Set
	status Status
}

// Status is the state of one source.
type Status struct {
	Source string
	// Policies and Quotas count what the source states.
	Policies, Quotas int
	// Read is when the source was last found good; zero if it never was.
	Read time.Time
	// Failures counts how often it was not.
	Failures uint64
	// Err says why it is not good now. What it stated before stays in force.
	Err error
}

// Replace puts what the source states in force, in place of what it stated before, and says whether
// that changes anything for lookups or the index.
func (f *Feed) Replace(set Set) (changed bool) {
	s := f.store
	s.mu.Lock()
	defer s.mu.Unlock()
	f.status.Read, f.status.Err = s.Now(), nil
	if reflect.DeepEqual(set, f.set) {
		return false
	}
	changed = !reflect.DeepEqual(set.Policies, f.set.Policies) || !reflect.DeepEqual(set.Quotas, f.set.Quotas)
	f.set = set
	f.status.Policies, f.status.Quotas = len(set.Policies), len(set.Quotas)
	s.current.Store(s.snapshotLocked(f.status.Read))
	return changed
}

// Fail says that what the source states cannot be used, and why.
func (f *Feed) Fail(err error) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.status.Failures++
	f.status.Err = err
}

// String describes the state in one line.
func (s Status) String() string {
	why := ""
	if s.Err != nil {
		why = strings.ReplaceAll(s.Err.Error(), "\n", "; ")
	}
	switch {
	case s.Err != nil && s.Read.IsZero():
		return "cannot be used, and nothing of it is in force: " + why
	case s.Err != nil:
		return fmt.Sprintf("cannot be used, what was read at %s is in force: %s", s.Read.UTC().Format(time.RFC3339), why)
	case s.Read.IsZero():
		return "has stated nothing yet"
	default:
		return fmt.Sprintf("ok, %d policies, %d quotas", s.Policies, s.Quotas)
	}
}

// Err joins the errors of the sources that cannot be used now; nil if there are none.
func (s *Store) Err() error {
	var errs []error
	for _, status := range s.Status() {
		if status.Err != nil {
			errs = append(errs, fmt.Errorf("policy source %s: %w", status.Source, status.Err))
		}
	}
	return errors.Join(errs...)
}
