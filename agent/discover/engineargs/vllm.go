package engineargs

import (
	"encoding/json"
	"slices"
	"strings"
)

// vllmGrammar is that of vLLM; switches and lists are those of release 0.32.0 and some that went before it.
var vllmGrammar = grammar{
	alias: map[string]string{
		"tp": "tensor-parallel-size", "pp": "pipeline-parallel-size", "dp": "data-parallel-size",
		"dpn": "data-parallel-rank", "dpr": "data-parallel-start-rank", "dpl": "data-parallel-size-local",
		"dpa": "data-parallel-address", "dpp": "data-parallel-rpc-port", "dpb": "data-parallel-backend",
		"dph": "data-parallel-hybrid-lb", "dpe": "data-parallel-external-lb", "dpm": "data-parallel-multi-port-external-lb",
		"dcp": "decode-context-parallel-size", "pcp": "prefill-context-parallel-size", "ep": "enable-expert-parallel",
		"n": "nnodes", "r": "node-rank", "q": "quantization", "O": "optimization-level",
		"sc": "speculative-config", "dc": "diffusion-config", "cc": "compilation-config", "ac": "attention-config",
		"model-tag": "model",
	},
	switches: []string{
		"aggregate-engine-logging", "allow-credentials", "allow-deprecated-quantization", "async-scheduling", "calculate-kv-scales",
		"cohere-is-reasoning-model", "cudagraph-metrics", "data-parallel-external-lb", "data-parallel-hybrid-lb",
		"data-parallel-multi-port-external-lb", "dcp-q-replicate", "enforce-eager", "exclude-tools-when-tool-choice-none",
		"fail-on-environ-validation", "fully-sharded-loras", "grpc", "headless", "interleave-mm-strings", "jit-monitor-verbose",
		"kv-cache-metrics", "kv-sharing-fast-prefill", "language-model-only", "log-error-stack", "long-prefill-token-threshold-adaptive",
		"mm-device-do-normalize", "mm-encoder-only", "numa-bind", "ray-workers-use-nsight", "return-sampling-mask",
		"return-tokens-as-token-ids", "scheduler-reserve-full-isl", "skip-mm-profiling", "skip-tokenizer-init",
		"sleep-mode-offload-cudagraph", "specialize-active-lora", "swa-bounded-replay", "tokens-only", "trust-remote-code",
		"trust-request-chat-template", "trust-request-mm-kwargs", "use-fp64-gumbel", "use-replayssm", "use-tqdm-on-load", "use-v2-block-manager",
	},
	lists: []string{
		"allowed-media-domains", "api-key", "collect-detailed-traces", "cpu-offload-params", "cudagraph-capture-sizes", "ignore-patterns",
		"kv-cache-dtype-skip-layers", "logits-processors", "lora-modules", "lora-target-modules", "numa-bind-cpus", "numa-bind-nodes",
		"offload-params", "served-model-name", "sleep-preserve-parameter-names",
	},
	valued: []string{"disable-access-log-for-endpoints"},
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
