// Package crdtest holds objects with the verdict they must get, for tests of whatever gives one: the
// schema in the manifests, package admission, an API server.
package crdtest

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

//go:embed testdata
var files embed.FS

// Case is an object with its verdict.
type Case struct {
	// Name is a sentence.
	Name string
	// Base names the object that Set changes, by path; "" for a base itself.
	Base string
	Set  map[string]any
	// Object is complete; callers may change it.
	Object map[string]any
	// Refused are the fields that admission refuses, once per finding; none means it is accepted.
	Refused []string
	// Says is part of what admission says of one of them.
	Says string
	// Schema are the fields that the schema refuses. It is a subset of Refused in meaning, but where a rule
	// judges several fields together, it names what holds them; "<nil>" is the whole object. What rules refuse
	// is missing where the shape of the object is refused: the API server does not ask them then.
	Schema []string
}

// Defaulted is an object before and after defaulting.
type Defaulted struct {
	Name   string         `json:"name"`
	Given  map[string]any `json:"given"`
	Stored map[string]any `json:"stored"`
}

type caseFile struct {
	Bases map[string]map[string]any `json:"bases"`
	Cases []struct {
		Name    string         `json:"name"`
		Base    string         `json:"base"`
		Set     map[string]any `json:"set"`
		Refused []string       `json:"refused"`
		Says    string         `json:"says"`
		Schema  *[]string      `json:"schema"`
	} `json:"cases"`
	Defaults []Defaulted `json:"defaults"`
}

// Cases returns every case: each base object, which must be accepted, and changed ones.
func Cases() ([]Case, error) {
	var cases []Case
	err := read(func(f caseFile) error {
		for name, base := range f.Bases {
			cases = append(cases, Case{Name: "base " + name, Object: runtime.DeepCopyJSON(base)})
		}
		for _, c := range f.Cases {
			base, found := f.Bases[c.Base]
			if !found {
				return fmt.Errorf("case %q: no base %q", c.Name, c.Base)
			}
			object := runtime.DeepCopyJSON(base)
			Apply(object, c.Set)
			schema := c.Refused
			if c.Schema != nil {
				schema = *c.Schema
			}
			cases = append(cases, Case{Name: c.Name, Base: c.Base, Set: c.Set, Object: object, Refused: c.Refused, Says: c.Says, Schema: schema})
		}
		return nil
	})
	return cases, err
}

// Defaults returns the objects that show every default.
func Defaults() ([]Defaulted, error) {
	var all []Defaulted
	err := read(func(f caseFile) error {
		all = append(all, f.Defaults...)
		return nil
	})
	return all, err
}

func read(take func(caseFile) error) error {
	names, err := fs.Glob(files, "testdata/*.yaml")
	if err != nil {
		return fmt.Errorf("list cases: %w", err)
	}
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read cases: %w", err)
		}
		f, err := decode(data)
		if err != nil {
			return fmt.Errorf("decode %s: %w", name, err)
		}
		if err := take(f); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// decode keeps whole numbers as int64, as the API server does.
func decode(data []byte) (f caseFile, err error) {
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return f, fmt.Errorf("read YAML: %w", err)
	}
	strict, err := json.UnmarshalStrict(text, &f)
	return f, errors.Join(append(strict, err)...)
}

// Apply changes an object: to values by path, as spec.quota.maxIndexEntries; null removes. Of two paths, one
// within the other, the shorter is applied first.
func Apply(object map[string]any, changes map[string]any) {
	for _, path := range slices.Sorted(maps.Keys(changes)) {
		set(object, strings.Split(path, "."), runtime.DeepCopyJSONValue(changes[path]))
	}
}

// set puts a value at a path, making the objects on the way; null removes.
func set(object map[string]any, path []string, value any) {
	for _, key := range path[:len(path)-1] {
		next, ok := object[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			object[key] = next
		}
		object = next
	}
	last := path[len(path)-1]
	if value == nil {
		delete(object, last)
		return
	}
	object[last] = value
}
