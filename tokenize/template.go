package tokenize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/inferencecache/inferencecache/tokenize/jinja"
)

// templates are the chat templates of a model.
type templates struct {
	plain *jinja.Template
	tools *jinja.Template // for requests with tools; nil if plain serves them too
	// partsPlain and partsTools say that the template goes through the parts of a message; otherwise it takes text.
	partsPlain, partsTools bool
	tokens                 map[string]jinja.Value
	refused                error // why plain is nil
}

// usable returns why the model's chat template cannot be used.
func (t templates) usable() error { return t.refused }

// loadTemplates compiles the chat templates of a model: of files if there are any, else of its configuration.
func loadTemplates(dir string, s settings, c Config) templates {
	t := templates{tokens: s.tokens}
	sources, err := templateSources(dir, s, c)
	if err != nil {
		t.refused = err
		return t
	}
	source, ok := sources["default"]
	if !ok {
		t.refused = errors.New("neither chat_template.jinja nor tokenizer_config.json has one")
		return t
	}
	if t.plain, t.refused = compile(source, c); t.refused != nil {
		t.refused = fmt.Errorf("chat template: %w", t.refused)
		return t
	}
	t.partsPlain = t.plain.LoopsOver("content")
	if source, ok := sources["tool_use"]; ok {
		if t.tools, err = compile(source, c); err != nil {
			t.plain, t.refused = nil, fmt.Errorf("chat template tool_use: %w", err)
			return t
		}
		t.partsTools = t.tools.LoopsOver("content")
	}
	return t
}

func compile(source string, c Config) (*jinja.Template, error) {
	if len(source) > c.MaxTemplateBytes {
		return nil, fmt.Errorf("%d bytes, at most %d are accepted", len(source), c.MaxTemplateBytes)
	}
	return jinja.Compile(source)
}

func templateSources(dir string, s settings, c Config) (map[string]string, error) {
	sources := maps.Clone(s.templates)
	if _, ok := sources["default"]; !ok {
		raw, err := readBounded(filepath.Join(dir, "chat_template.json"), int64(2*c.MaxTemplateBytes))
		if err == nil {
			var file struct {
				Template string `json:"chat_template"`
			}
			if err := json.Unmarshal(raw, &file); err != nil {
				return nil, fmt.Errorf("read chat_template.json: %w", err)
			}
			sources["default"] = file.Template
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	for name, file := range map[string]string{"default": "chat_template.jinja", "tool_use": "additional_chat_templates/tool_use.jinja"} {
		raw, err := readBounded(filepath.Join(dir, filepath.FromSlash(file)), int64(c.MaxTemplateBytes))
		switch {
		case err == nil:
			sources[name] = string(raw)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return sources, nil
}

// continueTag marks where the last message ends in a rendered chat, as transformers marks it.
const continueTag = "CONTINUE_FINAL_MESSAGE_TAG "

// render makes the prompt of a chat.
func (m *model) render(ctx context.Context, in Input, c Config) (string, error) {
	t := m.templates
	if t.refused != nil {
		return "", refuse(ReasonNoTemplate, t.refused)
	}
	template, parts := t.plain, t.partsPlain
	if len(in.Tools) > 0 && t.tools != nil {
		template, parts = t.tools, t.partsTools
	}
	vars, err := variables(in, t.tokens, parts, c.PartSeparator)
	if err != nil {
		return "", err
	}
	text, err := template.Render(ctx, vars, c.Now().In(c.TimeZone), jinja.Limits{Bytes: 16*c.MaxBytes + 1<<20})
	switch {
	case err == nil:
	case errors.Is(err, errRenderTimeout), ctx.Err() != nil:
		return "", refuse(ReasonTimeout, err)
	default:
		return "", refuse(ReasonTemplateError, err)
	}
	if !in.ContinueFinal {
		return text, nil
	}
	tag := strings.TrimSuffix(continueTag, " ")
	at := strings.LastIndex(text, tag)
	if at < 0 {
		return "", refuse(ReasonTemplateError, errors.New("the chat template does not write the last message, so that it cannot be continued"))
	}
	if strings.HasPrefix(text[at:], continueTag) {
		return text[:at], nil
	}
	return jinja.TrimRightSpace(text[:at]), nil
}

// reserved are the variables that a request's template arguments may not set.
var reserved = []string{"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template", "conversation", "tokenize"}

func variables(in Input, tokens map[string]jinja.Value, parts bool, separator string) (map[string]jinja.Value, error) {
	vars := maps.Clone(tokens)
	if vars == nil {
		vars = map[string]jinja.Value{}
	}
	if len(in.TemplateArgs) > 0 {
		args, err := decodeAs[*jinja.Dict]("template arguments", in.TemplateArgs, "a JSON object")
		if err != nil {
			return nil, err
		}
		for _, name := range args.Keys() {
			if slices.Contains(reserved, name) {
				return nil, refuse(ReasonBadInput, fmt.Errorf("template arguments set %q, which the request sets itself", name))
			}
			vars[name], _ = args.Get(name)
		}
	}
	messages, err := messageValues(in, parts, separator)
	if err != nil {
		return nil, err
	}
	vars["messages"] = messages
	vars["add_generation_prompt"] = !in.NoGenerationPrompt
	vars["tools"], vars["documents"] = nil, nil
	for name, raw := range map[string]json.RawMessage{"tools": in.Tools, "documents": in.Documents} {
		if len(raw) > 0 {
			if vars[name], err = decodeAs[*jinja.List](name, raw, "a JSON array"); err != nil {
				return nil, err
			}
		}
	}
	return vars, nil
}

func decodeAs[T jinja.Value](what string, raw json.RawMessage, want string) (T, error) {
	v, err := jinja.DecodeJSON(raw)
	if err == nil {
		if typed, ok := v.(T); ok {
			return typed, nil
		}
		err = errors.New("it is something else")
	}
	var none T
	return none, refuse(ReasonBadInput, fmt.Errorf("%s: want %s: %w", what, want, err))
}

// messageValues are the messages as templates see them.
func messageValues(in Input, parts bool, separator string) (*jinja.List, error) {
	messages := in.Messages
	if len(messages) == 0 {
		messages = []Message{{Role: "user", Content: in.Prompt}}
	}
	list := &jinja.List{}
	for i, m := range messages {
		last := in.ContinueFinal && i == len(messages)-1
		v, err := m.value(parts, separator, last)
		if err != nil {
			var e *Error
			if errors.As(err, &e) {
				return nil, refuse(e.Reason, fmt.Errorf("messages[%d]: %w", i, err))
			}
			return nil, refuse(ReasonBadInput, fmt.Errorf("messages[%d]: %w", i, err))
		}
		list.Items = append(list.Items, v)
	}
	return list, nil
}

func (m *Message) value(parts bool, separator string, continued bool) (jinja.Value, error) {
	d := jinja.NewDict()
	if m.Reasoning != "" {
		d.Set("thinking", m.Reasoning)
	}
	content, err := m.content(parts, separator, continued)
	if err != nil {
		return nil, err
	}
	d.Set("role", m.Role)
	d.Set("content", content)
	if len(m.ToolCalls) > 0 {
		calls, err := toolCalls(m.ToolCalls)
		if err != nil {
			return nil, err
		}
		d.Set("tool_calls", calls)
	}
	if m.ToolCallID != "" {
		d.Set("tool_call_id", m.ToolCallID)
	}
	if m.Name != "" {
		d.Set("name", m.Name)
	}
	if m.Reasoning != "" {
		d.Set("reasoning", m.Reasoning)
		d.Set("reasoning_content", m.Reasoning)
	}
	return d, nil
}

// content is the text of a message, or its parts where the template goes through them. continued marks the end.
func (m *Message) content(parts bool, separator string, continued bool) (jinja.Value, error) {
	if len(m.Parts) == 0 {
		if continued {
			return m.Content + continueTag, nil
		}
		return m.Content, nil
	}
	texts, err := textParts(m.Parts)
	if err != nil {
		return nil, err
	}
	if continued {
		if len(texts) == 0 {
			return nil, errors.New("the last message has no text to continue")
		}
		texts[len(texts)-1] += continueTag
	}
	if !parts {
		return strings.Join(texts, separator), nil
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
			Type    string
			Text    *string
			Refusal *string
		}
		if err := json.Unmarshal(raw, &part); err != nil {
			return nil, fmt.Errorf("parts[%d]: want a part or a string: %w", i, err)
		}
		switch {
		case (part.Type == "text" || part.Type == "input_text" || part.Type == "output_text") && part.Text != nil:
			texts[i] = *part.Text
		case part.Type == "refusal" && part.Refusal != nil:
			texts[i] = *part.Refusal
		default:
			return nil, refuse(ReasonNotText, fmt.Errorf("parts[%d] is of type %.40q: want text alone", i, part.Type))
		}
	}
	return texts, nil
}

// toolCalls decodes calls whose arguments are JSON in a string, as engines do before they render.
func toolCalls(raw json.RawMessage) (*jinja.List, error) {
	list, err := decodeAs[*jinja.List]("tool calls", raw, "a JSON array")
	if err != nil {
		return nil, err
	}
	for i, call := range list.Items {
		d, ok := call.(*jinja.Dict)
		if !ok {
			return nil, fmt.Errorf("tool calls[%d]: want an object", i)
		}
		f, _ := d.Get("function")
		function, ok := f.(*jinja.Dict)
		if !ok {
			continue
		}
		arguments, _ := function.Get("arguments")
		text, ok := arguments.(string)
		if !ok {
			continue
		}
		decoded, err := decodeArguments(text)
		if err != nil {
			return nil, fmt.Errorf("tool calls[%d]: arguments: %w", i, err)
		}
		function.Set("arguments", decoded)
	}
	return list, nil
}

func decodeArguments(text string) (jinja.Value, error) {
	if strings.TrimSpace(text) == "" {
		return jinja.NewDict(), nil
	}
	return jinja.DecodeJSON([]byte(text))
}
