package prompts

import (
	"context"
	"time"

	"github.com/inferencecache/inferencecache/crds/load"
)

// readEvery is how often the folder is read again.
const readEvery = 10 * time.Second

// Folder feeds the PromptTemplates of a folder of manifests.
type Folder struct {
	dir  string
	feed *Feed
}

// NewFolder reads the folder for the first time. What cannot be used in it is no error.
func NewFolder(dir string, feed *Feed) *Folder {
	f := &Folder{dir: dir, feed: feed}
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
	f.feed.Replace(objects.PromptTemplates)
}
