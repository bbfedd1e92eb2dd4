// Package prompts renders PromptTemplates: a body with slots, which a request fills. It substitutes and nothing
// else, so that the same template and values give the same bytes everywhere.
package prompts

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

const (
	// MaxBytes bounds a body, and a rendered prompt.
	MaxBytes = 1 << 20
	// hashSeed is that of the hash of a stable prefix.
	hashSeed = 1337
)

// Template is a PromptTemplate that can be rendered.
type Template struct {
	// Revision identifies body and slots: 16 hexadecimal digits, the same for the same content.
	Revision string

	pieces []piece
	slots  map[string]v1alpha1.TemplateSlot
}

// piece is text, or a slot if that is not empty.
type piece struct{ text, slot string }

// Rendered is a prompt.
type Rendered struct {
	Prompt []byte
	// StableHash is the XXH3-64, seed 1337, big-endian, of what precedes the first mutable slot: a key under which
	// requests of one prefix can be kept together. It is nil where nothing precedes it.
	StableHash []byte
	// Stable is how many bytes of the prompt precede the first mutable slot.
	Stable int
}

// Parse reads a template. Slots are written {{ name }} or {{.name}}, and must be declared.
func Parse(spec *v1alpha1.PromptTemplateSpec) (*Template, error) {
	if len(spec.Body) > MaxBytes {
		return nil, fmt.Errorf("spec.body has %d bytes, at most %d are accepted", len(spec.Body), MaxBytes)
	}
	t := &Template{Revision: revision(spec), slots: make(map[string]v1alpha1.TemplateSlot, len(spec.Slots))}
	for _, s := range spec.Slots {
		t.slots[s.Name] = s
	}
	rest := spec.Body
	for rest != "" {
		line := 1 + strings.Count(spec.Body[:len(spec.Body)-len(rest)], "\n")
		text, inside, found := strings.Cut(rest, "{{")
		t.pieces = append(t.pieces, piece{text: text})
		if !found {
			break
		}
		line += strings.Count(text, "\n")
		name, after, closed := strings.Cut(inside, "}}")
		if !closed {
			return nil, fmt.Errorf("spec.body line %d: {{ has no }}", line)
		}
		name = strings.TrimPrefix(strings.TrimSpace(name), ".")
		if _, declared := t.slots[name]; !declared {
			return nil, fmt.Errorf("spec.body line %d: {{ %.100s }} is no slot of spec.slots", line, name)
		}
		t.pieces = append(t.pieces, piece{slot: name})
		rest = after
	}
	return t, nil
}

// revision hashes what decides how a template renders.
func revision(spec *v1alpha1.PromptTemplateSpec) string {
	type slot struct {
		Name     string
		Type     v1alpha1.SlotType
		Required bool
	}
	content := struct {
		Body  string
		Slots []slot
	}{Body: spec.Body}
	for _, s := range spec.Slots {
		content.Slots = append(content.Slots, slot{s.Name, s.Type, s.Required != nil && *s.Required})
	}
	slices.SortFunc(content.Slots, func(a, b slot) int { return cmp.Compare(a.Name, b.Name) })
	canonical, _ := json.Marshal(content) // strings and booleans cannot fail
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:8])
}

// Render fills the slots. Values are taken as they are. A value of no slot, and a required slot without a value,
// are errors; another slot without a value is empty.
func (t *Template) Render(values map[string]string) (Rendered, error) {
	if err := t.check(values); err != nil {
		return Rendered{}, err
	}
	var prompt []byte
	stable := -1
	for _, p := range t.pieces {
		if p.slot != "" && stable < 0 && t.slots[p.slot].Type == v1alpha1.SlotMutable {
			stable = len(prompt)
		}
		text := p.text + values[p.slot] // one of them is empty: no slot has an empty name
		if len(prompt)+len(text) > MaxBytes {
			return Rendered{}, fmt.Errorf("the prompt has more than %d bytes", MaxBytes)
		}
		prompt = append(prompt, text...)
	}
	if stable < 0 {
		stable = len(prompt)
	}
	out := Rendered{Prompt: prompt, Stable: stable}
	if stable > 0 {
		out.StableHash = binary.BigEndian.AppendUint64(nil, xxh3.HashSeed(prompt[:stable], hashSeed))
	}
	return out, nil
}

func (t *Template) check(values map[string]string) error {
	for name := range values {
		if _, declared := t.slots[name]; !declared {
			return fmt.Errorf("variables: %.100q is no slot of the template", name)
		}
	}
	for name, s := range t.slots {
		if _, given := values[name]; !given && s.Required != nil && *s.Required {
			return errors.New("variables: " + name + " is required")
		}
	}
	return nil
}
