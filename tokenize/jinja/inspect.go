package jinja

import (
	"slices"
	"strings"
)

// TrimRightSpace is Python's str.rstrip.
func TrimRightSpace(s string) string { return strings.TrimRightFunc(s, isSpace) }

// TakesParts says whether the template goes through the parts of a message's content; otherwise it takes text.
// Engines hand it the one or the other, and find out in the same way: by a loop over the content of a variable
// that a loop over the messages sets, over a macro's parameter that such a content is passed for, or over a
// variable called content.
func (t *Template) TakesParts() bool {
	i := &inspector{body: t.body}
	if !i.findMessages() || !i.findItems() {
		return false
	}
	macros := i.macroLoops()
	takes := false
	walk(t.body, func(n any) {
		loop, ok := n.(*forStmt)
		if !ok || takes {
			return
		}
		params, inMacro := macros[loop]
		name, plain := loop.iter.(*nameExpr)
		over := i.meansContent(loop.iter) || plain && (slices.Contains(params, name.name) || !inMacro && name.name == "content")
		takes = over && !loop.unpack
	})
	return takes
}

type inspector struct {
	body     []stmt
	messages []string // variables that stand for the messages
	items    []string // variables that stand for a message
}

// findMessages fails where the messages are taken apart, which engines cannot follow.
func (i *inspector) findMessages() bool {
	i.messages = []string{"messages"}
	for at := 0; at < len(i.messages); at++ {
		plain := true
		walk(i.body, func(n any) {
			switch s := n.(type) {
			case *setStmt:
				if !means(s.value, i.messages[at], "") {
					return
				}
				if plain = plain && !s.unpack; !slices.Contains(i.messages, s.targets[0]) {
					i.messages = append(i.messages, s.targets[0])
				}
			case *setAttrStmt:
				plain = plain && !means(s.value, i.messages[at], "")
			}
		})
		if !plain {
			return false
		}
	}
	return true
}

// findItems fails where a loop takes messages apart.
func (i *inspector) findItems() bool {
	plain := true
	walk(i.body, func(n any) {
		loop, ok := n.(*forStmt)
		if ok && slices.ContainsFunc(i.messages, func(v string) bool { return means(loop.iter, v, "") }) {
			plain = plain && !loop.unpack
			i.items = append(i.items, loop.targets[0])
		}
	})
	return plain
}

func (i *inspector) meansContent(x expr) bool {
	return slices.ContainsFunc(i.items, func(v string) bool { return means(x, v, "content") })
}

// macroLoops returns the loops in macros, each with the macro's parameters that some call passes a content for.
func (i *inspector) macroLoops() map[*forStmt][]string {
	loops := map[*forStmt][]string{}
	walk(i.body, func(n any) {
		macro, ok := n.(*macroStmt)
		if !ok {
			return
		}
		params := i.contentParams(macro)
		walk(macro.body, func(n any) {
			if loop, ok := n.(*forStmt); ok && (len(params) > 0 || loops[loop] == nil) {
				loops[loop] = params
			}
		})
	})
	return loops
}

func (i *inspector) contentParams(macro *macroStmt) []string {
	var params []string
	walk(i.body, func(n any) {
		call, ok := n.(*callExpr)
		if !ok {
			return
		}
		if !isName(call.callee, macro.name) {
			return
		}
		for at, x := range call.args {
			if at < len(macro.params) && i.meansContent(x) {
				params = append(params, macro.params[at])
			}
		}
		for at, name := range call.names {
			if slices.Contains(macro.params, name) && i.meansContent(call.values[at]) {
				params = append(params, name)
			}
		}
	})
	return params
}

// means says whether x is the variable, or its attribute or item key unless that is empty, or something made of it
// by filters, tests and slices.
func means(x expr, variable, key string) bool {
	switch x := x.(type) {
	case *filterExpr:
		return means(x.input, variable, key)
	case *testExpr:
		return means(x.input, variable, key)
	case *sliceExpr:
		return means(x.object, variable, key)
	case *nameExpr:
		return key == "" && x.name == variable
	case *attrExpr:
		return key != "" && x.name == key && isName(x.object, variable)
	case *itemExpr:
		literal, ok := x.key.(*literal)
		return key != "" && ok && literal.value == key && isName(x.object, variable)
	}
	return false
}

func isName(x expr, name string) bool {
	n, ok := x.(*nameExpr)
	return ok && n.name == name
}

// walk visits n and what is in it, in the order of the source.
func walk(n any, visit func(any)) {
	all := func(nodes ...any) {
		for _, n := range nodes {
			walk(n, visit)
		}
	}
	visit(n)
	switch n := n.(type) {
	case []stmt:
		for _, s := range n {
			walk(s, visit)
		}
	case []expr:
		for _, x := range n {
			walk(x, visit)
		}
	case *printStmt:
		all(n.value)
	case *ifStmt:
		all(n.test, n.body, n.otherwise)
	case *forStmt:
		all(n.iter, n.body, n.otherwise, n.filter)
	case *setStmt:
		all(n.value)
	case *setAttrStmt:
		all(n.value)
	case *captureStmt:
		all(n.body)
	case *macroStmt:
		all(n.defaults, n.body)
	default:
		walkExpr(n, all)
	}
}

func walkExpr(n any, all func(...any)) {
	switch n := n.(type) {
	case *attrExpr:
		all(n.object)
	case *itemExpr:
		all(n.object, n.key)
	case *sliceExpr:
		all(n.object, n.from, n.to, n.step)
	case *callExpr:
		all(n.callee, n.args, n.values)
	case *filterExpr:
		all(n.input, n.args, n.values)
	case *testExpr:
		all(n.input, n.args)
	case *notExpr:
		all(n.operand)
	case *signExpr:
		all(n.operand)
	case *binaryExpr:
		all(n.left, n.right)
	case *logicExpr:
		all(n.left, n.right)
	case *compareExpr:
		all(n.first, n.rest)
	case *concatExpr:
		all(n.parts)
	case *condExpr:
		all(n.test, n.then, n.otherwise)
	case *listExpr:
		all(n.items)
	case *dictExpr:
		all(n.keys, n.values)
	}
}
