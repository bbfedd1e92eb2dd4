package auth

import (
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// cacheTTL is how long a token that was good is taken to be. A token that is revoked lives on as
	// long.
	cacheTTL = 30 * time.Second
	// maxCached bounds the tokens remembered. One caller has two at most, while it rotates.
	maxCached = 32
)

type tokenHash = [sha256.Size]byte

// cache remembers good tokens, by hash. Bad ones are not remembered: they may become good.
type cache struct {
	mu    sync.Mutex
	until map[tokenHash]time.Time
}

func (c *cache) has(key tokenHash, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	until, ok := c.until[key]
	return ok && now.Before(until)
}

func (c *cache) add(key tokenHash, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until == nil {
		c.until = map[tokenHash]time.Time{}
	}
	for k, until := range c.until {
		if !now.Before(until) {
			delete(c.until, k)
		}
	}
	if len(c.until) >= maxCached {
		delete(c.until, c.soonestLocked())
	}
	c.until[key] = now.Add(cacheTTL)
}

func (c *cache) soonestLocked() (soonest tokenHash) {
	var end time.Time
	for k, until := range c.until {
		if end.IsZero() || until.Before(end) {
			soonest, end = k, until
		}
	}
	return soonest
}
