package aggregator

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// warmUp holds readiness back until the index is worth asking. It lets go once: an agent that comes
// later, or goes, is no reason to send calls to an aggregator that knows less.
type warmUp struct {
	// expected is the number of agents to wait for; 0 waits for those that are there by the deadline.
	expected int
	deadline time.Time
	done     atomic.Bool
}

// missing says what readiness waits for; empty when it does not. connected and complete count the
// agents there are and those that have sent their whole table, and behind names the others.
func (w *warmUp) missing(now time.Time, connected, complete int, behind []string) string {
	switch {
	case w.done.Load():
		return ""
	case w.expected > 0 && complete < w.expected:
		return fmt.Sprintf("%d of %d expected agents have sent their whole table%s", complete, w.expected, list(behind))
	case w.expected == 0 && now.Before(w.deadline):
		return fmt.Sprintf("agents are waited for until %s; %d are connected", w.deadline.UTC().Format(time.RFC3339), connected)
	case w.expected == 0 && complete < connected:
		return fmt.Sprintf("%d of %d agents have sent their whole table%s", complete, connected, list(behind))
	default:
		w.done.Store(true)
		return ""
	}
}

func list(behind []string) string {
	if len(behind) == 0 {
		return ""
	}
	return "; not yet: " + strings.Join(behind, ", ")
}
