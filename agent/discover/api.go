package discover

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Calls that bring pods. A watch that works needs no list.
const (
	listing = iota
	watching
	callKinds
)

// apiState says whether the API server tells of pods.
type apiState struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	failed [callKinds]error // how the last call of each kind ended
	asked  bool             // there was a call
	since  time.Time        // of the present state
	misses uint64           // calls that failed
}

// called notes how a call ended, and logs when that changes what is so.
func (s *apiState) called(ctx context.Context, call int, err error) {
	if ctx.Err() != nil {
		return
	}
	err = plain(err)
	s.mu.Lock()
	before, first := s.trouble(), !s.asked
	s.asked = true
	s.failed[call] = err
	if call == watching && err == nil {
		s.failed[listing] = nil
	}
	after := s.trouble()
	if err != nil {
		s.misses++
	}
	turned := first || (before == nil) != (after == nil)
	if turned {
		s.since = s.now()
	}
	s.mu.Unlock()
	switch {
	case !turned:
	case after != nil:
		s.log.Warn("the API server does not tell of pods; engines that are known are followed on", "error", after)
	default:
		s.log.Info("the API server tells of pods")
	}
}

// trouble is why pods are not told of; nil if they are. The caller holds the lock.
func (s *apiState) trouble() error {
	for _, err := range s.failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// apiReport is what there is to say of the API server.
type apiReport struct {
	connected bool      // it tells of pods
	err       error     // why it does not
	since     time.Time // either is so
	misses    uint64    // calls that failed
}

func (s *apiState) report() apiReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.trouble()
	return apiReport{connected: s.asked && err == nil, err: err, since: s.since, misses: s.misses}
}
