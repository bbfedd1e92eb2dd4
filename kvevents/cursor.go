package kvevents

import (
	"encoding/binary"
	"errors"
	"math"
)

// Type bytes of msgpack. The library's own table holds variables, which a switch cannot jump on.
const (
	posFixintMax = 0x7f
	fixmap       = 0x80
	fixarray     = 0x90
	fixstr       = 0xa0
	typeNil      = 0xc0
	typeReserved = 0xc1
	typeFalse    = 0xc2
	typeTrue     = 0xc3
	typeBin8     = 0xc4
	typeBin16    = 0xc5
	typeBin32    = 0xc6
	typeExt8     = 0xc7
	typeExt16    = 0xc8
	typeExt32    = 0xc9
	typeFloat32  = 0xca
	typeFloat64  = 0xcb
	typeUint8    = 0xcc
	typeUint16   = 0xcd
	typeUint32   = 0xce
	typeUint64   = 0xcf
	typeInt8     = 0xd0
	typeInt16    = 0xd1
	typeInt32    = 0xd2
	typeInt64    = 0xd3
	typeFixext1  = 0xd4
	typeFixext16 = 0xd8
	typeStr8     = 0xd9
	typeStr16    = 0xda
	typeStr32    = 0xdb
	typeArray16  = 0xdc
	typeArray32  = 0xdd
	typeMap16    = 0xde
	typeMap32    = 0xdf
	negFixintMin = 0xe0
)

var (
	errTruncated = errors.New("the data ends inside a value")
	errReserved  = errors.New("not msgpack: reserved type byte 0xc1")
	errType      = errors.New("value of another type")
	errRange     = errors.New("number out of range")
)

// cursor reads msgpack values in place from one message.
//
// It stands in for the msgpack library's decoder for three reasons. An engine sends one number per
// token, and the library reads each through an io.Reader, byte by byte. An event that turns out bad is
// skipped by stepping back to its first byte, which a reader cannot do. And the library skips nested
// values by recursion, so that a message of nothing but array headers ends the process; skip here
// counts instead.
type cursor struct {
	data []byte
	pos  int
}

func (c *cursor) left() int { return len(c.data) - c.pos }

// peek returns the next type byte.
func (c *cursor) peek() (byte, error) {
	if c.pos >= len(c.data) {
		return 0, errTruncated
	}
	return c.data[c.pos], nil
}

// takeNil steps over a nil and says whether there was one.
func (c *cursor) takeNil() bool {
	if c.pos < len(c.data) && c.data[c.pos] == typeNil {
		c.pos++
		return true
	}
	return false
}

// number reads a big-endian unsigned number of 1, 2, 4 or 8 bytes that starts skip bytes ahead, and
// moves behind it. On error the cursor stays.
func (c *cursor) number(skip, width int) (uint64, error) {
	if c.left() < skip+width {
		return 0, errTruncated
	}
	b := c.data[c.pos+skip:]
	c.pos += skip + width
	switch width {
	case 1:
		return uint64(b[0]), nil
	case 2:
		return uint64(binary.BigEndian.Uint16(b)), nil
	case 4:
		return uint64(binary.BigEndian.Uint32(b)), nil
	default:
		return binary.BigEndian.Uint64(b), nil
	}
}

// integer reads any integer. A negative one is returned in two's complement with neg set.
func (c *cursor) integer() (v uint64, neg bool, err error) {
	code, err := c.peek()
	if err != nil {
		return 0, false, err
	}
	switch {
	case code <= posFixintMax:
		c.pos++
		return uint64(code), false, nil
	case code >= negFixintMin:
		c.pos++
		return uint64(int64(int8(code))), true, nil
	case code >= typeUint8 && code <= typeUint64:
		v, err = c.number(1, 1<<(code-typeUint8))
		return v, false, err
	case code >= typeInt8 && code <= typeInt64:
		width := 1 << (code - typeInt8)
		v, err = c.number(1, width)
		shift := 64 - 8*width
		i := int64(v<<shift) >> shift // sign extension from the number's own width
		return uint64(i), i < 0, err
	default:
		return 0, false, errType
	}
}

// intRange reads an integer between 0 and limit.
func (c *cursor) intRange(limit uint64) (uint64, error) {
	v, neg, err := c.integer()
	if err != nil {
		return 0, err
	}
	if neg || v > limit {
		return 0, errRange
	}
	return v, nil
}

// real reads a number of any type.
func (c *cursor) real() (float64, error) {
	code, err := c.peek()
	if err != nil {
		return 0, err
	}
	switch code {
	case typeFloat32:
		v, err := c.number(1, 4)
		return float64(math.Float32frombits(uint32(v))), err
	case typeFloat64:
		v, err := c.number(1, 8)
		return math.Float64frombits(v), err
	}
	v, neg, err := c.integer()
	if neg {
		return float64(int64(v)), err
	}
	return float64(v), err
}

// header reads the head of an array or map: its fix form at fix, or its 16 and 32 bit forms at and
// behind wide. The length is what the sender claims.
func (c *cursor) header(fix, wide byte) (int, error) {
	code, err := c.peek()
	if err != nil {
		return 0, err
	}
	switch {
	case code&0xf0 == fix:
		c.pos++
		return int(code & 0x0f), nil
	case code == wide || code == wide+1:
		n, err := c.number(1, 2<<(code-wide))
		return int(n), err
	default:
		return 0, errType
	}
}

// arrayLen reads an array's head. The length is at most the number of bytes left, so that memory may
// be set aside for it.
func (c *cursor) arrayLen() (int, error) {
	n, err := c.header(fixarray, typeArray16)
	if err == nil && n > c.left() {
		return 0, errTruncated
	}
	return n, err
}

func (c *cursor) mapLen() (int, error) { return c.header(fixmap, typeMap16) }

// bytes returns the next n bytes without copying them.
func (c *cursor) bytes(n int) ([]byte, error) {
	if c.left() < n {
		return nil, errTruncated
	}
	b := c.data[c.pos : c.pos+n : c.pos+n]
	c.pos += n
	return b, nil
}

// sized reads a value with its length in front: the 8, 16 and 32 bit forms at and behind first.
func (c *cursor) sized(code, first byte) ([]byte, error) {
	n, err := c.number(1, 1<<(code-first))
	if err != nil {
		return nil, err
	}
	return c.bytes(int(n))
}

// str returns a string's bytes without copying them.
func (c *cursor) str() ([]byte, error) {
	code, err := c.peek()
	switch {
	case err != nil:
		return nil, err
	case code&0xe0 == fixstr:
		c.pos++
		return c.bytes(int(code & 0x1f))
	case code >= typeStr8 && code <= typeStr32:
		return c.sized(code, typeStr8)
	default:
		return nil, errType
	}
}

// bin returns a byte string without copying it.
func (c *cursor) bin() ([]byte, error) {
	code, err := c.peek()
	switch {
	case err != nil:
		return nil, err
	case code >= typeBin8 && code <= typeBin32:
		return c.sized(code, typeBin8)
	default:
		return nil, errType
	}
}

// skip steps over one value with everything in it. Nesting costs no memory, however deep.
func (c *cursor) skip() error {
	for pending := 1; pending > 0; pending-- {
		children, err := c.skipHead()
		if err != nil {
			return err
		}
		pending += children
		if pending-1 > c.left() { // each value has at least one byte
			return errTruncated
		}
	}
	return nil
}

// skipHead steps over one scalar, or over the head of a container, whose number of values it returns.
func (c *cursor) skipHead() (children int, err error) {
	code, err := c.peek()
	if err != nil {
		return 0, err
	}
	switch {
	case code <= posFixintMax || code >= negFixintMin || code == typeNil || code == typeFalse || code == typeTrue:
		c.pos++
	case code == typeReserved:
		err = errReserved
	case isMap(code):
		children, err = c.mapLen()
		children *= 2
	case isArray(code):
		children, err = c.header(fixarray, typeArray16)
	case isStr(code):
		_, err = c.str()
	case isBin(code):
		_, err = c.bin()
	default:
		err = c.skipFixed(code)
	}
	return children, err
}

// skipFixed steps over numbers and extension values.
func (c *cursor) skipFixed(code byte) error {
	var width int
	switch {
	case code == typeFloat32 || code == typeFloat64:
		width = 4 << (code - typeFloat32)
	case code >= typeUint8 && code <= typeUint64:
		width = 1 << (code - typeUint8)
	case code >= typeInt8 && code <= typeInt64:
		width = 1 << (code - typeInt8)
	case code >= typeFixext1 && code <= typeFixext16:
		width = 1 + 1<<(code-typeFixext1) // the extension's type, then its data
	default: // typeExt8 to typeExt32
		n, err := c.number(1, 1<<(code-typeExt8))
		if err != nil {
			return err
		}
		_, err = c.bytes(int(n) + 1)
		return err
	}
	_, err := c.bytes(1 + width)
	return err
}

func isArray(code byte) bool {
	return code&0xf0 == fixarray || code == typeArray16 || code == typeArray32
}

func isMap(code byte) bool {
	return code&0xf0 == fixmap || code == typeMap16 || code == typeMap32
}

func isStr(code byte) bool {
	return code&0xe0 == fixstr || code >= typeStr8 && code <= typeStr32
}

func isBin(code byte) bool { return code >= typeBin8 && code <= typeBin32 }
