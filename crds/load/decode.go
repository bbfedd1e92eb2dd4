package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
)

// decode reads an object into its type; fresh makes further values of the type. Unknown fields are errors.
func decode(object map[string]any, into any, fresh func() any) []fieldError {
	data, err := json.Marshal(object)
	if err != nil {
		return []fieldError{{Err: fmt.Errorf("write as JSON: %w", err)}}
	}
	strict, err := kjson.UnmarshalStrict(data, into)
	if err != nil {
		path := blame(object, func(part map[string]any) bool {
			data, err := json.Marshal(part)
			return err != nil || kjson.UnmarshalCaseSensitivePreserveInts(data, fresh()) != nil
		})
		return []fieldError{{Field: path, Err: typeError(path, err)}}
	}
	var errs []fieldError
	for _, err := range strict {
		e := fieldError{Err: err}
		var located kjson.FieldError
		if errors.As(err, &located) {
			e.Field = located.FieldPath()
		}
		errs = append(errs, e)
	}
	return errs
}

// blame returns the path of the first field that fails to decode: values with a decoder of their own, such
// as durations, do not say where they are. fails decodes an object that has some of the fields.
func blame(object map[string]any, fails func(map[string]any) bool) string {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		below := func(value any) bool { return fails(map[string]any{key: value}) }
		if !below(object[key]) {
			continue
		}
		nested, isObject := object[key].(map[string]any)
		if !isObject || below(map[string]any{}) {
			return key
		}
		rest := blame(nested, func(part map[string]any) bool { return below(part) })
		return strings.TrimSuffix(key+"."+rest, ".")
	}
	return ""
}

func typeError(path string, err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		err = fmt.Errorf("got %s, want %s", wrong.Value, kindName(wrong))
	}
	if path == "" {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// kindName says in words of YAML what a field takes.
func kindName(err *json.UnmarshalTypeError) string {
	switch kind := err.Type.Kind().String(); {
	case kind == "bool":
		return "true or false"
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "a whole number of type " + kind
	case kind == "slice":
		return "a list"
	case kind == "struct", kind == "map":
		return "an object"
	}
	return "a text; put it in quotes"
}
