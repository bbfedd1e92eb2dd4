// Package hot counts which prefixes lookups are answered with, outside the index: bounded, forgetful, and
// cheap enough for every answer.
package hot

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// DefaultUses is how many uses make a prefix hot.
	DefaultUses = 8
	// HalfLife is how often all counts halve. A prefix that is used less than once in it is forgotten.
	HalfLife = 10 * time.Minute
	// shards spread the lock; maxPerShard bounds the prefixes that are counted, to 65,536 in all.
	shards      = 64
	maxPerShard = 1024
	// maxModels bounds the models whose prefixes are counted.
	maxModels = 4096
)

// Counter counts uses of prefixes. All methods may be called from any goroutine.
type Counter struct {
	uses   uint32 // that make a prefix hot
	shards [shards]shard
	models atomic.Pointer[map[model]*model]

	mu     sync.Mutex // guards what follows, and changes of models
	halved time.Time
}

type model struct{ tenant, model string }

// shard is some of the prefixes, by hash.
type shard struct {
	mu     sync.Mutex
	counts map[uint64]count
	_      [48]byte // a cache line of its own
}

type count struct {
	uses uint32
	of   *model
}

// New returns an empty Counter for which a prefix is hot from a number of uses on; 0 means DefaultUses. The
// first half-life begins now.
func New(uses uint32, now time.Time) *Counter {
	if uses == 0 {
		uses = DefaultUses
	}
	c := &Counter{uses: uses, halved: now}
	c.models.Store(&map[model]*model{})
	for i := range c.shards {
		c.shards[i].counts = map[uint64]count{}
	}
	return c
}

// Use counts one use of a prefix. hash stands for it and its partition. A prefix that is new allocates at
// most what the map of a shard grows by.
func (c *Counter) Use(tenant, modelName string, hash uint64) {
	of := c.model(model{tenant, modelName})
	if of == nil {
		return
	}
	hash = mix(hash)
	s := &c.shards[hash%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	n, known := s.counts[hash]
	if !known && len(s.counts) >= maxPerShard {
		s.halve() // those used once make room for what is used now
		if len(s.counts) >= maxPerShard {
			return
		}
	}
	if n.uses < 1<<32-1 {
		n.uses++
	}
	n.of = of
	s.counts[hash] = n
}

// mix spreads the bits of a hash, of which some kinds of keys leave many 0.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	return h ^ h>>33
}

// model returns the one record of a model, nil if there are too many.
func (c *Counter) model(m model) *model {
	if known := (*c.models.Load())[m]; known != nil {
		return known
	}
	return c.admit(m.tenant, m.model)
}

func (c *Counter) admit(tenant, modelName string) *model {
	m := model{tenant, modelName}
	c.mu.Lock()
	defer c.mu.Unlock()
	models := *c.models.Load()
	if known := models[m]; known != nil || len(models) >= maxModels {
		return known
	}
	models = maps.Clone(models)
	models[m] = &m
	c.models.Store(&models)
	return &m
}

// Hot returns the number of hot prefixes of a model.
func (c *Counter) Hot(tenant, modelName string) int64 {
	want := model{tenant, modelName}
	return c.count(func(m *model) bool { return *m == want })
}

// Total returns the number of hot prefixes of all models.
func (c *Counter) Total() int64 { return c.count(func(*model) bool { return true }) }

func (c *Counter) count(of func(*model) bool) int64 {
	var total int64
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for _, n := range s.counts {
			if n.uses >= c.uses && of(n.of) {
				total++
			}
		}
		s.mu.Unlock()
	}
	return total
}

// Age halves the counts if a half-life has passed since it did so last.
func (c *Counter) Age(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.halved) < HalfLife {
		return
	}
	c.halved = now
	used := map[model]*model{}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.halve()
		for _, n := range s.counts {
			used[*n.of] = n.of
		}
		s.mu.Unlock()
	}
	c.models.Store(&used)
}

// halve halves the counts and forgets those that reach 0. The caller holds the shard.
func (s *shard) halve() {
	for hash, n := range s.counts {
		if n.uses /= 2; n.uses == 0 {
			delete(s.counts, hash)
			continue
		}
		s.counts[hash] = n
	}
}
