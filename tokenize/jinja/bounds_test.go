package jinja

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestWhatIsNotSupportedIsNamedWhenATemplateIsCompiled(t *testing.T) {
	for source, want := range map[string]string{
		"{% include 'x' %}":                          `line 1: statement "include" is not supported`,
		"\n{{ x|groupby('a') }}":                     `line 2: filter "groupby" is not supported`,
		"{{ x|escape }}":                             `line 1: filter "escape" is not supported`,
		"{{ x.encode() }}":                           `line 1: method "encode" is not supported`,
		"{{ joiner() }}":                             `line 1: name "joiner" is not supported`,
		"{{ 2 ** 3 }}":                               `line 1: operator ** is not supported`,
		"{{ f(*x) }}":                                `line 1: unpacking of arguments is not supported`,
		"{% call f() %}{% endcall %}":                `line 1: statement "call" is not supported`,
		"{% macro f() %}{{ varargs }}{% endmacro %}": `line 1: name "varargs" in a macro is not supported`,
		"{% for x in y recursive %}{% endfor %}":     `line 1: a recursive loop is not supported`,
	} {
		var unsupported *UnsupportedError
		if _, err := Compile(source); !errors.As(err, &unsupported) || err.Error() != want {
			t.Errorf("%s: got %v, want %s", source, err, want)
		}
	}
}

func TestBrokenTemplatesAreRefused(t *testing.T) {
	for _, source := range []string{
		"{{", "{{ }}", "{% if %}{% endif %}", "{% if x %}", "{% endif %}", "{% for x %}{% endfor %}", "{{ 'a }}", "{{ a b }}", "{# x",
		"{% raw %}", "{{ (1 }}", "{{ 1) }}", "{{ [1 }}", "{{ {1} }}", "{% set %}", "{% break %}", "{{ x[] }}", "{{ x[1:2:3:4] }}", "{{ 'a\\ud800' }}",
		"{{ 99999999999999999999 }}", "{{ a. }}", "{{ a| }}", "{{ a is }}", "{% macro %}{% endmacro %}", "{% macro f(a b) %}{% endmacro %}", "{{ f(a=1, 2) }}", "{{ ! }}",
		"{{ " + strings.Repeat("(", 100_000), "{{ " + strings.Repeat("-", 100_000) + "1 }}", "{{ " + strings.Repeat("not ", 100_000) + "1 }}", strings.Repeat("{% if x %}", 100_000),
	} {
		if _, err := Compile(source); err == nil {
			t.Errorf("%.40q compiled", source)
		}
	}
}

func TestARenderingIsBounded(t *testing.T) {
	for name, source := range map[string]string{
		"nested loops":          "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}",
		"a long range":          "{{ range(100000000) }}",
		"output":                "{% for a in range(100000) %}{{ 'x' * 10000 }}{% endfor %}",
		"a long string":         "{{ 'x' * 100000000000 }}",
		"a long list":           "{{ [1] * 100000000000 }}",
		"doubling":              "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
		"doubling a list":       "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
		"replacing":             "{{ ('x' * 1000000)|replace('x', 'y' * 1000000) }}",
		"recursion":             "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
		"recursion in a caller": "{% macro f(a=1) %}{{ f(f()) }}{% endmacro %}{{ f() }}",
	} {
		t.Run(name, func(t *testing.T) {
			template, err := Compile(source)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := template.Render(t.Context(), nil, now, Limits{Steps: 300_000, Bytes: 32 << 20}); !errors.Is(err, ErrLimit) {
				t.Errorf("got %v, want ErrLimit", err)
			}
		})
	}
}

func TestARenderingEndsWithItsContext(t *testing.T) {
	template, err := Compile("{% for a in range(10000) %}{{ a }}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the caller has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := template.Render(ctx, nil, now, Limits{}); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
}

func TestJSONIsDecodedWithItsOrderAndNumbers(t *testing.T) {
	vars := values(t, []byte(`{"d": {"z": 1, "a": 2.0, "é": [1e3, -0.5, 9007199254740993]}}`))
	got, err := render(t, "{{ d|tojson }}", vars)
	if want := `{"z": 1, "a": 2.0, "é": [1000.0, -0.5, 9007199254740993]}`; err != nil || got != want {
		t.Errorf("got %s %v, want %s", got, err, want)
	}
	for _, raw := range []string{"", "{", "1 2", `{"a":}`, "99999999999999999999", "1e999", strings.Repeat("[", 300) + strings.Repeat("]", 300)} {
		if v, err := DecodeJSON([]byte(raw)); err == nil {
			t.Errorf("%.20q decoded to %v", raw, v)
		}
	}
}

// FuzzCompile looks for templates that hang, panic or allocate without bound.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{"{{ a|tojson }}", "{% for k, v in d.items() if k != 'x' %}{{ loop.index }}{% endfor %}", "{%- set x = [1,2][::-1] -%}{{ x }}", "{# c -#} {% raw %}{{{% endraw %}"} {
		f.Add(seed)
	}
	vars := map[string]Value{"d": NewDict(), "s": " text\n", "n": int64(3), "l": &List{Items: []Value{"a", int64(1), nil}}}
	f.Fuzz(func(t *testing.T, source string) {
		template, err := Compile(source)
		if err != nil {
			return
		}
		limits := Limits{Steps: 100_000, Bytes: 1 << 20}
		first, err := template.Render(t.Context(), vars, now, limits)
		second, again := template.Render(t.Context(), vars, now, limits)
		if first != second || fmt.Sprint(err) != fmt.Sprint(again) {
			t.Errorf("%q then %q, %v then %v", first, second, err, again)
		}
	})
}
