package tokenize

import (
	"maps"
	"slices"
	"sync"
)

// model is one loaded model. Requests hold it by acquire and release; close waits for them, so that the
// library's memory is freed when nobody uses it.
type model struct {
	id        string
	signature string // of the files that it was loaded from
	encoder   *encoder
	templates templates
	builtAnew bool // by some engines: see settings.builtAnew

	mu     sync.RWMutex // held for reading by requests
	closed bool         // guarded by mu
}

func (m *model) acquire() bool {
	m.mu.RLock()
	if m.closed {
		m.mu.RUnlock()
		return false
	}
	return true
}

func (m *model) release() { m.mu.RUnlock() }

func (m *model) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		m.encoder.close()
	}
}

// snapshot is the models at one time. It never changes.
type snapshot struct {
	models  map[string]*model
	aliases map[string]string
}

// acquire returns the model of a name for use until its release, or nil.
func (s *snapshot) acquire(name string) *model {
	m, ok := s.models[name]
	if !ok {
		m, ok = s.models[s.aliases[name]]
	}
	if !ok || !m.acquire() {
		return nil
	}
	return m
}

func (s *snapshot) ids() []string { return slices.Sorted(maps.Keys(s.models)) }
