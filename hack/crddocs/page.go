package main

import (
	"fmt"
	"go/ast"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

const introduction = `# Custom resources

All kinds are in API group ` + "`inferencecache.io`, version `v1alpha1`" + `, and have a status subresource. An object with a
field that no table lists is refused by clients that validate strictly, as kubectl does, and loses the field with others.
Defaults are written into the stored object. Generated from ` + "`crds/v1alpha1`" + ` by ` + "`make generate`" + `.
`

// write writes the page for the API types in a folder.
func write(w io.Writer, folder string) error {
	s, err := readSource(folder)
	if err != nil {
		return err
	}
	p := page{source: s, w: w}
	p.print("%s", introduction)
	for _, t := range s.order {
		if isKind(t) {
			p.kind(t)
		}
	}
	p.keys()
	return p.err
}

// keys writes the labels and annotations.
func (p *page) keys() {
	p.print("\n## Labels and annotations\n")
	for _, block := range p.constants {
		if block.file != "names.go" || len(block.rows) < 2 {
			continue
		}
		p.print("\n%s\n\n| value | |\n|---|---|\n", p.named(block.text))
		for _, row := range block.rows {
			p.print("| `%s` | %s |\n", row.value, cell(p.named(strings.TrimPrefix(row.comment, row.name+", "))))
		}
	}
}

func isKind(t *apiType) bool {
	_, root := t.doc.get("kubebuilder:object:root")
	return root && !strings.HasSuffix(t.name, "List")
}

// page writes Markdown and keeps the first error.
type page struct {
	*source
	w     io.Writer
	err   error
	rules []string // of the kind being written
}

func (p *page) print(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *page) kind(t *apiType) {
	resource, _ := t.doc.get("kubebuilder:resource")
	args := arguments(resource)
	p.print("\n## %s\n\n%s\n\n", t.name, t.doc.text)
	p.print("%s; `kubectl get %s`, short `%s`. Columns: %s.\n", args["scope"], args["path"], args["shortName"], columns(t))
	p.rules = nil
	p.typeRules("", t)
	for _, f := range t.fields {
		if f.json == "spec" || f.json == "status" {
			p.print("\n### %s %s\n\n", t.name, f.json)
			p.table(f)
		}
	}
	if len(p.rules) > 0 {
		p.print("\n### %s rules\n\nThe API server refuses what breaks one.\n\n", t.name)
		for _, rule := range p.rules {
			p.print("- %s\n", rule)
		}
	}
	p.conditions(t)
}

func columns(t *apiType) string {
	var names []string
	for _, m := range t.doc.markers {
		if m.name != "kubebuilder:printcolumn" {
			continue
		}
		args := arguments(m.value)
		name := args["name"]
		if args["priority"] != "" {
			name += " (wide)"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// table writes the fields below spec or status, one a row, by their path.
func (p *page) table(f apiField) {
	t := p.types[typeName(f.expr)]
	if t == nil || len(t.fields) == 0 {
		p.print("None.\n")
		return
	}
	p.print("| field | type | default | meaning |\n|---|---|---|---|\n")
	p.typeRules(f.json, t)
	p.rows(f.json, t)
}

func (p *page) rows(path string, t *apiType) {
	for _, f := range t.fields {
		at := path + "." + f.json
		p.print("| `%s` | %s | %s | %s |\n", at, p.describe(f), fallback(f), cell(p.named(f.doc.text)))
		p.markerRules(at, f.doc)
		if nested := p.types[typeName(f.expr)]; nested != nil {
			if _, isList := f.expr.(*ast.ArrayType); isList {
				at += "[]"
			}
			p.typeRules(at, nested)
			p.rows(at, nested)
		}
	}
}

func (p *page) typeRules(path string, t *apiType) { p.markerRules(path, t.doc) }

// markerRules collects the rules of a type or field.
func (p *page) markerRules(path string, d doc) {
	for _, m := range d.markers {
		if m.name != "kubebuilder:validation:XValidation" {
			continue
		}
		args := arguments(m.value)
		at := strings.TrimPrefix(path+args["fieldPath"], ".")
		if at == "" {
			at = "metadata.name"
		}
		p.rules = append(p.rules, fmt.Sprintf("`%s`: %s", at, cell(args["message"])))
	}
}

// typeName returns the name of the declared type below pointers and lists; "" for one of another package.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.ArrayType:
		return typeName(e.Elt)
	}
	return ""
}

// describe says what a field may hold.
func (p *page) describe(f apiField) string {
	text := p.typeText(f.expr)
	if values, found := f.doc.get("kubebuilder:validation:Enum"); found {
		text = choice(values)
	}
	if _, required := f.doc.get("required"); required {
		text += ", required"
	}
	return text
}

var plainTypes = map[string]string{
	"string": "string", "bool": "boolean", "int32": "integer", "int64": "integer",
	"metav1.Duration": "duration", "metav1.Time": "time", "resource.Quantity": "quantity",
	"metav1.Condition": "Kubernetes `Condition`", "metav1.ConditionStatus": "string",
}

func (p *page) typeText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return p.typeText(e.X)
	case *ast.ArrayType:
		return "list of " + p.typeText(e.Elt)
	case *ast.MapType:
		return "map"
	case *ast.SelectorExpr:
		name := fmt.Sprint(e.X) + "." + e.Sel.Name
		if text, found := plainTypes[name]; found {
			return text
		}
		return "Kubernetes `" + e.Sel.Name + "`"
	case *ast.Ident:
		if text, found := plainTypes[e.Name]; found {
			return text
		}
		if t := p.types[e.Name]; t != nil && len(t.fields) == 0 {
			if values, found := t.doc.get("kubebuilder:validation:Enum"); found {
				return choice(values)
			}
		}
		return "object"
	}
	return "object"
}

func choice(values string) string {
	return "`" + strings.ReplaceAll(values, ";", "`, `") + "`"
}

func fallback(f apiField) string {
	value, found := f.doc.get("kubebuilder:default")
	if !found {
		return ""
	}
	return "`" + strings.Trim(value, `"`) + "`"
}

// cell escapes what would end a table's cell or be taken for HTML.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "{{", "{&#8203;{").Replace(text)
}

// conditions writes the blocks of conditions and reasons that the files of a kind declare.
func (p *page) conditions(t *apiType) {
	first := true
	for _, block := range p.constants {
		if !strings.HasPrefix(block.file, strings.ToLower(t.name)+"_") || !speaksOfConditions(t, block) {
			continue
		}
		if first {
			p.print("\n### %s conditions\n", t.name)
			first = false
		}
		p.print("\n%s\n", p.named(block.text))
		if len(block.rows) == 1 && block.rows[0].comment == "" {
			continue
		}
		p.print("\n| value | |\n|---|---|\n")
		for _, row := range block.rows {
			p.print("| `%s` | %s |\n", row.value, cell(p.named(row.comment)))
		}
	}
}

func speaksOfConditions(t *apiType, block constants) bool {
	if len(block.rows) == 0 {
		return false
	}
	name := block.rows[0].name
	isName := strings.HasPrefix(name, t.name) && name != t.name+"Name"
	return isName || strings.HasPrefix(name, "Reason")
}

// named puts the values of constants in place of their names.
func (p *page) named(text string) string {
	names := slices.Sorted(maps.Keys(p.values)) // Go identifiers: nothing to quote
	constant := regexp.MustCompile(`\b(` + strings.Join(names, "|") + `)\b`)
	return constant.ReplaceAllStringFunc(text, func(name string) string { return "`" + p.values[name] + "`" })
}
