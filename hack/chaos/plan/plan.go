// Package plan draws up, from a seed, which faults happen when.
package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Kind is what a fault does.
type Kind string

// Kinds of faults. Events and replay are the two connections between an engine's rank and its agent, an
// uplink is one between an agent and an aggregator.
const (
	KillEngine     Kind = "kill_engine" // SIGKILL, and an empty one in its place
	KillAgent      Kind = "kill_agent"
	KillAggregator Kind = "kill_aggregator"

	ResetEngine Kind = "reset_engine" // the prefix cache is emptied

	PauseAgentBriefly      Kind = "pause_agent_briefly" // SIGSTOP, shorter than the lease
	PauseAgent             Kind = "pause_agent"         // longer than the lease
	PauseAggregatorBriefly Kind = "pause_aggregator_briefly"
	PauseAggregator        Kind = "pause_aggregator"

	CutEvents   Kind = "cut_events" // closed, and refused for a while
	CutReplay   Kind = "cut_replay"
	CutUplink   Kind = "cut_uplink"
	StallEvents Kind = "stall_events" // open, but nothing arrives for a while
	StallReplay Kind = "stall_replay"
	StallUplink Kind = "stall_uplink"

	DropEvents Kind = "drop_events" // live messages are lost
	DropReplay Kind = "drop_replay" // replayed messages are lost
)

// Kinds returns all of them.
func Kinds() []Kind {
	return []Kind{
		KillEngine, KillAgent, KillAggregator, ResetEngine, PauseAgentBriefly, PauseAgent, PauseAggregatorBriefly, PauseAggregator,
		CutEvents, CutReplay, CutUplink, StallEvents, StallReplay, StallUplink, DropEvents, DropReplay,
	}
}

// Shape is what there is to break, and how long a silent agent is still believed.
type Shape struct {
	Engines, Ranks, Agents, Aggregators int
	Lease                               time.Duration
}

// Fault is one thing that goes wrong. Of the numbers, those that its kind speaks of count.
type Fault struct {
	Kind                            Kind
	At, For                         time.Duration // from the start of the run; 0 for what has no end
	Engine, Rank, Agent, Aggregator int
	Messages                        int // to be lost
}

// Site names the part that is broken: one part has one fault at a time.
func (f Fault) Site() string {
	switch f.Kind {
	case KillEngine, ResetEngine:
		return fmt.Sprintf("engine-%d", f.Engine)
	case KillAgent, PauseAgent, PauseAgentBriefly:
		return fmt.Sprintf("agent-%d", f.Agent)
	case KillAggregator, PauseAggregator, PauseAggregatorBriefly:
		return fmt.Sprintf("aggregator-%d", f.Aggregator)
	case CutUplink, StallUplink:
		return fmt.Sprintf("uplink-%d-%d", f.Agent, f.Aggregator)
	case CutReplay, StallReplay, DropReplay:
		return fmt.Sprintf("replay-%d-%d", f.Engine, f.Rank)
	default:
		return fmt.Sprintf("events-%d-%d", f.Engine, f.Rank)
	}
}

const (
	// meanPause is the mean time between the beginnings of two faults.
	meanPause = 350 * time.Millisecond
	// recovery is how long a part is left alone after its fault.
	recovery = time.Second
	// maxLost is more than the smallest replay buffer holds.
	maxLost = 40
	// longest is longer than any timer of a connection: heartbeats, keepalives, backoff. One in longOdds of
	// the faults that can last do so for about as long, in runs long enough for it.
	longest  = 20 * time.Second
	longOdds = 12
	// placeAttempts bounds the search for a part that is well.
	placeAttempts = 10
)

// New returns the faults of a run, in the order of their beginning. All have ended when it is over. Kinds
// are dealt like cards, so that none is left out.
func New(seed uint64, length time.Duration, s Shape) []Fault {
	p := &planner{shape: s, length: length, r: rand.New(rand.NewPCG(seed, 0)), busy: map[string]time.Duration{}}
	var deck []Kind
	for at := p.pause(); at < length; at += p.pause() {
		if len(deck) == 0 {
			deck = Kinds()
			p.r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		p.place(deck[0], at)
		deck = deck[1:]
	}
	return p.faults
}

type planner struct {
	shape  Shape
	length time.Duration
	r      *rand.Rand
	busy   map[string]time.Duration // until when a part has or gets over a fault
	faults []Fault
}

func (p *planner) pause() time.Duration { return p.between(meanPause/5, 2*meanPause-meanPause/5) }

func (p *planner) between(low, high time.Duration) time.Duration {
	return low + time.Duration(p.r.Int64N(int64(high-low)))
}

// place gives a fault to a part that is well, if one is found. Replay is used only after a loss, so that a
// fault of replay comes with one of the same rank's events.
func (p *planner) place(kind Kind, at time.Duration) {
	for range placeAttempts {
		f := Fault{
			Kind: kind, At: at, For: min(p.lasts(kind), p.length-at),
			Engine: p.r.IntN(p.shape.Engines), Rank: p.r.IntN(p.shape.Ranks),
			Agent: p.r.IntN(p.shape.Agents), Aggregator: p.r.IntN(p.shape.Aggregators),
			Messages: 1 + p.r.IntN(maxLost),
		}
		if !p.take(f) {
			continue
		}
		switch kind {
		case CutReplay, StallReplay, DropReplay:
			loss := f
			loss.Kind, loss.For = CutEvents, f.For/4
			if p.r.IntN(2) == 0 {
				loss.Kind, loss.For, loss.Messages = DropEvents, f.For, 1+p.r.IntN(maxLost)
			}
			p.take(loss)
		}
		return
	}
}

// take adds a fault if its part is well.
func (p *planner) take(f Fault) bool {
	if p.busy[f.Site()] > f.At {
		return false
	}
	p.busy[f.Site()] = f.At + f.For + recovery
	p.faults = append(p.faults, f)
	return true
}

// lasts draws how long a fault of a kind goes on.
func (p *planner) lasts(kind Kind) time.Duration {
	lease := p.shape.Lease
	long := p.r.IntN(longOdds) == 0 && p.length >= 2*longest
	switch kind {
	case ResetEngine:
		return 0
	case PauseAgent, PauseAggregator, CutEvents, CutUplink, StallEvents, StallReplay, StallUplink:
		if long {
			return p.between(longest/2, longest)
		}
	}
	switch kind {
	case PauseAgent, PauseAggregator:
		return p.between(lease+lease/4, 2*lease)
	case PauseAgentBriefly, PauseAggregatorBriefly:
		return p.between(lease/8, lease*3/4)
	case DropEvents, DropReplay: // or until as many are lost
		return p.between(time.Second, 3*time.Second)
	default:
		return p.between(10*time.Millisecond, 3*time.Second)
	}
}

// Count returns how often each kind occurs, with those that do not.
func Count(faults []Fault) map[Kind]int {
	n := make(map[Kind]int)
	for _, k := range Kinds() {
		n[k] = len(slices.DeleteFunc(slices.Clone(faults), func(f Fault) bool { return f.Kind != k }))
	}
	return n
}
