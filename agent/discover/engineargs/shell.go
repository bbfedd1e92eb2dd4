package engineargs

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// Bounds of a script. Real ones are a few kilobytes.
const (
	maxScript   = 64 << 10
	maxWords    = 4096
	maxBranches = 256 // each costs a copy of the variables
)

// script walks a shell script without running it: it follows assignments and files that are written
// from here-documents, and collects the commands that start engines. It decides tests of variables that are
// known; of other branches it takes every side, and what a side assigns is not known afterwards.
type script struct {
	vars     *variables
	depth    int
	branches int
	found    finding
}

func searchScript(source string, params []string, vars *variables, depth int) finding {
	if !mentionsEngine(source) && !mentionsEngine(strings.Join(params, " ")) {
		return finding{}
	}
	if len(source) > maxScript {
		return finding{likely: likely(source), fault: fmt.Sprintf("the script has %d bytes, more than the %d that are read", len(source), maxScript)}
	}
	file, err := syntax.NewParser().Parse(strings.NewReader(source), "")
	if err != nil {
		return finding{likely: likely(source), fault: fmt.Sprintf("the script cannot be read: %v", err)}
	}
	s := script{vars: vars, depth: depth, found: finding{files: map[string]string{}}}
	s.vars.params = params
	s.statements(file.Stmts)
	return s.found
}

func mentionsEngine(source string) bool {
	return strings.Contains(source, string(VLLM)) || strings.Contains(source, string(SGLang))
}

// likely returns the engine that a script which cannot be read seems to start, or nothing.
func likely(source string) Kind {
	for _, start := range []struct {
		text string
		kind Kind
	}{{"vllm serve", VLLM}, {"vllm.entrypoints", VLLM}, {"sglang serve", SGLang}, {"sglang.launch_server", SGLang}} {
		if strings.Contains(source, start.text) {
			return start.kind
		}
	}
	return ""
}

func (s *script) statements(list []*syntax.Stmt) {
	for _, statement := range list {
		s.statement(statement)
	}
}

func (s *script) statement(st *syntax.Stmt) {
	switch cmd := st.Cmd.(type) {
	case *syntax.CallExpr:
		s.call(cmd, st.Redirs)
	case *syntax.DeclClause: // export A=b
		s.assign(cmd.Args)
	case *syntax.BinaryCmd: // &&, ||, |
		s.binary(cmd)
	case *syntax.Block:
		s.statements(cmd.Stmts)
	case *syntax.Subshell:
		s.statements(cmd.Stmts)
	case *syntax.TimeClause:
		if cmd.Stmt != nil {
			s.statement(cmd.Stmt)
		}
	case *syntax.FuncDecl:
		s.branch(func() { s.statement(cmd.Body) })
	case *syntax.IfClause:
		s.choose(cmd)
	case *syntax.WhileClause:
		s.statements(cmd.Cond)
		s.branch(func() { s.statements(cmd.Do) })
	case *syntax.ForClause:
		s.branch(func() {
			if words, ok := cmd.Loop.(*syntax.WordIter); ok {
				s.vars.set(words.Name.Value, s.vars.unknown("$"+words.Name.Value+" runs through a loop"))
			}
			s.statements(cmd.Do)
		})
	case *syntax.CaseClause:
		for _, item := range cmd.Items {
			s.branch(func() { s.statements(item.Stmts) })
		}
	}
}

// binary takes && and || as the shell does where it is known what comes of the first command. One that is
// no test is taken to succeed.
func (s *script) binary(cmd *syntax.BinaryCmd) {
	v, test := s.condition(cmd.X)
	s.statement(cmd.X)
	switch or := cmd.Op == syntax.OrStmt; {
	case cmd.Op != syntax.AndStmt && !or, !test && !or:
		s.statement(cmd.Y)
	case !test || v == maybe:
		s.branch(func() { s.statement(cmd.Y) })
	case (v == yes) != or:
		s.statement(cmd.Y)
	}
}

// choose takes the side of an if that is known to be taken, or each that may be.
func (s *script) choose(cmd *syntax.IfClause) {
	open := false // an earlier side may be the one
	for c := cmd; c != nil; c = c.Else {
		v := yes // else
		if n := len(c.Cond); n > 0 {
			v, _ = s.condition(c.Cond[n-1])
			s.statements(c.Cond)
		}
		switch {
		case v == no:
			continue
		case v == yes && !open:
			s.statements(c.Then)
			return
		}
		s.branch(func() { s.statements(c.Then) })
		if v == yes {
			return
		}
		open = true
	}
}

// branch runs what may or may not happen. Where it changes a variable, the value is not known behind it.
func (s *script) branch(run func()) {
	if s.branches++; s.branches > maxBranches {
		s.found.fault = fmt.Sprintf("the script has more than %d branches", maxBranches)
		return
	}
	values, arrays := maps.Clone(s.vars.values), maps.Clone(s.vars.arrays)
	run()
	var changed []string
	for name, value := range s.vars.values {
		if old, ok := values[name]; !ok || old != value {
			changed = append(changed, name)
		}
	}
	for name, elements := range s.vars.arrays {
		if old, ok := arrays[name]; !ok || !slices.Equal(old, elements) {
			changed = append(changed, name)
		}
	}
	s.vars.values, s.vars.arrays = values, arrays
	for _, name := range changed {
		s.vars.set(name, s.vars.unknown("$"+name+" is set in a branch of the script"))
	}
}

func (s *script) call(cmd *syntax.CallExpr, redirects []*syntax.Redirect) {
	if len(cmd.Args) == 0 {
		s.assign(cmd.Assigns)
		return
	}
	argv := s.fields(cmd.Args)
	if len(argv) == 0 {
		return
	}
	if program := path.Base(argv[0]); program == "cat" || program == "tee" || program == "echo" {
		s.write(argv, redirects)
		return
	}
	inner := search(argv, s.vars, s.depth)
	s.found.engines = append(s.found.engines, inner.engines...)
	maps.Copy(s.found.files, inner.files)
	if s.found.fault == "" {
		s.found.fault, s.found.likely = inner.fault, inner.likely
	}
}

func (s *script) assign(list []*syntax.Assign) {
	for _, a := range list {
		switch {
		case a.Naked || a.Name == nil:
		case a.Index != nil:
			s.vars.set(a.Name.Value, s.vars.unknown("an element of $"+a.Name.Value+" is set"))
		case a.Array != nil:
			s.assignArray(a)
		case a.Append:
			s.vars.set(a.Name.Value, s.vars.Get(a.Name.Value).Str+s.literal(a.Value))
		default:
			s.vars.set(a.Name.Value, s.literal(a.Value))
		}
	}
}

func (s *script) assignArray(a *syntax.Assign) {
	var elements []string
	if a.Append {
		elements = append(elements, s.vars.Get(a.Name.Value).List...)
	}
	for _, e := range a.Array.Elems {
		if e.Index != nil || e.Value == nil {
			s.vars.set(a.Name.Value, s.vars.unknown("elements of $"+a.Name.Value+" are set by their index"))
			return
		}
		elements = append(elements, s.fields([]*syntax.Word{e.Value})...)
	}
	s.vars.setArray(a.Name.Value, elements)
}

// write keeps what a command writes into a file from a here-document or its arguments.
func (s *script) write(argv []string, redirects []*syntax.Redirect) {
	target, content := "", ""
	if program := path.Base(argv[0]); len(argv) > 1 {
		switch program {
		case "tee":
			target = argv[len(argv)-1]
		case "echo":
			content = strings.Join(argv[1:], " ") + "\n"
		}
	}
	for _, r := range redirects {
		switch {
		case r.Hdoc != nil:
			content = s.document(r.Hdoc)
		case r.Op == syntax.RdrOut || r.Op == syntax.AppOut:
			target = s.literal(r.Word)
		}
	}
	if target != "" && content != "" && len(s.found.files) < maxNested {
		s.found.files[target] = content
	}
}

// config is how words are expanded: nothing is run, no file and no account is looked up.
func (s *script) config() *expand.Config {
	return &expand.Config{
		Env: s.vars,
		CmdSubst: func(w io.Writer, _ *syntax.CmdSubst) error {
			_, err := io.WriteString(w, s.vars.unknown("it comes from a command in the script"))
			return err
		},
		ProcSubst: func(*syntax.ProcSubst) (string, error) {
			return s.vars.unknown("it comes from a command in the script"), nil
		},
	}
}

// fields expands words; one that cannot be expanded is unknown.
func (s *script) fields(words []*syntax.Word) (all []string) {
	for _, w := range words {
		before := len(all)
		for field, err := range expand.FieldsSeq(s.config(), s.known(w)) {
			if err != nil {
				all = append(all[:before], s.vars.unknown("it cannot be expanded: "+err.Error()))
				break
			}
			if all = append(all, field); len(all) > maxWords {
				return nil
			}
		}
	}
	return all
}

func (s *script) literal(w *syntax.Word) string {
	if w == nil {
		return ""
	}
	value, err := expand.Literal(s.config(), s.known(w))
	if err != nil {
		return s.vars.unknown("it cannot be expanded: " + err.Error())
	}
	return value
}

func (s *script) document(w *syntax.Word) string {
	value, err := expand.Document(s.config(), s.known(w))
	if err != nil {
		return s.vars.unknown("it cannot be expanded: " + err.Error())
	}
	return value
}

// known makes variables unknown that a word takes for granted and that are set nowhere in sight: the
// image may set them. One with a default, as in ${PORT:-8000}, is taken to be unset.
func (s *script) known(w *syntax.Word) *syntax.Word {
	syntax.Walk(w, func(node syntax.Node) bool {
		p, ok := node.(*syntax.ParamExp)
		if !ok || p.Param == nil || p.Exp != nil && !s.vars.more || !syntax.ValidName(p.Param.Value) {
			return true
		}
		if name := p.Param.Value; !s.vars.Get(name).IsSet() {
			s.vars.set(name, s.vars.unknown("$"+name+" is not set in the pod"))
		}
		return true
	})
	return w
}
