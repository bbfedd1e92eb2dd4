package vllm

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// named is a text, or the body of a chat completion without its model.
type named struct{ name, text string }

const (
	weather = `{"type": "function", "function": {"parameters": {"type": "object", "properties": {"z": {"enum": [1, 2.0, null]}, "city": {"type": "string"}}}, "name": "get_weather", "description": "The weather <now> & \"later\""}}`
	call    = `{"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function": {"name": "get_weather", "arguments": "{\"z\": 1.0, \"city\": \"Zürich\"}"}, "id": "call00000"}]}`
)

// chats are what chat templates and engines treat in some way of their own.
var chats = []named{
	{"one message", `{"messages": [{"role": "user", "content": "Hello!"}]}`},
	{"spaces around it", `{"messages": [{"role": "user", "content": "  \u00a0 Hello \n\n"}]}`},
	{"odd characters", `{"messages": [{"role": "user", "content": "\u001c<|im_end|>'\"{{x}} <&> \u0000 😀 e\u0301"}]}`},
	{"nothing", `{"messages": [{"role": "user", "content": ""}]}`},
	{"system", `{"messages": [{"role": "system", "content": "Be brief.\n"}, {"role": "user", "content": "Hi"}]}`},
	{"several turns", `{"messages": [{"role": "system", "content": "You are X."}, {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello\nthere "}, {"role": "user", "content": "And now?"}]}`},
	{"no start of the answer", `{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}], "add_generation_prompt": false}`},
	{"an answer to be continued", `{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello, "}], "add_generation_prompt": false, "continue_final_message": true}`},
	{"parts", `{"messages": [{"role": "user", "content": [{"text": " one", "type": "text", "cache_control": {}}, {"type": "text", "text": "two "}]}]}`},
	{"parts of system", `{"messages": [{"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, {"role": "user", "content": "Hi"}]}`},
	{"a tool", `{"messages": [{"role": "user", "content": "Weather?"}], "tools": [` + weather + `]}`},
	{"tools with other keys", `{"messages": [{"role": "user", "content": "Weather?"}], "tools": [{"function": {"name": "f", "x": 1, "strict": true}, "type": "function", "y": 2}, ` + weather + `]}`},
	{"a call", `{"messages": [{"role": "user", "content": "Weather?"}, ` + call + `, {"role": "tool", "content": "{\"t\": 21.5}", "tool_call_id": "call00000", "name": "get_weather"}, {"role": "assistant", "content": "It is 21.5."}, {"role": "user", "content": "Thanks"}], "tools": [` + weather + `]}`},
	{"a result in parts", `{"messages": [{"role": "user", "content": "Weather?"}, ` + call + `, {"role": "tool", "content": [{"type": "text", "text": "sunny"}, {"type": "text", "text": "warm"}], "tool_call_id": "call00000"}], "tools": [` + weather + `]}`},
	{"arguments that are no JSON", `{"messages": [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "let me see", "tool_calls": [{"id": "call00000", "type": "function", "function": {"name": "f", "arguments": "{"}}]}, {"role": "tool", "content": "x", "tool_call_id": "call00000"}]}`},
	{"no calls", `{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello", "tool_calls": []}, {"role": "user", "content": "x"}]}`},
	{"thoughts", `{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "<think>\nhmm\n</think>\n\nHello"}, {"role": "user", "content": "More"}]}`},
	{"reasoning", `{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello", "reasoning": "because\n"}, {"role": "user", "content": "More"}]}`},
	{"no thinking", `{"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": {"enable_thinking": false}}`},
	{"thinking", `{"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": {"enable_thinking": true}}`},
	{"thinking or not", `{"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": {"enable_thinking": null}}`},
	{"a developer", `{"messages": [{"role": "developer", "content": "dev"}, {"role": "user", "content": "b"}]}`},
	{"a developer later", `{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "b"}, {"role": "developer", "content": "dev"}, {"role": "user", "content": "c"}]}`},
	{"a name", `{"messages": [{"role": "user", "content": "Hi", "name": "ada"}]}`},
	{"a line that changes", `{"messages": [{"role": "system", "content": "x-anthropic-billing-header: cch=1;\nBe brief."}, {"role": "user", "content": "Hi"}]}`},
	{"two users", `{"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}`},
}

// fields are the fields of a chat's body, in which tools and calls keep the order of their keys.
func (n named) fields(t *testing.T) map[string]any {
	t.Helper()
	var raw map[string]json.RawMessage
	if err := json.Unmarshal([]byte(n.text), &raw); err != nil {
		t.Fatalf("%s: %v", n.name, err)
	}
	fields := map[string]any{}
	for name, value := range raw {
		fields[name] = value
	}
	return fields
}

// texts are pieces of this repository, and what tokenizers treat in some way of their own.
func texts(t *testing.T) []named {
	t.Helper()
	all := []named{
		{"spaces", "a  b   c \t d\n\n\ne  \n "},
		{"digits", "1 12 123 1234 1,234.50 ١٢٣ ½ Ⅷ"},
		{"contractions", "don't I'LL we've 'S ʼs"},
		{"NUL and controls", "a\x00b\x01\x1b[0m\x7f\u200b\u2028c"},
		{"scripts", "Zürich Ελλάδα Привет שלום العربية हिन्दी ไทย 中文字 日本語かな 한국어 ქართული"},
		{"emoji", "😀👩‍👩‍👧🇨🇭👍🏽"},
		{"composed and not", "é e\u0301 Å A\u030a ﬁ ㎏"},
		{"special tokens", "<|im_start|>user<|eot_id|><s></s><｜User｜><|endoftext|> <think>"},
		{"new code points", "\U00016ea0\U0001fae9"},
		{"one word", strings.Repeat("a", 3000)},
		{"one space", strings.Repeat(" ", 300)},
	}
	for _, file := range []string{"../../docs/design.md", "../../docs/tokenizers.md", "../../tokenize/messages.go", "model.py", "../../go.sum"} {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at+2000 < len(raw) && at < 16_000; at += 2000 {
			all = append(all, named{file, strings.ToValidUTF8(string(raw[at:at+2000]), "")})
		}
	}
	return all
}
