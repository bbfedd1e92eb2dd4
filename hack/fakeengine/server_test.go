package fakeengine

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// call makes one HTTP call and returns status and body.
func call(t *testing.T, e *Engine, method, path, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+e.Addresses().HTTP+path, strings.NewReader(body))
	must(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	must(t, resp.Body.Close())
	return resp.StatusCode, string(text)
}

// completionBody is a request for n tokens.
func completionBody(t *testing.T, model string, prompt []uint32, n int) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"model": model, "prompt": prompt, "max_tokens": n, "return_token_ids": true, "temperature": 0})
	must(t, err)
	return string(b)
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

func TestCachedTokensAreWhatTheHeldBlocksPredict(t *testing.T) {
	const block = 8
	e := start(t, func(c *Config) { c.Blocks, c.BlockSize = 60, block })
	rng := rand.New(rand.NewPCG(1, 2))
	talks := make([][]uint32, 4)
	hits := 0
	for range 80 {
		talk := &talks[rng.IntN(len(talks))]
		if len(*talk) == 0 || len(*talk) > 200 {
			*talk = numbers(1000*rng.IntN(2), 3*block)
		}
		known := heldPrefix(e, *talk)
		n := len(*talk)
		status, text := call(t, e, "POST", "/v1/completions", completionBody(t, "fake-model", *talk, 1+rng.IntN(20)))
		if status != http.StatusOK {
			t.Fatalf("status %d: %s", status, text)
		}
		resp := decode[completionResponse](t, text)
		want := min(known, (n-1)/block*block)
		if got := resp.Usage.PromptTokensDetails.CachedTokens; got != want {
			t.Fatalf("cached_tokens %d for %d tokens of which %d are held, want %d", got, n, known, want)
		}
		if want, got := float64(n-want)*e.cfg.PrefillMicros/1000, resp.ModelledTTFT; got < want-1e-6 || got > want+1e-6 {
			t.Fatalf("modelled_ttft_ms %v, want %v", got, want)
		}
		hits += want
		*talk = append(append(*talk, resp.Choices[0].TokenIDs...), numbers(500, rng.IntN(block))...)
	}
	if hits == 0 {
		t.Error("no request found anything in the cache")
	}
}

// heldPrefix is the number of leading tokens whose blocks the engine holds, found by walking the blocks
// from their parents.
func heldPrefix(e *Engine, prompt []uint32) int {
	type key struct{ parent, tokens string }
	held := map[key]string{}
	for _, b := range e.Held() {
		k := key{tokens: fmt.Sprint(b.Tokens)}
		if b.Parent != nil {
			k.parent = b.Parent.String()
		}
		held[k] = b.Hash.String()
	}
	n, parent := 0, ""
	for size := e.cfg.BlockSize; n+size <= len(prompt); n += size {
		hash, ok := held[key{parent, fmt.Sprint(prompt[n : n+size])}]
		if !ok {
			break
		}
		parent = hash
	}
	return n
}

func TestCompletionAnswersInTheFormOfTheOpenAIAPI(t *testing.T) {
	e := start(t, func(c *Config) { c.Ranks, c.Adapters = 2, map[string]int{"sql": 1} })
	_, text := call(t, e, "POST", "/v1/completions", completionBody(t, "sql", numbers(0, 40), 3), rankHeader, "1")
	got := decode[completionResponse](t, text)
	ids := got.Choices[0].TokenIDs
	got.Created = 0
	want := completionResponse{
		ID: "cmpl-fake-0-1", Object: "text_completion", Model: "sql",
		Choices: []choice{{
			Text:     fmt.Sprintf("w%d w%d w%d", ids[0], ids[1], ids[2]),
			TokenIDs: ids, PromptTokenIDs: numbers(0, 40), FinishReason: "length",
		}},
		Usage:        usage{PromptTokens: 40, CompletionTokens: 3, TotalTokens: 43},
		ModelledTTFT: 2,
		Rank:         1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if !strings.Contains(text, `"prompt_tokens_details":{"cached_tokens":0}`) {
		t.Errorf("no cached_tokens in %s", text)
	}
	_, text = call(t, e, "POST", "/v1/completions", `{"prompt":[1,2]}`)
	if got := decode[completionResponse](t, text); got.Usage.CompletionTokens != defaultMaxTokens || got.Choices[0].TokenIDs != nil {
		t.Errorf("defaults: %s; want %d tokens and no token_ids", text, defaultMaxTokens)
	}
}

func TestBadCompletionsAreAnsweredWithTheReason(t *testing.T) {
	e := start(t, nil)
	for _, c := range []struct {
		name, body, rank string
		status           int
		reason           string
	}{
		{"a text prompt", `{"prompt":"hello"}`, "", 400, "array of token ids"},
		{"a negative token id", `{"prompt":[-1]}`, "", 400, "0 to 4294967295"},
		{"no JSON", `prompt`, "", 400, "body:"},
		{"no prompt", `{}`, "", 400, "prompt: is empty"},
		{"streaming", `{"prompt":[1],"stream":true}`, "", 400, "stream: true"},
		{"no tokens", `{"prompt":[1],"max_tokens":0}`, "", 400, "max_tokens: 0"},
		{"an unknown model", `{"prompt":[1],"model":"x"}`, "", 404, `model: "x"`},
		{"a rank that is no number", `{"prompt":[1]}`, "one", 400, `"one" is not a number`},
		{"a rank out of range", `{"prompt":[1]}`, "1", 400, "rank: 1; want 0 to 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, text := call(t, e, "POST", "/v1/completions", c.body, rankHeader, c.rank)
			body := decode[struct {
				Error struct {
					Message string
					Code    int
				}
			}](t, text)
			if status != c.status || body.Error.Code != status || !strings.Contains(body.Error.Message, c.reason) {
				t.Errorf("status %d: %s; want %d and %q", status, text, c.status, c.reason)
			}
		})
	}
}

func TestMetricsHaveVLLMsNamesAndLabels(t *testing.T) {
	e := start(t, func(c *Config) { c.Adapters = map[string]int{"sql": 1} })
	for range 2 {
		complete(t, e, Request{Prompt: numbers(0, 33), MaxTokens: 2})
	}
	status, text := call(t, e, "GET", "/metrics", "")
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	for _, line := range []string{
		`vllm:kv_cache_usage_perc{engine="0",model_name="fake-model"} 0`,
		`vllm:prefix_cache_queries_total{engine="0",model_name="fake-model"} 66`,
		`vllm:prefix_cache_hits_total{engine="0",model_name="fake-model"} 32`,
		`vllm:external_prefix_cache_queries_total{engine="0",model_name="fake-model"} 0`,
		`vllm:external_prefix_cache_hits_total{engine="0",model_name="fake-model"} 0`,
		`vllm:num_requests_running{engine="0",model_name="fake-model"} 0`,
		`vllm:num_requests_waiting{engine="0",model_name="fake-model"} 0`,
		`vllm:prompt_tokens_total{engine="0",model_name="fake-model"} 66`,
		`vllm:generation_tokens_total{engine="0",model_name="fake-model"} 4`,
		`vllm:engine_sleep_state{engine="0",model_name="fake-model",sleep_state="awake"} 1`,
		`vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",num_gpu_blocks="4096",num_gpu_blocks_override="4096",prefix_caching_hash_algo="sha256"} 1`,
		`vllm:lora_requests_info{max_lora="1",running_lora_adapters="",waiting_lora_adapters=""} 1.`,
		`process_start_time_seconds 1.`,
	} {
		if !strings.Contains(text, "\n"+line) {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
}

func TestMetricsOfSeveralRanks(t *testing.T) {
	e := start(t, func(c *Config) { c.Ranks = 2 })
	_, text := call(t, e, "GET", "/metrics", "")
	if !strings.Contains(text, `num_gpu_blocks="8192"`) || !strings.Contains(text, `vllm:num_requests_running{engine="1"`) {
		t.Errorf("want a series for each rank and the sum of their blocks in\n%s", text)
	}
	if strings.Contains(text, "process_start_time_seconds") || strings.Contains(text, "lora") {
		t.Errorf("want neither a start time, as of several processes, nor adapters in\n%s", text)
	}
}

func TestHeldIsStreamedAsLines(t *testing.T) {
	e := start(t, func(c *Config) { c.Adapters, c.HashForm = map[string]int{"sql": 1}, HashBytes })
	complete(t, e, Request{Model: "sql", Prompt: numbers(0, 32), MaxTokens: 1})
	complete(t, e, Request{Prompt: numbers(0, 16), MaxTokens: 1, CacheSalt: "s"})
	_, text := call(t, e, "GET", "/debug/held", "")
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines, want 3:\n%s", len(lines), text)
	}
	for _, line := range lines {
		b := decode[struct {
			Lora, Salt, Medium string
			Hash, Parent       *string
			Index, Copies      int
			Tokens             []uint32
			BlockSize          int `json:"block_size"`
		}](t, line)
		if len(*b.Hash) != 66 || (b.Parent == nil) != (b.Index == 0) || b.BlockSize != 16 || len(b.Tokens) != 16 ||
			b.Copies != 1 || b.Medium != "GPU" || (b.Lora == "") == (b.Salt == "") {
			t.Errorf("line %s", line)
		}
	}
	_, text = call(t, e, "GET", "/debug/held?form=fingerprints", "")
	prints := e.Fingerprints()
	want := fmt.Sprintf(`{"rank":0,"lora":"sql","fingerprints":["%016x","%016x"]}`+"\n", prints[0].Fingerprints[0], prints[0].Fingerprints[1])
	if len(prints) != 1 || text != want {
		t.Errorf("got %s, want %s", text, want)
	}
	if status, _ := call(t, e, "GET", "/debug/held?form=xml", ""); status != http.StatusBadRequest {
		t.Errorf("status %d for an unknown form, want 400", status)
	}
}

func TestOtherPagesAnswer(t *testing.T) {
	e := start(t, func(c *Config) { c.Ranks, c.Topic, c.Adapters = 2, "kv@pod", map[string]int{"b": 1, "a": 2} })
	if status, _ := call(t, e, "GET", "/health", ""); status != http.StatusOK {
		t.Errorf("health: status %d", status)
	}
	_, text := call(t, e, "GET", "/v1/models", "")
	if models := decode[struct{ Data []modelCard }](t, text).Data; len(models) != 3 ||
		models[0].ID != "fake-model" || models[1].ID != "b" || models[2].ID != "a" || *models[1].Parent != "fake-model" {
		t.Errorf("models: %s", text)
	}
	_, text = call(t, e, "GET", "/kv_event_sources", "")
	sources := decode[map[string]eventSource](t, text)
	for rank, addr := range e.Addresses().Events {
		if s := sources[fmt.Sprint(rank)]; s.Endpoint != addr || *s.ReplayEndpoint != e.Addresses().Replay[rank] || s.Topic != "kv@pod" {
			t.Errorf("source of rank %d: %+v", rank, s)
		}
	}
	complete(t, e, Request{Prompt: numbers(0, 32), MaxTokens: 1})
	if status, text := call(t, e, "POST", "/reset_prefix_cache", ""); status != http.StatusOK || len(e.Held()) != 0 {
		t.Errorf("reset: status %d, %s; %d blocks are left", status, text, len(e.Held()))
	}
}

func TestResetIsRefusedWhileRequestsAreInProgress(t *testing.T) {
	e := start(t, nil)
	busy := seqOf(numbers(0, 4)) // holds a block, as a request in progress does
	e.ranks[0].mu.Lock()
	e.ranks[0].pool.admit(busy)
	e.ranks[0].mu.Unlock()
	if status, text := call(t, e, "POST", "/reset_prefix_cache", ""); status != http.StatusConflict || !strings.Contains(text, `"success":false`) {
		t.Errorf("status %d: %s; want 409 and no success", status, text)
	}
}
