package scenario

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
)

// event is one event of a script.
type event struct {
	kind   string // store, remove, clear, unknown or malformed
	tag    string // of an unknown event
	hashes []uint64
	parent *uint64
	tokens []uint32
	noList bool // token_ids is nil
	pairs  bool
	size   int
	medium any
	group  any
	spec   any
	lora   any
	loraID any
	salt   string
	meta   any // cache salt as SGLang sends it
	image  string
	embeds bool
	extra  fields // further fields of the map form
}

// wire is how an engine encodes.
type wire struct {
	length int  // of a positional BlockStored with its tag; 0 for maps
	bytes  bool // hashes are 32-byte strings
}

// parseEvents reads events that are separated by semicolons.
func parseEvents(text string) (events []event, err error) {
	for part := range strings.SplitSeq(text, ";") {
		words := strings.Fields(part)
		if len(words) == 0 {
			return nil, fmt.Errorf("an empty event")
		}
		e, err := parseEvent(words)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", words[0], err)
		}
		events = append(events, e)
	}
	return events, nil
}

func parseEvent(words []string) (e event, err error) {
	e.kind, words = words[0], words[1:]
	switch e.kind {
	case "clear", "malformed":
	case "unknown":
		if len(words) == 0 {
			return e, fmt.Errorf("want a tag")
		}
		e.tag, words = words[0], words[1:]
	case "store", "remove":
		if len(words) == 0 {
			return e, fmt.Errorf("want names of blocks")
		}
		if e.hashes, err = parseList(words[0]); err != nil {
			return e, err
		}
		words = words[1:]
	default:
		return e, fmt.Errorf("no such event; want store, remove, clear, unknown or malformed")
	}
	given := false
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		given = given || key == "tokens"
		if err := e.option(key, value); err != nil {
			return e, fmt.Errorf("%s: %w", word, err)
		}
	}
	if e.kind == "store" && !given {
		e.nameTokens()
	}
	if e.size == 0 && len(e.hashes) > 0 {
		e.size = len(e.tokens) / len(e.hashes)
	}
	return e, nil
}

// nameTokens gives each block tokens after its name.
func (e *event) nameTokens() {
	for _, h := range e.hashes {
		if e.size <= 1 {
			e.tokens = append(e.tokens, uint32(h))
			continue
		}
		for i := range e.size {
			e.tokens = append(e.tokens, uint32(h)*1000+uint32(i))
		}
	}
}

func (e *event) option(key, value string) (err error) {
	if field, ok := strings.CutSuffix(key, ":"); ok {
		e.extra = append(e.extra, keyValue{field, value})
		return nil
	}
	switch key {
	case "parent":
		var p []uint64
		if p, err = parseList(value); err == nil {
			e.parent = &p[0]
		}
	case "tokens":
		err = e.readTokens(value)
	case "size":
		e.size, err = strconv.Atoi(value)
	case "medium":
		e.medium = value
	case "group":
		e.group, err = strconv.Atoi(value)
	case "kind":
		e.spec = value
	case "lora":
		e.lora = value
	case "lora-id":
		e.loraID, err = strconv.Atoi(value)
	case "salt":
		e.salt = value
	case "cache-salt":
		e.meta = value
	case "image":
		e.image = value
	case "embeds":
		e.embeds = true
	case "pairs":
		e.pairs = true
	default:
		return fmt.Errorf("no such option")
	}
	return err
}

func (e *event) readTokens(value string) error {
	switch value {
	case "nil":
		e.noList = true
		return nil
	case "none":
		return nil
	}
	ids, err := parseList(value)
	for _, id := range ids {
		e.tokens = append(e.tokens, uint32(id))
	}
	return err
}

// parseList reads 1,2,5..9. A negative number stands for its two's complement.
func parseList(text string) (all []uint64, err error) {
	if text == "none" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "..")
		first, err := parseNumber(from)
		if err != nil {
			return nil, err
		}
		last := first
		if isRange {
			if last, err = parseNumber(to); err != nil {
				return nil, err
			}
		}
		for n := first; ; n++ {
			if all = append(all, n); n == last {
				break
			}
		}
	}
	return all, nil
}

func parseNumber(text string) (uint64, error) {
	if strings.HasPrefix(text, "-") {
		n, err := strconv.ParseInt(text, 0, 64)
		return uint64(n), err
	}
	return strconv.ParseUint(text, 0, 64)
}

// fields is a msgpack map with its keys in order.
type fields []keyValue

type keyValue struct {
	key   string
	value any
}

// EncodeMsgpack implements msgpack.CustomEncoder.
func (f fields) EncodeMsgpack(e *msgpack.Encoder) error {
	if err := e.EncodeMapLen(len(f)); err != nil {
		return err
	}
	for _, kv := range f {
		if err := e.EncodeMulti(kv.key, kv.value); err != nil {
			return err
		}
	}
	return nil
}

// batch encodes events as one message.
func (w wire) batch(rank int, events []event) ([]byte, error) {
	list := []any{}
	for _, e := range events {
		list = append(list, w.event(e))
	}
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	enc.UseCompactInts(true)
	if err := enc.Encode([]any{1.5, list, rank}); err != nil {
		return nil, fmt.Errorf("encode batch: %w", err)
	}
	return buf.Bytes(), nil
}

func (w wire) event(e event) any {
	switch e.kind {
	case "clear":
		return w.form("AllBlocksCleared", 1, nil)
	case "unknown":
		return w.form(e.tag, 2, fields{{"block_hashes", w.hashes(e.hashes)}})
	case "malformed":
		return w.form("BlockRemoved", 4, fields{{"block_hashes", "no list"}})
	case "remove":
		n := 4
		if w.length <= 6 {
			n = 2
		} else if w.length < 10 {
			n = 3
		}
		return w.form("BlockRemoved", n, fields{
			{"block_hashes", w.hashes(e.hashes)}, {"medium", e.mediumOf()}, {"group_idx", e.group},
		})
	}
	named := e.lora
	if w.length == 8 && e.meta != nil { // SGLang's releases of that length
		named = fields{{"cache_salt", e.meta}}
	}
	f := fields{
		{"block_hashes", w.hashes(e.hashes)},
		{"parent_block_hash", w.parent(e)},
		{"token_ids", e.tokenList()},
		{"block_size", e.size},
		{"lora_id", e.loraID},
		{"medium", e.mediumOf()},
		{"lora_name", named},
		{"extra_keys", e.extraKeys()},
		{"group_idx", e.group},
		{"kv_cache_spec_kind", e.spec},
	}
	if w.length == 12 {
		f = append(f, keyValue{"kv_cache_spec_sliding_window", nil})
	}
	if w.length == 0 && e.meta != nil {
		f = append(f, keyValue{"cache_salt", e.meta})
	}
	return w.form("BlockStored", w.length, append(f, e.extra...))
}

// form is the map, without what is nil, or the array of the given length.
func (w wire) form(tag string, length int, f fields) any {
	if w.length == 0 {
		m := fields{{"type", tag}}
		for i, kv := range f {
			if kv.value != nil || tag == "BlockStored" && i < 7 {
				m = append(m, kv)
			}
		}
		return m
	}
	a := []any{tag}
	for _, kv := range f {
		a = append(a, kv.value)
	}
	return a[:min(length, len(a))]
}

func (w wire) hashes(all []uint64) []any {
	list := []any{}
	for _, h := range all {
		list = append(list, w.hash(h))
	}
	return list
}

func (w wire) hash(h uint64) any {
	if w.bytes {
		return binary.BigEndian.AppendUint64(bytes.Repeat([]byte{0xab}, 24), h)
	}
	if int64(h) < 0 && int64(h) > -1<<32 { // as engines with signed hashes send it
		return int64(h)
	}
	return h
}

func (w wire) parent(e event) any {
	if e.parent == nil {
		return nil
	}
	return w.hash(*e.parent)
}

func (e event) mediumOf() any {
	if e.medium == nil {
		return "GPU"
	}
	return e.medium
}

func (e event) tokenList() any {
	if e.noList {
		return nil
	}
	list := []any{}
	for _, t := range e.tokens {
		if e.pairs {
			list = append(list, []any{t, t + 1})
		} else {
			list = append(list, t)
		}
	}
	return list
}

// extraKeys lists, per block, what is hashed beside its tokens, in the order that vLLM has.
func (e event) extraKeys() any {
	if e.salt == "" && e.image == "" && !e.embeds {
		return nil
	}
	all := []any{}
	for i := range e.hashes {
		keys := []any{}
		if e.lora != nil {
			keys = append(keys, e.lora)
		}
		if e.image != "" {
			keys = append(keys, []any{e.image, -i})
		}
		if e.salt != "" && i == 0 && e.parent == nil {
			keys = append(keys, e.salt)
		}
		if e.embeds {
			keys = append(keys, []byte("digest"))
		}
		if len(keys) == 0 {
			all = append(all, nil)
			continue
		}
		all = append(all, keys)
	}
	return all
}
