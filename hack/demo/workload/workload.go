// Package workload describes what users ask of a fleet of engines: sessions of turns, whose token ids
// follow from seeds, so that one workload can be replayed as often as wanted and takes no memory.
package workload

import "time"

// vocabulary is the number of token ids in use, that of a common tokenizer.
const vocabulary = 128_000

// Span is a stretch of token ids that follow from its seed alone: two spans of one seed begin alike,
// whatever their lengths.
type Span struct {
	Seed   uint64
	Tokens int
}

// Append appends the ids of the span to dst.
func (s Span) Append(dst []uint32) []uint32 {
	for i := range uint64(s.Tokens) {
		dst = append(dst, uint32(Mix(s.Seed, i)%vocabulary))
	}
	return dst
}

// Mix returns a number that looks random and follows from a and b alone (the finaliser of
// SplitMix64).
func Mix(a, b uint64) uint64 {
	z := a*0xd1342543de82ef95 + b*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Turn is one request of a session.
type Turn struct {
	// Input is what the turn adds behind everything that was said before it in the session.
	Input []Span
	// Output is the number of tokens to be generated.
	Output int
	// Pause is how long the user takes before sending the turn, in modelled time.
	Pause time.Duration
}

// InputTokens returns the number of tokens that the turn adds.
func (t Turn) InputTokens() int {
	n := 0
	for _, s := range t.Input {
		n += s.Tokens
	}
	return n
}

// Session is turns of which each continues what the ones before it said, answers included.
type Session []Turn

// Requests counts the turns of all sessions.
func Requests(sessions []Session) int {
	n := 0
	for _, s := range sessions {
		n += len(s)
	}
	return n
}
