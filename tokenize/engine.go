package tokenize

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/inferencecache/inferencecache/tokenize/jinja"
)

// engineFile says how the engine that serves the model was started, where that decides about prompts. Its keys are vLLM's flags.
const engineFile = "engine.json"

// engineFlags is what engineFile holds.
type engineFlags struct {
	args    *jinja.Dict // further variables of the chat template, where a request does not set them; nil for none
	content string      // what templates take: "string", "openai" (parts), or "auto" for what they loop over
}

func readEngineFlags(dir string) (engineFlags, error) {
	raw, err := readBounded(filepath.Join(dir, engineFile), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return engineFlags{}, nil
	}
	if err != nil {
		return engineFlags{}, err
	}
	flags, err := parseEngineFlags(raw)
	if err != nil {
		return flags, fmt.Errorf("read %s: %w", engineFile, err)
	}
	return flags, nil
}

func parseEngineFlags(raw []byte) (engineFlags, error) {
	file := struct {
		Args    json.RawMessage `json:"default_chat_template_kwargs"`
		Content string          `json:"chat_template_content_format"`
	}{Content: "auto"}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return engineFlags{}, err
	}
	if !slices.Contains([]string{"auto", "string", "openai"}, file.Content) {
		return engineFlags{}, fmt.Errorf("chat_template_content_format is %q, want auto, string or openai", file.Content)
	}
	flags := engineFlags{content: file.Content}
	if len(file.Args) == 0 {
		return flags, nil
	}
	args, err := templateArgs(file.Args)
	if err != nil {
		return flags, fmt.Errorf("default_chat_template_kwargs: %w", err)
	}
	flags.args = args
	return flags, nil
}

// takesParts says whether the engine gives a template the parts of a message, where the template by itself is given so.
func (f engineFlags) takesParts(template bool) bool {
	switch f.content {
	case "openai":
		return true
	case "string":
		return false
	}
	return template
}
