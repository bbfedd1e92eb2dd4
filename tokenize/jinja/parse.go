package jinja

import (
	"fmt"
	"slices"
	"strconv"
)

// UnsupportedError names something that a template uses and that this package does not render as Jinja2 does.
type UnsupportedError struct {
	What string
	Line int
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("line %d: %s is not supported", e.Line, e.What)
}

// parser turns tokens into statements. Nesting is bounded by maxDepth.
type parser struct {
	tokens []token
	pos    int
	depth  int
	loops  int // open for statements
	macros int // open macro statements
}

func (p *parser) peek() token { return p.tokens[p.pos] }

func (p *parser) advance() token {
	t := p.tokens[p.pos]
	if t.kind != tokenEOF {
		p.pos++
	}
	return t
}

func (p *parser) isOp(op string) bool     { return p.peek().kind == tokenOp && p.peek().text == op }
func (p *parser) isName(name string) bool { return p.peek().kind == tokenName && p.peek().text == name }

func (p *parser) takeOp(op string) bool {
	if p.isOp(op) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) takeName(name string) bool {
	if p.isName(name) {
		p.pos++
		return true
	}
	return false
}

func (p *parser) wantOp(op string) error {
	if !p.takeOp(op) {
		return p.errorf("unexpected %s, want %q", p.peek(), op)
	}
	return nil
}

func (p *parser) wantKind(kind tokenKind) (token, error) {
	if p.peek().kind != kind {
		return token{}, p.errorf("unexpected %s", p.peek())
	}
	return p.advance(), nil
}

func (p *parser) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: %s", p.peek().line, fmt.Sprintf(format, args...))
}

func (p *parser) unsupported(format string, args ...any) error {
	return &UnsupportedError{What: fmt.Sprintf(format, args...), Line: p.peek().line}
}

// body reads statements up to a block whose keyword is one of ends, and returns that keyword. Without ends it
// reads to the end of the template.
func (p *parser) body(ends ...string) (body []stmt, end string, err error) {
	if p.depth++; p.depth > maxDepth {
		return nil, "", p.errorf("statements nest deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	for {
		switch t := p.advance(); t.kind {
		case tokenEOF:
			if len(ends) > 0 {
				return nil, "", p.errorf("end of template, want %v", ends)
			}
			return body, "", nil
		case tokenData:
			body = append(body, &textStmt{t.text})
		case tokenPrint:
			value, err := p.tuple(true)
			if err != nil {
				return nil, "", err
			}
			if _, err := p.wantKind(tokenPrintEnd); err != nil {
				return nil, "", err
			}
			body = append(body, &printStmt{value})
		case tokenBlock:
			keyword, err := p.wantKind(tokenName)
			if err != nil {
				return nil, "", err
			}
			if slices.Contains(ends, keyword.text) {
				return body, keyword.text, nil
			}
			s, err := p.statement(keyword.text)
			if err != nil {
				return nil, "", err
			}
			body = append(body, s...)
		}
	}
}

func (p *parser) endBlock() error {
	_, err := p.wantKind(tokenBlockEnd)
	return err
}

func (p *parser) statement(keyword string) ([]stmt, error) {
	one := func(s stmt, err error) ([]stmt, error) { return []stmt{s}, err }
	switch keyword {
	case "if":
		return one(p.ifStatement())
	case "for":
		return one(p.forStatement())
	case "set":
		return one(p.setStatement())
	case "macro":
		return one(p.macroStatement())
	case "break", "continue":
		if p.loops == 0 {
			return nil, p.errorf("%s outside of a loop", keyword)
		}
		if keyword == "break" {
			return one(&breakStmt{}, p.endBlock())
		}
		return one(&continueStmt{}, p.endBlock())
	case "generation": // marks what the assistant says, for training
		if err := p.endBlock(); err != nil {
			return nil, err
		}
		body, _, err := p.body("endgeneration")
		if err != nil {
			return nil, err
		}
		return body, p.endBlock()
	}
	return nil, p.unsupported("statement %q", keyword)
}

func (p *parser) ifStatement() (stmt, error) {
	test, err := p.expression()
	if err != nil {
		return nil, err
	}
	if err := p.endBlock(); err != nil {
		return nil, err
	}
	body, end, err := p.body("elif", "else", "endif")
	if err != nil {
		return nil, err
	}
	s := &ifStmt{test: test, body: body}
	switch end {
	case "elif":
		next, err := p.ifStatement()
		s.otherwise = []stmt{next}
		return s, err
	case "else":
		if err := p.endBlock(); err != nil {
			return nil, err
		}
		if s.otherwise, _, err = p.body("endif"); err != nil {
			return nil, err
		}
	}
	return s, p.endBlock()
}

func (p *parser) forStatement() (stmt, error) {
	s := &forStmt{}
	var err error
	if s.targets, s.unpack, err = p.targets(); err != nil {
		return nil, err
	}
	if !p.takeName("in") {
		return nil, p.errorf("unexpected %s, want \"in\"", p.peek())
	}
	if s.iter, err = p.tuple(false); err != nil {
		return nil, err
	}
	if p.takeName("if") {
		if s.filter, err = p.expression(); err != nil {
			return nil, err
		}
	}
	if p.isName("recursive") {
		return nil, p.unsupported("a recursive loop")
	}
	if err := p.endBlock(); err != nil {
		return nil, err
	}
	p.loops++
	body, end, err := p.body("else", "endfor")
	p.loops--
	if err != nil {
		return nil, err
	}
	s.body = body
	if end == "else" {
		if err := p.endBlock(); err != nil {
			return nil, err
		}
		if s.otherwise, _, err = p.body("endfor"); err != nil {
			return nil, err
		}
	}
	return s, p.endBlock()
}

// targets reads the names that a loop or an assignment sets.
func (p *parser) targets() (names []string, unpack bool, err error) {
	closing := p.takeOp("(")
	for {
		t, err := p.wantKind(tokenName)
		if err != nil {
			return nil, false, err
		}
		names = append(names, t.text)
		if !p.takeOp(",") {
			break
		}
		unpack = true
	}
	if closing {
		err = p.wantOp(")")
	}
	return names, unpack, err
}

func (p *parser) setStatement() (stmt, error) {
	names, unpack, err := p.targets()
	if err != nil {
		return nil, err
	}
	attr := ""
	if !unpack && p.takeOp(".") {
		t, err := p.wantKind(tokenName)
		if err != nil {
			return nil, err
		}
		attr = t.text
	}
	if p.takeOp("=") {
		value, err := p.tuple(true)
		if err != nil {
			return nil, err
		}
		if attr != "" {
			return &setAttrStmt{object: names[0], attr: attr, value: value}, p.endBlock()
		}
		return &setStmt{targets: names, unpack: unpack, value: value}, p.endBlock()
	}
	if unpack || attr != "" || p.isOp("|") {
		return nil, p.unsupported("this form of set with a body")
	}
	if err := p.endBlock(); err != nil {
		return nil, err
	}
	body, _, err := p.body("endset")
	if err != nil {
		return nil, err
	}
	return &captureStmt{target: names[0], body: body}, p.endBlock()
}

func (p *parser) macroStatement() (stmt, error) {
	name, err := p.wantKind(tokenName)
	if err != nil {
		return nil, err
	}
	s := &macroStmt{name: name.text}
	if err := p.wantOp("("); err != nil {
		return nil, err
	}
	for !p.takeOp(")") {
		if len(s.params) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
		}
		param, err := p.wantKind(tokenName)
		if err != nil {
			return nil, err
		}
		var value expr
		if p.takeOp("=") {
			if value, err = p.expression(); err != nil {
				return nil, err
			}
		}
		s.params, s.defaults = append(s.params, param.text), append(s.defaults, value)
	}
	if err := p.endBlock(); err != nil {
		return nil, err
	}
	loops := p.loops
	p.loops = 0
	p.macros++
	s.body, _, err = p.body("endmacro")
	p.macros--
	p.loops = loops
	if err != nil {
		return nil, err
	}
	if p.peek().kind == tokenName {
		p.pos++ // endmacro may repeat the name
	}
	return s, p.endBlock()
}

// tuple reads one expression, or several with commas between, which make a tuple. conditional says whether
// `a if b` may stand there.
func (p *parser) tuple(conditional bool) (expr, error) {
	one := p.expression
	if !conditional {
		one = p.or
	}
	first, err := one()
	if err != nil || !p.isOp(",") {
		return first, err
	}
	list := &listExpr{items: []expr{first}, tuple: true}
	for p.takeOp(",") {
		if k := p.peek().kind; k == tokenPrintEnd || k == tokenBlockEnd || p.isOp(")") || p.isName("in") {
			break
		}
		item, err := one()
		if err != nil {
			return nil, err
		}
		list.items = append(list.items, item)
	}
	return list, nil
}

func integer(p *parser, text string) (expr, error) {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, p.errorf("integer %s does not fit 64 bits", text)
	}
	return &literal{v}, nil
}
