// Package openai makes lookups of what gateways are sent: chat completions and completions of OpenAI's API, with the
// further fields that vLLM reads.
package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// request is what the prompt depends on.
type request struct {
	Model            string          `json:"model"`
	Messages         json.RawMessage `json:"messages"`
	Tools            json.RawMessage `json:"tools"`
	Documents        json.RawMessage `json:"documents"`
	TemplateArgs     json.RawMessage `json:"chat_template_kwargs"`
	ReasoningEffort  *string         `json:"reasoning_effort"`
	GenerationPrompt *bool           `json:"add_generation_prompt"`
	Continue         bool            `json:"continue_final_message"`
	Template         *string         `json:"chat_template"`
	SpecialTokens    *bool           `json:"add_special_tokens"`
	Prompt           json.RawMessage `json:"prompt"`
}

// Fill puts the prompt of a request's body into a lookup, and its model where the lookup names none. A body whose prompt the
// server could not make exactly is an error: route it without a hint.
func Fill(lookup *pb.LookupRouteRequest, body []byte) error {
	if !utf8.Valid(body) {
		return errors.New("read the request: it is not UTF-8")
	}
	var r request
	if err := json.Unmarshal(body, &r); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	chat, completion := isSet(r.Messages), isSet(r.Prompt)
	if chat == completion {
		return errors.New("read the request: want either messages or a prompt")
	}
	if lookup.ModelId == "" {
		lookup.ModelId = r.Model
	}
	if completion {
		lookup.AddSpecialTokens = r.SpecialTokens
		return fillPrompt(lookup, r.Prompt)
	}
	return r.fillChat(lookup)
}

// isSet says whether a value is there and not null.
func isSet(raw json.RawMessage) bool { return len(raw) > 0 && !bytes.Equal(raw, []byte("null")) }

// text is a value as the lookup takes it, empty for null.
func text(raw json.RawMessage) string {
	if !isSet(raw) {
		return ""
	}
	return string(raw)
}

func (r *request) fillChat(lookup *pb.LookupRouteRequest) error {
	if r.Template != nil {
		return errors.New("chat_template: a request's own template is not used")
	}
	if r.SpecialTokens != nil && *r.SpecialTokens {
		return errors.New("add_special_tokens: the chat template alone says which special tokens a chat has")
	}
	args, err := r.templateArgs()
	if err != nil {
		return err
	}
	if lookup.Messages, err = Messages(r.Messages); err != nil {
		return err
	}
	lookup.ToolsJson, lookup.DocumentsJson, lookup.ChatTemplateKwargsJson = text(r.Tools), text(r.Documents), args
	lookup.AddGenerationPrompt, lookup.ContinueFinalMessage = r.GenerationPrompt, r.Continue
	return nil
}

// templateArgs adds the effort that is asked for, as engines do: it also says whether to think at all.
func (r *request) templateArgs() (string, error) {
	if r.ReasoningEffort == nil {
		return text(r.TemplateArgs), nil
	}
	args := map[string]json.RawMessage{}
	if isSet(r.TemplateArgs) {
		if err := json.Unmarshal(r.TemplateArgs, &args); err != nil {
			return "", fmt.Errorf("chat_template_kwargs: want a JSON object: %w", err)
		}
	}
	set := func(name string, value any) {
		args[name], _ = json.Marshal(value) // a string and a boolean cannot fail
	}
	set("reasoning_effort", *r.ReasoningEffort)
	if _, given := args["enable_thinking"]; !given {
		set("enable_thinking", *r.ReasoningEffort != "none")
	}
	merged, err := json.Marshal(args)
	return string(merged), err
}

// fillPrompt takes text, or token ids.
func fillPrompt(lookup *pb.LookupRouteRequest, raw json.RawMessage) error {
	if json.Unmarshal(raw, &lookup.RawText) == nil {
		return nil
	}
	if json.Unmarshal(raw, &lookup.TokenIds) == nil {
		return nil
	}
	return errors.New("prompt: want one text, or one list of token ids")
}

// Messages reads a JSON array of messages, which must be UTF-8.
func Messages(raw []byte) ([]*pb.ChatMessage, error) {
	var list []struct {
		Role             string          `json:"role"`
		Content          json.RawMessage `json:"content"`
		Name             string          `json:"name"`
		ToolCalls        json.RawMessage `json:"tool_calls"`
		ToolCallID       string          `json:"tool_call_id"`
		Reasoning        *string         `json:"reasoning"`
		ReasoningContent *string         `json:"reasoning_content"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("messages: want a JSON array of messages: %w", err)
	}
	messages := make([]*pb.ChatMessage, len(list))
	for i, m := range list {
		out := &pb.ChatMessage{Role: m.Role, Name: m.Name, ToolCallsJson: text(m.ToolCalls), ToolCallId: m.ToolCallID}
		if m.Reasoning == nil {
			m.Reasoning = m.ReasoningContent // its former name
		}
		if m.Reasoning != nil {
			out.Reasoning = *m.Reasoning
		}
		switch {
		case !isSet(m.Content):
		case m.Content[0] == '[':
			out.ContentPartsJson = string(m.Content)
		default:
			if err := json.Unmarshal(m.Content, &out.Content); err != nil {
				return nil, fmt.Errorf("messages[%d].content: want a text or an array of parts", i)
			}
		}
		messages[i] = out
	}
	return messages, nil
}
