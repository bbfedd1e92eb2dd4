// Package jinja renders chat templates byte for byte as engines do: with Jinja2's semantics and Python's
// values, in the environment that Hugging Face's transformers sets up (trim_blocks, lstrip_blocks, sandboxed,
// loop controls, the generation tag).
//
// It covers what chat templates use. A template that uses anything else is refused when it is compiled, with an
// UnsupportedError that names it, and a template that does at run time what Jinja2 refuses fails to render: no
// template renders differently without an error. Rendering has no side effects, and is bounded in steps, bytes
// and depth, so that a template from elsewhere can neither hang nor exhaust the process.
package jinja

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Template is a compiled template. It is safe for concurrent use.
type Template struct {
	body []stmt
}

// Limits bound one rendering. Zero values mean the defaults.
type Limits struct {
	Steps int // statements and expressions evaluated; 20 million by default
	Bytes int // written, and held in intermediate strings; 64 MiB by default
}

// ErrLimit is in the chain of errors for a rendering that exceeds its limits.
var ErrLimit = errors.New("limit exceeded")

// Compile reads a template. Errors name the line; an *UnsupportedError says what the package lacks.
func Compile(source string) (*Template, error) {
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	body, _, err := p.body()
	if err != nil {
		return nil, err
	}
	return &Template{body: body}, nil
}

// Render renders the template with vars as its variables. now is the clock of strftime_now, in the time zone
// in which the template is to see it. It fails soon after ctx ends.
func (t *Template) Render(ctx context.Context, vars map[string]Value, now time.Time, limits Limits) (string, error) {
	if limits.Steps == 0 {
		limits.Steps = 20_000_000
	}
	if limits.Bytes == 0 {
		limits.Bytes = 64 << 20
	}
	r := &renderer{ctx: ctx, now: now, steps: limits.Steps, bytes: limits.Bytes}
	global := &scope{vars: globals}
	root := &scope{parent: global, vars: make(map[string]Value, len(vars)+8)}
	for name, v := range vars {
		root.vars[name] = v
	}
	var out strings.Builder
	r.out = &out
	if _, err := r.run(t.body, root); err != nil {
		return "", err
	}
	return out.String(), nil
}

// scope holds variables. A loop's iteration and a macro's call have one of their own.
type scope struct {
	parent *scope
	vars   map[string]Value
}

func (s *scope) get(name string) Value {
	for ; s != nil; s = s.parent {
		if v, ok := s.vars[name]; ok {
			return v
		}
	}
	return undefined
}

func (s *scope) set(name string, v Value) {
	if s.vars == nil {
		s.vars = make(map[string]Value, 4)
	}
	s.vars[name] = v
}

// renderer is the state of one rendering.
type renderer struct {
	ctx   context.Context
	now   time.Time
	out   *strings.Builder
	steps int // left
	bytes int // left
	depth int // open calls of macros
}

// step accounts for one statement or expression.
func (r *renderer) step() error {
	r.steps--
	if r.steps < 0 {
		return fmt.Errorf("steps: %w", ErrLimit)
	}
	if r.steps&0xff == 0 {
		return context.Cause(r.ctx)
	}
	return nil
}

// spend accounts for n bytes written or built.
func (r *renderer) spend(n int) error {
	r.bytes -= n
	if n < 0 || r.bytes < 0 {
		return fmt.Errorf("bytes: %w", ErrLimit)
	}
	return nil
}

func (r *renderer) built(s string) (Value, error) { return s, r.spend(len(s)) }

func (r *renderer) write(s string) error {
	if err := r.spend(len(s)); err != nil {
		return err
	}
	r.out.WriteString(s)
	return nil
}

// signal is what ends a body early, within a loop.
type signal int

const (
	goesOn signal = iota
	breaks
	continues
)

func (r *renderer) run(body []stmt, s *scope) (signal, error) {
	for _, st := range body {
		if err := r.step(); err != nil {
			return goesOn, err
		}
		sig, err := r.statement(st, s)
		if err != nil || sig != goesOn {
			return sig, err
		}
	}
	return goesOn, nil
}

func (r *renderer) statement(st stmt, s *scope) (signal, error) {
	switch st := st.(type) {
	case *textStmt:
		return goesOn, r.write(st.text)
	case *printStmt:
		v, err := r.eval(st.value, s)
		if err != nil {
			return goesOn, err
		}
		return goesOn, r.write(str(v))
	case *ifStmt:
		v, err := r.eval(st.test, s)
		if err != nil {
			return goesOn, err
		}
		if truthy(v) {
			return r.run(st.body, s)
		}
		return r.run(st.otherwise, s)
	case *forStmt:
		return r.loop(st, s)
	case *setStmt:
		v, err := r.eval(st.value, s)
		if err != nil {
			return goesOn, err
		}
		return goesOn, assign(s, st.targets, st.unpack, v)
	case *setAttrStmt:
		return goesOn, r.setAttr(st, s)
	case *captureStmt:
		text, err := r.capture(st.body, s)
		s.set(st.target, text)
		return goesOn, err
	case *macroStmt:
		s.set(st.name, r.macro(st, s))
		return goesOn, nil
	case *breakStmt:
		return breaks, nil
	case *continueStmt:
		return continues, nil
	}
	return goesOn, fmt.Errorf("unknown statement %T", st)
}

// assign sets the targets to v, or to its items.
func assign(s *scope, targets []string, unpack bool, v Value) error {
	if !unpack {
		s.set(targets[0], v)
		return nil
	}
	values, err := items(v)
	if err != nil {
		return err
	}
	if len(values) != len(targets) {
		return fmt.Errorf("%d values for %d names", len(values), len(targets))
	}
	for i, name := range targets {
		s.set(name, values[i])
	}
	return nil
}

func (r *renderer) setAttr(st *setAttrStmt, s *scope) error {
	v, err := r.eval(st.value, s)
	if err != nil {
		return err
	}
	ns, ok := s.get(st.object).(*namespace)
	if !ok {
		return fmt.Errorf("cannot set attribute %q of %s: only a namespace has attributes to set", st.attr, typeName(s.get(st.object)))
	}
	ns.attrs.Set(st.attr, v)
	return nil
}

// capture renders body into a string.
func (r *renderer) capture(body []stmt, s *scope) (string, error) {
	outer := r.out
	var out strings.Builder
	r.out = &out
	_, err := r.run(body, s)
	r.out = outer
	return out.String(), err
}

func (r *renderer) loop(st *forStmt, s *scope) (signal, error) {
	iter, err := r.eval(st.iter, s)
	if err != nil {
		return goesOn, err
	}
	all, err := items(iter)
	if err != nil {
		return goesOn, err
	}
	if st.filter != nil {
		if all, err = r.filtered(st, all, s); err != nil {
			return goesOn, err
		}
	}
	if len(all) == 0 {
		return r.run(st.otherwise, s)
	}
	state := &loopState{items: all}
	for state.index = range all {
		if err := r.step(); err != nil {
			return goesOn, err
		}
		inner := &scope{parent: s}
		inner.set("loop", state)
		if err := assign(inner, st.targets, st.unpack, all[state.index]); err != nil {
			return goesOn, err
		}
		sig, err := r.run(st.body, inner)
		if err != nil {
			return goesOn, err
		}
		if sig == breaks {
			break
		}
	}
	return goesOn, nil
}

// filtered keeps the items for which the loop's condition holds.
func (r *renderer) filtered(st *forStmt, all []Value, s *scope) ([]Value, error) {
	var kept []Value
	for _, item := range all {
		inner := &scope{parent: s}
		if err := assign(inner, st.targets, st.unpack, item); err != nil {
			return nil, err
		}
		v, err := r.eval(st.filter, inner)
		if err != nil {
			return nil, err
		}
		if truthy(v) {
			kept = append(kept, item)
		}
	}
	return kept, nil
}

// loopState is the variable `loop`.
type loopState struct {
	items []Value
	index int
}

func (l *loopState) attr(name string) (Value, error) {
	n, i := int64(len(l.items)), int64(l.index)
	switch name {
	case "index":
		return i + 1, nil
	case "index0":
		return i, nil
	case "revindex":
		return n - i, nil
	case "revindex0":
		return n - i - 1, nil
	case "first":
		return i == 0, nil
	case "last":
		return i == n-1, nil
	case "length":
		return n, nil
	case "depth":
		return int64(1), nil
	case "depth0":
		return int64(0), nil
	case "previtem":
		if i > 0 {
			return l.items[i-1], nil
		}
		return undefined, nil
	case "nextitem":
		if i < n-1 {
			return l.items[i+1], nil
		}
		return undefined, nil
	case "cycle":
		return &function{name: "loop.cycle", call: func(_ *renderer, args []Value, _ *Dict) (Value, error) {
			if len(args) == 0 {
				return nil, errors.New("loop.cycle takes at least one argument")
			}
			return args[l.index%len(args)], nil
		}}, nil
	}
	return nil, fmt.Errorf("loop.%s is not supported", name)
}

// macro makes the function that a macro statement defines. It sees the variables of where it is defined.
func (r *renderer) macro(st *macroStmt, defined *scope) Value {
	return &function{name: st.name, call: func(r *renderer, args []Value, kwargs *Dict) (Value, error) {
		if len(args) > len(st.params) {
			return nil, fmt.Errorf("macro %s takes %d arguments, not %d", st.name, len(st.params), len(args))
		}
		if r.depth++; r.depth > maxDepth {
			return nil, fmt.Errorf("macros call each other deeper than %d: %w", maxDepth, ErrLimit)
		}
		defer func() { r.depth-- }()
		inner := &scope{parent: defined}
		named := 0
		for i, param := range st.params {
			value, isNamed := kwargs.Get(param)
			switch {
			case isNamed && i < len(args):
				return nil, fmt.Errorf("macro %s has two values for %s", st.name, param)
			case isNamed:
				named++
			case i < len(args):
				value = args[i]
			case st.defaults[i] != nil:
				var err error
				if value, err = r.eval(st.defaults[i], inner); err != nil {
					return nil, err
				}
			default:
				value = undefined
			}
			inner.set(param, value)
		}
		if named < len(kwargs.keys) {
			return nil, fmt.Errorf("macro %s has no such parameter among %q", st.name, kwargs.keys)
		}
		return r.capture(st.body, inner)
	}}
}
