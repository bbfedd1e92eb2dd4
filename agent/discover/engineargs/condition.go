package engineargs

import (
	"strconv"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// verdict is what becomes of a condition.
type verdict int8

// Values of verdict.
const (
	maybe verdict = iota // it depends on what is not known
	yes
	no
)

func (v verdict) not() verdict {
	switch v {
	case yes:
		return no
	case no:
		return yes
	default:
		return maybe
	}
}

func verdictOf(b bool) verdict {
	if b {
		return yes
	}
	return no
}

// condition decides tests of variables, as in [ "$RANK" -gt 0 ] and [[ $ROLE == decode ]]. test is false for
// other commands, which are taken to succeed.
func (s *script) condition(st *syntax.Stmt) (v verdict, test bool) {
	switch cmd := st.Cmd.(type) {
	case *syntax.TestClause:
		v, test = s.expression(cmd.X), true
	case *syntax.CallExpr:
		if argv := s.fields(cmd.Args); len(argv) > 0 {
			v, test = s.builtin(argv)
		}
	}
	if st.Negated {
		v = v.not()
	}
	return v, test
}

// builtin decides the commands [, test, true and false.
func (s *script) builtin(argv []string) (v verdict, test bool) {
	args := argv[1:]
	switch argv[0] {
	case "true", ":":
		return yes, true
	case "false":
		return no, true
	case "[":
		if len(args) > 0 && args[len(args)-1] == "]" {
			args = args[:len(args)-1]
		}
	case "test":
	default:
		return maybe, false
	}
	negated := len(args) > 1 && args[0] == "!"
	if negated {
		args = args[1:]
	}
	switch len(args) {
	case 1:
		v = s.compare("-n", "", args[0])
	case 2:
		v = s.compare(args[0], "", args[1])
	case 3:
		v = s.compare(args[1], args[0], args[2])
	}
	if negated {
		v = v.not()
	}
	return v, true
}

// expression decides what is between [[ and ]].
func (s *script) expression(x syntax.TestExpr) verdict {
	switch x := x.(type) {
	case *syntax.Word:
		return s.compare("-n", "", s.literal(x))
	case *syntax.ParenTest:
		return s.expression(x.X)
	case *syntax.UnaryTest:
		if x.Op == syntax.TsNot {
			return s.expression(x.X).not()
		}
		if w, ok := x.X.(*syntax.Word); ok {
			return s.compare(x.Op.String(), "", s.literal(w))
		}
	case *syntax.BinaryTest:
		switch x.Op {
		case syntax.AndTest:
			return both(s.expression(x.X), s.expression(x.Y))
		case syntax.OrTest:
			return both(s.expression(x.X).not(), s.expression(x.Y).not()).not()
		}
		left, ok := x.X.(*syntax.Word)
		right, ok2 := x.Y.(*syntax.Word)
		if ok && ok2 && !s.pattern(right) {
			return s.compare(x.Op.String(), s.literal(left), s.literal(right))
		}
	}
	return maybe
}

// pattern says whether a word stands for more than itself behind == in [[ ]].
func (s *script) pattern(w *syntax.Word) bool {
	pattern, err := expand.Pattern(s.config(), w)
	return err != nil || pattern != s.literal(w)
}

func both(a, b verdict) verdict {
	switch {
	case a == no || b == no:
		return no
	case a == yes && b == yes:
		return yes
	default:
		return maybe
	}
}

// compare decides a test of one or two words.
func (s *script) compare(op, left, right string) verdict {
	for _, word := range []string{left, right} {
		if _, unknown := s.vars.why(word); unknown {
			return maybe
		}
	}
	switch op {
	case "-n":
		return verdictOf(right != "")
	case "-z":
		return verdictOf(right == "")
	case "=", "==":
		return verdictOf(left == right)
	case "!=":
		return verdictOf(left != right)
	}
	a, err := strconv.Atoi(left)
	b, err2 := strconv.Atoi(right)
	if err != nil || err2 != nil {
		return maybe
	}
	switch op {
	case "-eq":
		return verdictOf(a == b)
	case "-ne":
		return verdictOf(a != b)
	case "-lt":
		return verdictOf(a < b)
	case "-le":
		return verdictOf(a <= b)
	case "-gt":
		return verdictOf(a > b)
	case "-ge":
		return verdictOf(a >= b)
	default:
		return maybe
	}
}
