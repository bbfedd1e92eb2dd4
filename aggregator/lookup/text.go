package lookup

import (
	"context"
	"encoding/json"
	"time"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/tokenize"
)

const (
	// tokenizeTimeout bounds a lookup by text that has no other deadline.
	tokenizeTimeout = 5 * time.Second
	// maxMessages is one more than a Tokenizer takes: it refuses the chat, and the rest need not be read.
	maxMessages = 4096 + 1
)

// carriesText says whether the request has text of which token ids can be made.
func carriesText(req *pb.LookupRouteRequest) bool {
	return len(req.GetMessages()) > 0 || req.GetPromptText() != "" || req.GetRawText() != ""
}

// textInput returns the first form of text that the request carries.
func textInput(req *pb.LookupRouteRequest) tokenize.Input {
	if len(req.GetMessages()) == 0 && req.GetPromptText() == "" {
		return tokenize.Input{Raw: req.GetRawText(), NoSpecialTokens: req.AddSpecialTokens != nil && !req.GetAddSpecialTokens()}
	}
	in := tokenize.Input{
		Messages:           chat(req.GetMessages()),
		Tools:              json.RawMessage(req.GetToolsJson()),
		Documents:          json.RawMessage(req.GetDocumentsJson()),
		TemplateArgs:       json.RawMessage(req.GetChatTemplateKwargsJson()),
		NoGenerationPrompt: req.AddGenerationPrompt != nil && !req.GetAddGenerationPrompt(),
		ContinueFinal:      req.GetContinueFinalMessage(),
	}
	if len(in.Messages) == 0 {
		in.Prompt = req.GetPromptText()
	}
	return in
}

func chat(messages []*pb.ChatMessage) []tokenize.Message {
	out := make([]tokenize.Message, min(len(messages), maxMessages))
	for i := range out {
		m := messages[i]
		out[i] = tokenize.Message{
			Role: m.GetRole(), Content: m.GetContent(), Parts: json.RawMessage(m.GetContentPartsJson()), Name: m.GetName(),
			ToolCalls: json.RawMessage(m.GetToolCallsJson()), ToolCallID: m.GetToolCallId(), Reasoning: m.GetReasoning(),
		}
	}
	return out
}

// textChains makes token ids of the request's text and goes on as if the caller had.
func (s *Service) textChains(c *call) bool {
	c.tokens, c.textErr = s.encode(c)
	s.Metrics.Text(tokenize.ReasonOf(c.textErr))
	return c.textErr == nil && s.tokenChains(c, c.tokens)
}

func (s *Service) encode(c *call) ([]uint32, error) {
	if s.Tokenizer == nil {
		return nil, tokenize.Unavailable("this aggregator has no tokenizer")
	}
	if _, bounded := c.ctx.Deadline(); !bounded && c.deadline.IsZero() {
		c.deadline = c.start.Add(tokenizeTimeout)
	}
	ctx := c.ctx
	if !c.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.deadline.Sub(s.Now()))
		defer cancel()
	}
	result, err := s.Tokenizer.Encode(ctx, c.scope.Model, textInput(c.req))
	return result.IDs, err
}

// textReason says why no ids could be made of the request's text; empty if there was nothing to do, or it
// was done.
func (c *call) textReason() string {
	if c.textErr == nil {
		return ""
	}
	return string(tokenize.ReasonOf(c.textErr))
}
