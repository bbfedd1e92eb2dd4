package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

const (
	topic     = "kv-events"
	blockSize = 32  // tokens; the engine accepts multiples of 32 on a CPU
	blocks    = 200 // of the engine's pool: some dozens of requests overflow it
	// engineStart bounds the wait for an engine: 30 s on an idle machine, minutes on a busy one.
	engineStart = 15 * time.Minute
	// answerWait bounds one request to an engine.
	answerWait = time.Minute
)

// served is a model as an engine serves it.
type served struct {
	name, folder string
	flags        []string // further ones of the engine
}

// tiny has words w3 to w1023 for tokens, and two adapters.
func tiny(t *testing.T) served {
	env := environment(t)
	return served{"tiny", filepath.Join(env, "model"), []string{
		"--enable-lora", "--max-lora-rank", "8", "--lora-modules",
		"sql=" + filepath.Join(env, "adapters", "sql"), "chat=" + filepath.Join(env, "adapters", "chat"),
	}}
}

// engine is one vLLM process with its children.
type engine struct {
	program
	model                string
	http, events, replay string // host:port
}

// startEngine starts an engine; awaitHealthy waits until it serves.
func startEngine(t *testing.T, name string, m served) *engine {
	t.Helper()
	env := environment(t)
	e := &engine{model: m.name, http: freeAddress(t), events: freeAddress(t), replay: freeAddress(t)}
	e.program = program{t: t, name: name, path: "/usr/bin/env", grace: 20 * time.Second}
	kvEvents, err := json.Marshal(map[string]any{
		"enable_kv_cache_events": true, "publisher": "zmq", "topic": topic,
		"endpoint": "tcp://*:" + port(e.events), "replay_endpoint": "tcp://*:" + port(e.replay),
	})
	if err != nil {
		t.Fatal(err)
	}
	e.args = append(variables(),
		"nice", filepath.Join(env, "bin", "vllm"), "serve", m.folder,
		"--host", "127.0.0.1", "--port", port(e.http), "--served-model-name", m.name,
		"--load-format", "dummy", "--dtype", "bfloat16", "--enforce-eager", "--max-model-len", "4096",
		"--enable-prefix-caching", "--block-size", strconv.Itoa(blockSize), "--num-gpu-blocks-override", strconv.Itoa(blocks),
		"--enable-prompt-tokens-details", "--kv-events-config", string(kvEvents))
	e.args = append(e.args, m.flags...)
	e.start()
	return e
}

// variables are what an engine needs in its environment to be small, offline and resettable.
func variables() []string {
	return []string{
		"VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1",
		"VLLM_SERVER_DEV_MODE=1", "HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1", "TZ=UTC",
	}
}

func (e *engine) awaitHealthy() {
	e.t.Helper()
	await(e.t, e.name+" to serve", engineStart, func() error { return e.call(http.MethodGet, "/health", nil, nil) }, &e.program)
}

// request is one completion. Adapter is "" for the base model.
type request struct {
	Adapter, Salt string
	Prompt        []uint32
	MaxTokens     int
}

// answer is what the engine says of one completion.
type answer struct {
	Tokens       []uint32
	Content      string // of a chat
	Prompt       []uint32
	PromptTokens int
	Cached       int // tokens of the prompt that were found in the cache
}

func (e *engine) complete(r request) answer {
	e.t.Helper()
	a, err := e.tryComplete(r)
	if err != nil {
		e.t.Fatal(err)
	}
	return a
}

func (e *engine) tryComplete(r request) (answer, error) {
	body := map[string]any{"prompt": r.Prompt, "max_tokens": r.MaxTokens}
	if r.Adapter != "" {
		body["model"] = r.Adapter
	}
	if r.Salt != "" {
		body["cache_salt"] = r.Salt
	}
	a, err := e.generate("/v1/completions", body)
	if err == nil && a.PromptTokens != len(r.Prompt) {
		err = fmt.Errorf("%s: %d prompt tokens, %d were sent", e.name, a.PromptTokens, len(r.Prompt))
	}
	return a, err
}

// generate asks for one completion, of a chat or a prompt, whose tokens the engine is to tell.
func (e *engine) generate(path string, body map[string]any) (answer, error) {
	whole := map[string]any{"model": e.model, "temperature": 0, "ignore_eos": true, "return_token_ids": true}
	maps.Copy(whole, body)
	var reply struct {
		PromptTokenIDs []uint32 `json:"prompt_token_ids"`
		Choices        []struct {
			PromptTokenIDs []uint32 `json:"prompt_token_ids"`
			TokenIDs       []uint32 `json:"token_ids"`
			Message        struct{ Content *string }
		}
		Usage struct {
			PromptTokens int `json:"prompt_tokens"`
			Details      *struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := e.call(http.MethodPost, path, whole, &reply); err != nil {
		return answer{}, err
	}
	if len(reply.Choices) != 1 {
		return answer{}, fmt.Errorf("%s: %d choices; one was asked for", e.name, len(reply.Choices))
	}
	first := reply.Choices[0]
	a := answer{Tokens: first.TokenIDs, PromptTokens: reply.Usage.PromptTokens, Prompt: append(reply.PromptTokenIDs, first.PromptTokenIDs...)}
	if first.Message.Content != nil {
		a.Content = *first.Message.Content
	}
	if reply.Usage.Details != nil { // absent where nothing was cached
		a.Cached = reply.Usage.Details.Cached
	}
	return a, nil
}

// post calls one of the engine's management endpoints.
func (e *engine) post(path string) {
	e.t.Helper()
	if err := e.call(http.MethodPost, path, nil, nil); err != nil {
		e.t.Fatal(err)
	}
}

func (e *engine) version() string {
	e.t.Helper()
	var reply struct{ Version string }
	if err := e.call(http.MethodGet, "/version", nil, &reply); err != nil {
		e.t.Fatal(err)
	}
	return reply.Version
}

// call makes one HTTP call with JSON bodies; nil stands for none.
func (e *engine) call(method, path string, body, reply any) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerWait)
	defer cancel()
	var content io.Reader = http.NoBody
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", e.name, path, err)
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+e.http+path, content)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", e.name, path, err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", e.name, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: status %s: %.500s", e.name, path, resp.Status, text)
	}
	if reply == nil {
		return nil
	}
	if err := json.Unmarshal(text, reply); err != nil {
		return fmt.Errorf("%s: %s: %w", e.name, path, err)
	}
	return nil
}
