package jinja

import "strings"

// TrimRightSpace is Python's str.rstrip.
func TrimRightSpace(s string) string { return strings.TrimRightFunc(s, isSpace) }

// LoopsOver says whether a loop of the template goes through an attribute or item of that name, or through a
// variable that was set to one. Templates that loop over `content` take the parts of a message; others take
// its text.
func (t *Template) LoopsOver(name string) bool {
	i := inspector{name: name, aliases: map[string]bool{}}
	i.body(t.body)
	return i.found
}

type inspector struct {
	name    string
	aliases map[string]bool // variables that were set to the attribute
	found   bool
}

func (i *inspector) body(body []stmt) {
	for _, s := range body {
		switch s := s.(type) {
		case *ifStmt:
			i.body(s.body)
			i.body(s.otherwise)
		case *forStmt:
			i.found = i.found || i.means(s.iter)
			i.body(s.body)
			i.body(s.otherwise)
		case *setStmt:
			if !s.unpack && i.means(s.value) {
				i.aliases[s.targets[0]] = true
			}
		case *captureStmt:
			i.body(s.body)
		case *macroStmt:
			i.body(s.body)
		}
	}
}

// means says whether x is the attribute, or something made of it by filters or slices.
func (i *inspector) means(x expr) bool {
	switch x := x.(type) {
	case *attrExpr:
		return x.name == i.name
	case *itemExpr:
		key, ok := x.key.(*literal)
		return ok && key.value == i.name
	case *nameExpr:
		return i.aliases[x.name]
	case *filterExpr:
		return i.means(x.input)
	case *sliceExpr:
		return i.means(x.object)
	}
	return false
}
