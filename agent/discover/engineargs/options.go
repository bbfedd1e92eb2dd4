package engineargs

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// grammar is what has to be known of an engine's flags to tell values from arguments. A flag that begins
// with enable or disable takes no value, any other one value, unless a list says otherwise.
type grammar struct {
	alias    map[string]string // other spellings, without dashes
	switches []string          // flags without a value
	lists    []string          // flags with one value or more
	valued   []string          // flags with a value that do not look like it
}

// isSwitch says whether a flag takes no value.
func (g *grammar) isSwitch(name string) bool {
	return slices.Contains(g.switches, name) ||
		(strings.HasPrefix(name, "enable-") || strings.HasPrefix(name, "disable-")) && !slices.Contains(g.valued, name)
}

// options are the flags of a command line. Names have no dashes in front and none but dashes inside;
// of a flag given twice the last one counts, as in the engines.
type options struct {
	values  map[string][]string
	nested  map[string][]nested // --name.path value, in order; they stand in the place of --name
	bare    []string            // arguments that belong to no flag
	grammar *grammar
}

// nested is one key inside the JSON value of a flag.
type nested struct{ path, value string }

// negative matches values that begin like a flag.
var negative = regexp.MustCompile(`^-[0-9.]+$`)

func isFlag(word string) bool {
	return len(word) > 1 && word[0] == '-' && !negative.MatchString(word)
}

// readOptions reads words as Python's argparse does, with the engines' additions: underscores as dashes, and
// --name.key for a key inside a JSON value.
func readOptions(words []string, g *grammar) *options {
	o := &options{values: map[string][]string{}, nested: map[string][]nested{}, grammar: g}
	for i := 0; i < len(words); {
		word := words[i]
		i++
		if word == "--" {
			o.bare = append(o.bare, words[i:]...)
			return o
		}
		if !isFlag(word) {
			o.bare = append(o.bare, word)
			continue
		}
		name, value, inline := strings.Cut(word, "=")
		name, path, _ := strings.Cut(strings.TrimLeft(name, "-"), ".")
		if len(word) > 2 && strings.HasPrefix(word, "-O") { // -O3
			continue
		}
		name = g.canonical(name)
		most := g.most(name, path)
		var values []string
		if inline {
			values, most = []string{value}, 0
		}
		for ; most > 0 && i < len(words) && !isFlag(words[i]); most-- {
			values = append(values, words[i])
			i++
		}
		o.set(name, path, values)
	}
	return o
}

// canonical returns the spelling that flags are kept under.
func (g *grammar) canonical(name string) string {
	name = strings.ReplaceAll(name, "_", "-")
	if long, ok := g.alias[name]; ok {
		return long
	}
	return name
}

// most is the number of words that a flag may take.
func (g *grammar) most(name, path string) int {
	positive := strings.TrimPrefix(name, "no-")
	switch {
	case path != "":
		return 1
	case g.isSwitch(name) || name != positive && g.isSwitch(positive):
		return 0
	case slices.Contains(g.lists, name):
		return maxWords
	default:
		return 1
	}
}

func (o *options) set(name, path string, values []string) {
	switch positive := strings.TrimPrefix(name, "no-"); {
	case path != "":
		o.nested[name] = append(o.nested[name], nested{path, strings.Join(values, " ")})
	case positive != name && o.grammar.isSwitch(positive):
		o.values[positive] = []string{"false"}
	case len(values) == 0:
		o.values[name] = []string{"true"}
	default:
		o.values[name] = values
	}
}

// under puts the keys of a configuration file below what the command line says.
func (o *options) under(text string) error {
	var file map[string]yaml.Node
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	for key, node := range file {
		name := o.grammar.canonical(key)
		if _, given := o.values[name]; given {
			continue
		}
		values, err := nodeValues(&node)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if values != nil {
			o.set(name, "", values)
		}
	}
	return nil
}

// nodeValues returns what a YAML value is as the words behind a flag: a mapping is JSON. A false is no flag:
// vllm serve does not even take it for one that switches off.
func nodeValues(node *yaml.Node) ([]string, error) {
	switch node.Kind {
	case yaml.ScalarNode:
		if no := false; node.Tag == "!!null" || node.Tag == "!!bool" && node.Decode(&no) == nil && !no {
			return nil, nil
		}
		return []string{node.Value}, nil
	case yaml.SequenceNode:
		var all []string
		for _, item := range node.Content {
			values, err := nodeValues(item)
			if err != nil {
				return nil, err
			}
			all = append(all, values...)
		}
		return all, nil
	default:
		var value map[string]any
		if err := node.Decode(&value); err != nil {
			return nil, err
		}
		encoded, err := json.Marshal(value)
		return []string{string(encoded)}, err
	}
}

// reader takes values out of options and collects what is wrong with them.
type reader struct {
	*options
	owner    map[string][]nested // keys inside JSON values that count more than all others
	vars     *variables
	problems []Problem
}

func (r *reader) problem(reason Reason, format string, args ...any) {
	r.problems = append(r.problems, Problem{reason, fmt.Sprintf(format, args...)})
}

// list returns the values of a flag; ok is false if it was not given or is not known.
func (r *reader) list(name string) (values []string, ok bool) {
	values, ok = r.values[name]
	for _, v := range values {
		if why, bad := r.vars.why(v); bad {
			r.problem(EngineUnreadable, "the value of --%s cannot be known: %s", name, why)
			return nil, false
		}
	}
	return values, ok
}

// text returns the value of a flag, or fallback.
func (r *reader) text(name, fallback string) string {
	values, ok := r.list(name)
	if !ok {
		return fallback
	}
	return values[len(values)-1]
}

// number returns the value of a flag that takes a number, or fallback.
func (r *reader) number(name string, fallback, low, high int) int {
	value := r.text(name, "")
	if value == "" {
		return fallback
	}
	n, err := strconv.Atoi(strings.TrimSpace(value))
	if err != nil || n < low || n > high {
		r.problem(EngineUnreadable, "--%s %q is not a number between %d and %d", name, value, low, high)
		return fallback
	}
	return n
}

// on says whether a switch is on.
func (r *reader) on(name string, fallback bool) bool {
	if value := r.text(name, ""); value != "" {
		return !strings.EqualFold(value, "false")
	}
	return fallback
}

// object returns the JSON object of a flag with what --name.key adds; nil if there is none.
func (r *reader) object(name string) map[string]any {
	var object map[string]any
	keys := r.nested[name]
	if value := strings.TrimSpace(r.text(name, "")); value != "" && len(keys) == 0 {
		if err := json.Unmarshal([]byte(value), &object); err != nil || object == nil {
			r.problem(EngineUnreadable, "--%s %q is not a JSON object", name, shorten(value))
			return nil
		}
	}
	for _, n := range append(slices.Clip(keys), r.owner[name]...) {
		if why, bad := r.vars.why(n.value); bad {
			r.problem(EngineUnreadable, "the value of --%s.%s cannot be known: %s", name, n.path, why)
			continue
		}
		if object == nil {
			object = map[string]any{}
		}
		place(object, strings.Split(n.path, "."), n.value)
	}
	return object
}

// place puts a value at a path of keys.
func place(object map[string]any, keys []string, value string) {
	for _, key := range keys[:len(keys)-1] {
		inner, ok := object[key].(map[string]any)
		if !ok {
			inner = map[string]any{}
			object[key] = inner
		}
		object = inner
	}
	var decoded any
	if err := json.Unmarshal([]byte(value), &decoded); err != nil {
		decoded = value
	}
	object[keys[len(keys)-1]] = decoded
}

// shorten keeps a message readable whatever is quoted in it.
func shorten(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "..."
	}
	return s
}
