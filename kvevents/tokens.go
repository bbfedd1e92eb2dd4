package kvevents

import "encoding/binary"

// pairHead is the head of an array of two.
const pairHead = fixarray | 2

// readTokens reads the token ids, plain or as pairs of neighbours (keys of speculative decoding).
func (d *Decoder) readTokens(c *cursor, ev *Event) error {
	n, err := c.arrayLen()
	if err != nil || n == 0 {
		return err
	}
	if d.tokens, err = grow(d.tokens, n, maxTokens); err != nil {
		return err
	}
	start := len(d.tokens)
	d.tokens = d.tokens[:start+n]
	dst := d.tokens[start : start+n : start+n]
	if code, _ := c.peek(); code == pairHead {
		ev.Bigram = true
		err = c.pairs(dst)
	} else {
		err = c.uint32s(dst)
	}
	ev.Tokens = dst
	return err
}

// uint32s fills dst. It is the hot loop of decoding: most bytes of a stream are token ids. The three
// shortest forms are read here, the others by intRange.
func (c *cursor) uint32s(dst []uint32) error {
	data, pos := c.data, c.pos
	for i := range dst {
		rest := data[pos:]
		switch {
		case len(rest) >= 3 && rest[0] == typeUint16:
			dst[i] = uint32(binary.BigEndian.Uint16(rest[1:]))
			pos += 3
		case len(rest) >= 5 && rest[0] == typeUint32:
			dst[i] = binary.BigEndian.Uint32(rest[1:])
			pos += 5
		case len(rest) >= 1 && rest[0] <= posFixintMax:
			dst[i] = uint32(rest[0])
			pos++
		default:
			c.pos = pos
			v, err := c.intRange(1<<32 - 1)
			if err != nil {
				return err
			}
			dst[i] = uint32(v)
			pos = c.pos
		}
	}
	c.pos = pos
	return nil
}

// pairs fills dst with the first number of each pair.
func (c *cursor) pairs(dst []uint32) error {
	for i := range dst {
		var pair [2]uint32
		code, err := c.peek()
		if err != nil {
			return err
		}
		if code != pairHead {
			return errType
		}
		c.pos++
		if err := c.uint32s(pair[:]); err != nil {
			return err
		}
		dst[i] = pair[0]
	}
	return nil
}
