// Package engine is the client of one inference engine: completions, cache reset, and what the engine
// truly holds.
package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/inferencecache/inferencecache/hack/demo/inspect"
)

// maxAnswer bounds one answer or one line of it, in bytes: several million fingerprints.
const maxAnswer = 128 << 20

// resetPause is the time between attempts to reset a cache that is in use.
const resetPause = 20 * time.Millisecond

// Client talks to one engine.
type Client struct {
	name    string
	baseURL string
	model   string
	http    *http.Client
}

// New returns a client of the engine that serves a model at address, as host:port. conns is how many
// requests may be under way without opening a connection for each.
func New(name, address, model string, conns int) *Client {
	transport := &http.Transport{MaxIdleConnsPerHost: conns}
	return &Client{name, "http://" + address, model, &http.Client{Transport: transport}}
}

// Name returns the engine's replica name.
func (c *Client) Name() string { return c.name }

// Close closes the connections that are not in use. An engine that stops would wait for those that were
// opened and never used.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Answer is a completion.
type Answer struct {
	TokenIDs     []uint32
	CachedTokens int           // prompt tokens that the engine had in its cache
	TTFT         time.Duration // modelled time to the first token
}

// Complete has the engine generate n tokens behind the prompt. The answer carries their ids only where
// wantIDs asks for them: the engine then repeats the whole prompt as well.
func (c *Client) Complete(ctx context.Context, prompt []uint32, n int, wantIDs bool) (Answer, error) {
	var body struct {
		Choices []struct {
			TokenIDs []uint32 `json:"token_ids"`
		} `json:"choices"`
		Usage struct {
			PromptTokensDetails struct {
				CachedTokens int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
		ModelledTTFT float64 `json:"modelled_ttft_ms"`
	}
	resp, err := c.do(ctx, http.MethodPost, "/v1/completions", completionRequest(c.model, prompt, n, wantIDs))
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&body); err != nil {
		return Answer{}, fmt.Errorf("decode completion of %s: %w", c.name, err)
	}
	if len(body.Choices) != 1 || wantIDs && len(body.Choices[0].TokenIDs) != n {
		return Answer{}, fmt.Errorf("completion of %s: want one choice of %d token ids", c.name, n)
	}
	return Answer{
		TokenIDs:     body.Choices[0].TokenIDs,
		CachedTokens: body.Usage.PromptTokensDetails.CachedTokens,
		TTFT:         time.Duration(body.ModelledTTFT * float64(time.Millisecond)),
	}, nil
}

// completionRequest writes the JSON by hand: prompts are long, and each is sent many times.
func completionRequest(model string, prompt []uint32, n int, wantIDs bool) []byte {
	b := make([]byte, 0, 128+7*len(prompt))
	b = append(b, `{"model":`...)
	b = strconv.AppendQuote(b, model)
	b = append(b, `,"return_token_ids":`...)
	b = strconv.AppendBool(b, wantIDs)
	b = append(b, `,"max_tokens":`...)
	b = strconv.AppendInt(b, int64(n), 10)
	b = append(b, `,"prompt":[`...)
	for i, id := range prompt {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(id), 10)
	}
	return append(b, `]}`...)
}

// Reset empties the engine's prefix cache. It tries again while blocks are in use, until ctx ends.
func (c *Client) Reset(ctx context.Context) error {
	for {
		resp, err := c.do(ctx, http.MethodPost, "/reset_prefix_cache", nil)
		if err == nil {
			resp.Body.Close()
			return nil
		}
		if refused := (*StatusError)(nil); !errors.As(err, &refused) || refused.Status != http.StatusConflict {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(resetPause):
		}
	}
}

// Held returns the blocks that the engine truly holds.
func (c *Client) Held(ctx context.Context) (inspect.Blocks, error) {
	resp, err := c.do(ctx, http.MethodGet, "/debug/held?form=fingerprints", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	blocks := make(inspect.Blocks)
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxAnswer)
	for lines.Scan() {
		var set struct {
			Rank         int32    `json:"rank"`
			LoRA         string   `json:"lora"`
			Fingerprints []string `json:"fingerprints"`
		}
		if err := json.Unmarshal(lines.Bytes(), &set); err != nil {
			return nil, fmt.Errorf("decode what %s holds: %w", c.name, err)
		}
		for _, digits := range set.Fingerprints {
			hash, err := strconv.ParseUint(digits, 16, 64)
			if err != nil {
				return nil, fmt.Errorf("decode what %s holds: %w", c.name, err)
			}
			blocks.Add(inspect.Block{Rank: set.Rank, Adapter: set.LoRA, Hash: hash})
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read what %s holds: %w", c.name, err)
	}
	return blocks, nil
}

// StatusError is an answer other than 200.
type StatusError struct {
	Status int
	Body   string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.Status, http.StatusText(e.Status), e.Body)
}

// do sends one request. Any answer other than 200 is an error, a *StatusError inside. The caller closes
// the body.
func (c *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.baseURL+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask %s for %s: %w", c.name, path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask %s for %s: %w", c.name, path, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		text = []byte(err.Error())
	}
	return nil, fmt.Errorf("ask %s for %s: %w", c.name, path, &StatusError{resp.StatusCode, string(bytes.TrimSpace(text))})
}
