// Package folder takes policies from a folder of CachePolicy and CacheTenant manifests and follows
// its changes.
package folder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/policy/objects"
	"github.com/inferencecache/inferencecache/crds/load"
)

const (
	// settle is how long the folder must be quiet before it is read: tools write several files, or
	// one file in several steps.
	settle = 200 * time.Millisecond
	// settleAtMost bounds that wait where the folder is never quiet.
	settleAtMost = 2 * time.Second
	// pollEvery is how often the folder is read without a notice. Notices are missing on some network
	// file systems, and where the folder itself is the target of a symlink that is swapped.
	pollEvery = 30 * time.Second
)

// Source is a folder that feeds a policy store.
type Source struct {
	dir  string
	feed *policy.Feed
	log  *slog.Logger
	poll time.Duration
	said string // the error that was logged last
}

// New reads the folder for the first time. A path that is no readable folder is an error. Files in it
// that cannot be used are not: the sound ones are put in force, since nothing earlier is, and the feed
// says what is wrong.
func New(dir string, feed *policy.Feed, log *slog.Logger) (*Source, error) {
	if _, err := os.ReadDir(dir); err != nil {
		return nil, fmt.Errorf("read the policy folder: %w", err)
	}
	s := &Source{dir: dir, feed: feed, log: log, poll: pollEvery}
	set, err := read(dir)
	feed.Replace(set)
	s.report(set, err, true)
	return s, nil
}

// Run follows the folder until ctx ends.
func (s *Source) Run(ctx context.Context) error {
	watch := s.watch()
	defer func() { watch.close() }() // the one of that time
	poll := time.NewTicker(s.poll)
	defer poll.Stop()
	s.refresh() // for what changed before there was a watch
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-watch.events():
			watch.settle(ctx)
		case err := <-watch.errors():
			s.log.Warn("notices of changes in the policy folder were lost, reading it", "folder", s.dir, "error", err)
		case <-poll.C:
			if watch.stale() {
				watch.close()
				watch = s.watch()
			}
		}
		s.refresh()
	}
}

// refresh puts in force what the folder states now, if all of it is sound.
func (s *Source) refresh() {
	set, err := read(s.dir)
	s.report(set, err, err == nil && s.feed.Replace(set))
}

// report says how a reading went, and what is wrong only once.
func (s *Source) report(set policy.Set, err error, changed bool) {
	if err != nil {
		s.feed.Fail(err)
		if s.said != err.Error() {
			s.said = err.Error()
			s.log.Error("files of the policy folder cannot be used; what was in force stays", "folder", s.dir, "error", err)
		}
		return
	}
	s.said = ""
	if changed {
		s.log.Info("policy folder read", "folder", s.dir, "policies", len(set.Policies), "quotas", len(set.Quotas))
	}
}

// maxProblems bounds the problems that an error lists.
const maxProblems = 8

// read returns what the folder states; with an error, the sound part of it.
func read(dir string) (policy.Set, error) {
	read, err := load.Folder(dir)
	var problems load.Problems
	if errors.As(err, &problems) && len(problems) > maxProblems {
		err = fmt.Errorf("%w\nand %d more", problems[:maxProblems], len(problems)-maxProblems)
	}
	set, wrong := objects.Set(read.CachePolicies, read.CacheTenants)
	return set, errors.Join(err, wrong)
}

// watch is what gives notice of changes in the folder; nothing at all if that cannot be had.
type watch struct {
	notices *fsnotify.Watcher
	dir     string
	inode   os.FileInfo
}

func (s *Source) watch() *watch {
	w := &watch{dir: s.dir}
	notices, err := fsnotify.NewWatcher()
	if err == nil {
		w.inode, err = os.Stat(s.dir)
		err = errors.Join(err, notices.Add(s.dir))
	}
	if err != nil {
		s.log.Warn("no notice of changes in the policy folder, reading it at intervals", "folder", s.dir, "every", s.poll, "error", err)
	}
	w.notices = notices
	return w
}

// events is never ready where there are no notices.
func (w *watch) events() <-chan fsnotify.Event {
	if w.notices == nil {
		return nil
	}
	return w.notices.Events
}

func (w *watch) errors() <-chan error {
	if w.notices == nil {
		return nil
	}
	return w.notices.Errors
}

// stale says whether the path leads to another folder than the one watched.
func (w *watch) stale() bool {
	now, err := os.Stat(w.dir)
	return err == nil && (w.inode == nil || !os.SameFile(now, w.inode))
}

// settle waits until no notice has come for a while.
func (w *watch) settle(ctx context.Context) {
	end := time.After(settleAtMost)
	for {
		select {
		case <-w.events():
		case <-time.After(settle):
			return
		case <-end:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (w *watch) close() {
	if w.notices != nil {
		_ = w.notices.Close() // nothing depends on it any more
	}
}
