package tokenize

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/inferencecache/inferencecache/tokenize/jinja"
)

func TestMalformedInputIsRefusedBeforeAnyWork(t *testing.T) {
	config := Config{MaxBytes: 12, MaxMessages: 2}.withDefaults()
	user := Message{Role: "user", Content: "hi"}
	for name, c := range map[string]struct {
		input Input
		want  Reason
	}{
		"a prompt":                   {Input{Prompt: "hi"}, ReasonOK},
		"raw text with NUL":          {Input{Raw: "a\x00b"}, ReasonOK},
		"messages":                   {Input{Messages: []Message{user, user}}, ReasonOK},
		"nothing":                    {Input{}, ReasonBadInput},
		"two forms":                  {Input{Prompt: "hi", Raw: "hi"}, ReasonBadInput},
		"a message without role":     {Input{Messages: []Message{{Content: "hi"}}}, ReasonBadInput},
		"content and parts":          {Input{Messages: []Message{{Role: "u", Content: "hi", Parts: []byte("[]")}}}, ReasonBadInput},
		"continue behind a prompt":   {Input{Messages: []Message{user}, ContinueFinal: true}, ReasonBadInput},
		"a long prompt":              {Input{Prompt: strings.Repeat("x", 13)}, ReasonTooLarge},
		"long messages together":     {Input{Messages: []Message{{Role: "user", Content: "123456789"}}}, ReasonTooLarge},
		"long tools":                 {Input{Messages: []Message{user}, Tools: []byte(`["12345"]`)}, ReasonTooLarge},
		"too many messages":          {Input{Messages: []Message{user, user, user}}, ReasonTooLarge},
		"a prompt that is not UTF-8": {Input{Prompt: "\xff"}, ReasonInvalidUTF8},
		"a surrogate in a message":   {Input{Messages: []Message{{Role: "u", Content: "\xed\xa0\x80"}}}, ReasonInvalidUTF8},
	} {
		t.Run(name, func(t *testing.T) { wantReason(t, c.input.check(config), c.want) })
	}
}

func TestMessagesBecomeWhatEnginesHandToTheTemplate(t *testing.T) {
	show := func(in Input, source string) (string, error) {
		template, err := compile(source, Config{}.withDefaults())
		if err != nil {
			return "", err
		}
		m := &model{templates: templates{plain: template, tokens: map[string]jinja.Value{"eos_token": "</s>"}}}
		return m.render(t.Context(), in, Config{}.withDefaults())
	}
	const all = "{{ messages | tojson }}"
	const looping = "{% for m in messages %}{% set content = m['content'] %}{% if content is string %}{{ content }}{% else %}{% for p in content %}<{{ p.text }}>{% endfor %}{% endif %}{% endfor %}"
	parts := []byte(`[{"type":"text","text":"a"},"b",{"type":"input_text","text":"c"}]`)
	one := func(m Message) Input { return Input{Messages: []Message{m}} }
	for name, c := range map[string]struct {
		input  Input
		source string
		want   string
		reason Reason
	}{
		"a prompt is one user message":                                 {Input{Prompt: "hi"}, all, `[{"role": "user", "content": "hi"}]`, ReasonOK},
		"the variables that engines set":                               {Input{Prompt: "hi"}, "{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ eos_token }}{{ bos_token is defined }}", "TrueTrueTrue</s>False", ReasonOK},
		"parts are joined for a template of text":                      {one(Message{Role: "user", Parts: parts}), all, `[{"role": "user", "content": "a\nb\nc"}]`, ReasonOK},
		"parts are kept for a template that loops":                     {one(Message{Role: "user", Parts: parts}), looping, `<a><b><c>`, ReasonOK},
		"text is one part for a template that loops":                   {Input{Prompt: "x"}, looping, `<x>`, ReasonOK},
		"arguments in a string are decoded, and keys have their order": {one(Message{Role: "assistant", ToolCalls: []byte(`[{"x": 1, "type":"function","function":{"name":"f","arguments":"{\"b\": 1, \"a\": 2.0}"},"id":"c1"}]`)}), all, `[{"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "function": {"arguments": {"b": 1, "a": 2.0}, "name": "f"}, "type": "function", "x": 1}]}]`, ReasonOK},
		"arguments that are no object":                                 {one(Message{Role: "assistant", ToolCalls: []byte(`[{"function":{"arguments":"{"}},{"function":{"arguments":"[1]"}},{"function":{}}]`)}), "{% for c in messages[0].tool_calls %}{{ c }}{% endfor %}", strings.Repeat(`{'function': {'arguments': {}}}`, 3), ReasonOK},
		"no tool calls are none":                                       {one(Message{Role: "assistant", Content: "x", ToolCalls: []byte(`[]`)}), all, `[{"role": "assistant", "content": "x"}]`, ReasonOK},
		"calls and reasoning of others than the assistant":             {one(Message{Role: "user", Content: "x", Reasoning: "r", ToolCallID: "c", ToolCalls: []byte(`[{"function":{}}]`)}), all, `[{"role": "user", "content": "x"}]`, ReasonOK},
		"a developer": {one(Message{Role: "developer", Content: "x"}), all + "{# 'developer' #}", `[{"role": "developer", "content": "x", "tools": null}]`, ReasonOK},
		"a developer that the template does not know": {Input{Messages: []Message{{Role: "user", Content: "u"}, {Role: "developer", Content: "d"}, {Role: "system", Content: "s"}}}, all, `[{"role": "system", "content": "d\n\ns"}, {"role": "user", "content": "u"}]`, ReasonOK},
		"a line of another value in each request":     {Input{Messages: []Message{{Role: "system", Content: "x-anthropic-billing-header: a=1\nBe brief."}}}, all, `[{"role": "system", "content": "Be brief."}]`, ReasonOK},
		"tools have the keys that engines know":       {Input{Prompt: "x", Tools: []byte(`[{"z": 1, "function": {"strict": true, "parameters": {"y": 1, "a": 1.0}, "name": "f", "q": 1}}, {"type": "function", "function": {"name": "g"}}]`)}, "{{ tools | tojson }}", `[{"type": "function", "function": {"name": "f", "description": null, "parameters": {"y": 1, "a": 1.0}, "strict": true}}, {"type": "function", "function": {"name": "g", "description": null, "parameters": null}}]`, ReasonOK},
		"tools of another kind":                       {Input{Prompt: "x", Tools: []byte(`[{"type": "web_search"}]`)}, all, "", ReasonBadInput},
		"a tool without a name":                       {Input{Prompt: "x", Tools: []byte(`[{"function": {}}]`)}, all, "", ReasonBadInput},
		"calls of another kind":                       {one(Message{Role: "assistant", ToolCalls: []byte(`[{"type":"custom"}]`)}), all, "", ReasonBadInput},
		"a tool's result":                             {one(Message{Role: "tool", Content: "42", ToolCallID: "c1", Name: "f"}), all, `[{"role": "tool", "content": "42", "tool_call_id": "c1", "name": "f"}]`, ReasonOK},
		"reasoning under all its names":               {one(Message{Role: "assistant", Content: "x", Reasoning: "r"}), all, `[{"thinking": "r", "role": "assistant", "content": "x", "reasoning": "r", "reasoning_content": "r"}]`, ReasonOK},
		"template arguments":                          {Input{Prompt: "x", TemplateArgs: []byte(`{"enable_thinking": false, "n": 1.0}`)}, "{{ enable_thinking }}{{ n }}", "False1.0", ReasonOK},
		"a continued message ends where it ends":      {Input{Messages: []Message{{Role: "assistant", Content: "so "}}, NoGenerationPrompt: true, ContinueFinal: true}, "<{{ messages[0].content }}>end", "<so ", ReasonOK},
		"a continued message that a template trims":   {Input{Messages: []Message{{Role: "assistant", Content: "so \n"}}, NoGenerationPrompt: true, ContinueFinal: true}, "<{{ messages[0].content | trim }}>end", "<so", ReasonOK},
		"a continued message that is left out":        {Input{Messages: []Message{{Role: "assistant", Content: "so"}}, NoGenerationPrompt: true, ContinueFinal: true}, "nothing", "", ReasonTemplateError},
		"an image":                                    {one(Message{Role: "user", Parts: []byte(`[{"type":"image_url","image_url":{"url":"x"}}]`)}), all, "", ReasonNotText},
		"a part without text":                         {one(Message{Role: "user", Parts: []byte(`[{"type":"text"}]`)}), all, "", ReasonNotText},
		"parts that are no array":                     {one(Message{Role: "user", Parts: []byte(`{}`)}), all, "", ReasonBadInput},
		"tools that are no array":                     {Input{Prompt: "x", Tools: []byte(`{}`)}, all, "", ReasonBadInput},
		"tool calls that are no array":                {one(Message{Role: "assistant", ToolCalls: []byte(`1`)}), all, "", ReasonBadInput},
		"template arguments that are not set":         {Input{Prompt: "x", TemplateArgs: []byte(`{"a": null, "b": "auto"}`)}, "{{ a is defined }}{{ b is defined }}", "FalseFalse", ReasonOK},
		"template arguments that are no object":       {Input{Prompt: "x", TemplateArgs: []byte(`[1]`)}, all, "", ReasonBadInput},
		"template arguments that replace messages":    {Input{Prompt: "x", TemplateArgs: []byte(`{"messages": []}`)}, all, "", ReasonBadInput},
		"a template that refuses":                     {Input{Prompt: "x"}, "{{ raise_exception('no') }}", "", ReasonTemplateError},
		"a template that fails":                       {Input{Prompt: "x"}, "{{ messages[0].content + 1 }}", "", ReasonTemplateError},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := show(c.input, c.source)
			wantReason(t, err, c.reason)
			if got != c.want {
				t.Error(cmp.Diff(c.want, got))
			}
		})
	}
}

func TestATemplateThatTakesTooLongIsEnded(t *testing.T) {
	template, err := compile("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", Config{}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	m := &model{templates: templates{plain: template}}
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errRenderTimeout)
	defer cancel()
	_, err = m.render(ctx, Input{Prompt: "x"}, Config{}.withDefaults())
	wantReason(t, err, ReasonTimeout)
	if !errors.Is(err, errRenderTimeout) {
		t.Errorf("got %v, want it to say that the template is slow", err)
	}
}

func TestDatesAreThoseOfTheConfiguredTimeZone(t *testing.T) {
	template, err := compile("{{ strftime_now('%d %b %Y') }}", Config{}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	config := Config{
		TimeZone: time.FixedZone("east", 9*3600),
		Now:      func() time.Time { return time.Date(2025, 6, 30, 20, 0, 0, 0, time.UTC) },
	}.withDefaults()
	m := &model{templates: templates{plain: template}}
	if got, err := m.render(t.Context(), Input{Prompt: "x"}, config); err != nil || got != "01 Jul 2025" {
		t.Errorf("got %q %v, want 01 Jul 2025", got, err)
	}
}

func TestChatTemplatesComeFromTheFilesThatEnginesRead(t *testing.T) {
	for name, c := range map[string]struct {
		files      map[string]string
		want       string // of the template for requests without tools
		wantTools  string
		wantFailed string
	}{
		"tokenizer_config.json":          {map[string]string{"tokenizer_config.json": `{"chat_template": "config {{ bos_token }}", "bos_token": {"content": "<s>"}}`}, "config <s>", "", ""},
		"chat_template.jinja goes first": {map[string]string{"tokenizer_config.json": `{"chat_template": "config"}`, "chat_template.jinja": "file\n"}, "file", "", ""},
		"chat_template.json goes last":   {map[string]string{"chat_template.json": `{"chat_template": "json"}`}, "json", "", ""},
		"named templates": {
			map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]}`}, "d", "t", "",
		},
		"a file for tools":          {map[string]string{"chat_template.jinja": "d", "additional_chat_templates/tool_use.jinja": "t"}, "d", "t", ""},
		"special_tokens_map.json":   {map[string]string{"special_tokens_map.json": `{"eos_token": "</s>", "additional_special_tokens": ["<a>"]}`, "chat_template.jinja": "{{ eos_token }}{{ additional_special_tokens }}"}, "</s>['<a>']", "", ""},
		"none":                      {nil, "", "", "neither chat_template.jinja nor tokenizer_config.json has one"},
		"one that is not supported": {map[string]string{"chat_template.jinja": "{% include 'x' %}"}, "", "", `chat template: line 1: statement "include" is not supported`},
		"one that is broken":        {map[string]string{"chat_template.jinja": "{% if %}"}, "", "", "chat template: line 1: unexpected \"%}\""},
		"one that is too large":     {map[string]string{"chat_template.jinja": strings.Repeat("x", 200)}, "", "", "is not a file of at most 100 bytes"},
		"only a named one":          {map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "rag", "template": "r"}]}`}, "", "", "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range c.files {
				write(t, content, dir, file)
			}
			settings, err := readSettings(dir)
			if err != nil {
				t.Fatal(err)
			}
			config := Config{MaxTemplateBytes: 100}.withDefaults()
			m := &model{templates: loadTemplates(dir, settings, engineFlags{}, config)}
			got, err := m.render(t.Context(), Input{Prompt: "x"}, config)
			if c.wantFailed != "" {
				wantReason(t, err, ReasonNoTemplate)
				if !strings.Contains(err.Error(), c.wantFailed) {
					t.Errorf("got %v, want %s", err, c.wantFailed)
				}
				return
			}
			if err != nil || got != c.want {
				t.Errorf("got %q %v, want %q", got, err, c.want)
			}
			if c.wantTools != "" {
				if got, err := m.render(t.Context(), Input{Prompt: "x", Tools: []byte(`[{"function": {"name": "f"}}]`)}, config); err != nil || got != c.wantTools {
					t.Errorf("with tools got %q %v, want %q", got, err, c.wantTools)
				}
			}
		})
	}
}

func TestModelsAreFoundAtAnyDepthAndNamedByTheirPath(t *testing.T) {
	dir := t.TempDir()
	for _, file := range []string{
		"Qwen/Qwen3-8B/tokenizer.json", "Qwen/Qwen3-8B/nested/tokenizer.json", "flat/tokenizer.json", "a/b/c/tokenizer.json",
		"tokenizer.json", ".hidden/tokenizer.json", "bad\\name/tokenizer.json", "C:/tokenizer.json", "new\nline/tokenizer.json", " padded/tokenizer.json",
		"kimi/tiktoken.model", "old/tokenizer.model", "gpt2/tokenizer_config.json", "other/readme.txt",
	} {
		write(t, "{}", dir, file)
	}
	if err := os.Symlink(filepath.Join(dir, "flat"), filepath.Join(dir, "linked")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "other", "loop")); err != nil {
		t.Fatal(err)
	}
	folders, err := findModels(dir, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range folders {
		got[f.id] = ""
		if f.refused != nil {
			got[f.id] = f.refused.Error()[:20]
		}
	}
	want := map[string]string{
		"Qwen/Qwen3-8B": "", "flat": "", "linked": "", "a/b/c": "", "other/loop": "", // a link to the folder itself
		"bad\\name": "its id holds a backs", "C:": "its id holds a backs", "new\nline": "its id holds a backs", " padded": `part " padded" of it`,
		"kimi": "a vocabulary in tikt", "old": "a SentencePiece mode", "gpt2": "there is no tokenize",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := findModels(dir, 3); err == nil {
		t.Error("more models than allowed were found without an error")
	}
	if _, err := findModels(filepath.Join(dir, "absent"), 3); err == nil {
		t.Error("a missing folder was read without an error")
	}
}

func TestAnAddedTokenThatTokenizerJSONLacksRefusesTheModel(t *testing.T) {
	dir := t.TempDir()
	write(t, `{"added_tokens_decoder": {"7": {"content": "<x>"}}}`, dir, "tokenizer_config.json")
	s, err := readSettings(dir)
	if err != nil {
		t.Fatal(err)
	}
	for raw, ok := range map[string]bool{
		`{"added_tokens": [{"id": 7, "content": "<x>"}]}`: true,
		`{"added_tokens": [{"id": 8, "content": "<x>"}]}`: false,
		`{"added_tokens": []}`:                            false,
		`{`:                                               false,
	} {
		if err := s.checkAddedTokens([]byte(raw)); (err == nil) != ok {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestTokenizersThatEnginesBuildAnewAreKnown(t *testing.T) {
	for name, c := range map[string]struct {
		class, tokenizer string
		want             bool
	}{
		"in SentencePiece's style, of Llama's class": {"LlamaTokenizerFast", `{"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}]}}`, true},
		"of another class":                           {"PreTrainedTokenizerFast", `{"normalizer": {"type": "Prepend"}}`, false},
		"of bytes":                                   {"LlamaTokenizerFast", `{"normalizer": null, "pre_tokenizer": {"type": "ByteLevel"}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, `{"tokenizer_class": "`+c.class+`"}`, dir, "tokenizer_config.json")
			s, err := readSettings(dir)
			if err != nil || s.builtAnew([]byte(c.tokenizer)) != c.want {
				t.Errorf("built anew: %v, want %v (%v)", !c.want, c.want, err)
			}
		})
	}
}

func TestAnEnginesFlagsDecideAboutItsPrompts(t *testing.T) {
	const source = "{{ enable_thinking }}{{ n }}{{ messages[0].content }}"
	for name, c := range map[string]struct {
		flags, args, want string // the flags are refused if nothing is wanted
	}{
		"none":                             {`{}`, ``, "x"},
		"variables":                        {`{"default_chat_template_kwargs": {"enable_thinking": false, "n": 1.0}}`, ``, "False1.0x"},
		"variables that the request sets":  {`{"default_chat_template_kwargs": {"enable_thinking": false}}`, `{"enable_thinking": true, "n": 2}`, "True2x"},
		"variables that it leaves as is":   {`{"default_chat_template_kwargs": {"enable_thinking": false}}`, `{"enable_thinking": null, "n": "auto"}`, "Falsex"},
		"parts":                            {`{"chat_template_content_format": "openai"}`, ``, "[{'type': 'text', 'text': 'x'}]"},
		"text":                             {`{"chat_template_content_format": "string"}`, ``, "x"},
		"a format that there is not":       {`{"chat_template_content_format": "text"}`, ``, ""},
		"a flag that there is not":         {`{"chat_template": "x"}`, ``, ""},
		"variables that are the request's": {`{"default_chat_template_kwargs": {"messages": []}}`, ``, ""},
		"no JSON":                          {`{`, ``, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, c.flags, dir, engineFile)
			flags, err := readEngineFlags(dir)
			if (err != nil) != (c.want == "") {
				t.Fatalf("error %v", err)
			}
			if err != nil {
				return
			}
			config := Config{}.withDefaults()
			template, err := compile(source, config)
			if err != nil {
				t.Fatal(err)
			}
			m := &model{templates: templates{plain: template, engine: flags}}
			if got, err := m.render(t.Context(), Input{Prompt: "x", TemplateArgs: []byte(c.args)}, config); err != nil || got != c.want {
				t.Errorf("rendered %q %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestAliases(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string]string{
		"aliases: {q: Qwen/Qwen3-8B, lora: Qwen/Qwen3-8B}": "Qwen/Qwen3-8B",
		"":                      "",
		"aliases: {q: ''}":      "error",
		"alias: {q: x}":         "error",
		"aliases: {q: [1]}":     "error",
		"aliases: {q: a, q: b}": "error",
	} {
		write(t, content, dir, "aliases.yaml")
		got, err := readAliases(filepath.Join(dir, "aliases.yaml"))
		if (err != nil) != (want == "error") || err == nil && got["q"] != want {
			t.Errorf("%q: got %v %v, want %q", content, got, err, want)
		}
	}
	if _, err := readAliases(filepath.Join(dir, "absent")); err == nil {
		t.Error("a missing file was read without an error")
	}
}

func TestTheGateShedsWhatWouldWaitTooLong(t *testing.T) {
	g := newGate(1, 1)
	if err := g.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	wantReason(t, g.enter(ctx), ReasonOverloaded) // after half of the time

	waiting := make(chan error, 1)
	waiter, stop := context.WithCancel(t.Context())
	go func() { waiting <- g.enter(waiter) }()
	for g.waiting.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	wantReason(t, g.enter(t.Context()), ReasonOverloaded) // at once: the queue is full
	stop()
	wantReason(t, <-waiting, ReasonTimeout)
	wantReason(t, g.enter(waiter), ReasonTimeout) // has ended before

	g.leave()
	if err := g.enter(t.Context()); err != nil {
		t.Errorf("the slot that was left is not free: %v", err)
	}
	g.leave()
}

func TestEveryReasonIsListed(t *testing.T) {
	seen := map[Reason]bool{}
	for _, r := range Reasons() {
		seen[r] = true
	}
	if len(seen) != 12 || !seen[ReasonOf(errors.New("x"))] || ReasonOf(nil) != ReasonOK {
		t.Errorf("reasons %v", seen)
	}
}
