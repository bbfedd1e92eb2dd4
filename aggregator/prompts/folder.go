package prompts

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/inferencecache/inferencecache/crds/load"
)

// readEvery is how often the folder is read again.
const readEvery = 10 * time.Second

// Folder holds the PromptTemplates of a folder of manifests.
type Folder struct {
	dir     string
	log     *slog.Logger
	entries atomic.Pointer[map[string]entry] // by namespace/name
	said    string                           // the problems that were logged last
}

// entry is a template, or why it cannot be used.
type entry struct {
	template *Template
	err      error
}

// New reads the folder for the first time. What cannot be used in it is no error.
func New(dir string, log *slog.Logger) *Folder {
	f := &Folder{dir: dir, log: log}
	f.entries.Store(&map[string]entry{})
	f.read(true)
	return f
}

// Run follows the folder until ctx ends.
func (f *Folder) Run(ctx context.Context) error {
	ticker := time.NewTicker(readEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			f.read(false)
		}
	}
}

// read takes over what the folder states. While some file of it is wrong, what was read before stays, but for the
// first time, when there is nothing.
func (f *Folder) read(first bool) {
	objects, err := load.Folder(f.dir)
	if err != nil && !first {
		return // whoever reads the policies of the folder says what is wrong
	}
	entries := make(map[string]entry, len(objects.PromptTemplates))
	var wrong []string
	for _, o := range objects.PromptTemplates {
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
			f.log.Error("prompt templates cannot be rendered", "folder", f.dir, "problems", problems)
		}
	}
}

// Find returns the template that ref names, as namespace/name or as a name in the tenant's namespace. found is false
// where there is none, and where it is not the tenant's: that is the same to the caller. A template that cannot be used
// is an error.
func (f *Folder) Find(ref, tenant string) (t *Template, found bool, err error) {
	namespace, _, full := strings.Cut(ref, "/")
	switch {
	case !full:
		ref = tenant + "/" + ref
	case tenant != "" && tenant != namespace:
		return nil, false, nil
	}
	e, found := (*f.entries.Load())[ref]
	return e.template, found, e.err
}
