package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// missingMethods are methods of Python's types that no method here stands for. A call of one is refused when
// the template is compiled.
var missingMethods = []string{
	"casefold", "center", "decode", "encode", "expandtabs", "format", "format_map", "fromkeys", "index", "isalnum", "isalpha",
	"isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper",
	"ljust", "maketrans", "partition", "rindex", "rjust", "rpartition", "swapcase", "translate", "zfill",
}

type methodFunc func(r *renderer, object Value, args []Value, kwargs *Dict) (Value, error)

// method returns a method of object, or nil. Methods that change a list or a dict exist and fail, as in the
// sandbox that engines render in.
func method(object Value, name string) Value {
	var f methodFunc
	switch object.(type) {
	case string:
		f = stringMethods[name]
	case *Dict:
		f = dictMethods[name]
	case *List:
		f = listMethods[name]
	}
	if f == nil {
		return nil
	}
	return &function{name: name, call: func(r *renderer, args []Value, kwargs *Dict) (Value, error) {
		v, err := f(r, object, args, kwargs)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", typeName(object), name, err)
		}
		return v, nil
	}}
}

var dictMethods = map[string]methodFunc{
	"items": func(_ *renderer, o Value, _ []Value, _ *Dict) (Value, error) { return pairs(o.(*Dict)), nil },
	"keys": func(_ *renderer, o Value, _ []Value, _ *Dict) (Value, error) {
		return &List{Items: stringValues(o.(*Dict).keys)}, nil
	},
	"values": func(_ *renderer, o Value, _ []Value, _ *Dict) (Value, error) {
		d := o.(*Dict)
		l := &List{}
		for _, key := range d.keys {
			l.Items = append(l.Items, d.values[key])
		}
		return l, nil
	},
	"get": func(_ *renderer, o Value, args []Value, kwargs *Dict) (Value, error) {
		if len(args) < 1 || len(args) > 2 || len(kwargs.keys) > 0 {
			return nil, errors.New("takes a key and a default")
		}
		if key, ok := args[0].(string); ok {
			if v, ok := o.(*Dict).Get(key); ok {
				return v, nil
			}
		}
		if len(args) == 2 {
			return args[1], nil
		}
		return nil, nil
	},
	"copy": func(_ *renderer, o Value, _ []Value, _ *Dict) (Value, error) { return o, nil }, // nothing changes a dict
	"pop":  changes, "update": changes, "clear": changes, "popitem": changes, "setdefault": changes, "fromkeys": changes,
}

var listMethods = map[string]methodFunc{
	"copy": func(_ *renderer, o Value, _ []Value, _ *Dict) (Value, error) { return o, nil }, // nothing changes a list
	"count": func(_ *renderer, o Value, args []Value, _ *Dict) (Value, error) {
		if len(args) != 1 {
			return nil, errors.New("takes one value")
		}
		n := int64(0)
		for _, item := range o.(*List).Items {
			n += boolInt(equal(item, args[0]))
		}
		return n, nil
	},
	"append": changes, "extend": changes, "insert": changes, "pop": changes, "remove": changes, "sort": changes,
	"reverse": changes, "clear": changes,
}

func changes(*renderer, Value, []Value, *Dict) (Value, error) {
	return nil, errors.New("the sandbox does not let a template change its data")
}

var stringMethods = map[string]methodFunc{
	"strip":      stripMethod(true, true),
	"lstrip":     stripMethod(true, false),
	"rstrip":     stripMethod(false, true),
	"upper":      textMethod(upper),
	"lower":      textMethod(lower),
	"capitalize": textMethod(capitalize),
	"title": func(r *renderer, o Value, _ []Value, _ *Dict) (Value, error) {
		if !isASCII(o.(string)) {
			return nil, errors.New("letters outside of ASCII are not supported")
		}
		return r.built(titleASCII(o.(string)))
	},
	"split":        splitMethod(false),
	"rsplit":       splitMethod(true),
	"startswith":   affixMethod(strings.HasPrefix),
	"endswith":     affixMethod(strings.HasSuffix),
	"removeprefix": cutMethod(strings.TrimPrefix),
	"removesuffix": cutMethod(strings.TrimSuffix),
	"find":         findMethod(strings.Index),
	"rfind":        findMethod(strings.LastIndex),
	"count": func(_ *renderer, o Value, args []Value, kwargs *Dict) (Value, error) {
		sub, err := oneString(args, kwargs)
		if err != nil {
			return nil, err
		}
		return int64(strings.Count(o.(string), sub)), nil
	},
	"replace": func(r *renderer, o Value, args []Value, kwargs *Dict) (Value, error) {
		p, err := bind([]string{"old", "new", "count"}, args, kwargs)
		if err != nil {
			return nil, err
		}
		from, ok := p.or("old", nil).(string)
		to, okTo := p.or("new", nil).(string)
		if !ok || !okTo {
			return nil, errors.New("takes two strings")
		}
		return replace(r, o.(string), from, to, p.or("count", nil))
	},
	"splitlines": func(r *renderer, o Value, args []Value, kwargs *Dict) (Value, error) {
		p, err := bind([]string{"keepends"}, args, kwargs)
		if err != nil {
			return nil, err
		}
		return &List{Items: splitLines(o.(string), truthy(p.or("keepends", false)))}, r.spend(len(o.(string)))
	},
	"join": func(r *renderer, o Value, args []Value, _ *Dict) (Value, error) {
		if len(args) != 1 {
			return nil, errors.New("takes one list")
		}
		all, err := items(args[0])
		if err != nil {
			return nil, err
		}
		parts := make([]string, len(all))
		for i, item := range all {
			s, ok := item.(string)
			if !ok {
				return nil, fmt.Errorf("cannot join %s", typeName(item))
			}
			parts[i] = s
		}
		return r.built(strings.Join(parts, o.(string)))
	},
}

// titleASCII starts each run of letters with a capital.
func titleASCII(s string) string {
	out := []byte(strings.ToLower(s))
	inWord := false
	for i, c := range out {
		isLetter := c >= 'a' && c <= 'z'
		if isLetter && !inWord {
			out[i] = c - 'a' + 'A'
		}
		inWord = isLetter
	}
	return string(out)
}

func textMethod(f func(string) string) methodFunc {
	return func(r *renderer, o Value, args []Value, kwargs *Dict) (Value, error) {
		if len(args)+len(kwargs.keys) > 0 {
			return nil, errors.New("takes no arguments")
		}
		return r.built(f(o.(string)))
	}
}

func stripMethod(left, right bool) methodFunc {
	return func(r *renderer, o Value, args []Value, kwargs *Dict) (Value, error) {
		p, err := bind([]string{"chars"}, args, kwargs)
		if err != nil {
			return nil, err
		}
		s, err := strip(o.(string), p.or("chars", nil), left, right)
		if err != nil {
			return nil, err
		}
		return r.built(s)
	}
}

func oneString(args []Value, kwargs *Dict) (string, error) {
	if len(args) == 1 && len(kwargs.keys) == 0 {
		if s, ok := args[0].(string); ok {
			return s, nil
		}
	}
	return "", errors.New("takes one string")
}

func affixMethod(has func(s, affix string) bool) methodFunc {
	return func(_ *renderer, o Value, args []Value, kwargs *Dict) (Value, error) {
		if len(args) == 1 && len(kwargs.keys) == 0 {
			if l, ok := args[0].(*List); ok && l.Tuple {
				return slices.ContainsFunc(l.Items, func(v Value) bool {
					affix, ok := v.(string)
					return ok && has(o.(string), affix)
				}), nil
			}
		}
		affix, err := oneString(args, kwargs)
		if err != nil {
			return nil, err
		}
		return has(o.(string), affix), nil
	}
}

func cutMethod(cut func(s, affix string) string) methodFunc {
	return func(r *renderer, o Value, args []Value, kwargs *Dict) (Value, error) {
		affix, err := oneString(args, kwargs)
		if err != nil {
			return nil, err
		}
		return r.built(cut(o.(string), affix))
	}
}

func findMethod(find func(s, sub string) int) methodFunc {
	return func(_ *renderer, o Value, args []Value, kwargs *Dict) (Value, error) {
		sub, err := oneString(args, kwargs)
		if err != nil {
			return nil, err
		}
		s := o.(string)
		at := find(s, sub)
		if at > 0 {
			at = utf8.RuneCountInString(s[:at])
		}
		return int64(at), nil
	}
}

func splitMethod(fromRight bool) methodFunc {
	return func(r *renderer, o Value, args []Value, kwargs *Dict) (Value, error) {
		p, err := bind([]string{"sep", "maxsplit"}, args, kwargs)
		if err != nil {
			return nil, err
		}
		cuts, ok := asInt(p.or("maxsplit", int64(-1)))
		if !ok {
			return nil, errors.New("maxsplit is an integer")
		}
		s := o.(string)
		if err := r.spend(len(s)); err != nil {
			return nil, err
		}
		switch sep := p.or("sep", nil).(type) {
		case nil:
			if fromRight && cuts >= 0 {
				return nil, errors.New("rsplit at white space with maxsplit is not supported")
			}
			return &List{Items: splitSpace(s, cuts)}, nil
		case string:
			if sep == "" {
				return nil, errors.New("empty separator")
			}
			return &List{Items: stringValues(splitAt(s, sep, cuts, fromRight))}, nil
		}
		return nil, errors.New("sep is a string")
	}
}

func splitAt(s, sep string, cuts int64, fromRight bool) []string {
	parts := strings.Split(s, sep)
	surplus := len(parts) - 1 - int(min(cuts, int64(len(parts))))
	if cuts < 0 || surplus <= 0 {
		return parts
	}
	if fromRight {
		return append([]string{strings.Join(parts[:surplus+1], sep)}, parts[surplus+1:]...)
	}
	keep := len(parts) - 1 - surplus
	return append(slices.Clone(parts[:keep]), strings.Join(parts[keep:], sep))
}
