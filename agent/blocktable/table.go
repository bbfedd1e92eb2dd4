// Package blocktable follows what one KV cache of an engine holds. It maps the engine's opaque block
// hashes to content fingerprints, counts copies per tier, and keeps, for each aggregator, the set of
// blocks whose final state that aggregator has not been sent yet.
//
// Two layers: a block is what the engine names (hash and cache group) with its copies; a cell is
// what the index knows (adapter and fingerprint) and is held as long as any block of it is. Blocks
// whose identity is more than their tokens (a salt, an image, an adapter without a name) have no
// cell: they are counted and never reported.
package blocktable

import (
	"sync"

	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/kvevents"
)

// DefaultMaxBlocks bounds the blocks of one table when Config does not: a 16-token block of a 1 TiB
// cache at 16 KiB a token would need 4 million.
const DefaultMaxBlocks = 4 << 20

// maxAdapters bounds the adapter names one table keeps.
const maxAdapters = 4096

// Config describes one table.
type Config struct {
	// LoRANames maps an engine's integer adapter ids to stable names, for engines that send none.
	LoRANames map[int64]string
	// Tier2 says what stands for the offload tier.
	Tier2 Tier2
	// Once counts one copy of a block however often it is announced, for engines that announce again what
	// they hold. A block with several copies is then let go with the first.
	Once bool
	// ClearsOffload says that the engine's AllBlocksCleared may mean the offload tier, too.
	ClearsOffload bool
	// MaxBlocks bounds the blocks tracked; more are refused and counted. 0 means DefaultMaxBlocks.
	MaxBlocks int
	// Uplinks is the number of aggregators that are served, at most MaxUplinks.
	Uplinks int
	// Notify is called, with the table locked, when something may wait to be sent. It must not block.
	Notify func()
}

// Tier2 says how blocks of the offload tier become known.
type Tier2 uint8

// Values of Tier2.
const (
	// Tier2Observed counts what the engine's events say of host memory.
	Tier2Observed Tier2 = iota
	// Tier2Inferred takes a block that left the GPU to be offloaded: it is reported at T2 once, as
	// of its eviction, and forgotten. It is never confirmed, so it ages out.
	Tier2Inferred
	// Tier2None ignores the offload tier.
	Tier2None
)

// Table is the state of one KV cache. All methods may be called from any goroutine.
type Table struct {
	cfg Config

	mu       sync.Mutex
	blocks   slab[block]
	byHash   finder // blocks by what the engine names
	cells    slab[cell]
	byPrint  finder               // cells by what the index knows
	waiting  map[blockKey][]int32 // blocks whose parent's fingerprint is not known yet, by parent
	adapters adapterNames
	digests  []index.Digest // by adapter
	uplinks  []uplinkState
	stats    Stats
	certain  Certainty
	away     bool    // the engine cannot be reached
	bare     []int16 // cache groups that the engine names without their kind
	chunks   chunks
	offload  offloadSource
	gpuBlock int           // tokens in the largest block that a main group has stored on the GPU
	now      index.Instant // of the batch being applied
}

// Certainty says how far a table can be trusted to be what the engine holds.
type Certainty uint8

// Values of Certainty.
const (
	// Exact: every event since the engine's cache was empty has been applied.
	Exact Certainty = iota
	// Partial: the engine held blocks before the first event that was seen, or more than the table
	// takes. What is known is right.
	Partial
	// Uncertain: an event could not be read. What it removed may still be listed, so the table is no
	// longer confirmed and ages out at the aggregators.
	Uncertain
)

// String returns the value of the metric label.
func (c Certainty) String() string { return [...]string{"exact", "partial", "uncertain"}[c] }

// New returns an empty table.
func New(cfg Config) *Table {
	if cfg.MaxBlocks <= 0 {
		cfg.MaxBlocks = DefaultMaxBlocks
	}
	if cfg.Notify == nil {
		cfg.Notify = func() {}
	}
	t := &Table{cfg: cfg, uplinks: make([]uplinkState, min(cfg.Uplinks, MaxUplinks))}
	t.drop()
	return t
}

// drop forgets every block and cell.
func (t *Table) drop() {
	t.byHash, t.byPrint = finder{}, finder{}
	t.waiting = make(map[blockKey][]int32)
	t.blocks, t.cells = slab[block]{}, slab[cell]{}
	t.adapters, t.digests = newAdapterNames(), []index.Digest{{}}
	t.bare = nil
	t.chunks.counted, t.gpuBlock = false, 0
	t.stats.held()
}

// Reset forgets everything, because the engine restarted, or because events were missed and what is
// left cannot be trusted. certain is what the table is from here on.
func (t *Table) Reset(certain Certainty) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop()
	t.certain = certain
	t.resendAll()
	t.cfg.Notify()
}

// Doubt lowers the certainty; only Reset raises it again.
func (t *Table) Doubt(c Certainty) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.certain = max(t.certain, c)
}

// Away says whether the engine is out of reach. Nothing is known of it then, so nothing is confirmed
// and the table ages at the aggregators.
func (t *Table) Away(away bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.away = away
}

// Certainty returns how far the table can be trusted.
func (t *Table) Certainty() Certainty {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.certain
}

// Apply applies the events of one batch in order. now is when they were received.
func (t *Table) Apply(events []kvevents.Event, now index.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = now
	for i := range events {
		switch e := &events[i]; e.Kind {
		case kvevents.Stored:
			t.store(e)
		case kvevents.Removed:
			t.remove(e)
		case kvevents.Cleared:
			t.clearAll()
		}
	}
	t.settle()
}
