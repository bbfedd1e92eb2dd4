package kvevents

import (
	"encoding/binary"
	"fmt"
	"math"
)

// field is one field of an event, in whichever form the event came.
type field uint8

const (
	fieldUnknown field = iota
	fieldIgnored       // known, and of no use here
	fieldHashes
	fieldParent
	fieldTokens
	fieldBlockSize
	fieldLoRAID
	fieldMedium
	fieldLoRAName
	fieldNameOrMetadata // position 7, see readNameOrMetadata
	fieldExtraKeys
	fieldGroup
	fieldSpecKind
	fieldSlidingWindow
	fieldSalt
)

// The positional forms, without the tag. Each release ends the array after the fields it knows.
var (
	storedFields = []field{
		fieldHashes, fieldParent, fieldTokens, fieldBlockSize, fieldLoRAID, fieldMedium,
		fieldNameOrMetadata, fieldExtraKeys, fieldGroup, fieldSpecKind, fieldSlidingWindow,
	}
	removedFields = []field{fieldHashes, fieldMedium, fieldGroup}
)

// Elements that the oldest releases send, without the tag.
const (
	minStored  = 4
	minRemoved = 1
)

// fieldNames are the names in the map form, and in errors.
var fieldNames = map[string]field{
	"block_hashes":                 fieldHashes,
	"parent_block_hash":            fieldParent,
	"token_ids":                    fieldTokens,
	"block_size":                   fieldBlockSize,
	"lora_id":                      fieldLoRAID,
	"medium":                       fieldMedium,
	"lora_name":                    fieldLoRAName,
	"extra_keys":                   fieldExtraKeys,
	"group_idx":                    fieldGroup,
	"kv_cache_spec_kind":           fieldSpecKind,
	"kv_cache_spec_sliding_window": fieldSlidingWindow,
	"cache_salt":                   fieldSalt,
	"locality":                     fieldIgnored,
	"ownership":                    fieldIgnored,
	"session_id":                   fieldIgnored,
	"lookahead_token_ids":          fieldIgnored,
}

// String returns the field's name on the wire.
func (f field) String() string {
	if f == fieldNameOrMetadata {
		f = fieldLoRAName
	}
	for name, named := range fieldNames {
		if named == f && f != fieldIgnored {
			return name
		}
	}
	return "unknown"
}

// on returns f if events of the kind have it, else unknown.
func (f field) on(kind Kind) field {
	switch {
	case kind == Stored, f == fieldIgnored:
		return f
	case kind == Removed && (f == fieldHashes || f == fieldMedium || f == fieldGroup):
		return f
	default:
		return fieldUnknown
	}
}

// kindOf returns the kind that a tag names.
func kindOf(tag []byte) (Kind, error) {
	switch string(tag) {
	case "BlockStored":
		return Stored, nil
	case "BlockRemoved":
		return Removed, nil
	case "AllBlocksCleared":
		return Cleared, nil
	default:
		return 0, errUnknownTag
	}
}

// pending is an event while its fields are read.
type pending struct {
	*Event
	hasHashes bool
	// extraKeys is the value of that field, which is read last: it lists one entry per hash and
	// repeats the adapter's name, and a map may bring either behind it.
	extraKeys cursor
}

func (d *Decoder) begin(kind Kind) pending {
	d.batch.Events = append(d.batch.Events, Event{Kind: kind, Group: -1})
	return pending{Event: &d.batch.Events[len(d.batch.Events)-1]}
}

func (d *Decoder) readEventArray(c *cursor) error {
	n, err := c.arrayLen()
	if err != nil {
		return err
	}
	if n == 0 {
		return errNoTag
	}
	tag, err := c.str()
	if err != nil {
		return errTagType
	}
	kind, err := kindOf(tag)
	if err != nil {
		return err
	}
	n--
	var fields []field
	required := 0
	switch kind {
	case Stored:
		fields, required = storedFields, minStored
	case Removed:
		fields, required = removedFields, minRemoved
	}
	if n < required {
		return d.at(kind, fields[n], errMissing)
	}
	ev := d.begin(kind)
	for i := range n {
		f := fieldUnknown
		if i < len(fields) {
			f = fields[i]
		}
		if err := d.readField(c, f, &ev); err != nil {
			return err
		}
	}
	return d.finish(&ev)
}

func (d *Decoder) readEventMap(c *cursor) error {
	kind, err := mapKind(*c)
	if err != nil {
		return err
	}
	n, err := c.mapLen()
	if err != nil {
		return err
	}
	ev := d.begin(kind)
	for range n {
		key, err := readKey(c)
		if err != nil {
			return err
		}
		if string(key) == "type" {
			err = c.skip()
		} else {
			err = d.readField(c, fieldNames[string(key)].on(kind), &ev)
		}
		if err != nil {
			return err
		}
	}
	return d.finish(&ev)
}

// mapKind finds the tag of a map. Engines put it first, though nothing makes them.
func mapKind(c cursor) (Kind, error) {
	n, err := c.mapLen()
	if err != nil {
		return 0, err
	}
	for range n {
		key, err := readKey(&c)
		if err != nil {
			return 0, err
		}
		if string(key) == "type" {
			tag, err := c.str()
			if err != nil {
				return 0, errTagType
			}
			return kindOf(tag)
		}
		if err := c.skip(); err != nil {
			return 0, err
		}
	}
	return 0, errNoTag
}

// finish checks the event as a whole and reads what had to wait for the rest.
func (d *Decoder) finish(ev *pending) error {
	if ev.Kind != Cleared && !ev.hasHashes {
		return d.at(ev.Kind, fieldHashes, errMissing)
	}
	if ev.extraKeys.data != nil {
		if err := d.readExtraKeys(&ev.extraKeys, ev.Event); err != nil {
			return d.at(ev.Kind, fieldExtraKeys, err)
		}
	}
	ev.TokenMismatch = len(ev.Tokens) > 0 && len(ev.Tokens) != len(ev.Hashes)*ev.BlockSize
	return nil
}

func (d *Decoder) readField(c *cursor, f field, ev *pending) error {
	if err := d.readValue(c, f, ev); err != nil {
		return d.at(ev.Kind, f, err)
	}
	return nil
}

// at says where an event went wrong, for the first bad event of a batch. For the others, which may be
// millions in a hostile message, the text would be made for nobody.
func (d *Decoder) at(kind Kind, f field, err error) error {
	if d.batch.Malformed > 0 {
		return err
	}
	return fmt.Errorf("%v: field %v: %w", kind, f, err)
}

func (d *Decoder) readValue(c *cursor, f field, ev *pending) (err error) {
	switch f {
	case fieldUnknown:
		return d.skipUnknown(c)
	case fieldIgnored:
		return c.skip()
	case fieldHashes:
		ev.hasHashes = true
		ev.Hashes, err = d.readHashes(c)
		return err
	}
	if c.takeNil() { // every field but the hashes may be nil
		return nil
	}
	switch f {
	case fieldParent:
		ev.HasParent = true
		ev.Parent, err = readHash(c)
	case fieldTokens:
		return d.readTokens(c, ev.Event)
	case fieldBlockSize:
		ev.BlockSize, err = readInt32(c)
	case fieldLoRAID:
		return readLoRAID(c, ev.Event)
	case fieldMedium:
		ev.Medium, err = d.readName(c)
	case fieldLoRAName:
		ev.LoRAName, err = d.readName(c)
	case fieldNameOrMetadata:
		return d.readNameOrMetadata(c, ev.Event)
	case fieldExtraKeys:
		ev.extraKeys = *c
		return c.skip()
	case fieldGroup:
		var group int
		group, err = readInt32(c)
		ev.Group = int32(group)
	case fieldSpecKind:
		ev.SpecKind, err = d.readName(c)
	case fieldSlidingWindow:
		ev.SlidingWindow, err = readInt32(c)
	case fieldSalt:
		return readSalt(c, ev.Event)
	}
	return err
}

// readHash reads a hash of any form: an integer of any width and sign, or a digest of any length.
func readHash(c *cursor) (Hash, error) {
	code, err := c.peek()
	if err != nil {
		return 0, err
	}
	if !isBin(code) {
		v, _, err := c.integer()
		return Hash(v), err
	}
	b, err := c.bin()
	if err != nil {
		return 0, err
	}
	if len(b) == 0 {
		return 0, errRange
	}
	var last [8]byte
	copy(last[max(0, 8-len(b)):], b[max(0, len(b)-8):])
	return Hash(binary.BigEndian.Uint64(last[:])), nil
}

func (d *Decoder) readHashes(c *cursor) ([]Hash, error) {
	n, err := c.arrayLen()
	if err != nil || n == 0 {
		return nil, err
	}
	if d.hashes, err = grow(d.hashes, n, maxHashes); err != nil {
		return nil, err
	}
	start := len(d.hashes)
	for range n {
		h, err := readHash(c)
		if err != nil {
			return nil, err
		}
		d.hashes = append(d.hashes, h)
	}
	return d.hashes[start:len(d.hashes):len(d.hashes)], nil
}

// readInt32 reads a number from 0 to the largest int32.
func readInt32(c *cursor) (int, error) {
	v, err := c.intRange(math.MaxInt32)
	return int(v), err
}

func readLoRAID(c *cursor, ev *Event) error {
	v, neg, err := c.integer()
	if err != nil {
		return err
	}
	if !neg && v > math.MaxInt64 {
		return errRange
	}
	ev.LoRAID, ev.HasLoRAID = int64(v), true
	return nil
}

func (d *Decoder) readName(c *cursor) (string, error) {
	b, err := c.str()
	if err != nil {
		return "", err
	}
	if len(b) > maxName {
		return "", errRange
	}
	return d.text(b), nil
}
