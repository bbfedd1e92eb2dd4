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
	plain, tools *chatTemplate // tools is for requests with tools; nil if plain serves them too
	tokens       map[string]jinja.Value
	engine       engineFlags
	refused      error // why plain is nil
}

// chatTemplate is a template, and what it takes.
type chatTemplate struct {
	*jinja.Template
	parts       bool // goes through the parts of a message; otherwise it takes text
	noDeveloper bool // does not know the role developer
}

// usable returns why the model's chat template cannot be used.
func (t templates) usable() error { return t.refused }

// loadTemplates compiles the chat templates of a model: of files if there are any, else of its configuration.
func loadTemplates(dir string, s settings, flags engineFlags, c Config) templates {
	t := templates{tokens: s.tokens, engine: flags}
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
	if source, ok := sources["tool_use"]; ok {
		if t.tools, err = compile(source, c); err != nil {
			t.plain, t.refused = nil, fmt.Errorf("chat template tool_use: %w", err)
		}
	}
	return t
}

// compile reads a chat template. What it takes is found out as engines do.
func compile(source string, c Config) (*chatTemplate, error) {
	if len(source) > c.MaxTemplateBytes {
		return nil, fmt.Errorf("%d bytes, at most %d are accepted", len(source), c.MaxTemplateBytes)
	}
	t, err := jinja.Compile(source)
	if err != nil {
		return nil, err
	}
	knows := strings.Contains(source, `"developer"`) || strings.Contains(source, `'developer'`)
	return &chatTemplate{Template: t, parts: t.TakesParts(), noDeveloper: !knows}, nil
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
	template := t.plain
	if len(in.Tools) > 0 && t.tools != nil {
		template = t.tools
	}
	vars, err := t.variables(in, shape{t.engine.takesParts(template.parts), template.noDeveloper, c.PartSeparator})
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

// templateArgs are variables that a request or an engine's flags add.
func templateArgs(raw json.RawMessage) (*jinja.Dict, error) {
	args, err := decodeAs[*jinja.Dict]("template arguments", raw, "a JSON object")
	if err != nil {
		return nil, err
	}
	for _, name := range args.Keys() {
		if slices.Contains(reserved, name) {
			return nil, refuse(ReasonBadInput, fmt.Errorf("template arguments set %q, which the request sets itself", name))
		}
	}
	return args, nil
}

// setArgs puts the engine's and the request's variables into vars. To engines null and "auto" in a request mean that it
// does not set the variable.
func (t templates) setArgs(vars map[string]jinja.Value, raw json.RawMessage) error {
	if t.engine.args != nil {
		for _, name := range t.engine.args.Keys() {
			vars[name], _ = t.engine.args.Get(name)
		}
	}
	if len(raw) == 0 {
		return nil
	}
	args, err := templateArgs(raw)
	if err != nil {
		return err
	}
	for _, name := range args.Keys() {
		if v, _ := args.Get(name); v != nil && v != "auto" {
			vars[name] = v
		}
	}
	return nil
}

func (t templates) variables(in Input, s shape) (map[string]jinja.Value, error) {
	vars := maps.Clone(t.tokens)
	if vars == nil {
		vars = map[string]jinja.Value{}
	}
	if err := t.setArgs(vars, in.TemplateArgs); err != nil {
		return nil, err
	}
	messages, err := messageValues(in, s)
	if err != nil {
		return nil, err
	}
	vars["messages"] = messages
	vars["add_generation_prompt"] = !in.NoGenerationPrompt
	vars["tools"], vars["documents"] = nil, nil
	if len(in.Tools) > 0 {
		if vars["tools"], err = toolValues(in.Tools); err != nil {
			return nil, err
		}
	}
	if len(in.Documents) > 0 {
		if vars["documents"], err = decodeAs[*jinja.List]("documents", in.Documents, "a JSON array"); err != nil {
			return nil, err
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
