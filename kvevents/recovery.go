package kvevents

import (
	"time"

	"github.com/zeebo/xxh3"
)

// Bounds of a recovery.
const (
	// replyTimeout is how long an engine may be silent within one replay. The end marker of a long
	// replay may never come.
	replyTimeout = 2 * time.Second
	// maxTries bounds the requests in a row that bring nothing new.
	maxTries = 4
	// maxRecovery bounds one recovery as a whole.
	maxRecovery = 5 * time.Minute
	// restAfter is how long an engine that does not answer is not asked again.
	restAfter = 30 * time.Second
	// idleCheck is how long a stream may be silent before the engine is asked whether it is still the
	// same process and has nothing newer.
	idleCheck = 10 * time.Second
	// settleCheck is when that is asked for the first time after a connection was made: a message
	// published while the subscription was on its way reached nobody.
	settleCheck = time.Second
	// maxHeld and maxHeldBytes bound the live messages that wait for a replay. Later ones are dropped
	// and replayed in their turn.
	maxHeld      = 65_536
	maxHeldBytes = 256 << 20
)

// numbered is a message of which only the frames are known.
type numbered struct {
	seq      uint64
	topic    []byte
	payload  []byte
	received time.Time
	replayed bool
}

// effects is what a recovery asks of its surroundings.
type effects interface {
	// ask requests a replay from a number on. Replies to earlier requests must not arrive any more.
	ask(from uint64)
	// hand passes a message on; the sequence says how it follows.
	hand(m numbered, step Step)
	// restarted says that another engine process publishes now.
	restarted()
	// gaveUp says that the engine does not fill the holes.
	gaveUp()
}

// recovery decides, for one rank, which messages are handed on in which order, and fills holes by
// replay. It is a state machine without sockets or clock.
//
// A request begins one number before what is missing. Its first reply must be, byte for byte, the
// message handed on last: that proves that the publisher is still the same process, which neither
// equal hashes nor fitting numbers do. A publisher that is not even that far has restarted, and one
// that does not reach back that far may have.
type recovery struct {
	do  effects
	seq *Sequence
	can bool // the engine has a replay socket

	print uint64 // hash of the payload handed on last; valid while seq.next > 0
	// verified says that the process at the other end is the one whose messages were handed on. Only
	// then are numbers below the next one known to be stale.
	verified bool

	up       bool // the event socket is connected
	leftover bool // the event socket may still hold messages of the connection before
	unseen   bool // nothing has been checked since settleCheck after the connection was made
	active   bool // a request is under way
	probe    bool // it begins with the message handed on last
	replies  int
	progress bool // it brought something new
	hole     bool // it skipped a number in the middle: replies were lost on the way
	tries    int  // requests in a row without progress
	began    time.Time
	deadline time.Time // of the next reply while active, else of the next check
	restFrom time.Time // until when the engine is not asked

	held      []numbered // live messages that wait, as they came
	heldBytes int
	lastLive  uint64 // number of the newest live message of this connection, when liveSeen
	liveSeen  bool
}

// connected tells that a connection was made: what came before may be lost, and the process may be
// another.
func (r *recovery) connected(now time.Time) {
	if !r.can {
		r.seq.Reconnected()
		return
	}
	r.up, r.unseen, r.leftover, r.liveSeen, r.restFrom = true, true, true, false, time.Time{}
	r.verified = r.seq.next == 0
	r.release()
	r.begin(now)
}

// disconnected tells that the connection is gone.
func (r *recovery) disconnected() {
	r.up, r.active = false, false
	r.release()
}

// drained tells that the event socket had nothing to read. Whatever it brings from here on came over
// the present connection.
func (r *recovery) drained() { r.leftover = false }

// release forgets the messages that wait. Those of the present process can be replayed.
func (r *recovery) release() { r.held, r.heldBytes = nil, 0 }

// live takes a message of the event socket. Within one connection numbers only rise, so that one that
// does not comes from another process; one that rises but was handed on already came by replay.
func (r *recovery) live(m numbered, now time.Time) {
	if !r.can {
		r.passUnasked(m, now)
		return
	}
	if r.leftover { // perhaps of the process before: what still counts is replayed, if anything is
		if r.active && !r.verified {
			r.hold(m)
		}
		return
	}
	again := r.liveSeen && m.seq == r.lastLive
	back := r.liveSeen && m.seq < r.lastLive || again && r.replaced(m)
	r.lastLive, r.liveSeen = m.seq, true
	switch {
	case back && r.resting(now):
		r.passUnasked(m, now)
	case back:
		r.restart(now)
		r.hold(m)
	case again && m.seq+1 == r.seq.next:
		r.pass(m, now) // counted as a duplicate
	case again:
	default:
		r.follow(m, now)
	}
}

// replaced says that a message has the number of the one handed on last and is another.
func (r *recovery) replaced(m numbered) bool {
	return m.seq+1 == r.seq.next && xxh3.Hash(m.payload) != r.print
}

// follow takes a live message that is newer than the ones before it.
func (r *recovery) follow(m numbered, now time.Time) {
	switch next := r.seq.next; {
	case m.seq < next && r.verified:
	case r.active:
		r.hold(m)
	case r.resting(now):
		r.passUnasked(m, now)
	case m.seq == next && r.verified:
		r.pass(m, now)
	case r.up: // some are missing
		r.hold(m)
		r.begin(now)
	}
}

func (r *recovery) resting(now time.Time) bool { return now.Before(r.restFrom) }

// reply takes a message of the replay socket.
func (r *recovery) reply(m numbered, now time.Time) {
	if !r.active {
		return
	}
	r.deadline = now.Add(replyTimeout)
	r.replies++
	first := r.replies == 1
	if r.probe {
		if first {
			if r.verified = m.seq+1 == r.seq.next && !r.replaced(m); !r.verified {
				r.restart(now)
			}
			return
		}
		first = r.replies == 2
	}
	switch next := r.seq.next; {
	case m.seq < next:
	case m.seq == next, first: // a replay that begins beyond a number does not have it any more
		r.pass(m, now)
		r.progress = true
	default:
		r.hole = true
	}
}

// end takes the end marker of a replay.
func (r *recovery) end(now time.Time) {
	switch {
	case !r.active:
	case r.probe && r.replies == 0:
		r.restart(now)
	default:
		r.finish(now)
	}
}

// tick acts on time that has passed.
func (r *recovery) tick(now time.Time) {
	switch {
	case !r.can || !r.up || now.Before(r.deadline) || r.resting(now):
	case !r.active:
		r.begin(now)
	default:
		r.finish(now)
	}
}

// begin starts a recovery, or a check whether one is needed.
func (r *recovery) begin(now time.Time) {
	r.active, r.tries, r.began = true, 0, now
	r.request(now)
}

func (r *recovery) request(now time.Time) {
	from := r.seq.next
	if r.probe = from > 0; r.probe {
		from--
	}
	r.replies, r.progress, r.hole = 0, false, false
	r.deadline = now.Add(replyTimeout)
	r.do.ask(from)
}

// restart begins the new process's stream from its first message.
func (r *recovery) restart(now time.Time) {
	r.seq.Restarted()
	r.verified = true
	r.do.restarted()
	r.release()
	r.begin(now)
}

// finish ends a request, and asks again while something is missing and the engine helps.
func (r *recovery) finish(now time.Time) {
	silent := r.replies == 0 && !now.Before(r.deadline)
	missing := r.hole || silent || (len(r.held) > 0 && r.held[0].seq > r.seq.next)
	if r.tries++; r.progress {
		r.tries = 0
	}
	switch {
	case !missing:
		r.settle(now)
	case r.tries >= maxTries || now.Sub(r.began) > maxRecovery:
		r.restFrom = now.Add(restAfter)
		r.do.gaveUp()
		r.settle(now)
	default:
		r.request(now)
	}
}

// settle hands on what waited. A further hole among it begins another recovery, or is handed on when
// the engine is left alone.
func (r *recovery) settle(now time.Time) {
	waiting := r.held
	r.active = false
	r.release()
	for _, m := range waiting {
		r.follow(m, now)
	}
	switch {
	case r.active:
	case r.unseen:
		r.unseen, r.deadline = false, now.Add(settleCheck)
	default:
		r.deadline = now.Add(idleCheck)
	}
}

// passUnasked hands a message on of which only its number and content tell what process it is of.
func (r *recovery) passUnasked(m numbered, now time.Time) {
	if r.replaced(m) {
		r.seq.Reconnected()
	}
	r.pass(m, now)
}

// pass hands a message on.
func (r *recovery) pass(m numbered, now time.Time) {
	step := r.seq.Observe(m.seq)
	r.print = xxh3.Hash(m.payload)
	r.verified = r.verified || step.Restart
	if r.can && !r.active && !r.unseen {
		r.deadline = now.Add(idleCheck)
	}
	r.do.hand(m, step)
}

// hold keeps a live message until the replay is through. What there is no room for is replayed in its
// turn.
func (r *recovery) hold(m numbered) {
	if len(r.held) >= maxHeld || r.heldBytes+len(m.payload) > maxHeldBytes {
		return
	}
	r.held = append(r.held, m)
	r.heldBytes += len(m.payload)
}
