package fakeengine

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"time"

	zmq "github.com/pebbe/zmq4"
)

const (
	// publishQueue is the number of batches that may wait for the publisher; a full queue holds up the
	// scheduler, as in vLLM.
	publishQueue = 1024
	// replayPoll is how often an idle publisher looks for replay requests. vLLM looks every 100 ms.
	replayPoll = 20 * time.Millisecond
	// lingerTime bounds how long closing a socket waits for a slow peer.
	lingerTime = 500 * time.Millisecond
	// endOfReplay is the sequence number of the message that closes a replay.
	endOfReplay = math.MaxUint64
)

// publisher numbers, sends and remembers the batches of one rank. Its goroutine owns both sockets.
type publisher struct {
	topic      string
	threeFrame bool
	steps      int // messages kept
	enc        *encoder
	log        *slog.Logger
	queue      chan batch

	pub    *zmq.Socket
	router *zmq.Socket // nil: replay is off

	next uint64    // sequence number of the next batch
	kept []message // the last messages, at most steps, oldest first
}

type message struct {
	seq     uint64
	payload []byte
}

func newPublisher(cfg *Config, rank int, log *slog.Logger) *publisher {
	return &publisher{
		topic:      cfg.Topic,
		threeFrame: cfg.ReplayForm == ReplayThreeFrame,
		steps:      cfg.BufferSteps,
		enc:        newEncoder(cfg, rank),
		log:        log,
		queue:      make(chan batch, publishQueue),
	}
}

// publish queues a batch. It waits while the queue is full, and gives up once stopped is closed.
func (p *publisher) publish(b batch, stopped <-chan struct{}) {
	select {
	case p.queue <- b:
	case <-stopped:
	}
}

// run serves the sockets until ctx ends, then sends what is queued and closes them. One replay request is
// served per turn, between live batches, as in vLLM.
func (p *publisher) run(ctx context.Context) error {
	defer p.close()
	poll := time.NewTicker(replayPoll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			p.drain()
			return nil
		case b := <-p.queue:
			p.send(b)
		case <-poll.C:
		}
		p.serveReplay()
	}
}

func (p *publisher) drain() {
	for {
		select {
		case b := <-p.queue:
			p.send(b)
		default:
			return
		}
	}
}

func (p *publisher) close() {
	socks := []*zmq.Socket{p.pub}
	if p.router != nil {
		socks = append(socks, p.router)
	}
	closeAll(socks)
}

// send publishes a batch. A batch that cannot be encoded or sent has used up its number.
func (p *publisher) send(b batch) {
	seq := p.next
	p.next++
	payload, err := p.enc.encode(b)
	if err != nil {
		p.log.Error("encode batch", "seq", seq, "err", err)
		return
	}
	if _, err := p.pub.SendMessage(p.topic, sequence64(seq), payload); err != nil {
		p.log.Error("publish batch", "seq", seq, "err", err)
		return
	}
	p.keep(message{seq, payload})
}

func (p *publisher) keep(m message) {
	if len(p.kept) < p.steps {
		p.kept = append(p.kept, m)
		return
	}
	p.kept[0] = message{}
	p.kept = append(p.kept[1:], m)
}

// serveReplay answers one waiting replay request, if any. A request that is not [identity, anything,
// start] gets no answer.
func (p *publisher) serveReplay() {
	if p.router == nil {
		return
	}
	request, err := p.router.RecvMessageBytes(zmq.DONTWAIT)
	if err != nil {
		return // nothing waits
	}
	if len(request) != 3 {
		p.log.Warn("ignore malformed replay request", "frames", len(request), "want", 3)
		return
	}
	if err := p.replay(request[0], startOf(request[2])); err != nil {
		p.log.Error("answer replay request", "err", err)
	}
}

// replay sends what is kept from start on, then the end marker.
func (p *publisher) replay(client []byte, start uint64) error {
	for _, m := range p.kept {
		if m.seq < start {
			continue
		}
		if err := p.reply(client, p.topic, m); err != nil {
			return err
		}
	}
	return p.reply(client, "", message{seq: endOfReplay, payload: []byte{}})
}

func (p *publisher) reply(client []byte, topic string, m message) error {
	parts := []any{client, "", topic, sequence64(m.seq), m.payload}
	if !p.threeFrame {
		parts = []any{client, "", sequence64(m.seq), m.payload}
	}
	if _, err := p.router.SendMessage(parts...); err != nil {
		return fmt.Errorf("send message %d: %w", m.seq, err)
	}
	return nil
}

// startOf reads a big-endian number of any length; one beyond 64 bits is ahead of every message.
func startOf(b []byte) uint64 {
	var n uint64
	for _, c := range b {
		if n > math.MaxUint64>>8 {
			return math.MaxUint64
		}
		n = n<<8 | uint64(c)
	}
	return n
}

// sequence64 is the wire form of a sequence number.
func sequence64(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }
