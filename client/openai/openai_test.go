package openai

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

func TestARequestBecomesALookup(t *testing.T) {
	user := []*pb.ChatMessage{{Role: "user", Content: "hi"}}
	for name, c := range map[string]struct {
		body string
		want *pb.LookupRouteRequest // nil for an error
	}{
		"a chat": {
			`{"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 1}`,
			&pb.LookupRouteRequest{ModelId: "m", Messages: user},
		},
		"all that a message has": {
			`{"messages": [{"role": "assistant", "content": null, "reasoning_content": "r", "tool_calls": [{"b": 1.0}]},
			  {"role": "tool", "content": [{"type": "text", "text": "x"}], "tool_call_id": "c", "name": "f"}]}`,
			&pb.LookupRouteRequest{Messages: []*pb.ChatMessage{
				{Role: "assistant", Reasoning: "r", ToolCallsJson: `[{"b": 1.0}]`},
				{Role: "tool", ContentPartsJson: `[{"type": "text", "text": "x"}]`, ToolCallId: "c", Name: "f"},
			}},
		},
		"what goes with a chat": {
			`{"messages": [{"role": "user", "content": "hi"}], "tools": [{"z": 1}], "documents": null, "add_generation_prompt": false,
			  "continue_final_message": true, "chat_template_kwargs": {"a": 1}}`,
			&pb.LookupRouteRequest{
				Messages: user, ToolsJson: `[{"z": 1}]`, AddGenerationPrompt: proto.Bool(false), ContinueFinalMessage: true, ChatTemplateKwargsJson: `{"a": 1}`,
			},
		},
		"an effort": {
			`{"messages": [{"role": "user", "content": "hi"}], "reasoning_effort": "none", "chat_template_kwargs": {"a": 1.0}}`,
			&pb.LookupRouteRequest{Messages: user, ChatTemplateKwargsJson: `{"a":1.0,"enable_thinking":false,"reasoning_effort":"none"}`},
		},
		"a prompt":            {`{"prompt": "hi", "add_special_tokens": false}`, &pb.LookupRouteRequest{RawText: "hi", AddSpecialTokens: proto.Bool(false)}},
		"token ids":           {`{"prompt": [1, 2]}`, &pb.LookupRouteRequest{TokenIds: []uint32{1, 2}}},
		"several prompts":     {`{"prompt": ["a", "b"]}`, nil},
		"both":                {`{"prompt": "a", "messages": []}`, nil},
		"neither":             {`{"prompt": null}`, nil},
		"no JSON":             {`{`, nil},
		"invalid UTF-8":       {"{\"prompt\": \"\xff\"}", nil},
		"a template":          {`{"messages": [], "chat_template": "x"}`, nil},
		"special tokens":      {`{"messages": [], "add_special_tokens": true}`, nil},
		"a content of digits": {`{"messages": [{"role": "user", "content": 1}]}`, nil},
		"arguments in a list": {`{"messages": [], "reasoning_effort": "low", "chat_template_kwargs": []}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := &pb.LookupRouteRequest{}
			err := Fill(got, []byte(c.body))
			if (err != nil) != (c.want == nil) {
				t.Fatalf("error %v", err)
			}
			if c.want != nil {
				if diff := cmp.Diff(c.want, got, protocmp.Transform()); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestTheModelOfTheLookupCounts(t *testing.T) {
	got := &pb.LookupRouteRequest{ModelId: "mine"}
	if err := Fill(got, []byte(`{"model": "theirs", "prompt": "x"}`)); err != nil || got.ModelId != "mine" {
		t.Errorf("model %q, %v", got.ModelId, err)
	}
}

func FuzzFill(f *testing.F) {
	f.Add([]byte(`{"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}], "tools": []}`))
	f.Add([]byte(`{"prompt": [1], "reasoning_effort": "low"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := &pb.LookupRouteRequest{}
		if err := Fill(r, body); err != nil && strings.TrimSpace(err.Error()) == "" {
			t.Error("an error that says nothing")
		}
	})
}
