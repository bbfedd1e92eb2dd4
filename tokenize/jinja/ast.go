package jinja

// Expressions.
type (
	expr interface{}

	literal  struct{ value Value }
	nameExpr struct{ name string }
	attrExpr struct {
		object expr
		name   string
	}
	itemExpr  struct{ object, key expr }
	sliceExpr struct{ object, from, to, step expr } // nil where left out
	callExpr  struct {
		callee expr
		arguments
	}
	filterExpr struct {
		input expr
		name  string
		arguments
	}
	testExpr struct {
		input   expr
		name    string
		negated bool
		args    []expr
	}
	notExpr    struct{ operand expr }
	signExpr   struct{ operand expr } // unary minus
	binaryExpr struct {
		op          string
		left, right expr
	}
	logicExpr struct {
		and         bool
		left, right expr
	}
	compareExpr struct { // first ops[0] rest[0] ops[1] rest[1] ...
		first expr
		ops   []string
		rest  []expr
	}
	concatExpr struct{ parts []expr }
	condExpr   struct{ test, then, otherwise expr } // otherwise nil where left out
	listExpr   struct {
		items []expr
		tuple bool
	}
	dictExpr struct{ keys, values []expr }

	arguments struct {
		args   []expr
		names  []string // of the values
		values []expr
	}
)

// Statements.
type (
	stmt interface{}

	textStmt  struct{ text string }
	printStmt struct{ value expr }
	ifStmt    struct {
		test            expr
		body, otherwise []stmt
	}
	forStmt struct {
		targets         []string
		unpack          bool // a tuple of targets
		iter, filter    expr // filter nil where left out
		body, otherwise []stmt
	}
	setStmt struct {
		targets []string
		unpack  bool
		value   expr
	}
	setAttrStmt struct { // set object.attr = value
		object, attr string
		value        expr
	}
	captureStmt struct { // set target with a body
		target string
		body   []stmt
	}
	macroStmt struct {
		name     string
		params   []string
		defaults []expr // nil for a parameter without one
		body     []stmt
	}
	breakStmt    struct{}
	continueStmt struct{}
)
