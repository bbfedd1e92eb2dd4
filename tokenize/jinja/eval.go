package jinja

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

func (r *renderer) eval(x expr, s *scope) (Value, error) {
	if err := r.step(); err != nil {
		return nil, err
	}
	switch x := x.(type) {
	case *literal:
		return x.value, nil
	case *nameExpr:
		return s.get(x.name), nil
	case *attrExpr:
		object, err := r.eval(x.object, s)
		if err != nil {
			return nil, err
		}
		return getAttr(object, x.name)
	case *itemExpr:
		object, key, err := r.two(x.object, x.key, s)
		if err != nil {
			return nil, err
		}
		return getItem(object, key)
	case *sliceExpr:
		return r.slice(x, s)
	case *callExpr:
		return r.call(x, s)
	case *filterExpr:
		return r.filter(x, s)
	case *testExpr:
		return r.test(x, s)
	case *notExpr:
		v, err := r.eval(x.operand, s)
		return !truthy(v), err
	case *signExpr:
		return r.negate(x, s)
	case *logicExpr:
		left, err := r.eval(x.left, s)
		if err != nil || truthy(left) != x.and {
			return left, err
		}
		return r.eval(x.right, s)
	case *condExpr:
		return r.cond(x, s)
	case *compareExpr:
		return r.compare(x, s)
	case *concatExpr:
		return r.concat(x, s)
	case *binaryExpr:
		a, b, err := r.two(x.left, x.right, s)
		if err != nil {
			return nil, err
		}
		return r.arithmetic(x.op, a, b)
	case *listExpr:
		all, err := r.evalAll(x.items, s)
		return &List{Items: all, Tuple: x.tuple}, err
	case *dictExpr:
		return r.dict(x, s)
	}
	return nil, fmt.Errorf("unknown expression %T", x)
}

func (r *renderer) two(x, y expr, s *scope) (a, b Value, err error) {
	if a, err = r.eval(x, s); err == nil {
		b, err = r.eval(y, s)
	}
	return a, b, err
}

func (r *renderer) evalAll(xs []expr, s *scope) ([]Value, error) {
	out := make([]Value, len(xs))
	for i, x := range xs {
		v, err := r.eval(x, s)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

func (r *renderer) dict(x *dictExpr, s *scope) (Value, error) {
	d := NewDict()
	for i := range x.keys {
		key, value, err := r.two(x.keys[i], x.values[i], s)
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok {
			return nil, fmt.Errorf("a dict with a key of type %s is not supported", typeName(key))
		}
		d.Set(name, value)
	}
	return d, nil
}

// getAttr is object.name: what Python finds as an attribute, then as a key.
func getAttr(object Value, name string) (Value, error) {
	switch o := object.(type) {
	case undefinedType:
		return nil, fmt.Errorf("an undefined value has no attribute %q", name)
	case *namespace:
		if v, ok := o.attrs.Get(name); ok {
			return v, nil
		}
		return undefined, nil
	case *loopState:
		return o.attr(name)
	case *Dict:
		if m := method(object, name); m != nil {
			return m, nil
		}
		if v, ok := o.Get(name); ok {
			return v, nil
		}
		return undefined, nil
	}
	if m := method(object, name); m != nil {
		return m, nil
	}
	return undefined, nil
}

// getItem is object[key]: what Python finds as an item, then as an attribute.
func getItem(object, key Value) (Value, error) {
	name, isName := key.(string)
	switch o := object.(type) {
	case undefinedType:
		return nil, errors.New("an undefined value has no items")
	case *Dict:
		if v, ok := o.Get(name); ok && isName {
			return v, nil
		}
	case *List:
		if i, ok := asInt(key); ok {
			if i, ok := index(i, len(o.Items)); ok {
				return o.Items[i], nil
			}
			return undefined, nil
		}
	case string:
		if i, ok := asInt(key); ok {
			if i, ok := index(i, utf8.RuneCountInString(o)); ok {
				return string([]rune(o)[i]), nil
			}
			return undefined, nil
		}
	case *namespace, *loopState:
		if isName {
			return getAttr(object, name)
		}
	}
	if isName {
		if m := method(object, name); m != nil {
			return m, nil
		}
	}
	return undefined, nil
}

// index resolves an index that may count from the end.
func index(i int64, n int) (int, bool) {
	if i < 0 {
		i += int64(n)
	}
	return int(i), i >= 0 && i < int64(n)
}

func (r *renderer) slice(x *sliceExpr, s *scope) (Value, error) {
	object, err := r.eval(x.object, s)
	if err != nil {
		return nil, err
	}
	var bounds [3]*int64
	for i, part := range []expr{x.from, x.to, x.step} {
		if part == nil {
			continue
		}
		v, err := r.eval(part, s)
		if err != nil {
			return nil, err
		}
		n, ok := asInt(v)
		if !ok && v != nil {
			return nil, fmt.Errorf("a slice takes integers, not %s", typeName(v))
		}
		if ok {
			bounds[i] = &n
		}
	}
	switch o := object.(type) {
	case *List:
		all, err := sliced(o.Items, bounds)
		return &List{Items: all, Tuple: o.Tuple}, err
	case string:
		runes, err := sliced([]rune(o), bounds)
		if err != nil {
			return nil, err
		}
		return r.built(string(runes))
	case undefinedType:
		return nil, errors.New("an undefined value has no items")
	}
	return undefined, nil
}

// sliced is Python's all[from:to:step].
func sliced[T any](all []T, bounds [3]*int64) ([]T, error) {
	n, step := int64(len(all)), int64(1)
	if bounds[2] != nil {
		step = *bounds[2]
	}
	if step == 0 {
		return nil, errors.New("a slice steps by 0")
	}
	low, high := int64(0), n
	if step < 0 {
		low, high = -1, n-1
	}
	bound := func(p *int64, missing int64) int64 {
		if p == nil {
			return missing
		}
		i := *p
		if i < 0 {
			i += n
		}
		return max(low, min(i, high))
	}
	from, to := bound(bounds[0], low), bound(bounds[1], high)
	if step < 0 {
		from, to = bound(bounds[0], high), bound(bounds[1], low)
	}
	var out []T
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		out = append(out, all[i])
		if step > n || step < -n {
			break
		}
	}
	return out, nil
}

func (r *renderer) arguments(a arguments, s *scope) ([]Value, *Dict, error) {
	args, err := r.evalAll(a.args, s)
	if err != nil {
		return nil, nil, err
	}
	kwargs := NewDict()
	for i, name := range a.names {
		v, err := r.eval(a.values[i], s)
		if err != nil {
			return nil, nil, err
		}
		kwargs.Set(name, v)
	}
	return args, kwargs, nil
}

func (r *renderer) call(x *callExpr, s *scope) (Value, error) {
	callee, err := r.eval(x.callee, s)
	if err != nil {
		return nil, err
	}
	f, ok := callee.(*function)
	if !ok {
		return nil, fmt.Errorf("%s cannot be called", typeName(callee))
	}
	args, kwargs, err := r.arguments(x.arguments, s)
	if err != nil {
		return nil, err
	}
	return f.call(r, args, kwargs)
}

func (r *renderer) filter(x *filterExpr, s *scope) (Value, error) {
	input, err := r.eval(x.input, s)
	if err != nil {
		return nil, err
	}
	args, kwargs, err := r.arguments(x.arguments, s)
	if err != nil {
		return nil, err
	}
	return r.applyFilter(x.name, input, args, kwargs)
}

func (r *renderer) applyFilter(name string, input Value, args []Value, kwargs *Dict) (Value, error) {
	f, ok := filters[name]
	if !ok {
		return nil, fmt.Errorf("filter %q is not supported", name)
	}
	p, err := bind(f.params, args, kwargs)
	if err != nil {
		return nil, fmt.Errorf("filter %s: %w", name, err)
	}
	v, err := f.apply(r, input, p)
	if err != nil {
		return nil, fmt.Errorf("filter %s: %w", name, err)
	}
	return v, nil
}

func (r *renderer) test(x *testExpr, s *scope) (Value, error) {
	input, err := r.eval(x.input, s)
	if err != nil {
		return nil, err
	}
	args, err := r.evalAll(x.args, s)
	if err != nil {
		return nil, err
	}
	holds, err := applyTest(x.name, input, args)
	return holds != x.negated, err
}

func (r *renderer) negate(x *signExpr, s *scope) (Value, error) {
	v, err := r.eval(x.operand, s)
	if err != nil {
		return nil, err
	}
	if i, ok := asInt(v); ok {
		return -i, nil
	}
	if f, ok := v.(float64); ok {
		return -f, nil
	}
	return nil, fmt.Errorf("cannot negate %s", typeName(v))
}

func (r *renderer) cond(x *condExpr, s *scope) (Value, error) {
	test, err := r.eval(x.test, s)
	switch {
	case err != nil:
		return nil, err
	case truthy(test):
		return r.eval(x.then, s)
	case x.otherwise != nil:
		return r.eval(x.otherwise, s)
	}
	return undefined, nil
}

func (r *renderer) compare(x *compareExpr, s *scope) (Value, error) {
	left, err := r.eval(x.first, s)
	if err != nil {
		return nil, err
	}
	for i, op := range x.ops {
		right, err := r.eval(x.rest[i], s)
		if err != nil {
			return nil, err
		}
		holds, err := holds(op, left, right)
		if err != nil || !holds {
			return false, err
		}
		left = right
	}
	return true, nil
}

func holds(op string, a, b Value) (bool, error) {
	switch op {
	case "==":
		return equal(a, b), nil
	case "!=":
		return !equal(a, b), nil
	case "in":
		return contains(b, a)
	case "not in":
		in, err := contains(b, a)
		return !in, err
	}
	c, err := compare(a, b)
	switch op {
	case "<":
		return c < 0, err
	case "<=":
		return c <= 0, err
	case ">":
		return c > 0, err
	}
	return c >= 0, err
}

func (r *renderer) concat(x *concatExpr, s *scope) (Value, error) {
	parts, err := r.evalAll(x.parts, s)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, part := range parts {
		b.WriteString(str(part))
	}
	return r.built(b.String())
}

func (r *renderer) arithmetic(op string, a, b Value) (Value, error) {
	if x, ok := asInt(a); ok {
		if y, ok := asInt(b); ok {
			return intArithmetic(op, x, y)
		}
	}
	if x, ok := asFloat(a); ok {
		if y, ok := asFloat(b); ok {
			return floatArithmetic(op, x, y)
		}
	}
	switch op {
	case "+":
		return r.add(a, b)
	case "*":
		if n, ok := asInt(a); ok {
			return r.repeat(b, n)
		}
		if n, ok := asInt(b); ok {
			return r.repeat(a, n)
		}
	}
	return nil, fmt.Errorf("cannot compute %s %s %s", typeName(a), op, typeName(b))
}

func (r *renderer) add(a, b Value) (Value, error) {
	switch a := a.(type) {
	case string:
		switch b := b.(type) {
		case string:
			return r.built(a + b)
		case markup:
			return markup(escaped(a) + string(b)), r.spend(len(a) + len(b))
		}
	case markup:
		switch b.(type) {
		case string, markup:
			sum := a + markup(escaped(b))
			return sum, r.spend(len(sum))
		}
	case *List:
		if l, ok := b.(*List); ok && a.Tuple == l.Tuple {
			all := append(append(make([]Value, 0, len(a.Items)+len(l.Items)), a.Items...), l.Items...)
			return &List{Items: all, Tuple: a.Tuple}, r.spend(16 * len(all))
		}
	}
	return nil, fmt.Errorf("cannot add %s and %s", typeName(a), typeName(b))
}

func (r *renderer) repeat(v Value, n int64) (Value, error) {
	n = max(n, 0)
	switch v := v.(type) {
	case string:
		if n > int64(r.bytes) {
			return nil, fmt.Errorf("bytes: %w", ErrLimit)
		}
		if err := r.spend(len(v) * int(n)); err != nil {
			return nil, err
		}
		return strings.Repeat(v, int(n)), nil
	case *List:
		if n > int64(r.bytes) {
			return nil, fmt.Errorf("bytes: %w", ErrLimit)
		}
		if err := r.spend(16 * len(v.Items) * int(n)); err != nil {
			return nil, err
		}
		var all []Value
		for range n {
			all = append(all, v.Items...)
		}
		return &List{Items: all, Tuple: v.Tuple}, nil
	}
	return nil, fmt.Errorf("cannot repeat %s", typeName(v))
}

func intArithmetic(op string, x, y int64) (Value, error) {
	const small = 1 << 31 // sums and products of smaller numbers fit 64 bits
	if x >= small || x <= -small || y >= small || y <= -small {
		return nil, errors.New("arithmetic with integers of more than 31 bits is not supported")
	}
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	}
	if y == 0 {
		return nil, errors.New("division by zero")
	}
	floor := x / y
	if x%y != 0 && (x < 0) != (y < 0) {
		floor--
	}
	switch op {
	case "/":
		return float64(x) / float64(y), nil
	case "//":
		return floor, nil
	}
	return x - floor*y, nil
}

func floatArithmetic(op string, x, y float64) (Value, error) {
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	}
	if y == 0 {
		return nil, errors.New("division by zero")
	}
	switch op {
	case "/":
		return x / y, nil
	case "//":
		return math.Floor(x / y), nil
	}
	return x - y*math.Floor(x/y), nil
}
