package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/inferencecache/inferencecache/hack/command"
	"github.com/inferencecache/inferencecache/hack/demo/fleet"
	"github.com/inferencecache/inferencecache/hack/demo/replay"
	"github.com/inferencecache/inferencecache/hack/demo/trace"
	"github.com/inferencecache/inferencecache/hack/demo/workload"
)

// Sizes that make a run take about half a minute on two cores.
const (
	chatRequests  = 2000
	traceRequests = 800
)

const (
	engines     = 4
	blockTokens = 16 // vLLM's default
	minGain     = 1.5
	// prefillMicros is the modelled time to compute one prompt token, about that of a 70B model on one
	// node of current GPUs.
	prefillMicros = 100
)

// scenario is a workload and how to play it.
type scenario struct {
	name     string
	sessions []workload.Session
	minGain  float64
	replay   replay.Config
	blocks   int // of each engine's cache
}

func newScenario(o options) (scenario, error) {
	s := chat(o)
	if o.trace != "" {
		var err error
		if s, err = fromTrace(o); err != nil {
			return scenario{}, command.Usage(fmt.Errorf("--trace %s: %w", o.trace, err))
		}
	}
	if o.blocks > 0 {
		s.blocks = o.blocks
	}
	if need := longest(s.sessions)/blockTokens + 2; s.blocks < need {
		return scenario{}, command.Usage(fmt.Errorf("--blocks %d: the longest session needs %d", s.blocks, need))
	}
	return s, nil
}

// chat is a chat service. What its users are in the midst of fits into the caches of all engines
// together, but not into each of them, which is what routing in turns asks for.
func chat(o options) scenario {
	requests := chatRequests
	if o.requests > 0 {
		requests = o.requests
	}
	// Few requests come from few users with small caches: else there would be no pressure on them.
	users := min(max(requests/20, 16), 96)
	return scenario{
		name:     fmt.Sprintf("%d chat requests of seed %d", requests, o.seed),
		sessions: workload.Generate(workload.Chat(o.seed, requests)),
		minGain:  minGain,
		replay:   replay.Config{Users: users, InFlight: 32, TimeScale: 10},
		blocks:   32 * users,
	}
}

// fromTrace is the first requests of a trace, in their order, as fast as they are served. There is no
// telling how much routing can gain on it.
func fromTrace(o options) (scenario, error) {
	file, err := os.Open(o.trace)
	if err != nil {
		return scenario{}, err
	}
	defer file.Close()
	limit := traceRequests
	if o.requests > 0 {
		limit = o.requests
	}
	requests, err := trace.Read(file, limit)
	if err != nil {
		return scenario{}, err
	}
	s := scenario{
		name:     fmt.Sprintf("the first %d requests of %s", len(requests), filepath.Base(o.trace)),
		sessions: trace.Sessions(requests),
		replay:   replay.Config{Users: 16, InFlight: 16, TimeScale: 20},
	}
	s.blocks = max(65536, longest(s.sessions)/blockTokens+2)
	return s, nil
}

// longest returns the number of tokens in the longest session.
func longest(sessions []workload.Session) int {
	most := 0
	for _, s := range sessions {
		n := 0
		for _, t := range s {
			n += t.InputTokens() + t.Output
		}
		most = max(most, n)
	}
	return most
}

func (s scenario) fleet(binDir, dir string) fleet.Config {
	return fleet.Config{
		BinDir: binDir, Dir: dir,
		Engines: engines, Blocks: s.blocks, BlockTokens: blockTokens,
		PrefillMicros: prefillMicros, TimeScale: s.replay.TimeScale, InFlight: s.replay.InFlight,
	}
}
