package tokenize

import (
	"context"
	"testing"
)

// FuzzMessages hands anything as the JSON of a chat to a template that writes all of it: it renders, or says why not.
func FuzzMessages(f *testing.F) {
	f.Add("assistant", []byte(`[{"type":"text","text":"a"},"b"]`), []byte(`[{"id":"c","function":{"name":"f","arguments":"{\"a\": 1}"}}]`), []byte(`[{"function":{"name":"f","strict":true}}]`), []byte(`{"a": null}`))
	f.Add("developer", []byte(`[]`), []byte(`[]`), []byte(`[{"type":"function","function":null}]`), []byte(`{"messages": 1}`))
	f.Add("tool", []byte(`[{"type":"refusal","refusal":"no"}]`), []byte(`[1]`), []byte(`[[]]`), []byte(`[]`))
	f.Add("system", []byte(`["x-anthropic-billing-header"]`), []byte(`null`), []byte(`null`), []byte(`null`))
	config := Config{}.withDefaults()
	template, err := compile("{{ messages | tojson }}{{ tools | tojson }}{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}", config)
	if err != nil || !template.parts || !template.noDeveloper {
		f.Fatal("the template does not take parts, or knows developers", err)
	}
	m := &model{templates: templates{plain: template}}
	f.Fuzz(func(t *testing.T, role string, parts, calls, tools, args []byte) {
		in := Input{
			Messages: []Message{{Role: "user", Content: "x"}, {Role: role, Parts: parts, ToolCalls: calls, Reasoning: "r"}},
			Tools:    tools, TemplateArgs: args,
		}
		if in.check(config) != nil {
			return
		}
		_, err := m.render(context.Background(), in, config)
		if reason := ReasonOf(err); reason == ReasonEncodeError {
			t.Errorf("an error without a reason: %v", err)
		}
	})
}
