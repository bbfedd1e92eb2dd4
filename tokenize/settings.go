package tokenize

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/inferencecache/inferencecache/tokenize/jinja"
)

const maxSettingsBytes = 64 << 20

// settings is what a model's configuration says about its tokenizer.
type settings struct {
	tokens    map[string]jinja.Value // special tokens by role, such as bos_token, as templates see them
	templates map[string]string      // chat templates by name; "default" is the one for requests without tools
	added     map[uint32]string      // added tokens by id
	class     string                 // the tokenizer's class in transformers
}

// readSettings reads tokenizer_config.json and special_tokens_map.json, which may both be missing.
func readSettings(dir string) (settings, error) {
	s := settings{tokens: map[string]jinja.Value{}, templates: map[string]string{}, added: map[uint32]string{}}
	for _, name := range []string{"special_tokens_map.json", "tokenizer_config.json"} { // the later one counts
		raw, err := readBounded(filepath.Join(dir, name), maxSettingsBytes)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return s, err
		}
		if err := s.read(raw); err != nil {
			return s, fmt.Errorf("read %s: %w", name, err)
		}
	}
	return s, nil
}

func (s *settings) read(raw []byte) error {
	var file map[string]json.RawMessage
	if err := json.Unmarshal(raw, &file); err != nil {
		return err
	}
	for _, role := range []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"} {
		if text, ok := tokenText(file[role]); ok {
			s.tokens[role] = text
		}
	}
	if class := file["tokenizer_class"]; len(class) > 0 {
		_ = json.Unmarshal(class, &s.class) // what is no text names no class
	}
	if err := s.readExtraTokens(file); err != nil {
		return err
	}
	if raw, ok := file["chat_template"]; ok {
		if err := s.readTemplates(raw); err != nil {
			return fmt.Errorf("chat_template: %w", err)
		}
	}
	return s.readAdded(file["added_tokens_decoder"])
}

// tokenText reads a token that is written as text or as an object with its text.
func tokenText(raw json.RawMessage) (string, bool) {
	var text string
	if len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		return text, true
	}
	var token struct{ Content *string }
	if len(raw) > 0 && raw[0] == '{' && json.Unmarshal(raw, &token) == nil && token.Content != nil {
		return *token.Content, true
	}
	return "", false
}

func (s *settings) readExtraTokens(file map[string]json.RawMessage) error {
	for _, key := range []string{"additional_special_tokens", "extra_special_tokens"} {
		raw := file[key]
		if len(raw) == 0 || string(raw) == "null" {
			continue
		}
		var list []json.RawMessage
		var byRole map[string]json.RawMessage
		switch {
		case json.Unmarshal(raw, &list) == nil:
			all := &jinja.List{}
			for _, token := range list {
				if text, ok := tokenText(token); ok {
					all.Items = append(all.Items, text)
				}
			}
			if len(all.Items) > 0 {
				s.tokens["additional_special_tokens"] = all
			}
		case json.Unmarshal(raw, &byRole) == nil:
			for role, token := range byRole {
				if text, ok := tokenText(token); ok {
					s.tokens[role] = text
				}
			}
		default:
			return fmt.Errorf("%s is neither a list nor an object", key)
		}
	}
	return nil
}

func (s *settings) readTemplates(raw json.RawMessage) error {
	if string(raw) == "null" {
		return nil
	}
	var source string
	if json.Unmarshal(raw, &source) == nil {
		s.templates["default"] = source
		return nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(raw, &named); err != nil {
		return errors.New("want a template, or a list of templates with their names")
	}
	for _, t := range named {
		s.templates[t.Name] = t.Template
	}
	return nil
}

func (s *settings) readAdded(raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	var added map[string]struct{ Content string }
	if err := json.Unmarshal(raw, &added); err != nil {
		return fmt.Errorf("added_tokens_decoder: %w", err)
	}
	for key, token := range added {
		id, err := strconv.ParseUint(key, 10, 32)
		if err != nil {
			return fmt.Errorf("added_tokens_decoder: id %q is not a number", key)
		}
		s.added[uint32(id)] = token.Content
	}
	return nil
}

// checkAddedTokens refuses a tokenizer.json that lacks an added token of the configuration: engines add such
// tokens when they load the model, and would encode texts with them to other ids.
func (s *settings) checkAddedTokens(raw []byte) error {
	if len(s.added) == 0 {
		return nil
	}
	var file struct {
		AddedTokens []struct {
			ID      uint32
			Content string
		} `json:"added_tokens"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return fmt.Errorf("read %s: %w", tokenizerFile, err)
	}
	known := make(map[uint32]string, len(file.AddedTokens))
	for _, token := range file.AddedTokens {
		known[token.ID] = token.Content
	}
	ids := make([]uint32, 0, len(s.added))
	for id := range s.added {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		if known[id] != s.added[id] {
			return fmt.Errorf("tokenizer_config.json has the added token %q with the id %d, which %s lacks: save the tokenizer again "+
				"with transformers (save_pretrained)", s.added[id], id, tokenizerFile)
		}
	}
	return nil
}

// builtAnew says whether engines with transformers 5 build the tokenizer from its vocabulary instead of taking tokenizer.json as
// it is, with other ids for some spaces: those in SentencePiece's style that name Llama's class.
func (s *settings) builtAnew(raw []byte) bool {
	var file struct {
		Normalizer json.RawMessage `json:"normalizer"`
	}
	_ = json.Unmarshal(raw, &file) // the library says what is wrong with it
	return strings.TrimSuffix(s.class, "Fast") == "LlamaTokenizer" && bytes.Contains(file.Normalizer, []byte(`"Prepend"`))
}
