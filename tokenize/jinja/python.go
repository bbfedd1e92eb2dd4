package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// isSpace is Python's str.isspace.
func isSpace(r rune) bool {
	switch {
	case r >= '\t' && r <= '\r', r >= 0x1c && r <= ' ', r == 0x85, r == 0xa0, r == 0x1680, r >= 0x2000 && r <= 0x200a:
		return true
	}
	return r == 0x2028 || r == 0x2029 || r == 0x202f || r == 0x205f || r == 0x3000
}

// str is Python's str(v): what a print tag writes.
func str(v Value) string {
	switch v := v.(type) {
	case undefinedType:
		return ""
	case string:
		return v
	case markup:
		return string(v)
	}
	var b strings.Builder
	repr(&b, v)
	return b.String()
}

// repr writes Python's repr(v).
func repr(b *strings.Builder, v Value) {
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		if v {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case float64:
		b.WriteString(floatRepr(v))
	case string:
		reprString(b, v)
	case *List:
		reprList(b, v)
	case *Dict:
		b.WriteByte('{')
		for i, key := range v.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			reprString(b, key)
			b.WriteString(": ")
			repr(b, v.values[key])
		}
		b.WriteByte('}')
	case undefinedType:
		b.WriteString("Undefined")
	default:
		fmt.Fprintf(b, "<%s>", typeName(v))
	}
}

func reprList(b *strings.Builder, l *List) {
	begin, end := "[", "]"
	if l.Tuple {
		begin, end = "(", ")"
		if len(l.Items) == 1 {
			end = ",)"
		}
	}
	b.WriteString(begin)
	for i, item := range l.Items {
		if i > 0 {
			b.WriteString(", ")
		}
		repr(b, item)
	}
	b.WriteString(end)
}

func floatRepr(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func reprString(b *strings.Builder, s string) {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == ' ' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
	}
	b.WriteRune(quote)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func upper(s string) string {
	if isASCII(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if isASCII(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

// capitalize is Python's str.capitalize: the first character in title case, the others in lower case.
func capitalize(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return ""
	}
	return string(unicode.ToTitle(r)) + lower(s[n:])
}

// strip cuts the characters in set off the ends, or white space without a set.
func strip(s string, set Value, left, right bool) (string, error) {
	in := isSpace
	switch set := set.(type) {
	case nil:
	case string:
		in = func(r rune) bool { return strings.ContainsRune(set, r) }
	default:
		return "", fmt.Errorf("strip takes a str, not %s", typeName(set))
	}
	if left {
		s = strings.TrimLeftFunc(s, in)
	}
	if right {
		s = strings.TrimRightFunc(s, in)
	}
	return s, nil
}

// splitSpace is str.split without a separator: max cuts at most, all if negative.
func splitSpace(s string, maxCuts int64) []Value {
	var out []Value
	s = strings.TrimLeftFunc(s, isSpace)
	for s != "" {
		end := strings.IndexFunc(s, isSpace)
		if end < 0 || maxCuts >= 0 && int64(len(out)) == maxCuts {
			break
		}
		out = append(out, s[:end])
		s = strings.TrimLeftFunc(s[end:], isSpace)
	}
	if s != "" {
		out = append(out, strings.TrimRightFunc(s, isSpace))
	}
	return out
}

func splitLines(s string, keepEnds bool) []Value {
	var out []Value
	for s != "" {
		at := strings.IndexFunc(s, func(r rune) bool {
			return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
		})
		if at < 0 {
			return append(out, s)
		}
		_, n := utf8.DecodeRuneInString(s[at:])
		if strings.HasPrefix(s[at:], "\r\n") {
			n = 2
		}
		if keepEnds {
			out = append(out, s[:at+n])
		} else {
			out = append(out, s[:at])
		}
		s = s[at+n:]
	}
	return out
}

// dumps is Python's json.dumps.
type dumps struct {
	ascii     bool
	indent    string // "" prints on one line
	pretty    bool
	item, key string // separators
	sorted    bool
}

func (d dumps) write(b *strings.Builder, v Value, depth int) error {
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case int64, float64:
		b.WriteString(strings.NewReplacer("inf", "Infinity", "nan", "NaN").Replace(str(v)))
	case string:
		d.writeString(b, v)
	case *List:
		return d.writeAll(b, "[", "]", len(v.Items), depth, func(i int) error { return d.write(b, v.Items[i], depth+1) })
	case *Dict:
		keys := v.keys
		if d.sorted {
			keys = sortedCopy(keys)
		}
		return d.writeAll(b, "{", "}", len(keys), depth, func(i int) error {
			d.writeString(b, keys[i])
			b.WriteString(d.key)
			return d.write(b, v.values[keys[i]], depth+1)
		})
	default:
		return fmt.Errorf("%s has no JSON form", typeName(v))
	}
	return nil
}

func (d dumps) writeAll(b *strings.Builder, begin, end string, n, depth int, one func(int) error) error {
	b.WriteString(begin)
	for i := range n {
		if i > 0 {
			b.WriteString(d.item)
		}
		d.newline(b, depth+1)
		if err := one(i); err != nil {
			return err
		}
	}
	if n > 0 {
		d.newline(b, depth)
	}
	b.WriteString(end)
	return nil
}

func (d dumps) newline(b *strings.Builder, depth int) {
	if d.pretty {
		b.WriteByte('\n')
		for range depth {
			b.WriteString(d.indent)
		}
	}
}

func (d dumps) writeString(b *strings.Builder, s string) {
	const short = "btnvfr" // \b to \r, of which \v has no short form
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= '\b' && r <= '\r' && r != '\v':
			b.WriteByte('\\')
			b.WriteByte(short[r-'\b'])
		case r < ' ' || d.ascii && r >= 0x7f && r < 0x10000 && r != 0x7f:
			fmt.Fprintf(b, `\u%04x`, r)
		case d.ascii && r >= 0x10000:
			r -= 0x10000
			fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}
