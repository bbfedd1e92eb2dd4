package jinja

import "testing"

// The answers are vLLM's.
func TestContentPartsGoToTemplatesThatLoopOverThem(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		want   bool
	}{
		"a loop over an attribute":                 {`{% for m in messages %}{% for p in m.content %}{{p.text}}{% endfor %}{% endfor %}`, true},
		"a loop over an item, through a filter":    {`{% for m in messages %}{% for p in m['content']|list %}{{p.text}}{% endfor %}{% endfor %}`, true},
		"a loop over a variable called content":    {`{% for m in messages %}{% set content = m.content %}{% for p in content %}{{p.text}}{% endfor %}{% endfor %}`, true},
		"a loop over a variable of another name":   {`{% for m in messages %}{% set c = m.content %}{% for p in c %}{{p.text}}{% endfor %}{% endfor %}`, false},
		"a macro that a content is passed to":      {`{% macro r(x) %}{% for p in x %}{{p.text}}{% endfor %}{% endmacro %}{% for m in messages %}{{ r(m.content) }}{% endfor %}`, true},
		"a macro that something else is passed to": {`{% macro r(content) %}{% for p in content %}{{p.text}}{% endfor %}{% endmacro %}{% for m in messages %}{{ r(m.tool_calls) }}{% endfor %}`, false},
		"a slice of the messages":                  {`{% set msgs = messages[1:] %}{% for m in msgs %}{% for p in m.content %}{{p.text}}{% endfor %}{% endfor %}`, true},
		"messages in a tuple":                      {`{% set a, b = messages, 1 %}{% for m in messages %}{% for p in m.content %}{{p.text}}{% endfor %}{% endfor %}`, true},
		"messages in a namespace":                  {`{% set ns = namespace() %}{% set ns.m = messages %}{% for m in messages %}{% for p in m.content %}{{p.text}}{% endfor %}{% endfor %}`, false},
		"no loop over the messages":                {`{% for p in messages[0].content %}{{p.text}}{% endfor %}`, false},
		"a macro's parameter by name":              {`{% macro r(x, y=1) %}{% for p in y %}{{p.text}}{% endfor %}{% endmacro %}{% for m in messages %}{{ r(1, y=m['content']) }}{% endfor %}`, true},
		"messages taken apart":                     {`{% for a, b in messages %}{% for p in content %}{{p}}{% endfor %}{% endfor %}`, false},
		"parts taken apart":                        {`{% for m in messages %}{% for a, b in m.content %}{{a}}{% endfor %}{% endfor %}`, false},
		"content of nothing in particular":         {`{% for i in range(3) %}{% for p in content %}{{p}}{% endfor %}{% endfor %}`, true},
		"no loop over the content":                 {`{% for m in messages %}{{ m.content }}{% endfor %}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			template, err := Compile(c.source)
			if err != nil {
				t.Fatal(err)
			}
			if got := template.TakesParts(); got != c.want {
				t.Errorf("takes parts: %v, want %v", got, c.want)
			}
		})
	}
}
