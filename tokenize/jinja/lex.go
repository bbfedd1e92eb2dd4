package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

type tokenKind int

const (
	tokenEOF   tokenKind = iota
	tokenData            // text outside of tags, whitespace control applied
	tokenPrint           // {{
	tokenPrintEnd
	tokenBlock // {%
	tokenBlockEnd
	tokenName
	tokenString // text holds the value
	tokenInt
	tokenFloat
	tokenOp
)

type token struct {
	kind tokenKind
	text string
	line int
}

func (t token) String() string {
	switch t.kind {
	case tokenEOF:
		return "end of template"
	case tokenData:
		return "text"
	}
	return strconv.Quote(t.text)
}

// lexer cuts a template into tokens with trim_blocks and lstrip_blocks on, as chat templates are written for.
type lexer struct {
	source string
	pos    int
	line   int
	// lineStart says that everything up to pos ended in a line break, or that nothing came before.
	lineStart bool
	tokens    []token
}

// lex returns the tokens of source. One trailing line break is dropped.
func lex(source string) ([]token, error) {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := &lexer{source: strings.TrimSuffix(source, "\n"), line: 1, lineStart: true}
	for l.pos < len(l.source) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	l.emit(tokenEOF, "")
	return l.tokens, nil
}

func (l *lexer) emit(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind: kind, text: text, line: l.line})
}

// advance moves behind text, which starts at pos.
func (l *lexer) advance(text string) {
	l.pos += len(text)
	l.line += strings.Count(text, "\n")
	l.lineStart = strings.HasSuffix(text, "\n")
}

// next reads text up to a tag, and the tag.
func (l *lexer) next() error {
	rest := l.source[l.pos:]
	at, opener := findTag(rest)
	if at < 0 {
		l.data(rest)
		l.advance(rest)
		return nil
	}
	sign := tagSign(rest[at+2:])
	l.data(l.stripped(rest[:at], opener, sign))
	l.advance(rest[:at] + opener + sign)
	l.lineStart = false
	switch opener {
	case "{#":
		return l.comment()
	case "{{":
		return l.tag(tokenPrint, "{{", tokenPrintEnd, "}}")
	}
	if body, ok := l.rawBegin(); ok {
		return l.raw(body)
	}
	return l.tag(tokenBlock, "{%", tokenBlockEnd, "%}")
}

func findTag(s string) (at int, opener string) {
	for at := 0; ; at++ {
		i := strings.IndexByte(s[at:], '{')
		if i < 0 || at+i+1 >= len(s) {
			return -1, ""
		}
		at += i
		switch opener := s[at : at+2]; opener {
		case "{{", "{%", "{#":
			return at, opener
		}
	}
}

// tagSign is the whitespace control behind an opener: "-", "+" or none.
func tagSign(s string) string {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		return s[:1]
	}
	return ""
}

// stripped is the text in front of a tag: without any white space for "-", without the indent of the tag where
// it is the first thing on its line and not a print tag.
func (l *lexer) stripped(text, opener, sign string) string {
	switch {
	case sign == "-":
		return strings.TrimRightFunc(text, isSpace)
	case sign == "+" || opener == "{{":
		return text
	}
	start := strings.LastIndexByte(text, '\n') + 1
	if (start > 0 || l.lineStart) && strings.TrimFunc(text[start:], isSpace) == "" {
		return text[:start]
	}
	return text
}

func (l *lexer) data(text string) {
	if text != "" {
		l.emit(tokenData, text)
	}
}

// close moves behind the end of a tag and what its sign takes: all white space for "-", else one line break
// behind a block or comment.
func (l *lexer) close(sign, closer string) {
	end := sign + closer
	rest := l.source[l.pos+len(end):]
	switch {
	case sign == "-":
		end += rest[:len(rest)-len(strings.TrimLeftFunc(rest, isSpace))]
	case sign == "" && closer != "}}" && strings.HasPrefix(rest, "\n"):
		end += "\n"
	}
	l.advance(end)
}

func (l *lexer) comment() error {
	rest := l.source[l.pos:]
	end := strings.Index(rest, "#}")
	if end < 0 {
		return l.errorf("a comment is not closed")
	}
	sign := ""
	if end > 0 {
		sign = tagSign(rest[end-1:])
	}
	l.advance(rest[:end-len(sign)])
	l.close(sign, "#}")
	return nil
}

// rawBegin says whether the block at pos is {% raw %}, and where its body starts.
func (l *lexer) rawBegin() (body int, ok bool) {
	name, rest, found := strings.Cut(l.source[l.pos:], "%}")
	if !found {
		return 0, false
	}
	sign := ""
	if name != "" && (name[len(name)-1] == '-' || name[len(name)-1] == '+') {
		sign, name = name[len(name)-1:], name[:len(name)-1]
	}
	if strings.TrimFunc(name, isSpace) != "raw" {
		return 0, false
	}
	l.advance(name)
	l.close(sign, "%}")
	_ = rest
	return l.pos, true
}

func (l *lexer) raw(body int) error {
	for at := body; ; {
		i := strings.Index(l.source[at:], "{%")
		if i < 0 {
			return l.errorf("raw is not closed")
		}
		at += i
		inner := l.source[at+2:]
		sign := tagSign(inner)
		inner = inner[len(sign):]
		name, _, found := strings.Cut(inner, "%}")
		endSign := ""
		if found && name != "" && (name[len(name)-1] == '-' || name[len(name)-1] == '+') {
			endSign, name = name[len(name)-1:], name[:len(name)-1]
		}
		if !found || strings.TrimFunc(name, isSpace) != "endraw" {
			at += 2
			continue
		}
		text := l.source[body:at]
		l.data(l.stripped(text, "{%", sign))
		l.advance(text + "{%" + sign + name)
		l.close(endSign, "%}")
		return nil
	}
}

// tag reads the tokens of a tag up to its end.
func (l *lexer) tag(begin tokenKind, opener string, end tokenKind, closer string) error {
	l.emit(begin, opener)
	depth := 0
	for {
		rest := strings.TrimLeftFunc(l.source[l.pos:], isSpace)
		l.advance(l.source[l.pos : len(l.source)-len(rest)])
		if rest == "" {
			return l.errorf("a tag is not closed: want %s", closer)
		}
		if depth == 0 {
			if sign := tagSign(rest); strings.HasPrefix(rest[len(sign):], closer) && (sign != "+" || closer == "%}") {
				l.emit(end, closer)
				l.close(sign, closer)
				return nil
			}
		}
		text, err := l.token(rest)
		if err != nil {
			return err
		}
		switch text {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
		}
		if depth < 0 {
			return l.errorf("unexpected %q", text)
		}
	}
}

// token reads one token inside a tag and returns its source.
func (l *lexer) token(rest string) (string, error) {
	var text string
	switch c := rest[0]; {
	case c == '\'' || c == '"':
		return l.stringToken(rest)
	case isDigit(c):
		kind, n := number(rest)
		text = rest[:n]
		l.emit(kind, strings.ReplaceAll(text, "_", ""))
	case isNameByte(c):
		n := 1
		for n < len(rest) && (isNameByte(rest[n]) || isDigit(rest[n])) {
			n++
		}
		text = rest[:n]
		l.emit(tokenName, text)
	default:
		if text = operator(rest); text == "" {
			return "", l.errorf("unexpected character %q", firstRune(rest))
		}
		l.emit(tokenOp, text)
	}
	l.advance(text)
	return text, nil
}

func (l *lexer) stringToken(rest string) (string, error) {
	quote := rest[0]
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case quote:
			value, err := unescape(rest[1:i])
			if err != nil {
				return "", l.errorf("%w", err)
			}
			l.emit(tokenString, value)
			l.advance(rest[:i+1])
			return rest[:i+1], nil
		}
	}
	return "", l.errorf("a string is not closed")
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isNameByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf
}

func firstRune(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

// number measures the number at the start of s.
func number(s string) (tokenKind, int) {
	digits := func(i int) int {
		for i < len(s) && (isDigit(s[i]) || s[i] == '_' && i+1 < len(s) && isDigit(s[i+1])) {
			i++
		}
		return i
	}
	kind, n := tokenInt, digits(0)
	if n+1 < len(s) && s[n] == '.' && isDigit(s[n+1]) {
		kind, n = tokenFloat, digits(n+1)
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		exp := n + 1
		if exp < len(s) && (s[exp] == '+' || s[exp] == '-') {
			exp++
		}
		if end := digits(exp); end > exp {
			kind, n = tokenFloat, end
		}
	}
	return kind, n
}

func operator(s string) string {
	for _, op := range [...]string{"//", "**", "==", "!=", "<=", ">=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"} {
		if strings.HasPrefix(s, op) {
			return op
		}
	}
	return ""
}

// unescape reads the escapes of a string literal as Python does.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		n, err := unescapeOne(&b, s[i:])
		if err != nil {
			return "", err
		}
		i += n - 1
	}
	return b.String(), nil
}

// unescapeOne writes what the escape means whose letter s starts with, and returns the bytes read.
func unescapeOne(b *strings.Builder, s string) (int, error) {
	simple := map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', 'a': 7, 'b': 8, 'f': 12, 'v': 11, '\\': '\\', '\'': '\'', '"': '"'}
	if c, ok := simple[s[0]]; ok {
		b.WriteByte(c)
		return 1, nil
	}
	width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[0]]
	switch {
	case s[0] == '\n':
		return 1, nil
	case width > 0 && len(s) > width:
		v, err := strconv.ParseUint(s[1:1+width], 16, 32)
		if err != nil || v > utf8.MaxRune || v >= 0xD800 && v < 0xE000 {
			return 0, fmt.Errorf(`escape \%s is not a code point`, s[:1+width])
		}
		b.WriteRune(rune(v))
		return 1 + width, nil
	case width > 0 || s[0] == 'N' || isDigit(s[0]):
		return 0, fmt.Errorf(`escape \%c is not supported`, s[0])
	}
	b.WriteByte('\\')
	b.WriteByte(s[0])
	return 1, nil
}

func (l *lexer) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: %w", l.line, fmt.Errorf(format, args...))
}
