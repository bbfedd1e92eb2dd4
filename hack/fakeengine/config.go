package fakeengine

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/inferencecache/inferencecache/hack/loopback"
)

// Forms of an event inside a batch.
const (
	EventMap   = "map"   // map with a "type" key: vLLM 0.24.0 and later
	EventArray = "array" // class name first, then the fields in order: through vLLM 0.23.0
)

// Forms of a block hash on the wire.
const (
	HashInt   = "int"   // unsigned integer: the last 8 bytes of the digest, big-endian
	HashBytes = "bytes" // the whole 32-byte digest
)

// Forms of a replay reply.
const (
	ReplayTwoFrame   = "two-frame"   // seq, payload: before vLLM 0.26.0
	ReplayThreeFrame = "three-frame" // topic, seq, payload: vLLM 0.26.0 and later
)

// arrayFields lists the lengths a BlockStored array had in some release; removedFields gives the length
// of BlockRemoved that goes with each.
var arrayFields = []int{6, 7, 8, 9, 10, 12}

// Upper bounds of the sizes that are configurable, so that a slip of the keyboard is an error and not an
// exhausted machine.
const (
	maxRanks       = 64
	maxBlocks      = 1 << 24
	maxBlockSize   = 1 << 16
	maxBufferSteps = 1 << 20
	maxWaiting     = 1 << 20
)

// Config describes one engine. Start from DefaultConfig or LoopbackConfig; the zero value is not valid.
type Config struct {
	Name  string // replica name, in logs
	Model string // name under which the base model is served

	HTTPBindAddress string // host:port; port 0 picks a free one
	Events          string // tcp://host:port of rank 0; rank r binds port + r; port 0 picks free ports
	Replay          string // as Events, for the replay sockets; empty turns replay off
	Topic           string // first frame of each published message

	Ranks     int // data-parallel ranks
	Blocks    int // blocks of each rank's pool, the reserved null block included, as in vLLM
	BlockSize int // tokens in a block

	EventForm   string // EventMap or EventArray
	ArrayFields int    // length of a BlockStored array: 6, 7, 8, 9, 10 or 12
	HashForm    string // HashInt or HashBytes
	ReplayForm  string // ReplayTwoFrame or ReplayThreeFrame

	BufferSteps   int // batches kept for replay
	HighWaterMark int // messages queued for one subscriber before further ones are dropped

	// EagerClear publishes a cache reset at once, in a batch of its own. vLLM does not: there the event
	// waits for the next batch that holds other events, so an index is wrong until then.
	EagerClear bool

	PrefillMicros float64 // modelled microseconds to compute one uncached prompt token
	// TimeScale is how many times faster than modelled the engine runs. 0 does not wait at all; modelled
	// time then advances by prefill alone.
	TimeScale float64

	Adapters   map[string]int // LoRA adapter name to its id, which is at least 1
	Seed       string         // root of the block hashes; empty picks a random one per process and rank
	MaxWaiting int            // requests waiting in one rank before further ones are refused

	Logger *slog.Logger // nil discards
}

// DefaultConfig returns what the command starts with: the newest wire forms and vLLM's default ports.
func DefaultConfig() Config {
	return Config{
		Name:            "fake-0",
		Model:           "fake-model",
		HTTPBindAddress: "127.0.0.1:8000",
		Events:          "tcp://127.0.0.1:5557",
		Replay:          "tcp://127.0.0.1:6557",
		Ranks:           1,
		Blocks:          4096,
		BlockSize:       16,
		EventForm:       EventMap,
		ArrayFields:     12,
		HashForm:        HashInt,
		ReplayForm:      ReplayThreeFrame,
		BufferSteps:     10_000,
		HighWaterMark:   100_000,
		EagerClear:      true,
		PrefillMicros:   50,
		TimeScale:       1,
		MaxWaiting:      1024,
	}
}

// LoopbackConfig returns DefaultConfig on free ports of a loopback address of its own, without waiting for
// modelled time: what a test wants.
func LoopbackConfig() Config {
	c := DefaultConfig()
	c.HTTPBindAddress = loopback.Host() + ":0"
	c.Events = "tcp://" + c.HTTPBindAddress
	c.Replay = "tcp://" + c.HTTPBindAddress
	c.TimeScale = 0
	return c
}

// check returns every fault of the configuration, joined.
func (c *Config) check() error {
	errs := []error{
		oneOf("event form", c.EventForm, EventMap, EventArray),
		oneOf("hash form", c.HashForm, HashInt, HashBytes),
		oneOf("replay form", c.ReplayForm, ReplayTwoFrame, ReplayThreeFrame),
		inRange("ranks", c.Ranks, 1, maxRanks),
		inRange("blocks", c.Blocks, 2, maxBlocks),
		inRange("block size", c.BlockSize, 1, maxBlockSize),
		inRange("buffer steps", c.BufferSteps, 1, maxBufferSteps),
		inRange("hwm", c.HighWaterMark, 0, 1<<30),
		inRange("max waiting", c.MaxWaiting, 1, maxWaiting),
		notNegative("prefill microseconds per token", c.PrefillMicros),
		notNegative("time scale", c.TimeScale),
		c.checkAdapters(),
	}
	if c.Model == "" {
		errs = append(errs, errors.New("model: is empty; name the served model"))
	}
	if !slices.Contains(arrayFields, c.ArrayFields) {
		errs = append(errs, fmt.Errorf("array fields: %d is the length of no release; want one of %v", c.ArrayFields, arrayFields))
	}
	return errors.Join(errs...)
}

func (c *Config) checkAdapters() error {
	ids := make(map[int]string, len(c.Adapters))
	for name, id := range c.Adapters {
		switch other, taken := ids[id]; {
		case name == "" || name == c.Model:
			return fmt.Errorf("lora: adapter name %q is empty or the model's own", name)
		case strings.Contains(name, ","):
			return fmt.Errorf("lora: adapter name %q holds a comma, which separates names in metrics", name)
		case id < 1:
			return fmt.Errorf("lora: adapter %q has id %d; ids start at 1", name, id)
		case taken:
			return fmt.Errorf("lora: adapters %q and %q share id %d", name, other, id)
		}
		ids[id] = name
	}
	return nil
}

func oneOf(field, value string, accepted ...string) error {
	if slices.Contains(accepted, value) {
		return nil
	}
	return fmt.Errorf("%s: %q is unknown; want %s", field, value, strings.Join(accepted, " or "))
}

func inRange(field string, value, low, high int) error {
	if value >= low && value <= high {
		return nil
	}
	return fmt.Errorf("%s: %d is out of range; want %d to %d", field, value, low, high)
}

func notNegative(field string, value float64) error {
	if value >= 0 && value <= 1e12 {
		return nil
	}
	return fmt.Errorf("%s: %v is out of range; want 0 to 1e12", field, value)
}
