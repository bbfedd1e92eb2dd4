package tokenize

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Input is a prompt in one of three forms; exactly one of Prompt, Messages and Raw is set.
type Input struct {
	// Prompt is a single user message, to be answered: the chat template makes a prompt of it.
	Prompt string
	// Messages is a chat, of which the chat template makes a prompt.
	Messages []Message
	// Raw is encoded as it is, as completion requests are.
	Raw string
	// NoSpecialTokens leaves out the special tokens that the tokenizer puts around Raw, such as BOS.
	NoSpecialTokens bool

	// The rest is for Messages.

	// Tools is a JSON array of tool definitions; none if empty.
	Tools json.RawMessage
	// Documents is a JSON array of documents; none if empty.
	Documents json.RawMessage
	// TemplateArgs is a JSON object of further variables for the template, as chat_template_kwargs.
	TemplateArgs json.RawMessage
	// NoGenerationPrompt leaves out the start of the assistant's answer.
	NoGenerationPrompt bool
	// ContinueFinal leaves the last message open, to be continued. It needs NoGenerationPrompt.
	ContinueFinal bool
}

// Message is one message of a chat.
type Message struct {
	Role string // required
	// Content is the text; Parts a JSON array of content parts instead, of which all must be text. Both may be
	// empty, as they are where the assistant calls tools.
	Content string
	Parts   json.RawMessage
	// Name is who speaks, or the tool whose result this is.
	Name string
	// ToolCalls is a JSON array of the assistant's calls; none if empty. Arguments may be an object, or JSON in a
	// string, which is decoded as engines do.
	ToolCalls json.RawMessage
	// ToolCallID is the call that this is the result of.
	ToolCallID string
	// Reasoning is what the assistant thought.
	Reasoning string
}

// check refuses what is malformed or too large before any work is done for it.
func (in *Input) check(c Config) error {
	forms := 0
	for _, set := range []bool{in.Prompt != "", len(in.Messages) > 0, in.Raw != ""} {
		if set {
			forms++
		}
	}
	if forms != 1 {
		return refuse(ReasonBadInput, fmt.Errorf("%d of prompt, messages and raw text are set: want one", forms))
	}
	if in.ContinueFinal && !in.NoGenerationPrompt {
		return refuse(ReasonBadInput, errors.New("the last message cannot be continued behind a generation prompt: want one of the two"))
	}
	if len(in.Messages) > c.MaxMessages {
		return refuse(ReasonTooLarge, fmt.Errorf("%d messages, at most %d are accepted", len(in.Messages), c.MaxMessages))
	}
	size := 0
	for name, text := range in.texts() {
		if size += len(text); size > c.MaxBytes {
			return refuse(ReasonTooLarge, fmt.Errorf("more than %d bytes of text", c.MaxBytes))
		}
		if !utf8.ValidString(text) {
			return refuse(ReasonInvalidUTF8, fmt.Errorf("%s is not UTF-8", name))
		}
	}
	for i, m := range in.Messages {
		if m.Role == "" {
			return refuse(ReasonBadInput, fmt.Errorf("messages[%d] has no role", i))
		}
		if m.Content != "" && len(m.Parts) > 0 {
			return refuse(ReasonBadInput, fmt.Errorf("messages[%d] has both content and parts: want one", i))
		}
	}
	return nil
}

// texts yields every text of the input and what it is.
func (in *Input) texts() func(yield func(name, text string) bool) {
	return func(yield func(name, text string) bool) {
		whole := [...][2]string{
			{"prompt", in.Prompt},
			{"raw text", in.Raw},
			{"tools", string(in.Tools)},
			{"documents", string(in.Documents)},
			{"template arguments", string(in.TemplateArgs)},
		}
		for _, t := range whole {
			if !yield(t[0], t[1]) {
				return
			}
		}
		for i, m := range in.Messages {
			for _, text := range [...]string{m.Role, m.Content, string(m.Parts), m.Name, string(m.ToolCalls), m.ToolCallID, m.Reasoning} {
				if !yield(fmt.Sprintf("messages[%d]", i), text) {
					return
				}
			}
		}
	}
}
