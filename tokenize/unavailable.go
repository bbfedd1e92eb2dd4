//go:build !(tokenizers && cgo)

package tokenize

import (
	"context"
	"errors"
)

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
