package kvevents

import "sync/atomic"

// Drop is a reason for which a message is skipped without its sequence number being looked at.
type Drop uint8

// The reasons.
const (
	DropFrames   Drop = iota // not three frames
	DropTopic                // the topic does not begin with the configured one
	DropSequence             // the sequence frame is not 8 bytes, or holds a replay's end marker
	DropReply                // a reply of the replay socket that does not end in a number and a batch
	drops
)

// String returns the reason as metrics label it.
func (d Drop) String() string {
	switch d {
	case DropFrames:
		return "frames"
	case DropTopic:
		return "topic"
	case DropSequence:
		return "sequence"
	case DropReply:
		return "reply"
	default:
		return "unknown"
	}
}

// Drops returns all reasons.
func Drops() []Drop { return []Drop{DropFrames, DropTopic, DropSequence, DropReply} }

// Stats counts what a Subscriber saw since it was made. Any goroutine may read it.
type Stats struct {
	Messages atomic.Uint64 // messages of three good frames
	Bytes    atomic.Uint64 // bytes of all frames of all messages, dropped ones included
	Stored   atomic.Uint64 // events
	Removed  atomic.Uint64 // events
	Cleared  atomic.Uint64 // events

	Undecodable     atomic.Uint64 // messages whose payload is no batch or ends early
	MalformedEvents atomic.Uint64
	UnknownTags     atomic.Uint64
	UnknownFields   atomic.Uint64

	Connects atomic.Uint64 // completed handshakes
	Waiting  atomic.Int64  // live messages that wait for a replay at present

	RankStats // over all ranks
	ranks     map[int]*RankStats
	dropped   [drops]atomic.Uint64
}

// RankStats counts what became of the sequence of one rank.
type RankStats struct {
	Gaps       atomic.Uint64 // holes in the sequence
	Missed     atomic.Uint64 // messages in those holes
	Duplicates atomic.Uint64
	Restarts   atomic.Uint64

	Replays       atomic.Uint64 // replays asked for
	ReplaysFailed atomic.Uint64 // recoveries given up because the engine did not help
	Replayed      atomic.Uint64 // messages handed on from a replay
}

// Rank returns the counts of one of the ranks subscribed to.
func (s *Stats) Rank(rank int) *RankStats { return s.ranks[rank] }

// count counts for one rank and for all.
func (s *Stats) count(rank int, add func(*RankStats)) {
	add(&s.RankStats)
	add(s.ranks[rank])
}

// Dropped returns the number of messages dropped for a reason.
func (s *Stats) Dropped(d Drop) uint64 { return s.dropped[d].Load() }

func (s *RankStats) addStep(step Step) {
	if step.Gap > 0 {
		s.Gaps.Add(1)
		s.Missed.Add(step.Gap)
	}
	if step.Duplicate {
		s.Duplicates.Add(1)
	}
	if step.Restart {
		s.Restarts.Add(1)
	}
}

func (s *Stats) addBatch(b *Batch, err error) {
	var kinds [Cleared + 1]uint64
	for i := range b.Events {
		kinds[b.Events[i].Kind]++
	}
	s.Stored.Add(kinds[Stored])
	s.Removed.Add(kinds[Removed])
	s.Cleared.Add(kinds[Cleared])
	s.MalformedEvents.Add(uint64(b.Malformed))
	s.UnknownTags.Add(uint64(b.UnknownTags))
	s.UnknownFields.Add(uint64(b.UnknownFields))
	if err != nil {
		s.Undecodable.Add(1)
	}
}
