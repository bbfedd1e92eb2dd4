package metrics

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	// maxNames bounds the models, and the tenants, that have series of their own.
	maxNames = 256
	// other stands for every name that has none.
	other = "other"
)

// names is a bounded set of label values. Reading it takes no lock.
type names struct {
	limit int
	known atomic.Pointer[map[string]string] // name -> label
	mu    sync.Mutex
}

func newNames(limit int) *names {
	n := &names{limit: limit}
	n.known.Store(&map[string]string{})
	return n
}

// label returns the label value of a name. A name that is new gets one of its own if admit is set
// and there is room.
func (n *names) label(name string, admit bool) string {
	if label, ok := (*n.known.Load())[name]; ok {
		return label
	}
	if !admit || len(*n.known.Load()) >= n.limit {
		return other
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	known := *n.known.Load()
	if len(known) >= n.limit {
		return other
	}
	known = maps.Clone(known)
	// A name may be part of a larger message, and a label must be valid text.
	known[strings.Clone(name)] = strings.ToValidUTF8(strings.Clone(name), "?")
	n.known.Store(&known)
	return known[name]
}
