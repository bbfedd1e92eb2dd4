package kvevents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	zmq "github.com/pebbe/zmq4"
)

// endMarker is the sequence number of the message that ends a replay.
const endMarker = math.MaxUint64

// ask requests a replay over a socket of its own: replies to an earlier request go to an identity that
// no longer exists. The receive mark is off, since what exceeds it would be lost in silence.
func (s *socketSet) ask(r *rankSocket, from uint64, maxBytes int64) error {
	if err := s.closeReplay(r); err != nil {
		return err
	}
	socket, err := s.context.NewSocket(zmq.DEALER)
	if err != nil {
		return fmt.Errorf("open replay socket: %w", err)
	}
	r.replay = socket
	err = errors.Join(
		socket.SetLinger(0), socket.SetRcvhwm(0), socket.SetMaxmsgsize(maxBytes), socket.SetConnectTimeout(connectTimeout),
		socket.SetReconnectIvl(reconnectMin), socket.SetReconnectIvlMax(reconnectMax), socket.SetIpv6(isIPv6(r.endpoint.Replay)),
		socket.Connect(r.endpoint.Replay))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", r.endpoint.Replay, err)
	}
	s.poller.Add(socket, zmq.POLLIN)
	s.byZMQ[socket] = r
	// The engine expects the empty delimiter that a REQ socket would send, and ignores what has none.
	if _, err := socket.SendMessage("", binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return fmt.Errorf("request replay from %s: %w", r.endpoint.Replay, err)
	}
	return nil
}

func (s *socketSet) closeReplay(r *rankSocket) error {
	if r.replay == nil {
		return nil
	}
	socket := r.replay
	r.replay = nil
	if _, known := s.byZMQ[socket]; known {
		delete(s.byZMQ, socket)
		if err := s.poller.RemoveBySocket(socket); err != nil {
			return fmt.Errorf("forget replay socket: %w", err)
		}
	}
	return socket.Close()
}

// takeReplies hands replies of the replay socket to the recovery. The recovery may ask anew meanwhile,
// and with that replace the socket.
func (s *Subscriber) takeReplies(r *rankSocket) error {
	for range drainMessages {
		if r.replay == nil || r.failed != nil {
			return r.failed
		}
		frames, err := r.replay.RecvMessageBytes(zmq.DONTWAIT)
		if again(err) {
			return nil
		}
		if err != nil {
			return err
		}
		s.takeReply(r, frames)
	}
	return r.failed
}

// takeReply reads one reply from the back: engines differ in whether a topic frame comes first. A reply
// that cannot be read is dropped and counted; the recovery notices the hole.
func (s *Subscriber) takeReply(r *rankSocket, frames [][]byte) {
	now := time.Now()
	n := len(frames)
	if n < 2 || len(frames[n-2]) != 8 {
		s.stats.dropped[DropReply].Add(1)
		return
	}
	seq, payload := binary.BigEndian.Uint64(frames[n-2]), frames[n-1]
	if seq == endMarker {
		r.recovery.end(now)
		return
	}
	var topic []byte
	if n > 3 {
		if topic = frames[n-3]; !strings.HasPrefix(string(topic), r.endpoint.Topic) {
			s.stats.dropped[DropTopic].Add(1)
			return
		}
	}
	s.stats.Bytes.Add(uint64(len(payload)))
	r.recovery.reply(numbered{seq: seq, topic: topic, payload: payload, received: now, replayed: true}, now)
}

// rankEffects carries out what the recovery of one rank decides.
type rankEffects struct {
	s   *Subscriber
	set *socketSet
	r   *rankSocket
}

func (e rankEffects) count(add func(*RankStats)) { e.s.stats.count(e.r.endpoint.Rank, add) }

func (e rankEffects) ask(from uint64) {
	e.count(func(s *RankStats) { s.Replays.Add(1) })
	if err := e.set.ask(e.r, from, e.s.cfg.MaxMessageBytes); err != nil {
		e.r.failed = err
	}
}

func (e rankEffects) hand(m numbered, step Step) { e.s.hand(e.r, m, step) }

func (e rankEffects) restarted() {
	e.count(func(s *RankStats) { s.Restarts.Add(1) })
	e.s.cfg.Handler.HandleMessage(Message{
		Rank: e.r.endpoint.Rank, Epoch: e.r.seq.Epoch(), Received: time.Now(), Restart: true, Batch: &Batch{},
	})
}

func (e rankEffects) gaveUp() {
	e.count(func(s *RankStats) { s.ReplaysFailed.Add(1) })
	e.s.log.Warn("the engine does not replay what was missed", "replay", e.r.endpoint.Replay, "again_in", restAfter)
}
