package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxRange bounds the length of range(), so that a short template cannot ask for much.
const maxRange = 1_000_000

// globals are the functions that every template has.
var globals = map[string]Value{
	"namespace":       &function{name: "namespace", call: makeNamespace},
	"dict":            &function{name: "dict", call: makeDict},
	"range":           &function{name: "range", call: makeRange},
	"raise_exception": &function{name: "raise_exception", call: raise},
	"strftime_now":    &function{name: "strftime_now", call: strftimeNow},
}

// RaisedError is the error of a template that calls raise_exception.
type RaisedError struct{ Message string }

func (e *RaisedError) Error() string { return "the template refuses: " + e.Message }

func raise(_ *renderer, args []Value, kwargs *Dict) (Value, error) {
	p, err := bind([]string{"message"}, args, kwargs)
	if err != nil {
		return nil, err
	}
	return nil, &RaisedError{str(p.or("message", ""))}
}

func makeDict(_ *renderer, args []Value, kwargs *Dict) (Value, error) {
	d := NewDict()
	for _, arg := range args {
		source, ok := arg.(*Dict)
		if !ok {
			return nil, fmt.Errorf("a dict of %s is not supported", typeName(arg))
		}
		for _, key := range source.keys {
			d.Set(key, source.values[key])
		}
	}
	for _, key := range kwargs.keys {
		d.Set(key, kwargs.values[key])
	}
	return d, nil
}

func makeNamespace(r *renderer, args []Value, kwargs *Dict) (Value, error) {
	d, err := makeDict(r, args, kwargs)
	if err != nil {
		return nil, err
	}
	return &namespace{attrs: d.(*Dict)}, nil
}

func makeRange(r *renderer, args []Value, kwargs *Dict) (Value, error) {
	if len(args) < 1 || len(args) > 3 || len(kwargs.keys) > 0 {
		return nil, fmt.Errorf("range takes 1 to 3 arguments, not %d", len(args))
	}
	var n [3]int64
	for i, arg := range args {
		v, ok := asInt(arg)
		if !ok {
			return nil, fmt.Errorf("range takes integers, not %s", typeName(arg))
		}
		n[i] = v
	}
	from, to, step := n[0], n[1], n[2]
	switch len(args) {
	case 1:
		from, to, step = 0, n[0], 1
	case 2:
		step = 1
	}
	if step == 0 {
		return nil, fmt.Errorf("range steps by 0")
	}
	list := &List{}
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		if len(list.Items) == maxRange {
			return nil, fmt.Errorf("range is longer than %d: %w", maxRange, ErrLimit)
		}
		list.Items = append(list.Items, i)
	}
	return list, r.spend(16 * len(list.Items))
}

func strftimeNow(r *renderer, args []Value, kwargs *Dict) (Value, error) {
	p, err := bind([]string{"format"}, args, kwargs)
	if err != nil {
		return nil, err
	}
	format, ok := p.or("format", nil).(string)
	if !ok {
		return nil, fmt.Errorf("strftime_now takes a format")
	}
	return strftime(r.now, format)
}

// strftime formats as Python does in the C locale; directives that depend on more than that are refused.
func strftime(t time.Time, format string) (string, error) {
	layouts := map[byte]string{
		'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'y': "06",
		'B': "January", 'b': "Jan", 'A': "Monday", 'a': "Mon", 'f': "000000", 'F': "2006-01-02", 'T': "15:04:05",
	}
	unpadded := map[byte]int{'d': t.Day(), 'm': int(t.Month()), 'H': t.Hour(), 'I': (t.Hour()+11)%12 + 1, 'M': t.Minute(), 'S': t.Second()}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		switch {
		case i == len(format):
			return "", fmt.Errorf("strftime format %q ends in %%", format)
		case format[i] == '%':
			b.WriteByte('%')
		case format[i] == 'f':
			fmt.Fprintf(&b, "%06d", t.Nanosecond()/1000)
		case format[i] == 'j':
			fmt.Fprintf(&b, "%03d", t.YearDay())
		case format[i] == '-' && i+1 < len(format):
			i++
			n, ok := unpadded[format[i]]
			if !ok {
				return "", fmt.Errorf("strftime directive %%-%c is not supported", format[i])
			}
			b.WriteString(strconv.Itoa(n))
		default:
			layout, ok := layouts[format[i]]
			if !ok {
				return "", fmt.Errorf("strftime directive %%%c is not supported", format[i])
			}
			b.WriteString(t.Format(layout))
		}
	}
	return b.String(), nil
}

// params are the arguments of a call by name; what was not given is absent.
type params struct{ values map[string]Value }

func (p params) or(name string, missing Value) Value {
	if v, ok := p.values[name]; ok {
		return v
	}
	return missing
}

func (p params) has(name string) bool {
	_, ok := p.values[name]
	return ok
}

// bind gives arguments their names.
func bind(names []string, args []Value, kwargs *Dict) (params, error) {
	p := params{values: make(map[string]Value, len(args)+len(kwargs.keys))}
	if len(args) > len(names) {
		return p, fmt.Errorf("takes %d arguments, not %d", len(names), len(args))
	}
	for i, arg := range args {
		p.values[names[i]] = arg
	}
	for _, key := range kwargs.keys {
		known := false
		for _, name := range names {
			known = known || name == key
		}
		if !known || p.has(key) {
			return p, fmt.Errorf("unexpected argument %q", key)
		}
		p.values[key] = kwargs.values[key]
	}
	return p, nil
}
