package load

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document is one YAML document of a file.
type document struct {
	number int // among the documents that are not empty, from 1
	line   int // of the file, where it starts, from 1
	text   []byte
}

// split cuts a file into documents, so that a fault in one does not hide the others. A line that starts
// with "---" or "..." always ends a document, even within a quoted text.
func split(data []byte) []document {
	var all []document
	current := document{line: 1}
	end := func(next int) {
		if hasContent(current.text) {
			current.number = len(all) + 1
			all = append(all, current)
		}
		current = document{line: next}
	}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		switch {
		case isMarker(line, "---"):
			end(number)
			current.text = append(current.text, "   "...)
			current.text = append(current.text, line[3:]...)
		case isMarker(line, "..."):
			end(number + 1)
		default:
			current.text = append(current.text, line...)
		}
	}
	end(0)
	return all
}

func isMarker(line []byte, marker string) bool {
	rest, found := bytes.CutPrefix(line, []byte(marker))
	return found && (len(rest) == 0 || bytes.ContainsRune([]byte(" \t\r\n"), rune(rest[0])))
}

// hasContent says whether text is more than comments and directives.
func hasContent(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return true
		}
	}
	return false
}

// lineError is an error at a line of a document.
type lineError struct {
	line int // of the document, from 1; 0 is unknown
	err  error
}

func (e *lineError) Error() string { return e.err.Error() }
func (e *lineError) Unwrap() error { return e.err }

func at(node *yaml.Node, format string, args ...any) error {
	return &lineError{line: node.Line, err: fmt.Errorf(format, args...)}
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// parse returns the root of a document.
func parse(text []byte) (*yaml.Node, error) {
	var root yaml.Node
	err := yaml.Unmarshal(text, &root)
	if err == nil && len(root.Content) == 1 {
		return root.Content[0], nil
	}
	if err == nil {
		return nil, errors.New("holds no object")
	}
	message := err.Error()
	found := yamlLine.FindStringSubmatch(message)
	if found == nil {
		return nil, fmt.Errorf("read YAML: %s", strings.TrimPrefix(message, "yaml: "))
	}
	line, _ := strconv.Atoi(found[1]) // digits; 0 for a line beyond all bounds
	return nil, &lineError{line: line, err: fmt.Errorf("read YAML: %s", message[len(found[0]):])}
}

// Bounds of one document; aliases count as what they stand for.
const (
	maxDepth  = 64
	maxValues = 1 << 18
	maxBytes  = MaxFileBytes // of text in keys and values
)

// converter turns YAML into what JSON can hold.
type converter struct{ values, bytes int }

// convert returns the value of a node as map[string]any, []any, string, number, bool or nil.
func (c *converter) convert(node *yaml.Node, depth int) (any, error) {
	if depth > maxDepth {
		return nil, at(node, "is nested more than %d deep", maxDepth)
	}
	if err := c.count(node); err != nil {
		return nil, err
	}
	switch node.Kind {
	case yaml.AliasNode:
		return c.convert(node.Alias, depth+1)
	case yaml.MappingNode:
		return c.mapping(node, depth)
	case yaml.SequenceNode:
		list := make([]any, 0, len(node.Content))
		for _, item := range node.Content {
			value, err := c.convert(item, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	default:
		return scalar(node)
	}
}

func (c *converter) count(node *yaml.Node) error {
	c.values++
	c.bytes += len(node.Value)
	switch {
	case c.values > maxValues:
		return at(node, "holds more than %d values", maxValues)
	case c.bytes > maxBytes:
		return at(node, "holds more than %d bytes of text", maxBytes)
	}
	return nil
}

func (c *converter) mapping(node *yaml.Node, depth int) (any, error) {
	object := make(map[string]any, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		switch {
		case key.ShortTag() == "!!merge":
			return nil, at(key, "merge keys are not supported: write the fields out")
		case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null":
			return nil, at(key, "a key must be text")
		}
		if err := c.count(key); err != nil {
			return nil, err
		}
		if _, twice := object[key.Value]; twice {
			return nil, at(key, "key %q is there twice", key.Value)
		}
		value, err := c.convert(node.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		object[key.Value] = value
	}
	return object, nil
}

func scalar(node *yaml.Node) (any, error) {
	switch tag := node.ShortTag(); tag {
	case "!!null":
		return nil, nil
	case "!!str", "!!timestamp": // a date without quotes is text, as for Kubernetes
		return node.Value, nil
	case "!!bool", "!!int", "!!float":
		var value any
		if err := node.Decode(&value); err != nil {
			return nil, at(node, "read %s: %s", strings.TrimPrefix(tag, "!!"), node.Value)
		}
		return value, nil
	default:
		return nil, at(node, "tag %s is not supported", tag)
	}
}

// pathPart is a name, or an index or key in brackets, of a field path.
var pathPart = regexp.MustCompile(`\[([^]]*)\]|[^.[\]]+`)

// lineOf returns the line of the field at a path as spec.slots[0].name, or of the closest field above it
// that is there.
func lineOf(node *yaml.Node, path string) int {
	line := node.Line
	for _, part := range pathPart.FindAllStringSubmatch(path, -1) {
		name := part[0]
		if strings.HasPrefix(name, "[") {
			name = part[1]
		}
		if node.Kind == yaml.AliasNode {
			node = node.Alias
		}
		below, belowLine := child(node, name)
		if below == nil {
			return line
		}
		node, line = below, belowLine
	}
	return line
}

// child returns the value of a key or index, and the line of the key or item.
func child(node *yaml.Node, name string) (*yaml.Node, int) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				return node.Content[i+1], node.Content[i].Line
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i].Line
		}
	}
	return nil, 0
}
