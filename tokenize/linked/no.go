//go:build !(tokenizers && cgo)

package linked

// Library says whether the tokenizer library is linked, and if not why.
func Library() (ok bool, why string) {
	return false, "built without the tokenizer library: build with cgo and the tag tokenizers, after hack/native.sh"
}
