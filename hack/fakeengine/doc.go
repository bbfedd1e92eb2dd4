// Package fakeengine is a stand-in for one vLLM replica in which everything is real but the GPU: the paged
// block pool with its prefix cache, the step-by-step scheduler, the KV events on ZMQ with their replay
// socket, the HTTP surface and the metrics. Only the model is made up: it "generates" token ids that are a
// function of the prompt, and computing a token takes a modelled time.
//
// Three things exist here and not in vLLM, all for tests and the demo: the answer's modelled_ttft_ms, the
// page /debug/held, and the publishing of a cache reset at once (Config.EagerClear).
//
// One rank is one data-parallel engine core: a pool, a scheduler and a publisher of its own. A request
// follows engine.go (Complete) -> rank.go (step) -> pool.go (blocks) -> events.go -> publisher.go.
package fakeengine
