package kvevents

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	zmq "github.com/pebbe/zmq4"
)

// Message is one batch as it arrived.
type Message struct {
	Rank     int // of the endpoint that brought it, whatever the batch states
	Epoch    uint64
	Seq      uint64
	Topic    string
	Received time.Time
	// Batch is never nil. It must not be kept after HandleMessage returns. It is empty on a duplicate.
	Batch *Batch
	// Err says that the payload is no batch or ends early; Batch holds the events in front of the cut.
	Err error

	Gap         uint64 // sequence numbers missing right before this message
	FirstGap    bool   // the gap is at the start of what is known of this engine process
	Restart     bool   // the sequence went back: another engine process, a new epoch
	Duplicate   bool   // the sequence number of the message before, again
	Reconnected bool   // first message of a new connection, perhaps to another process
}

// Handler takes what a Subscriber receives. Its methods are called one at a time on the goroutine that
// owns the sockets: while one runs, messages wait in the socket's queue, and are lost once that is full.
type Handler interface {
	HandleMessage(Message)
	// HandleState says whether the rank's socket has a completed connection. It is called with false
	// for every rank before anything else, then at each change.
	HandleState(rank int, connected bool)
}

// SubscriberConfig says what to subscribe to.
type SubscriberConfig struct {
	// Endpoints are the ranks of one engine, each with its own Rank.
	Endpoints []Endpoint
	Handler   Handler
	// Logger gets the dropped messages, which no handler sees; nil means slog.Default().
	Logger *slog.Logger
	// ReceiveHWM is the number of messages that may wait per rank; 0 means DefaultReceiveHWM. Beyond
	// it the engine's socket queues, and then drops without notice: a gap.
	ReceiveHWM int
	// MaxMessageBytes bounds one frame; 0 means DefaultMaxMessageBytes. ZMQ closes the connection on
	// which a larger one arrives. The subscriber connects again within seconds; what was published
	// until then is lost, which shows as a gap.
	MaxMessageBytes int64
}

// Defaults of SubscriberConfig.
const (
	DefaultReceiveHWM      = 100_000
	DefaultMaxMessageBytes = 64 << 20
)

// Subscriber receives the events of all ranks of one engine.
type Subscriber struct {
	cfg     SubscriberConfig
	log     *slog.Logger
	decoder *Decoder
	stats   Stats
	reopen  time.Duration // reopenAfter, shorter in tests
}

// NewSubscriber checks the configuration. Nothing is opened before Run.
func NewSubscriber(cfg SubscriberConfig) (*Subscriber, error) {
	if cfg.Handler == nil {
		return nil, errors.New("subscriber: Handler is not set")
	}
	if n := len(cfg.Endpoints); n < 1 || n > MaxRanks {
		return nil, fmt.Errorf("subscriber: %d endpoints, want between 1 and %d", n, MaxRanks)
	}
	seen := make(map[int]bool)
	for _, e := range cfg.Endpoints {
		if seen[e.Rank] {
			return nil, fmt.Errorf("subscriber: two endpoints have rank %d", e.Rank)
		}
		seen[e.Rank] = true
	}
	if cfg.ReceiveHWM < 0 || cfg.MaxMessageBytes < 0 {
		return nil, errors.New("subscriber: ReceiveHWM and MaxMessageBytes must not be negative")
	}
	if cfg.ReceiveHWM == 0 {
		cfg.ReceiveHWM = DefaultReceiveHWM
	}
	if cfg.MaxMessageBytes == 0 {
		cfg.MaxMessageBytes = DefaultMaxMessageBytes
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Subscriber{cfg: cfg, log: cfg.Logger, decoder: NewDecoder(), reopen: reopenAfter}
	s.stats.ranks = make(map[int]*RankStats, len(cfg.Endpoints))
	for _, e := range cfg.Endpoints {
		s.stats.ranks[e.Rank] = &RankStats{}
	}
	return s, nil
}

// Stats returns the running counts.
func (s *Subscriber) Stats() *Stats { return &s.stats }

const (
	// pollInterval bounds how long Run takes to notice that its context ended.
	pollInterval = 100 * time.Millisecond
	// drainMessages bounds what one rank may take before the others get their turn.
	drainMessages = 64
	// dropLogInterval spaces out the warnings about dropped messages of one rank.
	dropLogInterval = 30 * time.Second
)

// Run subscribes and calls the handler until ctx ends, then returns nil once every socket is closed. An
// engine that is away is no error: it is connected to again and again. Run may be called again after
// it returned, and then knows nothing of earlier sequence numbers.
func (s *Subscriber) Run(ctx context.Context) (err error) {
	set, err := openSockets(s.cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.close()) }()
	for _, r := range set.ranks {
		r.recovery = recovery{do: rankEffects{s, set, r}, seq: &r.seq, can: r.endpoint.Replay != ""}
		s.cfg.Handler.HandleState(r.endpoint.Rank, false)
	}
	for ctx.Err() == nil {
		ready, err := set.poll(pollInterval)
		if err != nil {
			return fmt.Errorf("poll event sockets: %w", err)
		}
		for _, r := range ready {
			if err := s.serve(r); err != nil {
				return fmt.Errorf("receive from %s: %w", r.endpoint.Events, err)
			}
		}
		waiting := 0
		for _, r := range set.ranks {
			if r.recovery.tick(time.Now()); r.failed != nil {
				return r.failed
			}
			waiting += len(r.recovery.held)
		}
		s.stats.Waiting.Store(int64(waiting))
		if err := set.reopen(s.cfg, s.reopen); err != nil {
			return err
		}
	}
	return nil
}

// serve takes what one rank has ready. Connection changes come first: they happened before whatever a
// new connection brought.
func (s *Subscriber) serve(r *rankSocket) error {
	if err := s.takeStates(r); err != nil {
		return err
	}
	if err := s.takeReplies(r); err != nil {
		return err
	}
	for range drainMessages {
		m, err := r.receive()
		if again(err) {
			r.recovery.drained()
			return nil
		}
		if err != nil {
			return err
		}
		if s.accept(r, m); r.failed != nil {
			return r.failed
		}
	}
	return nil
}

func (s *Subscriber) takeStates(r *rankSocket) error {
	for {
		event, _, _, err := r.monitor.RecvEvent(zmq.DONTWAIT)
		if again(err) {
			return nil
		}
		if err != nil {
			return err
		}
		connected := event == zmq.EVENT_HANDSHAKE_SUCCEEDED
		if connected {
			s.stats.Connects.Add(1)
			if r.everConnected || r.recovery.can {
				r.recovery.connected(time.Now())
			}
			r.everConnected = true
		} else {
			r.recovery.disconnected()
		}
		if connected != r.connected {
			r.connected = connected
			r.waiting = time.Now()
			s.cfg.Handler.HandleState(r.endpoint.Rank, connected)
		}
	}
}

// accept checks one message's frames and gives it to the recovery, which knows its place.
func (s *Subscriber) accept(r *rankSocket, m rawMessage) {
	s.stats.Bytes.Add(uint64(m.bytes))
	seq, drop, ok := m.check(r.endpoint.Topic)
	if !ok {
		s.dropped(r, drop)
		return
	}
	s.stats.Messages.Add(1)
	now := time.Now()
	r.recovery.live(numbered{seq: seq, topic: m.frames[0], payload: m.frames[2], received: now}, now)
}

// hand decodes a message and hands it on.
func (s *Subscriber) hand(r *rankSocket, m numbered, step Step) {
	s.stats.count(r.endpoint.Rank, func(s *RankStats) {
		s.addStep(step)
		if m.replayed {
			s.Replayed.Add(1)
		}
	})
	msg := Message{
		Rank: r.endpoint.Rank, Epoch: r.seq.Epoch(), Seq: m.seq, Topic: string(m.topic), Received: m.received,
		Gap: step.Gap, FirstGap: step.First, Restart: step.Restart,
		Duplicate: step.Duplicate, Reconnected: step.Reconnected,
	}
	if step.Duplicate {
		msg.Batch = &Batch{}
	} else {
		msg.Batch, msg.Err = s.decoder.Decode(m.payload)
		s.stats.addBatch(msg.Batch, msg.Err)
	}
	s.cfg.Handler.HandleMessage(msg)
}

func (s *Subscriber) dropped(r *rankSocket, why Drop) {
	s.stats.dropped[why].Add(1)
	r.drops++
	if now := time.Now(); now.Sub(r.dropLogged) >= dropLogInterval {
		s.log.Warn("dropped messages that are not [topic, sequence, batch]", "endpoint", r.endpoint.Events,
			"reason", why, "want_topic", r.endpoint.Topic, "dropped", r.drops)
		r.dropLogged, r.drops = now, 0
	}
}

// rawMessage is the first three frames of a message, and the size of all.
type rawMessage struct {
	frames [3][]byte
	count  int
	bytes  int
}

// check returns the sequence number, or why the message is to be dropped.
func (m *rawMessage) check(topic string) (seq uint64, why Drop, ok bool) {
	if m.count != len(m.frames) {
		return 0, DropFrames, false
	}
	if !strings.HasPrefix(string(m.frames[0]), topic) {
		return 0, DropTopic, false
	}
	if len(m.frames[1]) != 8 {
		return 0, DropSequence, false
	}
	seq = binary.BigEndian.Uint64(m.frames[1])
	return seq, DropSequence, seq != math.MaxUint64
}
