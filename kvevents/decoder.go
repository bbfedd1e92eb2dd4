package kvevents

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Bounds of one batch. An event beyond them is counted as malformed and skipped. They lie far above
// what an engine step produces and keep what a hostile message can allocate below about 200 MiB.
const (
	maxEvents = 1 << 18
	maxHashes = 1 << 22
	maxTokens = 1 << 24
	maxName   = 1024 // bytes of a name: adapter, medium, spec kind
)

// Bounds of what a Decoder keeps between batches.
const (
	keepTokens   = 1 << 16
	keepHashes   = 1 << 14
	keepEvents   = 1 << 12
	internNames  = 512
	internLength = 128 // bytes
)

var (
	errTooMany    = errors.New("more than one batch may hold")
	errUnknownTag = errors.New("unknown tag")
	errMissing    = errors.New("missing")
	errNoTag      = errors.New("the tag is missing")
	errTagType    = errors.New("the tag is no string")
	errNoEvent    = errors.New("neither an array nor a map")
)

// Decoder decodes batches into buffers that it reuses. It belongs to one goroutine at a time.
type Decoder struct {
	batch  Batch
	hashes []Hash
	tokens []uint32
	extras []Extra
	// names holds strings already seen, so that the few names an engine sends are allocated once.
	names map[string]string
}

// NewDecoder returns a Decoder.
func NewDecoder() *Decoder { return &Decoder{names: make(map[string]string)} }

// Decode reads one batch. The result is never nil and is valid until the next call. An error means
// that payload is no batch or ends early; the result then holds the events in front of the cut.
// Events that cannot be read are no error: the batch counts them.
func (d *Decoder) Decode(payload []byte) (*Batch, error) {
	d.reset()
	if err := d.readBatch(&cursor{data: payload}); err != nil {
		return &d.batch, fmt.Errorf("decode event batch of %d bytes: %w", len(payload), err)
	}
	return &d.batch, nil
}

func (d *Decoder) reset() {
	events := d.batch.Events
	clear(events) // they point into the buffers below
	d.batch = Batch{Events: reuse(events, keepEvents)}
	d.hashes = reuse(d.hashes, keepHashes)
	d.extras = reuse(d.extras, keepHashes)
	d.tokens = reuse(d.tokens, keepTokens)
}

// reuse empties a buffer. One of more than keep elements is given up once a batch leaves most of it
// unused, so that an outlier does not hold its memory for good.
func reuse[T any](s []T, keep int) []T {
	if cap(s) > keep && len(s) < cap(s)/4 {
		return nil
	}
	return s[:0]
}

func (d *Decoder) readBatch(c *cursor) error {
	code, err := c.peek()
	switch {
	case err != nil:
		return err
	case isArray(code):
		err = d.readBatchArray(c)
	case isMap(code):
		err = d.readBatchMap(c)
	default:
		return fmt.Errorf("want an array or a map, got type byte %#02x", code)
	}
	if err == nil && c.left() > 0 {
		d.batch.UnknownFields++
	}
	return err
}

// readBatchArray reads [timestamp, events], with the rank as third element from most releases.
func (d *Decoder) readBatchArray(c *cursor) error {
	n, err := c.header(fixarray, typeArray16)
	if err != nil {
		return err
	}
	if n < 2 {
		return fmt.Errorf("array of %d elements, want at least timestamp and events", n)
	}
	if err := d.readTimestamp(c); err != nil {
		return err
	}
	if err := d.readEvents(c); err != nil {
		return err
	}
	if n > 2 {
		if err := d.readRank(c); err != nil {
			return err
		}
	}
	for i := 3; i < n; i++ {
		if err := d.skipUnknown(c); err != nil {
			return err
		}
	}
	return nil
}

func (d *Decoder) readBatchMap(c *cursor) error {
	n, err := c.mapLen()
	if err != nil {
		return err
	}
	hasEvents := false
	for range n {
		key, err := readKey(c)
		if err != nil {
			return err
		}
		switch string(key) {
		case "ts":
			err = d.readTimestamp(c)
		case "events":
			hasEvents = true
			err = d.readEvents(c)
		case "data_parallel_rank", "attn_dp_rank":
			err = d.readRank(c)
		default:
			err = d.skipUnknown(c)
		}
		if err != nil {
			return err
		}
	}
	if !hasEvents {
		return fmt.Errorf("field events: %w", errMissing)
	}
	return nil
}

// readKey reads a map's key; one that is not a string is returned as nil.
func readKey(c *cursor) ([]byte, error) {
	key, err := c.str()
	if errors.Is(err, errType) {
		return nil, c.skip()
	}
	return key, err
}

func (d *Decoder) skipUnknown(c *cursor) error {
	d.batch.UnknownFields++
	return c.skip()
}

// readTimestamp and readRank take a value they cannot use for an unknown field: neither is worth the
// batch's events.
func (d *Decoder) readTimestamp(c *cursor) error {
	start := c.pos
	ts, err := c.real()
	if err != nil || math.IsNaN(ts) || math.IsInf(ts, 0) {
		c.pos = start
		return d.skipUnknown(c)
	}
	d.batch.Timestamp = ts
	return nil
}

func (d *Decoder) readRank(c *cursor) error {
	if c.takeNil() {
		return nil
	}
	start := c.pos
	rank, err := c.intRange(math.MaxInt32)
	if err != nil {
		c.pos = start
		return d.skipUnknown(c)
	}
	d.batch.Rank, d.batch.HasRank = int32(rank), true
	return nil
}

// readEvents reads the list of events. The claimed length is not checked against the bytes left: of a
// batch that was cut short, the events that did arrive are still read.
func (d *Decoder) readEvents(c *cursor) error {
	n, err := c.header(fixarray, typeArray16)
	if err != nil {
		return fmt.Errorf("field events: %w", err)
	}
	for i := range n {
		if err := d.readOrSkip(c, i); err != nil {
			return fmt.Errorf("event %d of %d: %w", i, n, err)
		}
	}
	return nil
}

// readOrSkip reads the event with index i. When it is no good, what it left behind is taken back and
// the cursor steps over it; only an event whose end cannot be found is an error.
func (d *Decoder) readOrSkip(c *cursor, i int) error {
	start := c.pos
	events, hashes, tokens, extras := len(d.batch.Events), len(d.hashes), len(d.tokens), len(d.extras)
	unknown := d.batch.UnknownFields
	err := d.readEvent(c)
	if err == nil {
		return nil
	}
	d.batch.Events = d.batch.Events[:events]
	d.hashes, d.tokens, d.extras = d.hashes[:hashes], d.tokens[:tokens], d.extras[:extras]
	d.batch.UnknownFields = unknown

	c.pos = start
	if err := c.skip(); err != nil {
		return err
	}
	if errors.Is(err, errUnknownTag) {
		d.batch.UnknownTags++
		return nil
	}
	if d.batch.Malformed++; d.batch.FirstMalformed == nil {
		d.batch.FirstMalformed = fmt.Errorf("event %d: %w", i, err)
	}
	return nil
}

// readEvent reads an event in any form. Some publishers wrap each event, encoded, in a byte string.
func (d *Decoder) readEvent(c *cursor) error {
	code, err := c.peek()
	if err != nil {
		return err
	}
	if isBin(code) {
		b, err := c.bin()
		if err != nil {
			return err
		}
		c = &cursor{data: b}
		if code, err = c.peek(); err != nil {
			return err
		}
	}
	if len(d.batch.Events) >= maxEvents {
		return errTooMany
	}
	switch {
	case isArray(code):
		return d.readEventArray(c)
	case isMap(code):
		return d.readEventMap(c)
	default:
		return errNoEvent
	}
}

// grow makes room for n more elements, as long as the batch stays within limit.
func grow[T any](s []T, n, limit int) ([]T, error) {
	if len(s)+n > limit {
		return s, errTooMany
	}
	return slices.Grow(s, n), nil
}

// text returns b as a string, allocated only when it is new.
func (d *Decoder) text(b []byte) string {
	if s, ok := d.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(s) > internLength {
		return s
	}
	if len(d.names) >= internNames {
		clear(d.names)
	}
	d.names[s] = s
	return s
}
