package main

import (
	"errors"
	"fmt"

	"github.com/inferencecache/inferencecache/hack/chaos/fleet"
	"github.com/inferencecache/inferencecache/hack/chaos/load"
	"github.com/inferencecache/inferencecache/hack/chaos/plan"
)

// report is the JSON line of a run.
type report struct {
	Seed            uint64            `json:"seed"`
	DurationSeconds float64           `json:"duration_s"`
	Faults          map[plan.Kind]int `json:"faults"`
	// Messages that relays took out.
	LostLive     int64 `json:"lost_live"`
	LostReplayed int64 `json:"lost_replayed"`
	load.Counts
	WrongRate     float64 `json:"wrong_rate"`         // of all hints
	WrongRateCalm float64 `json:"wrong_rate_in_calm"` // of those that no fault was near

	// After compares once the faults are over, Renewed after every cache was emptied and filled again.
	After   comparison `json:"after"`
	Renewed comparison `json:"renewed"`
}

// comparison is the difference between the engines' pools and what all aggregators know.
type comparison struct {
	Settled bool    `json:"settled"`
	Seconds float64 `json:"seconds"` // until they agreed, or were given up
	Held    int     `json:"held"`    // pairs of block and cache in the pools
	Extra   int     `json:"extra"`   // pairs that an index has and no pool, over all aggregators
	Missing int     `json:"missing"` // pairs that an index lacks without an excuse
	// Unknowable pairs are missing because they are older than what could be replayed.
	Unknowable   int               `json:"unknowable"`
	Disconnected int               `json:"disconnected"` // event sockets without a connection
	Certainty    map[string]string `json:"certainty"`    // by engine and rank

	examples []string
}

func (c *comparison) agrees() bool { return c.Extra == 0 && c.Missing == 0 && c.Disconnected == 0 }

// maxExamples bounds the pairs that are named.
const maxExamples = 5

func (c *comparison) example(p fleet.Pair, what string) {
	if len(c.examples) < maxExamples {
		c.examples = append(c.examples, fmt.Sprintf("%s %s (%s)", what, p, c.Certainty[p.Cache.String()]))
	}
}

// complete fills in the rates.
func (r *report) complete() {
	wrong := r.WrongInCalm
	for _, n := range r.WrongInTrouble {
		wrong += n
	}
	r.WrongRate = rate(wrong, r.Hints)
	r.WrongRateCalm = rate(r.WrongInCalm, r.CalmHints)
}

func rate(n, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(n) / float64(of)
}

// failures says in what the run is not what it must be; nil if in nothing.
func (r *report) failures() error {
	var expired error
	if r.Expired > 0 {
		expired = fmt.Errorf("%d hints named caches of agents that were silent for longer than their lease", r.Expired)
	}
	return errors.Join(expired, r.After.failure("once the faults were over"), r.Renewed.failure("over renewed caches"))
}

func (c *comparison) failure(when string) error {
	if c.Settled {
		return nil
	}
	return fmt.Errorf("index and engines do not agree %s, after %.1f s: %d extra, %d missing, %d event sockets not connected: %v",
		when, c.Seconds, c.Extra, c.Missing, c.Disconnected, c.examples)
}
