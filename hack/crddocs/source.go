package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// source is what the Go files of the API package declare.
type source struct {
	types     map[string]*apiType
	order     []*apiType
	constants []constants
	values    map[string]string // value of each string constant by name
}

// apiType is a declared type.
type apiType struct {
	name   string
	doc    doc
	fields []apiField // of a struct
}

// apiField is a field of a struct.
type apiField struct {
	json string // "" where inlined
	expr ast.Expr
	doc  doc
}

// constants is one const block.
type constants struct {
	file string
	text string
	rows []constant
}

type constant struct{ name, value, comment string }

// doc is a comment: its text, and its markers in order.
type doc struct {
	text    string
	markers []marker
}

// marker is a line as +kubebuilder:default=5m.
type marker struct{ name, value string }

// get returns the value of the first marker with a name.
func (d doc) get(name string) (string, bool) {
	for _, m := range d.markers {
		if m.name == name {
			return m.value, true
		}
	}
	return "", false
}

func readSource(folder string) (*source, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go")) // sorted
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", folder, err)
	}
	s := &source{types: map[string]*apiType{}, values: map[string]string{}}
	for _, file := range files {
		base := filepath.Base(file)
		if strings.HasPrefix(base, "zz_generated.") || strings.HasSuffix(base, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}
		for _, d := range parsed.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				s.declare(base, g)
			}
		}
	}
	if len(s.order) == 0 {
		return nil, fmt.Errorf("no types in the Go files of %s", folder)
	}
	return s, nil
}

func (s *source) declare(file string, g *ast.GenDecl) {
	switch g.Tok {
	case token.TYPE:
		for _, spec := range g.Specs {
			s.declareType(g, spec.(*ast.TypeSpec))
		}
	case token.CONST:
		block := constants{file: file, text: readDoc(g.Doc).text}
		for _, spec := range g.Specs {
			block.rows = append(block.rows, s.declareConstant(spec.(*ast.ValueSpec))...)
		}
		s.constants = append(s.constants, block)
	}
}

func (s *source) declareType(g *ast.GenDecl, spec *ast.TypeSpec) {
	comment := spec.Doc
	if comment == nil {
		comment = g.Doc
	}
	t := &apiType{name: spec.Name.Name, doc: readDoc(comment)}
	if st, ok := spec.Type.(*ast.StructType); ok {
		for _, f := range st.Fields.List {
			tag := ""
			if f.Tag != nil {
				tag, _ = strconv.Unquote(f.Tag.Value)
			}
			name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
			t.fields = append(t.fields, apiField{json: name, expr: f.Type, doc: readDoc(f.Doc)})
		}
	}
	s.types[t.name] = t
	s.order = append(s.order, t)
}

// declareConstant returns the string constants of a line.
func (s *source) declareConstant(spec *ast.ValueSpec) []constant {
	var rows []constant
	for i, value := range spec.Values {
		literal, ok := value.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			continue
		}
		text, _ := strconv.Unquote(literal.Value)
		comment := spec.Comment
		if spec.Doc != nil {
			comment = spec.Doc
		}
		name := spec.Names[i].Name
		s.values[name] = text
		rows = append(rows, constant{name: name, value: text, comment: readDoc(comment).text})
	}
	return rows
}

func readDoc(group *ast.CommentGroup) doc {
	if group == nil {
		return doc{}
	}
	var d doc
	var text []string
	for _, line := range group.List {
		content := strings.TrimSpace(strings.TrimPrefix(line.Text, "//"))
		if rest, found := strings.CutPrefix(content, "+"); found {
			d.markers = append(d.markers, readMarker(rest))
			continue
		}
		text = append(text, content)
	}
	d.text = strings.TrimSpace(strings.Join(text, " "))
	return d
}

var markerName = regexp.MustCompile(`^[A-Za-z]+(:[A-Za-z]+)*`)

func readMarker(line string) marker {
	name := markerName.FindString(line)
	value := strings.TrimLeft(line[len(name):], ":=")
	// Markers with named arguments put a colon between name and first argument.
	if i := strings.LastIndex(name, ":"); strings.HasPrefix(line[len(name):], "=") && i > 0 && withArguments[name[:i]] {
		name, value = name[:i], name[i+1:]+line[len(name):]
	}
	return marker{name: name, value: value}
}

var withArguments = map[string]bool{
	"kubebuilder:resource":               true,
	"kubebuilder:printcolumn":            true,
	"kubebuilder:validation:XValidation": true,
}

var argument = regexp.MustCompile("([A-Za-z]+)=(\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`|[^,]*)")

// arguments splits name=value pairs; values may be quoted.
func arguments(value string) map[string]string {
	args := map[string]string{}
	for _, m := range argument.FindAllStringSubmatch(value, -1) {
		text := m[2]
		if unquoted, err := strconv.Unquote(text); err == nil {
			text = unquoted
		}
		args[m[1]] = text
	}
	return args
}
