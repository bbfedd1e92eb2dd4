package engineargs

import (
	"encoding/json"
	"slices"
	"strings"
)

// vllmGrammar knows what matters here, and the switches that stand in front of a model's name.
var vllmGrammar = grammar{
	alias: map[string]string{
		"tp": "tensor-parallel-size", "pp": "pipeline-parallel-size", "dp": "data-parallel-size",
		"dpn": "data-parallel-rank", "dpr": "data-parallel-start-rank", "dpl": "data-parallel-size-local",
		"dpa": "data-parallel-address", "dpp": "data-parallel-rpc-port", "dpb": "data-parallel-backend",
		"dph": "data-parallel-hybrid-lb", "dpe": "data-parallel-external-lb", "dcp": "decode-context-parallel-size",
		"ep": "enable-expert-parallel", "n": "nnodes", "r": "node-rank", "O": "compilation-config", "q": "quantization",
		"model-tag": "model",
	},
	switches: []string{
		"enable-prefix-caching", "enable-lora", "headless", "trust-remote-code", "enforce-eager", "enable-chunked-prefill",
		"enable-expert-parallel", "enable-eplb", "data-parallel-hybrid-lb", "data-parallel-external-lb", "data-parallel-multi-port-external-lb",
		"disable-log-requests",
		"enable-log-requests", "disable-log-stats", "enable-auto-tool-choice", "disable-uvicorn-access-log", "enable-sleep-mode",
		"disable-hybrid-kv-cache-manager", "disable-custom-all-reduce", "async-scheduling", "disable-cascade-attn",
		"enable-prompt-tokens-details", "enable-force-include-usage", "enable-server-load-tracking", "calculate-kv-scales",
		"disable-sliding-window", "enable-dbo", "enable-reasoning", "disable-frontend-multiprocessing", "skip-tokenizer-init",
		"enable-lora-bias", "fully-sharded-loras", "return-tokens-as-token-ids", "use-tqdm-on-load", "kv-cache-metrics",
		"allow-credentials", "enable-ssl-refresh", "disable-fastapi-docs", "generate-only", "language-model-only",
	},
	lists: []string{
		"served-model-name", "lora-modules", "allowed-origins", "allowed-methods", "allowed-headers", "api-key", "middleware",
		"ignore-patterns", "cudagraph-capture-sizes",
	},
}

// sglangGrammar is vllmGrammar's counterpart.
var sglangGrammar = grammar{
	alias: map[string]string{
		"model": "model-path", "tp": "tensor-parallel-size", "tp-size": "tensor-parallel-size", "pp": "pipeline-parallel-size",
		"pp-size": "pipeline-parallel-size", "dp": "data-parallel-size", "dp-size": "data-parallel-size",
	},
	switches: []string{
		"enable-metrics", "enable-lora", "enable-dp-attention", "trust-remote-code", "disable-radix-cache", "disable-cuda-graph",
		"enable-hierarchical-cache", "enable-lmcache", "enable-torch-compile", "disable-overlap-schedule", "skip-server-warmup",
		"enable-dp-lm-head", "enable-mixed-chunk", "log-requests", "enable-cache-report", "disable-custom-all-reduce",
		"enable-memory-saver", "enable-deterministic-inference", "skip-tokenizer-init", "is-embedding", "enable-multimodal",
		"enable-p2p-check", "enable-eplb", "enable-two-batch-overlap", "disable-cuda-graph-padding", "enable-nccl-nvls",
	},
	lists: []string{
		"lora-paths", "lora-target-modules", "cuda-graph-bs", "bucket-time-to-first-token", "bucket-e2e-request-latency",
		"prompt-tokens-buckets", "generation-tokens-buckets", "preferred-sampling-params", "moe-dense-tp-size",
	},
}

// vllm reads a command line of vLLM.
func (r *reader) vllm(l *Launch, image string) {
	l.Models = r.names("model", "it, as in vllm serve MODEL, or give --served-model-name")
	l.Host, l.Port = r.text("host", ""), r.number("port", 8000, 1, 65535)
	l.HTTPS = r.text("ssl-certfile", "") != ""
	l.Metrics = r.text("uds", "") == ""
	r.vllmRanks(l)
	l.TensorParallel = r.number("tensor-parallel-size", 1, 1, 1<<16)
	l.BlockSize = r.number("block-size", 0, 1, 1<<20)
	l.LoRA = r.on("enable-lora", false)
	l.Adapters = r.adapters("lora-modules")
	r.transfer(l)
	switch c, ok := r.events(); {
	case !ok:
	case c.publisher == "null" || !c.enabled && c.given || !c.given:
		r.off(l.Kind, c)
	case c.publisher == "" && releasedBefore(image, 0, 11, 2):
		r.problem(KVEventsDisabled, `--%s: before vLLM 0.11.2 nothing is published without "publisher":"zmq"; add it`, eventsFlag)
	case c.publisher != "" && c.publisher != "zmq":
		r.problem(KVEventsUnreachable, `--%s: the publisher %q cannot be followed; use "publisher":"zmq"`, eventsFlag, c.publisher)
	case !r.on("enable-prefix-caching", true):
		r.problem(PrefixCachingDisabled, "prefix caching is off, so that there is nothing to find again; remove --no-enable-prefix-caching")
	default:
		r.publish(l, c)
	}
}

// off reports an engine that publishes nothing.
func (r *reader) off(kind Kind, c eventsConfig) {
	switch {
	case !c.given:
		r.problem(KVEventsDisabled, "the engine publishes no KV-cache events; add %s", example(kind))
	case kind == VLLM && !c.enabled:
		r.problem(KVEventsDisabled, `--%s leaves events off; add "enable_kv_cache_events":true`, eventsFlag)
	default:
		r.problem(KVEventsDisabled, `--%s publishes nothing; set "publisher":"zmq"`, eventsFlag)
	}
}

// maxRanks is the most ranks that are taken for real.
const maxRanks = 256

// vllmRanks finds the data-parallel ranks in the container. Rank r publishes on port + r, whatever
// container it runs in.
func (r *reader) vllmRanks(l *Launch) {
	all := r.number("data-parallel-size", 1, 1, 1<<16)
	_, external := r.values["data-parallel-rank"]
	l.FirstRank = r.number("data-parallel-start-rank", 0, 0, 1<<16)
	l.Ranks = r.number("data-parallel-size-local", all, 0, maxRanks)
	if external {
		l.FirstRank, l.Ranks = r.number("data-parallel-rank", 0, 0, 1<<16), 1
	}
	switch {
	case r.on("headless", false):
		r.problem(EngineUnsupported, "the container runs ranks of an engine whose API is in another pod (--headless); the ranks of one replica must be in one pod")
	case l.Ranks == 0:
		r.problem(EngineUnsupported, "the container runs no ranks of its own (--data-parallel-size-local 0), those of other pods are not followed as its own")
	}
	l.Ranks = min(max(l.Ranks, 1), maxRanks)
}

// names returns what the model is called in requests: its served names, or what it is loaded from.
func (r *reader) names(flag, advice string) []string {
	if _, given := r.values["served-model-name"]; given {
		names, _ := r.list("served-model-name")
		return names
	}
	if _, given := r.values[flag]; given {
		names, _ := r.list(flag)
		return names[max(0, len(names)-1):]
	}
	if len(r.bare) == 0 {
		r.problem(EngineUnreadable, "the command names no model; name %s", advice)
		return nil
	}
	if why, bad := r.vars.why(r.bare[0]); bad {
		r.problem(EngineUnreadable, "the model's name cannot be known: %s", why)
		return nil
	}
	return r.bare[:1]
}

// adapters returns the names of adapters that are given as NAME=PATH, as JSON objects, or as a JSON list.
func (r *reader) adapters(flag string) (names []string) {
	values, _ := r.list(flag)
	for _, value := range values {
		value = strings.TrimSpace(value)
		if strings.HasPrefix(value, "{") || strings.HasPrefix(value, "[") {
			names = append(names, jsonAdapters(value)...)
			continue
		}
		name, _, given := strings.Cut(value, "=")
		if !given { // a path alone is the name
			name = value
		}
		names = append(names, name)
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

func jsonAdapters(value string) (names []string) {
	type adapter struct {
		Name     string `json:"name"`
		LoRAName string `json:"lora_name"`
	}
	list := []adapter{{}}
	if value[0] == '[' {
		_ = json.Unmarshal([]byte(value), &list) // without a name it is left out
	} else {
		_ = json.Unmarshal([]byte(value), &list[0])
	}
	for _, a := range list {
		names = append(names, a.Name+a.LoRAName)
	}
	return names
}
