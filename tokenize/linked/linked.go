// Package linked says whether this build has the tokenizer library, without linking it into a binary that only
// asks.
package linked
