//go:build tokenizers && cgo

package linked

// Library says whether the tokenizer library is linked, and if not why.
func Library() (ok bool, why string) { return true, "" }
