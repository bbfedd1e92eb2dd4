//go:build !(tokenizers && cgo)

package tokenize

import (
	"context"
	"errors"
)

// Available says whether prompts can be tokenized, and if not why.
func Available() (ok bool, why string) {
	return false, "this binary is built without the tokenizer library: build it with cgo and the tag tokenizers, after hack/native.sh"
}

// encoder stands for a tokenizer of the library, which this build has not.
type encoder struct{}

var errUnavailable = errors.New("the tokenizer library is not linked")

func loadEncoder([]byte) (*encoder, error) { return nil, errUnavailable }

func (*encoder) slowBecause() string { return "" }

func (*encoder) vocabSize() int { return 0 }

func (*encoder) close() {}

func (*encoder) encode(context.Context, string, bool) ([]uint32, Route, error) {
	return nil, "", refuse(ReasonUnavailable, errUnavailable)
}
