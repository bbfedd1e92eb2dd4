package vllm

import (
	"math/rand/v2"
	"time"
)

const (
	// longest is where a conversation begins anew, in tokens.
	longest = 30 * blockSize
	// settle is the time that the last evictions of a request have to reach the index. They may come in a
	// later batch than its last block, and nothing shows that they have arrived.
	settle = 200 * time.Millisecond
)

// conversation is a prompt that grows by what user and engine say.
type conversation struct {
	adapter string
	head    []uint32
	prompt  []uint32
}

// conversations returns n of them that share each of the heads evenly, the adapters in turns.
func conversations(n int, heads [][]uint32, adapters ...string) []*conversation {
	all := make([]*conversation, n)
	for i := range all {
		head := heads[i%len(heads)]
		all[i] = &conversation{adapter: adapters[i%len(adapters)], head: head, prompt: append([]uint32(nil), head...)}
	}
	return all
}

func heads(r *rand.Rand, n, length int) [][]uint32 {
	all := make([][]uint32, n)
	for i := range all {
		all[i] = tokens(r, length)
	}
	return all
}

// tokens returns n token ids of the model's vocabulary, none of them special.
func tokens(r *rand.Rand, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = 3 + r.Uint32N(1021)
	}
	return out
}

// next is what the user says next. Every eighth request or so is an earlier prompt sent again, cut to
// whole blocks: such a prompt is cached to its last token, of which the engine computes one block again.
func (c *conversation) next(r *rand.Rand) request {
	if whole := len(c.prompt) / blockSize * blockSize; whole > 0 && r.IntN(8) == 0 {
		return request{Adapter: c.adapter, Prompt: append([]uint32(nil), c.prompt[:whole]...), MaxTokens: 1 + r.IntN(8)}
	}
	if len(c.prompt) > longest {
		c.prompt = append([]uint32(nil), c.head...)
	}
	c.prompt = append(c.prompt, tokens(r, 1+r.IntN(3*blockSize))...)
	return request{Adapter: c.adapter, Prompt: append([]uint32(nil), c.prompt...), MaxTokens: 1 + r.IntN(blockSize)}
}

// heard takes up the engine's answer to the conversation's last request.
func (c *conversation) heard(r request, a answer) {
	if len(r.Prompt) == len(c.prompt) {
		c.prompt = append(c.prompt, a.Tokens...)
	}
}

// predict returns what the engine finds cached of a prompt of which it holds the first matched tokens:
// it always computes the last token, and whole blocks alone can be found.
func predict(matched, prompt int) int { return min(matched, (prompt-1)/blockSize*blockSize) }

// ask looks a request up, sends it, compares, and waits until the index has what the engine stored and
// evicted.
func (s *stack) ask(p *phase, e *engine, r request) answer {
	s.t.Helper()
	a := s.askBusy(p, e, r)
	s.awaitLearned(e, r, a)
	time.Sleep(settle)
	return a
}

// askBusy looks a request up, sends it and compares.
func (s *stack) askBusy(p *phase, e *engine, r request) answer {
	s.t.Helper()
	predicted := predict(s.mustMatch(e, r.Adapter, r.Prompt), len(r.Prompt))
	a := e.complete(r)
	p.add(len(r.Prompt), predicted, a.Cached)
	if predicted != a.Cached && !p.exempt {
		s.t.Logf("%s: %d tokens at %s, adapter %q: predicted %d, the engine found %d", p.name, len(r.Prompt), e.name, r.Adapter, predicted, a.Cached)
	}
	return a
}

// awaitLearned waits until the index has every block of prompt and answer. The last token of the answer
// was never computed, so that it fills no block.
func (s *stack) awaitLearned(e *engine, r request, a answer) {
	s.t.Helper()
	all := append(append([]uint32(nil), r.Prompt...), a.Tokens...)
	want := (len(all) - 1) / blockSize * blockSize
	results.learned = append(results.learned, s.awaitAtLeast(e, r.Adapter, all, want))
}

// rounds lets every conversation speak n times, in an order of its own each time.
func (s *stack) rounds(p *phase, r *rand.Rand, n int, all []*conversation) {
	s.t.Helper()
	for range n {
		for _, i := range r.Perm(len(all)) {
			req := all[i].next(r)
			all[i].heard(req, s.ask(p, s.engines[0], req))
		}
	}
}
