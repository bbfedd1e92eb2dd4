package jinja

import (
	"errors"
	"fmt"
)

// tests are what may follow `is`.
var tests = map[string]func(v Value, args []Value) (bool, error){
	"defined":   func(v Value, _ []Value) (bool, error) { return v != undefined, nil },
	"undefined": func(v Value, _ []Value) (bool, error) { return v == undefined, nil },
	"none":      func(v Value, _ []Value) (bool, error) { return v == nil, nil },
	"true":      func(v Value, _ []Value) (bool, error) { return v == true, nil },
	"false":     func(v Value, _ []Value) (bool, error) { return v == false, nil },
	"string": func(v Value, _ []Value) (bool, error) {
		_, isMarkup := v.(markup)
		_, isString := v.(string)
		return isString || isMarkup, nil
	},
	"mapping": isType[*Dict],
	"boolean": isType[bool],
	"integer": isType[int64],
	"float":   isType[float64],
	"number": func(v Value, _ []Value) (bool, error) {
		_, ok := asFloat(v)
		return ok, nil
	},
	"iterable": isCollection,
	"sequence": isCollection,
	"callable": func(v Value, _ []Value) (bool, error) {
		_, ok := v.(*function)
		return ok || v == undefined, nil // undefined values can be called, and fail
	},
	"odd":  func(v Value, _ []Value) (bool, error) { return remainder(v, int64(2), 1) },
	"even": func(v Value, _ []Value) (bool, error) { return remainder(v, int64(2), 0) },
	"divisibleby": func(v Value, args []Value) (bool, error) {
		if len(args) != 1 {
			return false, errors.New("divisibleby takes a number")
		}
		return remainder(v, args[0], 0)
	},
	"lower": func(v Value, _ []Value) (bool, error) { return cased(str(v), lower, upper), nil },
	"upper": func(v Value, _ []Value) (bool, error) { return cased(str(v), upper, lower), nil },
	"in": func(v Value, args []Value) (bool, error) {
		if len(args) != 1 {
			return false, errors.New("in takes a container")
		}
		return contains(args[0], v)
	},
	"sameas": func(v Value, args []Value) (bool, error) {
		if len(args) == 1 {
			switch args[0].(type) {
			case nil, bool:
				return v == args[0], nil
			}
		}
		return false, errors.New("sameas is supported for none and booleans alone")
	},
	"eq": comparison("=="), "equalto": comparison("=="), "ne": comparison("!="),
	"gt": comparison(">"), "greaterthan": comparison(">"), "ge": comparison(">="),
	"lt": comparison("<"), "lessthan": comparison("<"), "le": comparison("<="),
}

func applyTest(name string, v Value, args []Value) (bool, error) {
	test, ok := tests[name]
	if !ok {
		symbols := map[string]string{"==": "eq", "!=": "ne", ">": "gt", ">=": "ge", "<": "lt", "<=": "le"}
		if test, ok = tests[symbols[name]]; !ok {
			return false, fmt.Errorf("test %q is not supported", name)
		}
	}
	return test(v, args)
}

func isType[T any](v Value, _ []Value) (bool, error) {
	_, ok := v.(T)
	return ok, nil
}

// isCollection holds for what has a length and items; undefined has both, being empty.
func isCollection(v Value, _ []Value) (bool, error) {
	switch v.(type) {
	case string, *List, *Dict, undefinedType:
		return true, nil
	}
	return false, nil
}

func comparison(op string) func(Value, []Value) (bool, error) {
	return func(v Value, args []Value) (bool, error) {
		if len(args) != 1 {
			return false, errors.New("a comparison takes one value")
		}
		return holds(op, v, args[0])
	}
}

func remainder(v, by Value, want int64) (bool, error) {
	x, ok := asInt(v)
	y, okBy := asInt(by)
	if !ok || !okBy || y == 0 {
		return false, fmt.Errorf("cannot divide %s by %s", typeName(v), typeName(by))
	}
	return ((x%y)+y)%y == want, nil
}

// cased says whether s has letters with a case, all of them as f makes them.
func cased(s string, f, other func(string) string) bool {
	return f(s) == s && other(s) != s
}
