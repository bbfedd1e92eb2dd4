// Package trace reads request traces in the format that Mooncake publishes: JSON Lines with
// timestamp, input_length, output_length and hash_ids.
package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/inferencecache/inferencecache/hack/demo/workload"
)

// BlockTokens is the number of prompt tokens that one hash id stands for.
const BlockTokens = 512

const (
	// maxLine bounds one line, in bytes: over 100,000 hash ids, 50 million tokens of prompt.
	maxLine = 1 << 20
	// maxErrors bounds how many bad lines one error lists.
	maxErrors = 10
	// maxOutput bounds output_length, in tokens.
	maxOutput = 1 << 20
)

// Request is one line of a trace.
type Request struct {
	Timestamp    int64 // milliseconds since the trace began
	InputLength  int   // tokens of the prompt
	OutputLength int   // tokens of the answer
	// HashIDs name the prompt's blocks in order. Equal ids stand for equal tokens behind equal
	// prefixes. The last block may be partial.
	HashIDs []uint64
}

// Read reads the first limit requests; a limit of 0 or less reads all. Blank lines are skipped. Lines
// that cannot be read are named by number, all in one error, and no request is returned.
func Read(r io.Reader, limit int) ([]Request, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	var requests []Request
	var bad []error
	number := 0
	for (limit <= 0 || len(requests) < limit) && len(bad) < maxErrors && lines.Scan() {
		number++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		request, err := parse(line)
		if err != nil {
			bad = append(bad, fmt.Errorf("line %d: %w", number, err))
			continue
		}
		requests = append(requests, request)
	}
	if err := lines.Err(); err != nil {
		bad = append(bad, fmt.Errorf("line %d: %w", number+1, err))
	}
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	if len(requests) == 0 {
		return nil, errors.New("the trace has no requests")
	}
	return requests, nil
}

// line is the JSON form; pointers tell what is missing from what is 0.
type line struct {
	Timestamp    *int64   `json:"timestamp"`
	InputLength  *int     `json:"input_length"`
	OutputLength *int     `json:"output_length"`
	HashIDs      []uint64 `json:"hash_ids"`
}

func parse(text []byte) (Request, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return Request{}, err
	}
	switch {
	case l.Timestamp == nil:
		return Request{}, errors.New("timestamp is missing")
	case l.InputLength == nil:
		return Request{}, errors.New("input_length is missing")
	case l.OutputLength == nil:
		return Request{}, errors.New("output_length is missing")
	case *l.Timestamp < 0:
		return Request{}, fmt.Errorf("timestamp is %d: must not be negative", *l.Timestamp)
	case *l.InputLength < 1:
		return Request{}, fmt.Errorf("input_length is %d: must be at least 1", *l.InputLength)
	case *l.OutputLength < 0 || *l.OutputLength > maxOutput:
		return Request{}, fmt.Errorf("output_length is %d: must be from 0 to %d", *l.OutputLength, maxOutput)
	}
	// Written without rounding up, so that no input_length overflows.
	if want := (*l.InputLength-1)/BlockTokens + 1; len(l.HashIDs) != want {
		return Request{}, fmt.Errorf("hash_ids has %d ids: an input_length of %d takes %d, one for every %d tokens",
			len(l.HashIDs), *l.InputLength, want, BlockTokens)
	}
	return Request{*l.Timestamp, *l.InputLength, *l.OutputLength, l.HashIDs}, nil
}

// Sessions turns requests into sessions of one turn, in their order. Each hash id becomes the same
// tokens wherever it stands, the last block cut to the input length.
func Sessions(requests []Request) []workload.Session {
	sessions := make([]workload.Session, len(requests))
	for i, r := range requests {
		turn := workload.Turn{Output: max(r.OutputLength, 1)}
		left := r.InputLength
		for _, id := range r.HashIDs {
			turn.Input = append(turn.Input, workload.Span{Seed: id, Tokens: min(left, BlockTokens)})
			left -= BlockTokens
		}
		sessions[i] = workload.Session{turn}
	}
	return sessions
}
