package admission

import (
	"cmp"
	"fmt"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// oneOf refuses a value that is not among those allowed; an empty one is missing.
func oneOf[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return oneOfOrUnset(path, value, allowed...)
}

func oneOfOrUnset[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	if value == "" {
		return nil
	}
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

func atLeast[T cmp.Ordered](path *field.Path, value *T, least T) field.ErrorList {
	if value == nil || *value >= least {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *value, fmt.Sprintf("must be at least %v", least))}
}

func within(path *field.Path, value, least, most int32) field.ErrorList {
	if value >= least && value <= most {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, fmt.Sprintf("must be between %d and %d", least, most))}
}

// shortEnough refuses text of more than most characters.
func shortEnough(path *field.Path, text string, most int) field.ErrorList {
	if utf8.RuneCountInString(text) <= most {
		return nil
	}
	return field.ErrorList{field.TooLong(path, "", most)}
}

// check collects what the rules of one object find.
type check struct{ errs field.ErrorList }

// add takes the findings of a rule.
func (c *check) add(errs field.ErrorList) { c.errs = append(c.errs, errs...) }

// invalid, forbidden and required report a violation where bad is true.
func (c *check) invalid(bad bool, path *field.Path, value any, detail string) {
	if bad {
		c.errs = append(c.errs, field.Invalid(path, value, detail))
	}
}

func (c *check) forbidden(bad bool, path *field.Path, detail string) {
	if bad {
		c.errs = append(c.errs, field.Forbidden(path, detail))
	}
}

func (c *check) required(bad bool, path *field.Path, detail string) {
	if bad {
		c.errs = append(c.errs, field.Required(path, detail))
	}
}
