package engineargs

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
)

// mark surrounds, in a word, the number of the reason why a part of it cannot be known. It is of the
// private use area: a word that holds it for reasons of its own counts as unknown too.
const mark = "\uE0F1"

// maxValue bounds a variable. A longer one counts as unknown, so that a script cannot make words
// that fill the memory.
const maxValue = 4096

// variables are the environment of a container, and what its script makes of it.
type variables struct {
	values  map[string]string
	arrays  map[string][]string // a name is in one of the two
	params  []string            // $0, $1, ...
	more    bool                // others come from where they cannot be read
	sources []string            // why something is unknown, by number
}

func newVariables(c Container) *variables {
	v := &variables{values: make(map[string]string, len(c.Env)), arrays: map[string][]string{}, more: c.EnvFrom}
	for _, e := range c.Env {
		if e.Source != "" {
			v.values[e.Name] = v.unknown(fmt.Sprintf("$%s comes from %s", e.Name, e.Source))
			continue
		}
		v.set(e.Name, v.kubelet(e.Value))
	}
	return v
}

// unknown returns what stands for a value that cannot be known.
func (v *variables) unknown(why string) string {
	v.sources = append(v.sources, why)
	return mark + strconv.Itoa(len(v.sources)-1) + mark
}

// why returns the reason why a word is not known; ok is false for one that is.
func (v *variables) why(word string) (reason string, ok bool) {
	_, rest, ok := strings.Cut(word, mark)
	number, _, _ := strings.Cut(rest, mark)
	if i, err := strconv.Atoi(number); err == nil && i < len(v.sources) {
		return v.sources[i], true
	}
	return "it holds a character of the private use area", ok
}

func (v *variables) set(name, value string) {
	if len(value) > maxValue {
		value = v.unknown("$" + name + " is too long")
	}
	v.values[name] = value
	delete(v.arrays, name)
}

// setArray sets an array, of which the elements together are bounded as a value is.
func (v *variables) setArray(name string, elements []string) {
	size := 0
	for _, e := range elements {
		size += len(e) + 1
	}
	if size > 4*maxValue {
		v.set(name, v.unknown("$"+name+" is too long"))
		return
	}
	delete(v.values, name)
	v.arrays[name] = elements
}

// reference is what the kubelet expands, and what escapes it.
var reference = regexp.MustCompile(`\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)`)

// kubelet expands $(VAR) as Kubernetes does: a variable that is not set is left as it is, and $$ is a
// dollar sign.
func (v *variables) kubelet(word string) string {
	return reference.ReplaceAllStringFunc(word, func(m string) string {
		if m == "$$" {
			return "$"
		}
		name := m[2 : len(m)-1]
		value, ok := v.values[name]
		switch {
		case ok:
			return value
		case v.more:
			return v.unknown("$(" + name + ") may come from a ConfigMap or a Secret")
		default:
			return m
		}
	})
}

// Get implements expand.Environ.
func (v *variables) Get(name string) expand.Variable {
	switch {
	case name == "@" || name == "*":
		return expand.Variable{Set: true, Kind: expand.Indexed, List: v.params[min(1, len(v.params)):]}
	case len(name) == 1 && name[0] >= '0' && name[0] <= '9':
		if i := int(name[0] - '0'); i < len(v.params) {
			return text(v.params[i])
		}
		return expand.Variable{}
	case strings.HasPrefix(name, "HOME "): // of another user
		return text(v.unknown("~" + name[len("HOME "):] + " is a folder in the container"))
	}
	if elements, ok := v.arrays[name]; ok {
		return expand.Variable{Set: true, Kind: expand.Indexed, List: elements}
	}
	if value, ok := v.values[name]; ok {
		return text(value)
	}
	return expand.Variable{}
}

func text(value string) expand.Variable {
	return expand.Variable{Set: true, Kind: expand.String, Str: value}
}

// Each implements expand.Environ.
func (v *variables) Each(yield func(string, expand.Variable) bool) {
	for name := range v.values {
		if !yield(name, v.Get(name)) {
			return
		}
	}
}
