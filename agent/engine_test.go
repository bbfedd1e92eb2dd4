package agent

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/agent/blocktable"
	"github.com/inferencecache/inferencecache/agent/config"
	"github.com/inferencecache/inferencecache/agent/stats"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/kvevents"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// followed returns an engine whose one rank holds three blocks.
func followed(t *testing.T, change func(*config.Engine)) *engine {
	t.Helper()
	cfg := config.Engine{
		Name: "pod-a", Model: "m", Tenant: "t", HashScheme: "vllm", Ranks: 1, Tier2: config.Tier2Observed,
		Events: "tcp://127.0.0.1:1",
	}
	if change != nil {
		change(&cfg)
	}
	e, err := newEngine(cfg, Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: time.Now}, 1, func() {})
	if err != nil {
		t.Fatal(err)
	}
	e.HandleMessage(kvevents.Message{Batch: &kvevents.Batch{Events: stores(1, 2, 3)}})
	return e
}

func stores(hashes ...kvevents.Hash) []kvevents.Event {
	return []kvevents.Event{{Kind: kvevents.Stored, Hashes: hashes, Tokens: make([]uint32, 4*len(hashes)), BlockSize: 4, Group: -1}}
}

func TestMessagesThatPutTheTableInDoubt(t *testing.T) {
	next := &kvevents.Batch{Events: stores(9)}
	for name, c := range map[string]struct {
		message kvevents.Message
		held    int
		certain blocktable.Certainty
	}{
		"a message that follows is applied":        {kvevents.Message{Batch: next}, 3, blocktable.Exact},
		"a duplicate is not applied":               {kvevents.Message{Batch: &kvevents.Batch{}, Duplicate: true}, 3, blocktable.Exact},
		"a restart drops what was held":            {kvevents.Message{Batch: next, Restart: true}, 1, blocktable.Exact},
		"a restart that was missed in part":        {kvevents.Message{Batch: next, Restart: true, Gap: 5, FirstGap: true}, 1, blocktable.Partial},
		"a gap drops what was held":                {kvevents.Message{Batch: next, Gap: 2}, 1, blocktable.Partial},
		"a late start is partial":                  {kvevents.Message{Batch: next, Gap: 7, FirstGap: true}, 3, blocktable.Partial},
		"an unreadable event makes it uncertain":   {kvevents.Message{Batch: &kvevents.Batch{Malformed: 1}}, 3, blocktable.Uncertain},
		"an unreadable message makes it uncertain": {kvevents.Message{Batch: &kvevents.Batch{}, Err: io.ErrUnexpectedEOF}, 3, blocktable.Uncertain},
	} {
		t.Run(name, func(t *testing.T) {
			e := followed(t, nil)
			e.HandleMessage(c.message)
			table := e.ranks[0].table
			if held, certain := table.Stats().Cells[0], table.Certainty(); held != c.held || certain != c.certain {
				t.Errorf("%d blocks held, %v; want %d, %v", held, certain, c.held, c.certain)
			}
		})
	}
}

func TestAnEngineOutOfReachIsNotConfirmed(t *testing.T) {
	e := followed(t, func(c *config.Engine) { c.Replay = "tcp://127.0.0.1:2" })
	table := e.ranks[0].table
	for _, connected := range []bool{true, false, true} {
		e.HandleState(0, connected)
		table.Resend(0)
		var d pb.Delta
		table.Collect(0, 1, 100, &d, index.At(time.Now()))
		table.Confirm(0, 1, &d)
		if confirmed := len(d.Confirms) > 0; confirmed != connected {
			t.Errorf("connected %v, confirmed %v", connected, confirmed)
		}
	}
}

func TestWhatMetricsSayOfTheProcess(t *testing.T) {
	replays := func(c *config.Engine) { c.Replay = "tcp://127.0.0.1:2" }
	page := func(started float64, r stats.Rank) stats.Process {
		return stats.Process{Started: started, Ranks: []stats.Rank{r}}
	}
	for name, c := range map[string]struct {
		change func(*config.Engine)
		pages  []stats.Process
		held   int
	}{
		"an engine that goes on keeps its blocks":    {nil, []stats.Process{page(5, stats.Rank{}), page(5, stats.Rank{GPUBlocks: 3})}, 3},
		"a sleeping engine holds nothing":            {replays, []stats.Process{page(0, stats.Rank{Asleep: true})}, 0},
		"another process holds nothing":              {nil, []stats.Process{page(5, stats.Rank{}), page(6, stats.Rank{})}, 0},
		"where replay tells, metrics do not":         {replays, []stats.Process{page(5, stats.Rank{}), page(6, stats.Rank{})}, 3},
		"a page without a start time proves nothing": {nil, []stats.Process{page(5, stats.Rank{}), page(0, stats.Rank{}), page(5, stats.Rank{})}, 3},
		"nor does it hide what the next one proves":  {nil, []stats.Process{page(5, stats.Rank{}), page(0, stats.Rank{}), page(6, stats.Rank{})}, 0},
		"more blocks than the engine has prove a drift": {
			replays, []stats.Process{page(0, stats.Rank{GPUBlocks: 2})}, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := followed(t, c.change)
			for _, p := range c.pages {
				e.observe(p)
			}
			if held := e.ranks[0].table.Stats().Cells[0]; held != c.held {
				t.Errorf("%d blocks held, want %d", held, c.held)
			}
		})
	}
}

// A stream that can be replayed tells of a new process by itself, and exactly. Only if it does not, metrics decide.
func TestAProcessThatTheStreamDoesNotTellOf(t *testing.T) {
	clock := time.Now()
	page := func(started float64) stats.Process { return stats.Process{Started: started, Ranks: []stats.Rank{{}}} }
	begin := func(t *testing.T) *engine {
		e := followed(t, func(c *config.Engine) { c.Replay = "tcp://127.0.0.1:2" })
		e.now = func() time.Time { return clock }
		e.observe(page(5))
		return e
	}
	held := func(e *engine) int { return e.ranks[0].table.Stats().Cells[0] }
	again := kvevents.Message{Restart: true, Epoch: 1, Batch: &kvevents.Batch{Events: stores(7)}}
	t.Run("it never tells", func(t *testing.T) {
		e := begin(t)
		e.observe(page(6))
		if held(e) != 3 {
			t.Error("dropped at once")
		}
		clock = clock.Add(replayGrace)
		if e.observe(page(6)); held(e) != 0 {
			t.Errorf("%d blocks held, want none", held(e))
		}
	})
	t.Run("it tells afterwards", func(t *testing.T) {
		e := begin(t)
		e.observe(page(6))
		e.HandleMessage(again)
		clock = clock.Add(replayGrace)
		if e.observe(page(6)); held(e) != 1 {
			t.Errorf("%d blocks held, want those of the new process", held(e))
		}
	})
	t.Run("it told before", func(t *testing.T) {
		e := begin(t)
		e.HandleMessage(again)
		e.observe(page(6))
		clock = clock.Add(replayGrace)
		if e.observe(page(6)); held(e) != 1 {
			t.Errorf("%d blocks held, want those of the new process", held(e))
		}
	})
}

// A connection that is made anew may lead to another process, or to one that published meanwhile. Replay
// tells; without it nothing does for as long as the engine is idle.
func TestAConnectionMadeAnewWithoutReplayDropsWhatWasHeld(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*config.Engine)
		states  []bool
		held    int
		certain blocktable.Certainty
	}{
		"the first connection":             {nil, []bool{true}, 3, blocktable.Exact},
		"a connection that is lost":        {nil, []bool{true, false}, 3, blocktable.Exact},
		"one that is made anew":            {nil, []bool{true, false, true}, 0, blocktable.Partial},
		"one made anew to what can replay": {func(c *config.Engine) { c.Replay = "tcp://127.0.0.1:2" }, []bool{true, false, true}, 3, blocktable.Exact},
	} {
		t.Run(name, func(t *testing.T) {
			e := followed(t, c.change)
			for _, connected := range c.states {
				e.HandleState(0, connected)
			}
			table := e.ranks[0].table
			if held, certain := table.Stats().Cells[0], table.Certainty(); held != c.held || certain != c.certain {
				t.Errorf("%d blocks held, %v; want %d, %v", held, certain, c.held, c.certain)
			}
		})
	}
}
