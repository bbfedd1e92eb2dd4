package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// Value is what a template computes with: nil (none), bool, int64, float64, string, *List, *Dict, or a value
// that only templates make.
type Value any

type undefinedType struct{}

// undefined is the value of a name that nothing has set.
var undefined = undefinedType{}

// List is a list, or a tuple, which prints differently.
type List struct {
	Items []Value
	Tuple bool
}

// Dict is a mapping from strings that keeps the order in which its keys were set.
type Dict struct {
	keys   []string
	values map[string]Value
}

// NewDict returns an empty dict.
func NewDict() *Dict { return &Dict{values: map[string]Value{}} }

// Set sets key to value, behind the keys already there.
func (d *Dict) Set(key string, value Value) {
	if _, ok := d.values[key]; !ok {
		d.keys = append(d.keys, key)
	}
	d.values[key] = value
}

// Get returns the value of key.
func (d *Dict) Get(key string) (Value, bool) {
	v, ok := d.values[key]
	return v, ok
}

// Keys returns the keys in order; the caller must not change them.
func (d *Dict) Keys() []string { return d.keys }

// namespace holds variables that inner scopes may set.
type namespace struct{ attrs *Dict }

// function is anything that can be called: a global, a macro, a method bound to its object.
type function struct {
	name string
	call func(r *renderer, args []Value, kwargs *Dict) (Value, error)
}

// maxDepth bounds how deep JSON may nest, and macros may call each other.
const maxDepth = 200

// DecodeJSON reads one JSON value, keeping the order of keys and the difference between 1 and 1.0.
func DecodeJSON(raw []byte) (Value, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := decode(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

func decode(d *json.Decoder, depth int) (Value, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Delim:
		if depth == maxDepth {
			return nil, fmt.Errorf("JSON nests deeper than %d", maxDepth)
		}
		if t == '{' {
			return decodeDict(d, depth+1)
		}
		return decodeList(d, depth+1)
	case json.Number:
		return decodeNumber(t)
	}
	return t, nil
}

func decodeDict(d *json.Decoder, depth int) (Value, error) {
	dict := NewDict()
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := decode(d, depth)
		if err != nil {
			return nil, err
		}
		dict.Set(key.(string), v) // the decoder accepts no other key
	}
	_, err := d.Token()
	return dict, err
}

func decodeList(d *json.Decoder, depth int) (Value, error) {
	list := &List{}
	for d.More() {
		v, err := decode(d, depth)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, v)
	}
	_, err := d.Token()
	return list, err
}

func decodeNumber(n json.Number) (Value, error) {
	if !strings.ContainsAny(n.String(), ".eE") {
		v, err := n.Int64()
		if err != nil {
			return nil, fmt.Errorf("integer %s does not fit 64 bits", n)
		}
		return v, nil
	}
	v, err := n.Float64()
	if err != nil || math.IsInf(v, 0) {
		return nil, fmt.Errorf("number %s does not fit a float", n)
	}
	return v, nil
}

func typeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case undefinedType:
		return "undefined"
	case bool:
		return "bool"
	case int64:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "safe str"
	case *List:
		if v.Tuple {
			return "tuple"
		}
		return "list"
	case *Dict:
		return "dict"
	}
	return "object"
}

func truthy(v Value) bool {
	switch v := v.(type) {
	case nil, undefinedType:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case markup:
		return v != ""
	case *List:
		return len(v.Items) > 0
	case *Dict:
		return len(v.keys) > 0
	}
	return true
}

// number returns v as a float where it is a number or a bool, which counts as 0 or 1.
func asFloat(v Value) (float64, bool) {
	switch v := v.(type) {
	case bool:
		return float64(boolInt(v)), true
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

func asInt(v Value) (int64, bool) {
	switch v := v.(type) {
	case bool:
		return boolInt(v), true
	case int64:
		return v, true
	}
	return 0, false
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// equal compares as Python does: numbers by value, lists and dicts element by element.
func equal(a, b Value) bool {
	if x, ok := asInt(a); ok {
		if y, ok := asInt(b); ok {
			return x == y
		}
	}
	if x, ok := asFloat(a); ok {
		y, ok := asFloat(b)
		return ok && x == y
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case string:
		s, ok := b.(string)
		return ok && a == s
	case *List:
		l, ok := b.(*List)
		return ok && a.Tuple == l.Tuple && equalItems(a.Items, l.Items)
	case *Dict:
		d, ok := b.(*Dict)
		return ok && equalDicts(a, d)
	}
	return a == b
}

func equalItems(a, b []Value) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func equalDicts(a, b *Dict) bool {
	if len(a.keys) != len(b.keys) {
		return false
	}
	for k, v := range a.values {
		if w, ok := b.values[k]; !ok || !equal(v, w) {
			return false
		}
	}
	return true
}

// compare orders a and b where Python orders them.
func compare(a, b Value) (int, error) {
	if x, ok := asFloat(a); ok {
		if y, ok := asFloat(b); ok {
			return order(x, y), nil
		}
	}
	switch a := a.(type) {
	case string:
		if s, ok := b.(string); ok {
			return strings.Compare(a, s), nil
		}
	case *List:
		if l, ok := b.(*List); ok && a.Tuple == l.Tuple {
			for i := range min(len(a.Items), len(l.Items)) {
				if !equal(a.Items[i], l.Items[i]) {
					return compare(a.Items[i], l.Items[i])
				}
			}
			return order(float64(len(a.Items)), float64(len(l.Items))), nil
		}
	}
	return 0, fmt.Errorf("cannot order %s and %s", typeName(a), typeName(b))
}

func order(x, y float64) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// contains is `item in container`.
func contains(container, item Value) (bool, error) {
	switch c := container.(type) {
	case undefinedType:
		return false, nil
	case string:
		s, ok := item.(string)
		if !ok {
			return false, fmt.Errorf("cannot look for %s in a str", typeName(item))
		}
		return strings.Contains(c, s), nil
	case *List:
		for _, v := range c.Items {
			if equal(v, item) {
				return true, nil
			}
		}
		return false, nil
	case *Dict:
		s, ok := item.(string)
		if !ok {
			return false, nil
		}
		_, ok = c.values[s]
		return ok, nil
	}
	return false, fmt.Errorf("cannot look into %s", typeName(container))
}

// items returns what a loop over v goes through.
func items(v Value) ([]Value, error) {
	switch v := v.(type) {
	case undefinedType:
		return nil, nil
	case *List:
		return v.Items, nil
	case *Dict:
		return stringValues(v.keys), nil
	case string:
		out := make([]Value, 0, len(v))
		for _, r := range v {
			out = append(out, string(r))
		}
		return out, nil
	}
	return nil, fmt.Errorf("cannot loop over %s", typeName(v))
}

func stringValues(s []string) []Value {
	out := make([]Value, len(s))
	for i, v := range s {
		out[i] = v
	}
	return out
}
