package tokenize

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/inferencecache/inferencecache/tokenize/jinja"
)

// shape is the form in which a chat template takes messages.
type shape struct {
	parts       bool   // content is a list of parts; otherwise it is text
	noDeveloper bool   // the template does not know the role developer
	separator   string // between texts that are joined
}

// messageValues are the messages as engines hand them to the template.
func messageValues(in Input, s shape) (*jinja.List, error) {
	messages := in.Messages
	if len(messages) == 0 {
		messages = []Message{{Role: "user", Content: in.Prompt}}
	}
	list := &jinja.List{}
	developer := false
	for i, m := range messages {
		if s.noDeveloper && m.Role == "developer" {
			m.Role, developer = "system", true
		}
		last := in.ContinueFinal && i == len(messages)-1
		v, err := m.value(s, last)
		if err != nil {
			var e *Error
			if errors.As(err, &e) {
				return nil, refuse(e.Reason, fmt.Errorf("messages[%d]: %w", i, err))
			}
			return nil, refuse(ReasonBadInput, fmt.Errorf("messages[%d]: %w", i, err))
		}
		list.Items = append(list.Items, v)
	}
	if developer {
		list.Items = joinSystem(list.Items)
	}
	return list, nil
}

// joinSystem puts the texts of all system messages into one, in front of the others, as engines do where messages
// of developers became such.
func joinSystem(messages []jinja.Value) []jinja.Value {
	var texts []string
	var others []jinja.Value
	first := 0 // system messages at the very start
	for i, v := range messages {
		m := v.(*jinja.Dict)
		if role, _ := m.Get("role"); role != "system" {
			others = append(others, v)
			continue
		}
		if i == 0 {
			first = 1
		}
		content, _ := m.Get("content")
		if text := strings.Join(contentTexts(content), "\n"); text != "" {
			texts = append(texts, text)
		}
	}
	if len(messages)-len(others) == first {
		return messages
	}
	joined := jinja.NewDict()
	joined.Set("role", "system")
	joined.Set("content", strings.Join(texts, "\n\n"))
	return append([]jinja.Value{joined}, others...)
}

// contentTexts returns the texts of a content that messageContent made.
func contentTexts(content jinja.Value) []string {
	if text, ok := content.(string); ok {
		return []string{text}
	}
	var texts []string
	for _, part := range content.(*jinja.List).Items {
		text, _ := part.(*jinja.Dict).Get("text")
		texts = append(texts, text.(string))
	}
	return texts
}

// value is the message with what engines keep of it: calls and reasoning of the assistant, the call that a tool answers.
func (m *Message) value(s shape, continued bool) (jinja.Value, error) {
	d := jinja.NewDict()
	assistant := m.Role == "assistant"
	if assistant && m.Reasoning != "" {
		d.Set("thinking", m.Reasoning)
	}
	content, err := m.content(s, continued)
	if err != nil {
		return nil, err
	}
	d.Set("role", m.Role)
	d.Set("content", content)
	if assistant && len(m.ToolCalls) > 0 {
		calls, err := toolCalls(m.ToolCalls)
		if err != nil {
			return nil, err
		}
		if len(calls.Items) > 0 {
			d.Set("tool_calls", calls)
		}
	}
	if m.Role == "tool" && m.ToolCallID != "" {
		d.Set("tool_call_id", m.ToolCallID)
	}
	if m.Name != "" {
		d.Set("name", m.Name)
	}
	if m.Role == "developer" {
		d.Set("tools", nil)
	}
	if assistant && m.Reasoning != "" {
		d.Set("reasoning", m.Reasoning)
		d.Set("reasoning_content", m.Reasoning)
	}
	return d, nil
}

// content is the text of a message, or its parts where the template takes those. A tool's result is always text. continued
// marks the end.
func (m *Message) content(s shape, continued bool) (jinja.Value, error) {
	texts, err := m.texts()
	if err != nil {
		return nil, err
	}
	if m.Role == "system" {
		texts = withoutBillingHeader(texts)
	}
	parts := s.parts && m.Role != "tool"
	if continued {
		if len(texts) == 0 && parts {
			return nil, errors.New("the last message has no text to continue")
		}
		if len(texts) == 0 {
			texts = []string{""}
		}
		texts[len(texts)-1] += continueTag
	}
	if !parts {
		return strings.Join(texts, s.separator), nil
	}
	list := &jinja.List{}
	for _, text := range texts {
		part := jinja.NewDict()
		part.Set("type", "text")
		part.Set("text", text)
		list.Items = append(list.Items, part)
	}
	return list, nil
}

// texts are the message's texts. One without content has none if the assistant calls tools, as its content is null then,
// and an empty one otherwise.
func (m *Message) texts() ([]string, error) {
	switch {
	case len(m.Parts) > 0:
		return textParts(m.Parts)
	case m.Content == "" && len(m.ToolCalls) > 0:
		return nil, nil
	}
	return []string{m.Content}, nil
}

// billingHeader begins a line that one client writes above its system prompt, with another value in each request. vLLM
// leaves it out, since nothing behind it would be found in the cache again.
const billingHeader = "x-anthropic-billing-header"

func withoutBillingHeader(texts []string) []string {
	out := make([]string, 0, len(texts))
	for _, text := range texts {
		if strings.HasPrefix(text, billingHeader) {
			if _, text, _ = strings.Cut(text, "\n"); text == "" {
				continue
			}
		}
		out = append(out, text)
	}
	return out
}

// textParts returns the texts of content parts, and refuses parts that are something else.
func textParts(raw json.RawMessage) ([]string, error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, fmt.Errorf("parts: want a JSON array: %w", err)
	}
	texts := make([]string, len(parts))
	for i, raw := range parts {
		if json.Unmarshal(raw, &texts[i]) == nil {
			continue
		}
		var part struct {
			Type                    string
			Text, Refusal, Thinking *string
		}
		if err := json.Unmarshal(raw, &part); err != nil {
			return nil, fmt.Errorf("parts[%d]: want a part or a string: %w", i, err)
		}
		text := map[string]*string{
			"text": part.Text, "input_text": part.Text, "output_text": part.Text, "refusal": part.Refusal, "thinking": part.Thinking,
		}[part.Type]
		if text == nil {
			return nil, refuse(ReasonNotText, fmt.Errorf("parts[%d] is of type %.40q: want text alone", i, part.Type))
		}
		texts[i] = *text
	}
	return texts, nil
}

// toolCalls are calls of functions. Engines order their keys, and decode arguments that are JSON in a string; what is no
// JSON object becomes an empty one.
func toolCalls(raw json.RawMessage) (*jinja.List, error) {
	list, err := decodeAs[*jinja.List]("tool calls", raw, "a JSON array")
	if err != nil {
		return nil, err
	}
	for i, item := range list.Items {
		call, ok := item.(*jinja.Dict)
		if !ok {
			return nil, fmt.Errorf("tool calls[%d]: want an object", i)
		}
		kind, typed := call.Get("type")
		f, _ := call.Get("function")
		function, ok := f.(*jinja.Dict)
		if !ok || typed && kind != "function" {
			return nil, fmt.Errorf("tool calls[%d]: want a call of a function", i)
		}
		given, _ := function.Get("arguments")
		if text, ok := given.(string); ok {
			given, _ = jinja.DecodeJSON([]byte(text)) // nil if it is none
		}
		if _, ok := given.(*jinja.Dict); !ok {
			given = jinja.NewDict()
		}
		function.Set("arguments", given)
		call.Set("function", inOrder(function, "arguments", "name"))
		list.Items[i] = inOrder(call, "id", "function", "type")
	}
	return list, nil
}

// inOrder returns d with those of its keys that are named in front, in this order.
func inOrder(d *jinja.Dict, keys ...string) *jinja.Dict {
	out := jinja.NewDict()
	for _, key := range slices.Concat(keys, d.Keys()) {
		if v, ok := d.Get(key); ok {
			out.Set(key, v)
		}
	}
	return out
}

// toolValues are tool definitions as engines write them: with all keys that they know in their order, null where they
// are absent, and no others.
func toolValues(raw json.RawMessage) (*jinja.List, error) {
	list, err := decodeAs[*jinja.List]("tools", raw, "a JSON array")
	if err != nil {
		return nil, err
	}
	for i, item := range list.Items {
		tool, _ := item.(*jinja.Dict)
		if tool == nil {
			return nil, refuse(ReasonBadInput, fmt.Errorf("tools[%d]: want an object", i))
		}
		f, _ := tool.Get("function")
		function, ok := f.(*jinja.Dict)
		if kind, typed := tool.Get("type"); !ok || typed && kind != "function" {
			return nil, refuse(ReasonBadInput, fmt.Errorf(`tools[%d]: want {"type": "function", "function": {...}}`, i))
		}
		if name, _ := function.Get("name"); name == nil {
			return nil, refuse(ReasonBadInput, fmt.Errorf("tools[%d]: the function has no name", i))
		}
		deferred, _ := tool.Get("defer_loading")
		if own, _ := function.Get("defer_loading"); own == nil && deferred != nil {
			function.Set("defer_loading", deferred)
		}
		out := jinja.NewDict()
		out.Set("type", "function")
		out.Set("function", known(function, []string{"name", "description", "parameters"}, []string{"strict", "defer_loading"}))
		if deferred != nil {
			out.Set("defer_loading", deferred)
		}
		list.Items[i] = out
	}
	return list, nil
}

// known returns what d says of always, null where it says nothing, and of the others where it says something.
func known(d *jinja.Dict, always, others []string) *jinja.Dict {
	out := jinja.NewDict()
	for _, key := range always {
		v, _ := d.Get(key)
		out.Set(key, v)
	}
	for _, key := range others {
		if v, _ := d.Get(key); v != nil {
			out.Set(key, v)
		}
	}
	return out
}
