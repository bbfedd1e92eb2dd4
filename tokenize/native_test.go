//go:build tokenizers && cgo

package tokenize

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const qwenLike = "small/qwen-like"

func openTestdata(t testing.TB, change func(*Config)) *Registry {
	t.Helper()
	config := Config{Dir: "testdata/models", Log: quiet()}
	if change != nil {
		change(&config)
	}
	r, err := Open(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func TestIDsEqualThoseOfTheReferenceLibrary(t *testing.T) {
	raw, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Model, Text  string
		IDs, Special []uint32
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	r := openTestdata(t, nil)
	routes := map[string]map[Route]int{}
	for _, c := range cases {
		if c.Text == "" {
			continue // an input without text is refused
		}
		for _, without := range []bool{true, false} {
			want := c.Special
			if without {
				want = c.IDs
			}
			got, err := r.Encode(t.Context(), c.Model, Input{Raw: c.Text, NoSpecialTokens: without})
			if err != nil || !slices.Equal(got.IDs, want) {
				t.Errorf("%s %q (without special tokens: %v): got %v %v, want %v", c.Model, c.Text, without, got, err, want)
			}
			if routes[c.Model] == nil {
				routes[c.Model] = map[Route]int{}
			}
			routes[c.Model][got.Route]++
		}
	}
	for _, model := range []string{qwenLike, "small/llama3-like", "small/llama2-like"} {
		if routes[model][RouteFast] < 100 || routes[model][RouteCodePoint] == 0 || routes[model][RouteAlways] > 0 {
			t.Errorf("%s: routes %v, want most texts fast and those of new code points slow", model, routes[model])
		}
	}
	for _, model := range []string{"own-pattern", "bert-like", "word-level"} {
		if routes[model][RouteAlways] == 0 || len(routes[model]) > 1 {
			t.Errorf("%s: routes %v, want the slow core alone", model, routes[model])
		}
	}
}

func TestTheTextOfNoRequestIsLostAtNUL(t *testing.T) {
	r := openTestdata(t, nil)
	whole, err := r.Encode(t.Context(), qwenLike, Input{Raw: "ab\x00cd"})
	if err != nil {
		t.Fatal(err)
	}
	cut, _ := r.Encode(t.Context(), qwenLike, Input{Raw: "ab"})
	if len(whole.IDs) <= len(cut.IDs) {
		t.Errorf("ids %v of the whole text, %v of what precedes NUL", whole.IDs, cut.IDs)
	}
}

func TestAPromptIsOneMessageThroughTheChatTemplate(t *testing.T) {
	r := openTestdata(t, nil)
	for name, c := range map[string]struct {
		input Input
		want  string
	}{
		"a prompt":       {Input{Prompt: " Hello "}, "<|start|>user\n Hello <|end|>\n<|start|>assistant\n"},
		"parts":          {Input{Messages: []Message{{Role: "user", Parts: []byte(`[{"type":"text","text":" Hello "}]`)}}}, "<|start|>user\n Hello <|end|>\n<|start|>assistant\n"},
		"without answer": {Input{Messages: []Message{{Role: "user", Content: "x"}}, NoGenerationPrompt: true}, "<|start|>user\nx<|end|>\n"},
		"with arguments": {Input{Prompt: "x", TemplateArgs: []byte(`{"enable_thinking": false}`)}, "<|start|>user\nx<|end|>\n<|start|>assistant\nno thinking\n"},
		"with tools":     {Input{Prompt: "x", Tools: []byte(`[{"function": {"name": "f"}}]`)}, "<|tool|>{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": null, \"parameters\": null}}\n<|start|>user\nx<|end|>\n<|start|>assistant\n"},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := r.Render(t.Context(), qwenLike, c.input)
			if err != nil || rendered != c.want {
				t.Errorf("rendered %q %v, want %q", rendered, err, c.want)
			}
			got, err := r.Encode(t.Context(), qwenLike, c.input)
			if err != nil {
				t.Fatal(err)
			}
			want, err := r.Encode(t.Context(), qwenLike, Input{Raw: rendered, NoSpecialTokens: true})
			if err != nil || !slices.Equal(got.IDs, want.IDs) {
				t.Errorf("ids %v, want those of the rendered text %v %v", got.IDs, want.IDs, err)
			}
		})
	}
}

func TestRequestsThatCannotBeAnsweredSayWhy(t *testing.T) {
	var mu sync.Mutex
	seen := map[Reason]int{}
	r := openTestdata(t, func(c *Config) {
		c.MaxBytes, c.MaxTokens = 4000, 1000
		c.Observe = func(o Observation) { mu.Lock(); seen[o.Reason]++; mu.Unlock() }
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx   context.Context
		model string
		input Input
		want  Reason
	}{
		"an answer":            {t.Context(), qwenLike, Input{Prompt: "hi"}, ReasonOK},
		"an unknown model":     {t.Context(), "../" + qwenLike, Input{Prompt: "hi"}, ReasonUnknownModel},
		"a folder of models":   {t.Context(), "small", Input{Prompt: "hi"}, ReasonUnknownModel},
		"no template":          {t.Context(), "bert-like", Input{Prompt: "hi"}, ReasonNoTemplate},
		"a malformed call":     {t.Context(), qwenLike, Input{Messages: []Message{{Role: "assistant", Content: "x", ToolCalls: []byte(`["x"]`)}}}, ReasonBadInput},
		"too many tokens":      {t.Context(), qwenLike, Input{Raw: strings.Repeat("z\x01", 900)}, ReasonTooLarge},
		"a rendering too long": {t.Context(), qwenLike, Input{Prompt: strings.Repeat("x", 3990)}, ReasonTooLarge},
		"invalid UTF-8":        {t.Context(), qwenLike, Input{Raw: "a\xc3"}, ReasonInvalidUTF8},
		"not text":             {t.Context(), qwenLike, Input{Messages: []Message{{Role: "user", Parts: []byte(`[{"type":"input_audio"}]`)}}}, ReasonNotText},
		"an ended request":     {ended, qwenLike, Input{Prompt: "hi"}, ReasonTimeout},
	} {
		before := seen[c.want]
		_, err := r.Encode(c.ctx, c.model, c.input)
		t.Run(name, func(t *testing.T) {
			wantReason(t, err, c.want)
			if seen[c.want] != before+1 {
				t.Errorf("not observed: %v", seen)
			}
		})
	}
}

// longSlow is a text that keeps the slow core busy: about 1 MB with a code point that only it may encode.
var longSlow = strings.Repeat("word and 1234 ", 70_000) + "\U00016ea0"

func TestACancelledRequestGivesItsSlotBack(t *testing.T) {
	r := openTestdata(t, func(c *Config) { c.Concurrency, c.Queue = 1, 1 })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := r.Encode(ctx, qwenLike, Input{Raw: longSlow})
		done <- err
	}()
	for len(r.gate.slots) == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	wantReason(t, <-done, ReasonTimeout)
	if _, err := r.Encode(t.Context(), qwenLike, Input{Raw: "hi"}); err != nil {
		t.Errorf("the slot is not free: %v", err)
	}
}

func TestOverloadIsShedWithItsReason(t *testing.T) {
	r := openTestdata(t, func(c *Config) { c.Concurrency, c.Queue, c.Timeout = 1, 2, 300*time.Millisecond })
	var group sync.WaitGroup
	var shed, other atomic.Int64
	for range 16 {
		group.Go(func() {
			_, err := r.Encode(t.Context(), qwenLike, Input{Raw: longSlow})
			switch ReasonOf(err) {
			case ReasonOverloaded:
				shed.Add(1)
			case ReasonOK, ReasonTimeout:
			default:
				other.Add(1)
			}
		})
	}
	group.Wait()
	if shed.Load() == 0 || other.Load() > 0 {
		t.Errorf("%d shed, %d with other reasons", shed.Load(), other.Load())
	}
	if len(r.gate.slots) != 0 || r.gate.waiting.Load() != 0 {
		t.Errorf("%d slots taken, %d waiting", len(r.gate.slots), r.gate.waiting.Load())
	}
}

func TestModelsAreReloadedUnderLoadWithoutAFailedRequest(t *testing.T) {
	dir := t.TempDir()
	raw, err := os.ReadFile("testdata/models/small/qwen-like/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile("testdata/models/small/llama3-like/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	write(t, string(raw), dir, "org/m/tokenizer.json")
	write(t, "{", dir, "broken/tokenizer.json")
	write(t, "aliases: {served: org/m}", dir, "aliases.yaml")
	r, err := Open(t.Context(), Config{Dir: dir, Aliases: filepath.Join(dir, "aliases.yaml"), Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Models(); !slices.Equal(got, []string{"org/m"}) {
		t.Fatalf("models %v, want the broken one left out", got)
	}
	encode := func(model string) []uint32 {
		got, err := r.Encode(t.Context(), model, Input{Raw: "1234 words"})
		if err != nil {
			t.Errorf("encode: %v", err)
		}
		return got.IDs
	}
	before := encode("served")
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for ctx.Err() == nil {
				encode("org/m")
			}
		})
	}
	write(t, string(other), dir, "org/m/tokenizer.json")
	write(t, string(raw), dir, "org/n/tokenizer.json")
	if err := r.reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := encode("served")
	write(t, "{", dir, "org/m/tokenizer.json") // broken now: what was loaded stays
	if err := r.reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kept := encode("served"); slices.Equal(before, after) || !slices.Equal(after, kept) {
		t.Errorf("ids %v, then %v, then %v", before, after, kept)
	}
	if err := os.RemoveAll(filepath.Join(dir, "org/n")); err != nil {
		t.Fatal(err)
	}
	if err := r.reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	cancel()
	group.Wait()
	if got := r.Models(); !slices.Equal(got, []string{"org/m"}) {
		t.Errorf("models %v", got)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := r.reload(t.Context()); err == nil || len(r.Models()) != 1 {
		t.Errorf("a folder that is gone: %v, models %v", err, r.Models())
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	_, err = r.Encode(t.Context(), "org/m", Input{Raw: "x"})
	wantReason(t, err, ReasonUnknownModel)
}

func TestRunEndsWithItsContextAndReloads(t *testing.T) {
	dir := t.TempDir()
	raw, err := os.ReadFile("testdata/models/word-level/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(t.Context(), Config{Dir: dir, ReloadEvery: time.Millisecond, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	write(t, string(raw), dir, "late/tokenizer.json")
	for len(r.Models()) == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// FuzzFastCore compares what the library answers with its slow core, whose ids count.
func FuzzFastCore(f *testing.F) {
	for _, seed := range []string{"Hello, world", "it's 1234\n\n  x", "<|start|>user\n<|end|>", "e\u0301 \u1ea4 가 ½ \u017f \u2028", "\x00\x01\x7f", "\U0001fae0\U00016ea0"} {
		f.Add(seed, true)
	}
	var encoders []*encoder
	for _, name := range []string{qwenLike, "small/llama3-like", "small/llama2-like"} {
		raw, err := os.ReadFile(filepath.Join("testdata/models", name, tokenizerFile))
		if err != nil {
			f.Fatal(err)
		}
		e, err := loadEncoder(raw)
		if err != nil {
			f.Fatal(err)
		}
		if why := e.slowBecause(); why != "" {
			f.Fatalf("%s has no fast core: %s", name, why)
		}
		f.Cleanup(e.close)
		encoders = append(encoders, e)
	}
	f.Fuzz(func(t *testing.T, text string, special bool) {
		for i, e := range encoders {
			want, _, errWant := e.encodeWith(t.Context(), coreStable, text, special)
			got, route, err := e.encodeWith(t.Context(), coreAuto, text, special)
			if ReasonOf(err) != ReasonOf(errWant) || !slices.Equal(got, want) {
				t.Errorf("tokenizer %d, %s: got %v %v, want %v %v", i, route, got, err, want, errWant)
			}
		}
	})
}
