package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// expression reads `a`, `a if b` or `a if b else c`, the loosest form.
func (p *parser) expression() (expr, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.errorf("expressions nest deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	x, err := p.or()
	for err == nil && p.takeName("if") {
		c := &condExpr{then: x}
		if c.test, err = p.or(); err == nil && p.takeName("else") {
			c.otherwise, err = p.expression()
		}
		x = c
	}
	return x, err
}

func (p *parser) or() (expr, error) {
	left, err := p.and()
	for err == nil && p.takeName("or") {
		l := &logicExpr{left: left}
		l.right, err = p.and()
		left = l
	}
	return left, err
}

func (p *parser) and() (expr, error) {
	left, err := p.not()
	for err == nil && p.takeName("and") {
		l := &logicExpr{and: true, left: left}
		l.right, err = p.not()
		left = l
	}
	return left, err
}

func (p *parser) not() (expr, error) {
	if !p.takeName("not") {
		return p.compare()
	}
	if p.depth++; p.depth > maxDepth {
		return nil, p.errorf("expressions nest deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	operand, err := p.not()
	return &notExpr{operand}, err
}

func (p *parser) compare() (expr, error) {
	first, err := p.sum()
	c := &compareExpr{first: first}
	for err == nil {
		op := p.comparison()
		if op == "" {
			break
		}
		var next expr
		next, err = p.sum()
		c.ops, c.rest = append(c.ops, op), append(c.rest, next)
	}
	if len(c.ops) == 0 {
		return first, err
	}
	return c, err
}

// comparison takes a comparison operator, if there is one.
func (p *parser) comparison() string {
	t := p.peek()
	switch {
	case t.kind == tokenOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text), p.isName("in"):
		p.pos++
		return t.text
	case p.isName("not") && p.tokens[p.pos+1].kind == tokenName && p.tokens[p.pos+1].text == "in":
		p.pos += 2
		return "not in"
	}
	return ""
}

func (p *parser) binary(operand func() (expr, error), ops ...string) (expr, error) {
	left, err := operand()
	for err == nil && p.peek().kind == tokenOp && slices.Contains(ops, p.peek().text) {
		b := &binaryExpr{op: p.advance().text, left: left}
		b.right, err = operand()
		left = b
	}
	return left, err
}

func (p *parser) sum() (expr, error)     { return p.binary(p.concat, "+", "-") }
func (p *parser) product() (expr, error) { return p.binary(p.power, "*", "/", "//", "%") }

func (p *parser) power() (expr, error) {
	x, err := p.unary(true)
	if err == nil && p.isOp("**") {
		return nil, p.unsupported("operator **")
	}
	return x, err
}

func (p *parser) concat() (expr, error) {
	first, err := p.product()
	if err != nil || !p.isOp("~") {
		return first, err
	}
	c := &concatExpr{parts: []expr{first}}
	for p.takeOp("~") {
		part, err := p.product()
		if err != nil {
			return nil, err
		}
		c.parts = append(c.parts, part)
	}
	return c, nil
}

func (p *parser) unary(filters bool) (expr, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.errorf("expressions nest deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	var x expr
	var err error
	switch {
	case p.takeOp("-"):
		x, err = p.unary(false)
		x = &signExpr{x}
	case p.takeOp("+"):
		x, err = p.unary(false)
	default:
		x, err = p.primary()
	}
	if err == nil {
		x, err = p.postfix(x)
	}
	if err == nil && filters {
		x, err = p.filters(x)
	}
	return x, err
}

func (p *parser) primary() (expr, error) {
	switch t := p.advance(); t.kind {
	case tokenName:
		return p.name(t.text)
	case tokenString:
		text := t.text
		for p.peek().kind == tokenString {
			text += p.advance().text
		}
		return &literal{text}, nil
	case tokenInt:
		return integer(p, t.text)
	case tokenFloat:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			return nil, p.errorf("number %s does not fit a float", t.text)
		}
		return &literal{f}, nil
	case tokenOp:
		switch t.text {
		case "(":
			return p.parenthesis()
		case "[":
			items, err := p.commaList("]")
			return &listExpr{items: items}, err
		case "{":
			return p.dict()
		}
	}
	p.pos--
	return nil, p.errorf("unexpected %s", p.peek())
}

func (p *parser) name(name string) (expr, error) {
	switch name {
	case "true", "True":
		return &literal{true}, nil
	case "false", "False":
		return &literal{false}, nil
	case "none", "None":
		return &literal{nil}, nil
	case "joiner", "cycler", "lipsum", "self", "super", "caller":
		return nil, p.unsupported("name %q", name)
	case "varargs", "kwargs":
		if p.macros > 0 {
			return nil, p.unsupported("name %q in a macro", name)
		}
	}
	return &nameExpr{name}, nil
}

func (p *parser) parenthesis() (expr, error) {
	if p.takeOp(")") {
		return &listExpr{tuple: true}, nil
	}
	x, err := p.tuple(true)
	if err != nil {
		return nil, err
	}
	return x, p.wantOp(")")
}

// commaList reads expressions up to the closing bracket.
func (p *parser) commaList(end string) ([]expr, error) {
	var list []expr
	for !p.takeOp(end) {
		if len(list) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
			if p.takeOp(end) {
				break
			}
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	return list, nil
}

func (p *parser) dict() (expr, error) {
	d := &dictExpr{}
	for !p.takeOp("}") {
		if len(d.keys) > 0 {
			if err := p.wantOp(","); err != nil {
				return nil, err
			}
			if p.takeOp("}") {
				break
			}
		}
		key, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.wantOp(":"); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys, d.values = append(d.keys, key), append(d.values, value)
	}
	return d, nil
}

func (p *parser) postfix(x expr) (expr, error) {
	for {
		var err error
		switch {
		case p.takeOp("."):
			x, err = p.attribute(x)
		case p.takeOp("["):
			x, err = p.subscript(x)
		case p.takeOp("("):
			x, err = p.call(x)
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) attribute(x expr) (expr, error) {
	t := p.advance()
	switch t.kind {
	case tokenInt:
		key, err := integer(p, t.text)
		return &itemExpr{x, key}, err
	case tokenName:
		if !p.isOp("(") {
			return &attrExpr{x, t.text}, nil
		}
		if slices.Contains(missingMethods, t.text) {
			return nil, p.unsupported("method %q", t.text)
		}
		return &attrExpr{x, t.text}, nil
	}
	p.pos--
	return nil, p.errorf("unexpected %s, want a name", p.peek())
}

func (p *parser) subscript(x expr) (expr, error) {
	var parts [3]expr
	n, slice := 0, false
	for {
		if p.takeOp("]") {
			break
		}
		if p.takeOp(":") {
			slice = true
			if n++; n > 2 {
				return nil, p.errorf("a slice has three parts at most")
			}
			continue
		}
		if p.isOp(",") {
			return nil, p.unsupported("a tuple as subscript")
		}
		if parts[n] != nil {
			return nil, p.errorf("unexpected %s", p.peek())
		}
		var err error
		if parts[n], err = p.expression(); err != nil {
			return nil, err
		}
	}
	if slice {
		return &sliceExpr{x, parts[0], parts[1], parts[2]}, nil
	}
	if parts[0] == nil {
		return nil, p.errorf("a subscript is empty")
	}
	return &itemExpr{x, parts[0]}, nil
}

func (p *parser) call(callee expr) (expr, error) {
	args, err := p.arguments()
	return &callExpr{callee, args}, err
}

func (p *parser) arguments() (arguments, error) {
	var a arguments
	for n := 0; !p.takeOp(")"); n++ {
		if n > 0 {
			if err := p.wantOp(","); err != nil {
				return a, err
			}
			if p.takeOp(")") {
				break
			}
		}
		if p.isOp("*") || p.isOp("**") {
			return a, p.unsupported("unpacking of arguments")
		}
		name := ""
		if next := p.tokens[p.pos+1]; p.peek().kind == tokenName && next.kind == tokenOp && next.text == "=" {
			name = p.advance().text
			p.pos++
		}
		x, err := p.expression()
		switch {
		case err != nil:
			return a, err
		case name != "":
			a.names, a.values = append(a.names, name), append(a.values, x)
		case len(a.names) > 0:
			return a, p.errorf("a positional argument follows a named one")
		default:
			a.args = append(a.args, x)
		}
	}
	return a, nil
}

// filters reads filters, tests and calls behind an operand.
func (p *parser) filters(x expr) (expr, error) {
	for {
		var err error
		switch {
		case p.takeOp("|"):
			x, err = p.filter(x)
		case p.takeName("is"):
			x, err = p.test(x)
		case p.takeOp("("):
			x, err = p.call(x)
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) filter(x expr) (expr, error) {
	t, err := p.wantKind(tokenName)
	if err != nil {
		return nil, err
	}
	if slices.Contains(missingFilters, t.text) {
		return nil, p.unsupported("filter %q", t.text)
	}
	f := &filterExpr{input: x, name: t.text}
	if p.takeOp("(") {
		f.arguments, err = p.arguments()
	}
	return f, err
}

func (p *parser) test(x expr) (expr, error) {
	t := &testExpr{input: x, negated: p.takeName("not")}
	name, err := p.wantKind(tokenName)
	if err != nil {
		return nil, err
	}
	t.name = name.text
	if t.name == "filter" || t.name == "test" || t.name == "escaped" {
		return nil, p.unsupported("test %q", t.name)
	}
	switch next := p.peek(); {
	case p.takeOp("("):
		args, err := p.arguments()
		if err != nil || len(args.names) > 0 {
			return nil, p.errorf("arguments of test %q", t.name)
		}
		t.args = args.args
	case next.kind == tokenName && !slices.Contains([]string{"else", "or", "and"}, next.text),
		next.kind == tokenString, next.kind == tokenInt, next.kind == tokenFloat,
		next.kind == tokenOp && strings.Contains("[{", next.text):
		arg, err := p.primary()
		if err == nil {
			arg, err = p.postfix(arg)
		}
		if err != nil {
			return nil, err
		}
		t.args = []expr{arg}
	}
	return t, nil
}
