package sync

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inferencecache/inferencecache/aggregator/contract"
)

// session is what is known of one agent.
type session struct {
	agent string

	mu       sync.Mutex // held while a delta is applied
	epoch    uint64     // of the agent process
	version  string     // of the agent's build; empty if it does not say
	applied  uint64     // seq of the last delta applied, 0 for none
	refs     map[uint32]*view
	conn     *connection // serves the session now; nil while the agent is away
	heard    time.Time   // when the agent gave its last sign of life
	hidden   bool        // the lease ran out
	complete bool        // the whole table has arrived
	gone     bool        // the session is no longer in the service's map
}

// maxViews bounds the views of one agent.
const maxViews = 4096

// attach makes c the stream that serves an agent's session, and returns the session. The stream that
// served it before ends. What a former process of the agent had declared is dropped. Caches that are hidden
// stay so until the first delta: until then they are as old as when the agent fell silent.
func (s *Service) attach(c *connection, agent string, epoch uint64, version string) (*session, uint64, error) {
	for {
		sess, err := s.session(agent)
		if err != nil {
			return nil, 0, err
		}
		sess.mu.Lock()
		if sess.gone {
			sess.mu.Unlock()
			continue
		}
		if sess.conn != nil {
			close(sess.conn.replaced)
		}
		sess.conn, sess.heard, sess.version = c, s.Now(), version
		if sess.epoch != epoch {
			s.reset(sess)
			sess.epoch = epoch
		}
		applied := sess.applied
		sess.mu.Unlock()
		return sess, applied, nil
	}
}

// session returns the session of an agent, a new one if need be.
func (s *Service) session(agent string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sess := s.sessions[agent]; sess != nil {
		return sess, nil
	}
	if len(s.sessions) >= maxAgents {
		return nil, status.Errorf(codes.ResourceExhausted, "hello: %d agents are known already, which is the most", maxAgents)
	}
	sess := &session{agent: agent, refs: map[uint32]*view{}}
	s.sessions[agent] = sess
	return sess, nil
}

// detach says that the stream no longer serves its session. That is no sign of life: the lease runs on.
func (c *connection) detach() {
	sess := c.session
	if sess == nil {
		return
	}
	sess.mu.Lock()
	defer sess.mu.Unlock()
	if sess.conn == c {
		sess.conn = nil
	}
}

// reset drops all that the session's agent process declared. The caller holds the session.
func (s *Service) reset(sess *session) {
	for _, v := range sess.refs {
		s.release(v)
	}
	clear(sess.refs)
	sess.applied, sess.complete = 0, false
}

// hear notes that the agent is alive and has told what it holds. The caller holds the session.
func (s *Service) hear(sess *session) {
	sess.heard = s.Now()
	s.show(sess, true)
}

// show makes the session's caches visible to lookups, or hides them. The caller holds the session.
func (s *Service) show(sess *session, visible bool) {
	if sess.hidden == !visible {
		return
	}
	sess.hidden = !visible
	for _, v := range sess.refs {
		s.Registry.SetLive(v.id.scope, v.id.holder, sess.agent, visible, s.Now())
	}
}

// checkLeases hides the caches of agents that are silent for longer than a lease, whether their stream is
// open or not: a process that is stopped and a network that swallows everything do not close it. Those of
// agents without a stream are dropped past the grace.
func (s *Service) checkLeases() {
	states := map[string]int{}
	for _, sess := range s.all() {
		states[s.checkLease(sess)]++
	}
	for _, state := range []string{stateConnected, stateAbsent, stateExpired} {
		s.Metrics.Agents.WithLabelValues(state).Set(float64(states[state]))
	}
}

// States of an agent.
const (
	stateConnected = "connected"
	stateAbsent    = "absent"
	stateExpired   = "expired"
	stateGone      = "gone"
)

func (s *Service) all() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*session, 0, len(s.sessions))
	for _, sess := range s.sessions {
		all = append(all, sess)
	}
	return all
}

func (s *Service) checkLease(sess *session) string {
	if !sess.mu.TryLock() {
		return stateConnected // a delta is being applied
	}
	defer sess.mu.Unlock()
	silent := s.Now().Sub(sess.heard)
	switch {
	case sess.gone:
		return stateGone
	case silent < s.Lease && sess.conn != nil:
		return stateConnected
	case silent < s.Lease:
		return stateAbsent
	case sess.conn != nil || silent < (1+graceLeases)*s.Lease:
		if !sess.hidden {
			s.Log.Warn("agent lease ran out, hiding its caches", "agent", sess.agent, "silent", silent, "caches", len(sess.refs))
		}
		s.show(sess, false)
		return stateExpired
	default:
		s.Log.Warn("agent does not come back, dropping its caches", "agent", sess.agent, "silent", silent, "caches", len(sess.refs))
		s.reset(sess)
		sess.gone = true
		s.mu.Lock()
		delete(s.sessions, sess.agent)
		s.mu.Unlock()
		return stateGone
	}
}

// Status says how many agents are connected, how many of them have sent their whole table, and which
// have not.
func (s *Service) Status() (connected, complete int, behind []string) {
	for _, sess := range s.all() {
		sess.mu.Lock()
		if sess.conn != nil {
			connected++
			if sess.complete {
				complete++
			} else {
				behind = append(behind, sess.agent)
			}
		}
		sess.mu.Unlock()
	}
	slices.Sort(behind)
	return connected, complete, behind
}

// Versions returns the version of each agent's build, by agent id; empty where it does not say.
func (s *Service) Versions() map[string]string {
	out := map[string]string{}
	for _, sess := range s.all() {
		sess.mu.Lock()
		if !sess.gone {
			out[sess.agent] = sess.version
		}
		sess.mu.Unlock()
	}
	return out
}

// checkAgentID returns what is wrong with the name in a Hello.
func checkAgentID(id string) error {
	switch {
	case id == "":
		return status.Error(codes.InvalidArgument, "hello: agent_id is empty; it must name the agent, for example by its node")
	case len(id) > contract.MaxNameBytes:
		return status.Errorf(codes.InvalidArgument, "hello: agent_id has %d bytes, the most is %d", len(id), contract.MaxNameBytes)
	default:
		return nil
	}
}
