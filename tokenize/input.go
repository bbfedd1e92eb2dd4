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
	b := budget{left: c.MaxBytes}
	err := b.admit(in.Prompt, in.Raw, string(in.Tools), string(in.Documents), string(in.TemplateArgs))
	for i := 0; i < len(in.Messages) && err == nil; i++ {
		m := &in.Messages[i]
		if err = b.admit(m.Role, m.Content, string(m.Parts), m.Name, string(m.ToolCalls), m.ToolCallID, m.Reasoning); err != nil {
			err = refuse(ReasonOf(err), fmt.Errorf("messages[%d]: %w", i, err))
		}
	}
	if err != nil {
		return err
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

// budget is the bytes that a request may still have.
type budget struct{ left int }

// admit accounts for texts, which must be UTF-8.
func (b *budget) admit(texts ...string) error {
	for _, text := range texts {
		if b.left -= len(text); b.left < 0 {
			return refuse(ReasonTooLarge, errors.New("the request has more bytes of text than are accepted"))
		}
		if !utf8.ValidString(text) {
			return refuse(ReasonInvalidUTF8, errors.New("a text of the request is not UTF-8"))
		}
	}
	return nil
}
