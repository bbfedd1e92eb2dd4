// Package vllm tests agent and aggregator with real vLLM engines on the CPU. The engines serve a tiny
// model of random weights, which changes nothing about how they cache prefixes and announce it.
//
// The tests need an environment made by install.sh, whose folder INFERENCECACHE_VLLM names, and are
// skipped without it.
package vllm
