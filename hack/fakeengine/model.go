package fakeengine

import (
	"math/rand/v2"

	"github.com/inferencecache/inferencecache/fingerprint"
)

// vocabulary bounds the generated token ids; the ids below firstToken are left to special tokens.
const (
	vocabulary = 32_000
	firstToken = 3
)

// newModel returns the source of the tokens that follow a prompt: the same in every process, and for every
// number of tokens asked for a prefix of the same sequence.
func newModel(prompt []uint32, lora string) *rand.Rand {
	name := make([]uint32, 0, len(lora))
	for _, r := range lora {
		name = append(name, uint32(r))
	}
	return rand.New(rand.NewPCG(fingerprint.Content(prompt), fingerprint.Content(name)))
}

func nextToken(m *rand.Rand) uint32 { return firstToken + m.Uint32N(vocabulary-firstToken) }
