package snapshot

import (
	"sync"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
)

const (
	// maxModels bounds the pairs of tenant and model that are remembered, maxHolders the caches of them.
	// Both are twice what the registry lets in.
	maxModels  = 2 * 4096
	maxHolders = 2 * 65536
	// minRemembered is how long a model is remembered that nothing is known of: what names it may
	// still be on its way.
	minRemembered = time.Minute
)

// Directory remembers which models and caches producers have named, and when each cache last had
// news. It learns them as messages and entries pass, so that a snapshot asks for what there is instead
// of searching the index.
type Directory struct {
	now func() time.Time

	mu      sync.RWMutex
	models  map[model]time.Time // when it was named last, give or take half of minRemembered
	holders map[holder]index.Instant
}

type model struct{ tenant, model string }

// holder is a cache as far as one model goes.
type holder struct {
	model
	index.Holder
}

// NewDirectory returns an empty Directory.
func NewDirectory() *Directory {
	return &Directory{now: time.Now, models: map[model]time.Time{}, holders: map[holder]index.Instant{}}
}

// Message notes the models that a message from a producer names.
func (d *Directory) Message(m any) {
	switch m := m.(type) {
	case *pb.CacheStateUpdate:
		d.noteModel(m.GetReplicaId(), model{m.GetTenantId(), m.GetModelId()})
	case *pb.SyncRequest:
		for _, v := range m.GetDelta().GetViews() {
			d.noteModel(v.GetReplicaId(), model{v.GetTenantId(), v.GetModelId()})
		}
	}
}

func (d *Directory) noteModel(replica string, m model) {
	if m.tenant == contract.ReservedTenant || contract.CheckNames(replica, m.tenant, m.model) != "" {
		return // refused where it goes
	}
	now := d.now()
	d.mu.RLock()
	named, known := d.models[m]
	d.mu.RUnlock()
	if known && now.Sub(named) < minRemembered/2 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.models[m]; known || len(d.models) < maxModels {
		d.models[m] = now
	}
}

// noteEvent notes that a cache has had news.
func (d *Directory) noteEvent(h holder, at index.Instant) {
	d.mu.RLock()
	last, known := d.holders[h]
	d.mu.RUnlock()
	if known && last >= at {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if last, known := d.holders[h]; known || len(d.holders) < maxHolders {
		d.holders[h] = max(last, at)
	}
}

// Watch returns the index, noting which caches entries are stored for.
func (d *Directory) Watch(x index.Index) index.Index { return &watched{Index: x, directory: d} }

type watched struct {
	index.Index
	directory *Directory
}

// Store implements index.Index. The note comes after the entry, so that no cache is forgotten, as
// one that holds nothing, between the two.
func (w *watched) Store(p index.Partition, h index.Holder, r index.Run, now index.Instant) {
	w.Index.Store(p, h, r, now)
	w.directory.noteEvent(holder{model{p.Tenant, p.Model}, h}, min(r.Evidence, now))
}

// Confirm implements index.Index.
func (w *watched) Confirm(p index.Partition, h index.Holder, d index.Digest, now index.Instant) [2]bool {
	equal := w.Index.Confirm(p, h, d, now)
	if (equal[0] && d.Count[0] > 0) || (equal[1] && d.Count[1] > 0) {
		w.directory.noteEvent(holder{model{p.Tenant, p.Model}, h}, now)
	}
	return equal
}
