package fakeengine

import (
	"bytes"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

type eventKind uint8

const (
	blockStored eventKind = iota
	blockRemoved
	allCleared
)

// Constant fields of the events of a model with one full-attention group on the GPU.
const (
	medium   = "GPU"
	group    = 0
	specKind = "full_attention"
)

// event is one change of a pool's cache. Only the fields of its kind are set.
type event struct {
	kind   eventKind
	hashes []blockHash
	parent *blockHash // stored: the block before the first; nil at the start of a request
	tokens []uint32   // stored: the tokens of all hashes
	first  int        // stored: position of the first block in its request
	id     identity   // stored
}

// batch is one published message.
type batch struct {
	at     time.Time
	events []event
}

// encoder writes batches in the form of one release. It is not safe for concurrent use.
type encoder struct {
	blockSize   int
	maps        bool
	arrayFields int
	bytesHashes bool
	rank        int

	buf bytes.Buffer
	enc *msgpack.Encoder
	err error // first error since encode began
}

func newEncoder(cfg *Config, rank int) *encoder {
	e := &encoder{
		blockSize:   cfg.BlockSize,
		maps:        cfg.EventForm == EventMap,
		arrayFields: cfg.ArrayFields,
		bytesHashes: cfg.HashForm == HashBytes,
		rank:        rank,
	}
	e.enc = msgpack.NewEncoder(&e.buf)
	return e
}

// encode returns the payload of a batch: [timestamp, events, rank] in every release from 0.9.2.
func (e *encoder) encode(b batch) ([]byte, error) {
	e.buf.Reset()
	e.err = nil
	e.array(3)
	e.keep(e.enc.EncodeFloat64(float64(b.at.UnixNano()) / 1e9))
	e.array(len(b.events))
	for i := range b.events {
		if e.maps {
			e.asMap(&b.events[i])
		} else {
			e.asArray(&b.events[i])
		}
	}
	e.integer(e.rank)
	return bytes.Clone(e.buf.Bytes()), e.err
}

// asMap writes the form that names its fields and leaves out those equal to their default.
func (e *encoder) asMap(ev *event) {
	switch ev.kind {
	case blockStored:
		e.keep(e.enc.EncodeMapLen(11))
		e.field("type", func() { e.str("BlockStored") })
		e.field("block_hashes", func() { e.hashes(ev.hashes) })
		e.field("parent_block_hash", func() { e.parent(ev.parent) })
		e.field("token_ids", func() { e.tokens(ev.tokens) })
		e.field("block_size", func() { e.integer(e.blockSize) })
		e.field("lora_id", func() { e.loraID(ev.id) })
		e.field("medium", func() { e.str(medium) })
		e.field("lora_name", func() { e.loraName(ev.id) })
		e.field("extra_keys", func() { e.extraKeys(ev) })
		e.field("group_idx", func() { e.integer(group) })
		e.field("kv_cache_spec_kind", func() { e.str(specKind) })
	case blockRemoved:
		e.keep(e.enc.EncodeMapLen(4))
		e.field("type", func() { e.str("BlockRemoved") })
		e.field("block_hashes", func() { e.hashes(ev.hashes) })
		e.field("medium", func() { e.str(medium) })
		e.field("group_idx", func() { e.integer(group) })
	case allCleared:
		e.keep(e.enc.EncodeMapLen(1))
		e.field("type", func() { e.str("AllBlocksCleared") })
	}
}

// asArray writes the positional form: the fields that the release knows, nil when unset.
func (e *encoder) asArray(ev *event) {
	switch ev.kind {
	case blockStored:
		e.positional(e.arrayFields, []func(){
			func() { e.str("BlockStored") },
			func() { e.hashes(ev.hashes) },
			func() { e.parent(ev.parent) },
			func() { e.tokens(ev.tokens) },
			func() { e.integer(e.blockSize) },
			func() { e.loraID(ev.id) },
			func() { e.str(medium) },
			func() { e.loraName(ev.id) },
			func() { e.extraKeys(ev) },
			func() { e.integer(group) },
			func() { e.str(specKind) },
			func() { e.keep(e.enc.EncodeNil()) }, // sliding window: not a windowed group
		})
	case blockRemoved:
		e.positional(removedFields(e.arrayFields), []func(){
			func() { e.str("BlockRemoved") },
			func() { e.hashes(ev.hashes) },
			func() { e.str(medium) },
			func() { e.integer(group) },
		})
	case allCleared:
		e.positional(1, []func(){func() { e.str("AllBlocksCleared") }})
	}
}

// removedFields returns the length of a BlockRemoved array in the releases whose BlockStored has n fields.
func removedFields(n int) int {
	switch {
	case n <= 6:
		return 2
	case n <= 9:
		return 3
	default:
		return 4
	}
}

func (e *encoder) positional(n int, fields []func()) {
	e.array(n)
	for _, write := range fields[:n] {
		write()
	}
}

func (e *encoder) field(name string, write func()) {
	e.str(name)
	write()
}

func (e *encoder) hashes(hs []blockHash) {
	e.array(len(hs))
	for _, h := range hs {
		e.hash(h)
	}
}

func (e *encoder) hash(h blockHash) {
	if e.bytesHashes {
		e.keep(e.enc.EncodeBytes(h[:]))
		return
	}
	e.keep(e.enc.EncodeUint(h.low64()))
}

func (e *encoder) parent(h *blockHash) {
	if h == nil {
		e.keep(e.enc.EncodeNil())
		return
	}
	e.hash(*h)
}

func (e *encoder) tokens(ts []uint32) {
	e.array(len(ts))
	for _, t := range ts {
		e.keep(e.enc.EncodeUint(uint64(t)))
	}
}

func (e *encoder) loraID(id identity) {
	if id.lora == "" {
		e.keep(e.enc.EncodeNil())
		return
	}
	e.integer(id.loraID)
}

func (e *encoder) loraName(id identity) {
	if id.lora == "" {
		e.keep(e.enc.EncodeNil())
		return
	}
	e.str(id.lora)
}

// extraKeys writes one entry for each hash: a list of keys, or nil where the block has none.
func (e *encoder) extraKeys(ev *event) {
	e.array(len(ev.hashes))
	for i := range ev.hashes {
		keys := ev.id.extraKeys(ev.first + i)
		if keys == nil {
			e.keep(e.enc.EncodeNil())
			continue
		}
		e.array(len(keys))
		for _, key := range keys {
			e.str(key)
		}
	}
}

func (e *encoder) array(n int)   { e.keep(e.enc.EncodeArrayLen(n)) }
func (e *encoder) integer(n int) { e.keep(e.enc.EncodeInt(int64(n))) }
func (e *encoder) str(s string)  { e.keep(e.enc.EncodeString(s)) }

func (e *encoder) keep(err error) {
	if e.err == nil {
		e.err = err
	}
}
