package prompts

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// Store holds the PromptTemplates in force. Readers take no lock.
type Store struct{ feeds []*Feed }

// Feed is how a source, whatever it is, tells a Store which templates there are. Its methods are for one
// goroutine.
type Feed struct {
	source  string
	log     *slog.Logger
	entries atomic.Pointer[map[string]entry] // by namespace/name
	said    string                           // the problems that were logged last
}

// entry is a template, or why it cannot be used.
type entry struct {
	template *Template
	err      error
}

// NewStore returns a Store with a feed for each of the named sources, weakest first: a template of a later
// source replaces one of an earlier source with the same namespace and name.
func NewStore(log *slog.Logger, sources ...string) *Store {
	s := &Store{}
	for _, source := range sources {
		f := &Feed{source: source, log: log}
		f.entries.Store(&map[string]entry{})
		s.feeds = append(s.feeds, f)
	}
	return s
}

// Feed returns the feed of a source. The source must be one that the store was made with.
func (s *Store) Feed(source string) *Feed {
	for _, f := range s.feeds {
		if f.source == source {
			return f
		}
	}
	panic(fmt.Sprintf("prompts: no source %q", source))
}

// Replace puts templates in force, in place of what the source had before. One that cannot be rendered is
// logged, and an error to whoever asks for it.
func (f *Feed) Replace(templates []*v1alpha1.PromptTemplate) {
	entries := make(map[string]entry, len(templates))
	var wrong []string
	for _, o := range templates {
		name := o.Namespace + "/" + o.Name
		t, err := Parse(&o.Spec)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", name, err))
		}
		entries[name] = entry{t, err}
	}
	f.entries.Store(&entries)
	if problems := strings.Join(wrong, "; "); problems != f.said {
		if f.said = problems; problems != "" {
			f.log.Error("prompt templates cannot be rendered", "source", f.source, "problems", problems)
		}
	}
}

// Find returns the template that ref names, as namespace/name or as a name in the tenant's namespace. found is false
// where there is none, and where it is not the tenant's: that is the same to the caller. A template that cannot be used
// is an error.
func (s *Store) Find(ref, tenant string) (t *Template, found bool, err error) {
	namespace, _, full := strings.Cut(ref, "/")
	switch {
	case !full:
		ref = tenant + "/" + ref
	case tenant != "" && tenant != namespace:
		return nil, false, nil
	}
	for i := len(s.feeds) - 1; i >= 0; i-- {
		if e, found := (*s.feeds[i].entries.Load())[ref]; found {
			return e.template, true, e.err
		}
	}
	return nil, false, nil
}
