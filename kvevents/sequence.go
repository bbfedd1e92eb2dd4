package kvevents

// Sequence follows the sequence numbers of one publisher socket. An engine process counts its batches
// from 0; a subscriber sees them in order, with holes where messages were lost. The zero value is ready
// to use.
type Sequence struct {
	next        uint64
	started     bool
	reconnected bool
	epoch       uint64
}

// Step says how a sequence number follows the ones before it.
type Step struct {
	// Gap is the number of messages missing right before this one.
	Gap uint64
	// First says that the gap lies at the very start of what is known of the engine process.
	First bool
	// Restart says that the number went back: another engine process publishes now.
	Restart bool
	// Duplicate says that the number is the one before again.
	Duplicate bool
	// Reconnected says that the connection was made anew since the message before. The process may be
	// another one even where the number fits.
	Reconnected bool
}

// Epoch counts the restarts seen, from 0.
func (s *Sequence) Epoch() uint64 { return s.epoch }

// Reconnected tells s that the connection was made anew.
func (s *Sequence) Reconnected() { s.reconnected = true }

// Restarted tells s that another engine process publishes now, whose first number is 0.
func (s *Sequence) Restarted() {
	s.epoch++
	s.next, s.started, s.reconnected = 0, false, false
}

// Observe takes the next number and says how it follows. One connection never brings a message twice, so
// that after a reconnect an equal number means that another process is as far as the one before was.
func (s *Sequence) Observe(seq uint64) Step {
	step := Step{Reconnected: s.reconnected}
	s.reconnected = false
	switch {
	case !s.started:
		s.started = true
		step.Gap, step.First = seq, seq > 0
	case seq >= s.next:
		step.Gap = seq - s.next
	case seq+1 == s.next && !step.Reconnected:
		step.Duplicate = true
		return step
	default:
		s.epoch++
		step.Restart = true
		step.Gap, step.First = seq, seq > 0
	}
	s.next = seq + 1
	return step
}
