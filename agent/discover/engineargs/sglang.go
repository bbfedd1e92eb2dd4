package engineargs

import "strings"

// sglangGrammar is that of SGLang; switches and lists are those of release 0.5.23 and some that went before it.
var sglangGrammar = grammar{
	alias: map[string]string{
		"model": "model-path", "tp": "tensor-parallel-size", "tp-size": "tensor-parallel-size", "pp": "pipeline-parallel-size",
		"pp-size": "pipeline-parallel-size", "dp": "data-parallel-size", "dp-size": "data-parallel-size",
		"attn-dp-size": "attention-data-parallel-size",
	},
	switches: []string{
		"abort-on-priority-when-disabled", "allow-auto-truncate", "checkpoint-engine-wait-weights-before-ready", "constrained-json-disable-any-whitespace",
		"debug-cuda-graph", "delete-ckpt-after-loading", "disaggregation-decode-enable-offload-kvcache", "disaggregation-decode-enable-radix-cache",
		"disaggregation-enable-kv-checksum", "encoder-only", "enforce-disable-flashinfer-allreduce-fusion", "enforce-shared-experts-fusion",
		"export-metrics-to-file", "flashinfer-mla-disable-ragged", "grpc-mode", "incremental-streaming-output", "is-embedding", "language-model-only",
		"language-only", "log-requests", "lora-use-virtual-experts", "mlx-enable-sampling", "pre-warm-nccl", "prefill-only-disable-kv-cache",
		"quantize-and-serve", "return-input-ids", "return-output-ids", "schedule-low-priority-values-first", "show-time-cost", "skip-server-warmup",
		"skip-tokenizer-init", "sleep-on-idle", "smg-grpc-mode", "speculative-adaptive", "speculative-use-rejection-sampling", "strip-thinking-cache",
		"triton-attention-reduce-in-fp32", "trust-mm-content-hashes", "trust-remote-code", "trust-request-chat-template", "use-ray",
	},
	lists: []string{
		"allowed-media-domains", "bucket-e2e-request-latency", "bucket-inter-token-latency", "bucket-time-to-first-token", "cuda-graph-bs",
		"cuda-graph-bs-decode", "cuda-graph-bs-prefill", "custom-weight-loader", "debug-tensor-dump-layers", "encoder-register-urls", "encoder-urls",
		"gc-threshold", "generation-tokens-buckets", "log-requests-target", "lora-paths", "lora-target-modules", "numa-node", "prompt-tokens-buckets",
		"tokenizer-metrics-allowed-custom-labels", "uvicorn-access-log-exclude-prefixes",
	},
}

// sglang reads a command line of SGLang.
func (r *reader) sglang(l *Launch) {
	l.Models = r.names("model-path", "it with --model-path or --served-model-name")
	l.Host, l.Port = r.text("host", "127.0.0.1"), r.number("port", 30000, 1, 65535)
	l.HTTPS = r.text("ssl-certfile", "") != ""
	l.Metrics = r.on("enable-metrics", false)
	l.TensorParallel = r.number("tensor-parallel-size", 1, 1, 1<<16)
	l.BlockSize = r.number("page-size", 0, 1, 1<<20)
	l.Adapters = r.adapters("lora-paths")
	l.LoRA = r.on("enable-lora", len(l.Adapters) > 0)
	r.sglangRanks(l)
	switch mode := strings.ToLower(r.text("disaggregation-mode", "null")); mode {
	case RolePrefill, RoleDecode:
		l.Role = mode
	}
	switch {
	case r.on("enable-lmcache", false):
		l.Offload = OffloadInferred
	case r.on("enable-hierarchical-cache", false):
		l.Offload = OffloadObserved
	}
	switch c, ok := r.events(); {
	case !ok:
	case !c.given || c.publisher == "" || c.publisher == "null":
		r.off(l.Kind, c)
	case c.publisher != "zmq":
		r.problem(KVEventsUnreachable, `--%s: the publisher %q cannot be followed; use "publisher":"zmq"`, eventsFlag, c.publisher)
	case r.on("disable-radix-cache", false):
		r.problem(PrefixCachingDisabled, "prefix caching is off, so that there is nothing to find again; remove --disable-radix-cache")
	default:
		r.publish(l, c)
	}
	if !l.Metrics {
		r.problem(MetricsUnreachable, "the engine serves no metrics, so that its load is not known; add --enable-metrics")
	}
}

// sglangRanks finds the data-parallel ranks in the container: replicas, or groups of attention.
func (r *reader) sglangRanks(l *Launch) {
	all := r.number("data-parallel-size", 1, 1, 1<<16) * r.number("attention-data-parallel-size", 1, 1, 1<<16)
	nodes, node := r.number("nnodes", 1, 1, 1<<16), r.number("node-rank", 0, 0, 1<<16)
	l.Ranks = min(max(all/nodes, 1), maxRanks)
	if node > 0 {
		r.problem(EngineUnsupported, "the container is part of an engine whose API is in another pod (--node-rank %d); the ranks of one replica must be in one pod", node)
	}
}
