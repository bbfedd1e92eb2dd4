package fakeengine

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxBody bounds a request body in bytes: a prompt of some six million token ids.
const maxBody = 64 << 20

// defaultMaxTokens is what the OpenAI API generates unless told otherwise.
const defaultMaxTokens = 16

// completionRequest holds the fields that matter here; others, such as temperature, are ignored.
type completionRequest struct {
	Model          string   `json:"model"`
	Prompt         []uint32 `json:"prompt"`
	MaxTokens      *int     `json:"max_tokens"`
	Stream         bool     `json:"stream"`
	CacheSalt      string   `json:"cache_salt"`
	ReturnTokenIDs bool     `json:"return_token_ids"`
}

type completionResponse struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   usage    `json:"usage"`
	// ModelledTTFT is the modelled time to the first token in milliseconds. vLLM has no such field.
	ModelledTTFT float64 `json:"modelled_ttft_ms"`
	// Rank is the data-parallel rank that served the request. vLLM has no such field.
	Rank int `json:"data_parallel_rank"`
}

type choice struct {
	Index          int      `json:"index"`
	Text           string   `json:"text"`
	TokenIDs       []uint32 `json:"token_ids,omitempty"`
	PromptTokenIDs []uint32 `json:"prompt_token_ids,omitempty"`
	FinishReason   string   `json:"finish_reason"`
}

type usage struct {
	PromptTokens        int           `json:"prompt_tokens"`
	CompletionTokens    int           `json:"completion_tokens"`
	TotalTokens         int           `json:"total_tokens"`
	PromptTokensDetails promptDetails `json:"prompt_tokens_details"`
}

type promptDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

func (e *Engine) serveCompletion(w http.ResponseWriter, r *http.Request) {
	body, err := readCompletion(w, r)
	if err != nil {
		writeError(w, err)
		return
	}
	req := Request{Model: body.Model, Prompt: body.Prompt, MaxTokens: defaultMaxTokens, CacheSalt: body.CacheSalt}
	if body.MaxTokens != nil {
		req.MaxTokens = *body.MaxTokens
	}
	if req.Rank, err = rankOf(r.Header); err != nil {
		writeError(w, err)
		return
	}
	resp, err := e.Complete(r.Context(), req)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, completionOf(body, resp))
}

func readCompletion(w http.ResponseWriter, r *http.Request) (*completionRequest, error) {
	var body completionRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&body); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, &RequestError{http.StatusRequestEntityTooLarge, "body: " + err.Error()}
		}
		return nil, badRequest("body: %v; want a JSON object whose prompt is an array of token ids "+
			"from 0 to 4294967295, for there is no tokenizer here", err)
	}
	if body.Stream {
		return nil, badRequest("stream: true is not supported; want false")
	}
	return &body, nil
}

// rankOf reads the data-parallel rank asked for, nil if none is.
func rankOf(h http.Header) (*int, error) {
	text := h.Get(rankHeader)
	if text == "" {
		return nil, nil
	}
	rank, err := strconv.Atoi(text)
	if err != nil {
		return nil, badRequest("%s: %q is not a number", rankHeader, text)
	}
	return &rank, nil
}

func completionOf(body *completionRequest, resp Response) completionResponse {
	prompt, generated := len(body.Prompt), len(resp.TokenIDs)
	c := choice{Text: textOf(resp.TokenIDs), FinishReason: "length"}
	if body.ReturnTokenIDs {
		c.TokenIDs, c.PromptTokenIDs = resp.TokenIDs, body.Prompt
	}
	return completionResponse{
		ID:      resp.ID,
		Object:  "text_completion",
		Created: time.Now().Unix(),
		Model:   body.Model,
		Choices: []choice{c},
		Usage: usage{
			PromptTokens:        prompt,
			CompletionTokens:    generated,
			TotalTokens:         prompt + generated,
			PromptTokensDetails: promptDetails{resp.CachedTokens},
		},
		ModelledTTFT: float64(resp.TTFT) / float64(time.Millisecond),
		Rank:         resp.Rank,
	}
}

// textOf spells token ids as words of a vocabulary that has none: w17 w42.
func textOf(ids []uint32) string {
	var text strings.Builder
	for i, id := range ids {
		if i > 0 {
			text.WriteByte(' ')
		}
		text.WriteByte('w')
		text.WriteString(strconv.FormatUint(uint64(id), 10))
	}
	return text.String()
}
