package probe

import "github.com/inferencecache/inferencecache/index"

// Hide returns the index without the probe's own entries in its dumps: what reads a dump sends it on,
// and the name of Tenant cannot be sent.
func Hide(x index.Index) index.Index { return hiding{x} }

type hiding struct{ index.Index }

// Dump implements index.Index.
func (h hiding) Dump(f index.Filter, yield func(index.Entry) bool) {
	h.Index.Dump(f, func(e index.Entry) bool { return e.Partition.Tenant == Tenant || yield(e) })
}
