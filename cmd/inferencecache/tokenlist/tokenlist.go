// Package tokenlist reads lists of token ids as people and scripts write them: a JSON array, or ids
// separated by whitespace, commas or both.
package tokenlist

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// MaxBytes bounds the text that Read accepts, in bytes: well over a million ids.
const MaxBytes = 64 << 20

// maxQuoted bounds how much of a bad id an error repeats, in bytes.
const maxQuoted = 32

// Error is a list that cannot be read. Line and Column count from 1, Column in bytes.
type Error struct {
	Line, Column int
	Problem      string
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Problem)
}

// Read parses everything that r holds. A syntax error is an *Error.
func Read(r io.Reader) ([]uint32, error) {
	src, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read token ids: %w", err)
	}
	if len(src) > MaxBytes {
		return nil, fmt.Errorf("read token ids: the list is longer than %d bytes", MaxBytes)
	}
	return Parse(src)
}

// Parse reads one list. Text that starts with a bracket must be a whole JSON array. An empty list is
// no error. A syntax error is an *Error.
func Parse(src []byte) ([]uint32, error) {
	p := parser{src: src}
	p.skipSpace()
	array := p.peek() == '['
	if array {
		p.pos++
	}
	ids, err := p.list(array)
	if err != nil || !array {
		return ids, err
	}
	if p.peek() != ']' {
		return nil, p.errorf(p.pos, "the array is not closed: want a comma or ]")
	}
	p.pos++
	if p.skipSpace(); p.pos < len(p.src) {
		return nil, p.errorf(p.pos, "text after the end of the array")
	}
	return ids, nil
}

type parser struct {
	src []byte
	pos int
}

// list reads ids up to the end of the text, or to the closing bracket of an array.
func (p *parser) list(array bool) ([]uint32, error) {
	var ids []uint32
	afterComma := false
	for {
		p.skipSpace()
		switch c := p.peek(); {
		case p.pos == len(p.src), array && c == ']':
			if afterComma {
				return nil, p.errorf(p.pos, "no id after the comma")
			}
			return ids, nil
		case c == ',':
			if afterComma || len(ids) == 0 {
				return nil, p.errorf(p.pos, "no id in front of the comma")
			}
			afterComma = true
			p.pos++
		case array && len(ids) > 0 && !afterComma:
			return nil, p.errorf(p.pos, "want a comma or ] after id %d", len(ids))
		default:
			id, err := p.id(len(ids) + 1)
			if err != nil {
				return nil, err
			}
			ids = append(ids, id)
			afterComma = false
		}
	}
}

// id reads the n-th id.
func (p *parser) id(n int) (uint32, error) {
	start := p.pos
	p.pos++
	for p.pos < len(p.src) && !endsID(p.src[p.pos]) {
		p.pos++
	}
	word := p.src[start:p.pos]
	v, err := strconv.ParseUint(string(word), 10, 32)
	if err != nil {
		return 0, p.errorf(start, "id %d is %q: want a whole number from 0 to 4294967295", n, word[:min(len(word), maxQuoted)])
	}
	return uint32(v), nil
}

// peek returns the byte at the position, 0 at the end.
func (p *parser) peek() byte {
	if p.pos == len(p.src) {
		return 0
	}
	return p.src[p.pos]
}

func (p *parser) skipSpace() {
	for p.pos < len(p.src) && isSpace(p.src[p.pos]) {
		p.pos++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func endsID(c byte) bool { return isSpace(c) || c == ',' || c == '[' || c == ']' }

func (p *parser) errorf(at int, format string, args ...any) error {
	before := p.src[:at]
	return &Error{
		Line:    1 + bytes.Count(before, []byte("\n")),
		Column:  at - bytes.LastIndexByte(before, '\n'),
		Problem: fmt.Sprintf(format, args...),
	}
}
