//go:build tokenizers && cgo

package tokenize

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inferencecache/inferencecache/tokenize/jinja"
)

// realFolder is what hack/test-tokenizers.sh installs: real models, and the reference libraries' answers.
func realFolder(t testing.TB) string {
	t.Helper()
	folder := os.Getenv("INFERENCECACHE_TOKENIZERS")
	if folder == "" {
		t.Skip("INFERENCECACHE_TOKENIZERS is not set: run hack/test-tokenizers.sh")
	}
	return folder
}

type answers struct {
	Models []struct {
		Model string
		Cases []struct{ Text, IDs, Special string }
	}
	Chats []struct {
		Template, Source, Chat string
		Tokens                 map[string]string
		Messages               []struct {
			Role, Content, Reasoning, Name string
			ToolCallID                     string          `json:"tool_call_id"`
			ToolCalls                      json.RawMessage `json:"tool_calls"`
		}
		Tools, Documents, Kwargs json.RawMessage
		Generate                 *bool `json:"add_generation_prompt"`
		Continue                 bool  `json:"continue_final_message"`
		Want                     *string
		Error                    string
	}
}

func readAnswers(t testing.TB) answers {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(realFolder(t), "oracle.json"))
	if err != nil {
		t.Fatal(err)
	}
	var a answers
	if err := json.Unmarshal(raw, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

func digest(ids []uint32) string {
	h := sha256.New()
	_ = binary.Write(h, binary.LittleEndian, ids)
	return fmt.Sprintf("%d %x", len(ids), h.Sum(nil))
}

func TestRealTokenizersGiveTheIDsOfTheReferenceLibrary(t *testing.T) {
	a := readAnswers(t)
	r, err := Open(t.Context(), Config{Dir: filepath.Join(realFolder(t), "models"), MaxBytes: 4 << 20, Timeout: time.Minute, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for _, m := range a.Models {
		t.Run(m.Model, func(t *testing.T) {
			routes, differ := map[Route]int{}, 0
			for _, c := range m.Cases {
				for _, without := range []bool{true, false} {
					want := c.Special
					if without {
						want = c.IDs
					}
					got, err := r.Encode(t.Context(), m.Model, Input{Raw: c.Text, NoSpecialTokens: without})
					routes[got.Route]++
					if err != nil || digest(got.IDs) != want {
						if differ++; differ < 10 {
							t.Errorf("%.80q (without special tokens: %v, %s): %v, %d ids, want %.12s", c.Text, without, got.Route, err, len(got.IDs), want)
						}
					}
				}
			}
			t.Logf("%d texts, %d differ, routes %v", len(m.Cases), differ, routes)
			if len(m.Cases) < 1000 {
				t.Errorf("%d texts, want at least 1000", len(m.Cases))
			}
		})
	}
}

func TestRealChatTemplatesRenderAsInTransformersOrAreRefusedByName(t *testing.T) {
	a := readAnswers(t)
	equal, refused, both := 0, map[string]string{}, 0
	for _, c := range a.Chats {
		template, err := jinja.Compile(c.Source)
		if err != nil {
			var unsupported *jinja.UnsupportedError
			if c.Want != nil && !errors.As(err, &unsupported) {
				t.Errorf("%s: %v", c.Template, err)
			}
			refused[c.Template] = err.Error()
			continue
		}
		in := Input{
			Tools: c.Tools, Documents: c.Documents, TemplateArgs: c.Kwargs,
			NoGenerationPrompt: c.Generate != nil && !*c.Generate, ContinueFinal: c.Continue,
		}
		for _, m := range c.Messages {
			in.Messages = append(in.Messages, Message{
				Role: m.Role, Content: m.Content, Reasoning: m.Reasoning, Name: m.Name, ToolCallID: m.ToolCallID, ToolCalls: m.ToolCalls,
			})
		}
		tokens := map[string]jinja.Value{}
		for role, token := range c.Tokens {
			tokens[role] = token
		}
		m := &model{templates: templates{plain: &chatTemplate{Template: template}, tokens: tokens}}
		config := Config{Now: func() time.Time { return time.Date(2025, 7, 1, 8, 5, 9, 0, time.UTC) }}.withDefaults()
		got, err := m.render(t.Context(), in, config)
		switch {
		case c.Want == nil && err != nil:
			both++
		case c.Want == nil:
			t.Errorf("%s, %s: rendered, want an error as in transformers: %s", c.Template, c.Chat, c.Error)
		case err != nil:
			t.Errorf("%s, %s: %v", c.Template, c.Chat, err)
		case got != *c.Want:
			t.Errorf("%s, %s:\n%s", c.Template, c.Chat, cmp.Diff(*c.Want, got))
		default:
			equal++
		}
	}
	t.Logf("%d of %d chats equal, %d refused by both, templates refused: %v", equal, len(a.Chats), both, refused)
}
