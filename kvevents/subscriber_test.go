package kvevents

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	zmq "github.com/pebbe/zmq4"
	"go.uber.org/goleak"

	"github.com/inferencecache/inferencecache/hack/loopback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests; none lasts that long unless it fails.
const patience = time.Minute

// publisher stands where an engine's PUB socket stands. It is an XPUB socket, which sends as PUB does
// and also tells when a subscription has arrived.
type publisher struct {
	t        *testing.T
	context  *zmq.Context
	socket   *zmq.Socket
	endpoint string
}

// anyPort is a free port of an address that nobody else takes one of while a publisher is away.
func anyPort() string { return "tcp://" + loopback.Host() + ":*" }

func newPublisher(t *testing.T, bind string) *publisher {
	t.Helper()
	p := &publisher{t: t}
	var err error
	p.context, err = zmq.NewContext()
	p.must(err)
	p.socket, err = p.context.NewSocket(zmq.XPUB)
	p.must(err)
	t.Cleanup(p.close)
	p.must(p.socket.SetLinger(0))
	p.must(p.socket.SetSndhwm(0)) // what is lost in a test is lost by the subscriber
	p.must(p.socket.SetRcvtimeo(patience))
	p.must(p.socket.Bind(bind))
	p.endpoint, err = p.socket.GetLastEndpoint()
	p.must(err)
	return p
}

func (p *publisher) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *publisher) close() {
	if p.context == nil {
		return
	}
	p.must(p.socket.Close())
	p.must(p.context.Term())
	p.context = nil
}

// awaitSubscription waits until a subscription arrived that was not there before.
func (p *publisher) awaitSubscription() {
	p.t.Helper()
	for {
		change, err := p.socket.RecvBytes(0)
		p.must(err)
		if len(change) > 0 && change[0] == 1 {
			return
		}
	}
}

func (p *publisher) send(frames ...[]byte) {
	p.t.Helper()
	for i, frame := range frames {
		flags := zmq.SNDMORE
		if i == len(frames)-1 {
			flags = 0
		}
		_, err := p.socket.SendBytes(frame, flags)
		p.must(err)
	}
}

// publish sends one batch with one remove of the hash that equals its number.
func (p *publisher) publish(seq uint64) {
	p.t.Helper()
	p.send([]byte("kv-events"), seqFrame(seq), removeBatch(p.t, seq))
}

func seqFrame(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

func removeBatch(t *testing.T, hash uint64) []byte {
	return packBatch(t, list("BlockRemoved", list(hash)))
}

// recorder is a Handler that turns each call into one line.
type recorder struct {
	lines chan string
	topic string // of the last message
}

func (r *recorder) HandleMessage(m Message) {
	r.topic = m.Topic
	line := fmt.Sprintf("rank %d epoch %d seq %d", m.Rank, m.Epoch, m.Seq)
	for _, ev := range m.Batch.Events {
		line += fmt.Sprintf(" %v%v", ev.Kind, ev.Hashes)
	}
	if m.Gap > 0 {
		line += fmt.Sprintf(" gap=%d", m.Gap)
	}
	flags := []struct {
		set  bool
		name string
	}{
		{m.FirstGap, "first"},
		{m.Restart, "restart"},
		{m.Duplicate, "duplicate"},
		{m.Reconnected, "reconnected"},
		{m.Err != nil, "undecodable"},
	}
	for _, flag := range flags {
		if flag.set {
			line += " " + flag.name
		}
	}
	r.lines <- line
}

func (r *recorder) HandleState(rank int, connected bool) {
	r.lines <- fmt.Sprintf("rank %d connected=%v", rank, connected)
}

// expect waits for the lines, in order.
func (r *recorder) expect(t *testing.T, want ...string) {
	t.Helper()
	for i, line := range want {
		select {
		case got := <-r.lines:
			if got != line {
				t.Fatalf("line %d of %d: %q, want %q", i+1, len(want), got, line)
			}
		case <-time.After(patience):
			t.Fatalf("line %d of %d: nothing came, want %q", i+1, len(want), line)
		}
	}
}

// subscribe runs a Subscriber until the test ends, which waits for it.
func subscribe(t *testing.T, change func(*Subscriber), endpoints ...Endpoint) (*Subscriber, *recorder) {
	t.Helper()
	r := &recorder{lines: make(chan string, 10_000)}
	cfg := SubscriberConfig{Endpoints: endpoints, Handler: r, Logger: slog.New(slog.DiscardHandler)}
	s, err := NewSubscriber(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("Run did not end with its context")
		}
	})
	for _, e := range endpoints {
		r.expect(t, fmt.Sprintf("rank %d connected=false", e.Rank))
	}
	return s, r
}

// connect starts a publisher and a subscriber to it.
func connect(t *testing.T, topic string) (*publisher, *Subscriber, *recorder) {
	t.Helper()
	p := newPublisher(t, anyPort())
	s, r := subscribe(t, nil, Endpoint{Events: p.endpoint, Topic: topic})
	p.awaitSubscription()
	r.expect(t, "rank 0 connected=true")
	return p, s, r
}

func TestSubscriberReportsHowMessagesFollow(t *testing.T) {
	tests := []struct {
		name string
		seqs []uint64
		want []string
	}{
		{
			"in order",
			[]uint64{0, 1},
			[]string{"rank 0 epoch 0 seq 0 BlockRemoved[0]", "rank 0 epoch 0 seq 1 BlockRemoved[1]"},
		},
		{
			"a late join and a gap",
			[]uint64{4, 7},
			[]string{"rank 0 epoch 0 seq 4 BlockRemoved[4] gap=4 first", "rank 0 epoch 0 seq 7 BlockRemoved[7] gap=2"},
		},
		{
			"a duplicate, which brings no events",
			[]uint64{0, 0, 1},
			[]string{"rank 0 epoch 0 seq 0 BlockRemoved[0]", "rank 0 epoch 0 seq 0 duplicate", "rank 0 epoch 0 seq 1 BlockRemoved[1]"},
		},
		{
			"a restart behind one connection",
			[]uint64{0, 1, 0},
			[]string{"rank 0 epoch 0 seq 0 BlockRemoved[0]", "rank 0 epoch 0 seq 1 BlockRemoved[1]", "rank 0 epoch 1 seq 0 BlockRemoved[0] restart"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p, _, r := connect(t, "kv-events")
			for _, seq := range test.seqs {
				p.publish(seq)
			}
			r.expect(t, test.want...)
		})
	}
}

func TestSubscriberFollowsAnEngineThatRestarts(t *testing.T) {
	p, s, r := connect(t, "")
	p.publish(0)
	r.expect(t, "rank 0 epoch 0 seq 0 BlockRemoved[0]")
	p.close()
	r.expect(t, "rank 0 connected=false")

	again := newPublisher(t, p.endpoint)
	again.awaitSubscription()
	r.expect(t, "rank 0 connected=true")
	again.publish(0)
	again.publish(1)
	r.expect(t, "rank 0 epoch 1 seq 0 BlockRemoved[0] restart reconnected", "rank 0 epoch 1 seq 1 BlockRemoved[1]")
	if stats := s.Stats(); stats.Restarts.Load() != 1 || stats.Connects.Load() != 2 || stats.Duplicates.Load() != 0 {
		t.Errorf("%d restarts, %d connects, %d duplicates; want 1, 2, 0", stats.Restarts.Load(), stats.Connects.Load(), stats.Duplicates.Load())
	}
}

func TestSubscriberDropsMalformedFramesAndGoesOn(t *testing.T) {
	p, s, r := connect(t, "kv-")
	topic, batch := []byte("kv-events"), removeBatch(t, 9)
	p.publish(0)
	p.send(batch)
	p.send(topic, batch)
	p.send(topic, seqFrame(1), batch, batch)
	p.send([]byte("load"), seqFrame(1), batch)
	p.send(nil, seqFrame(1), batch)
	p.send(topic, []byte("1234567"), batch)
	p.send(topic, nil, batch)
	p.send(topic, seqFrame(1<<64-1), nil)
	p.publish(1)
	r.expect(t, "rank 0 epoch 0 seq 0 BlockRemoved[0]", "rank 0 epoch 0 seq 1 BlockRemoved[1]")
	if r.topic != "kv-events" {
		t.Errorf("topic %q, want kv-events", r.topic)
	}
	got := map[Drop]uint64{}
	for _, why := range Drops() {
		got[why] = s.Stats().Dropped(why)
	}
	if diff := cmp.Diff(map[Drop]uint64{DropFrames: 3, DropTopic: 2, DropSequence: 3, DropReply: 0}, got); diff != "" {
		t.Errorf("drops differ (-want +got):\n%s", diff)
	}
}

func TestSubscriberHandsOnWhatItCanOfABadPayload(t *testing.T) {
	p, s, r := connect(t, "")
	cut := packBatch(t, list("BlockRemoved", list(1)), list("BlockRemoved", list(2)))
	p.send(nil, seqFrame(0), cut[:len(cut)-3])
	p.send(nil, seqFrame(1), []byte("no batch"))
	p.send(nil, seqFrame(2), packBatch(t, storedArray(3), "bad", list("BlockInactive"), list("AllBlocksCleared")))
	r.expect(t, "rank 0 epoch 0 seq 0 BlockRemoved[1] undecodable", "rank 0 epoch 0 seq 1 undecodable",
		"rank 0 epoch 0 seq 2 BlockStored[3] AllBlocksCleared[]")
	stats := s.Stats()
	got := []uint64{
		stats.Messages.Load(), stats.Stored.Load(), stats.Removed.Load(), stats.Cleared.Load(),
		stats.Undecodable.Load(), stats.MalformedEvents.Load(), stats.UnknownTags.Load(),
	}
	if diff := cmp.Diff([]uint64{3, 1, 1, 1, 2, 1, 1}, got); diff != "" {
		t.Errorf("messages, stored, removed, cleared, undecodable, malformed, unknown differ (-want +got):\n%s", diff)
	}
}

func TestSubscriberServesAllRanksOfAnEngine(t *testing.T) {
	zero, one := newPublisher(t, anyPort()), newPublisher(t, anyPort())
	_, r := subscribe(t, nil, Endpoint{Events: zero.endpoint, Rank: 0}, Endpoint{Events: one.endpoint, Rank: 1})
	zero.awaitSubscription()
	one.awaitSubscription()
	connected := map[string]bool{<-r.lines: true, <-r.lines: true}
	if !connected["rank 0 connected=true"] || !connected["rank 1 connected=true"] {
		t.Fatalf("states %v, want both ranks connected", connected)
	}
	zero.publish(0)
	r.expect(t, "rank 0 epoch 0 seq 0 BlockRemoved[0]")
	one.publish(5)
	r.expect(t, "rank 1 epoch 0 seq 5 BlockRemoved[5] gap=5 first")
	zero.publish(1)
	r.expect(t, "rank 0 epoch 0 seq 1 BlockRemoved[1]")
}

func TestSubscriberTakesEveryMessageOfABurst(t *testing.T) {
	const messages = 5000
	p, s, r := connect(t, "")
	for seq := range uint64(messages) {
		p.publish(seq)
	}
	for seq := range messages {
		r.expect(t, fmt.Sprintf("rank 0 epoch 0 seq %d BlockRemoved[%d]", seq, seq))
	}
	if missed := s.Stats().Missed.Load(); missed != 0 {
		t.Errorf("%d missed", missed)
	}
}

func TestSubscriberLosesOnlyTheOversizedMessage(t *testing.T) {
	p := newPublisher(t, anyPort())
	s, r := subscribe(t, func(s *Subscriber) {
		s.cfg.MaxMessageBytes = 1000
		s.reopen = 200 * time.Millisecond
	}, Endpoint{Events: p.endpoint})
	p.awaitSubscription()
	r.expect(t, "rank 0 connected=true")
	p.publish(0)
	r.expect(t, "rank 0 epoch 0 seq 0 BlockRemoved[0]")
	p.send(nil, seqFrame(1), make([]byte, 5000))
	r.expect(t, "rank 0 connected=false")
	p.awaitSubscription()
	r.expect(t, "rank 0 connected=true")
	p.publish(2)
	r.expect(t, "rank 0 epoch 0 seq 2 BlockRemoved[2] gap=1 reconnected")
	if missed := s.Stats().Missed.Load(); missed != 1 {
		t.Errorf("%d missed, want 1", missed)
	}
}

func TestSubscriberWaitsForAnEngineThatIsAway(t *testing.T) {
	p := newPublisher(t, anyPort())
	p.close() // its port now refuses connections
	_, r := subscribe(t, nil, Endpoint{Events: p.endpoint})
	again := newPublisher(t, p.endpoint)
	again.awaitSubscription()
	r.expect(t, "rank 0 connected=true")
	again.publish(0)
	r.expect(t, "rank 0 epoch 0 seq 0 BlockRemoved[0]")
}

func TestSubscriberConnectsOnceAPeerSpeaksTheProtocol(t *testing.T) {
	listener, err := net.Listen("tcp", loopback.Host()+":0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "tcp://" + listener.Addr().String()
	_, r := subscribe(t, func(s *Subscriber) { s.reopen = 200 * time.Millisecond }, Endpoint{Events: endpoint})
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", strings.Repeat("x", 100)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) { // until the subscriber hangs up
		t.Fatal(err)
	}
	conn.Close()
	listener.Close()

	p := newPublisher(t, endpoint)
	p.awaitSubscription()
	r.expect(t, "rank 0 connected=true")
	p.publish(0)
	r.expect(t, "rank 0 epoch 0 seq 0 BlockRemoved[0]")
}

func TestRunNamesAnAddressThatCannotBeUsed(t *testing.T) {
	s, err := NewSubscriber(SubscriberConfig{Handler: &recorder{}, Endpoints: []Endpoint{{Events: "nonsense"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "subscribe to nonsense: ") {
		t.Errorf("error %v, want the address", err)
	}
}

func TestRunLogsDroppedMessagesOnceInAWhile(t *testing.T) {
	var out bytes.Buffer
	p := newPublisher(t, anyPort())
	_, r := subscribe(t, func(s *Subscriber) { s.log = slog.New(slog.NewTextHandler(&out, nil)) }, Endpoint{Events: p.endpoint})
	p.awaitSubscription()
	for range 50 {
		p.send([]byte("alone"))
	}
	p.publish(0)
	r.expect(t, "rank 0 connected=true", "rank 0 epoch 0 seq 0 BlockRemoved[0]")
	if n := strings.Count(out.String(), "level=WARN"); n != 1 || !strings.Contains(out.String(), "reason=frames") {
		t.Errorf("%d warnings, want one with its reason:\n%s", n, out.String())
	}
}

func TestNewSubscriberRefusesAConfigurationThatCannotWork(t *testing.T) {
	handler := &recorder{}
	tests := []struct {
		name string
		cfg  SubscriberConfig
		want string
	}{
		{"no handler", SubscriberConfig{Endpoints: []Endpoint{{}}}, "Handler is not set"},
		{"no endpoint", SubscriberConfig{Handler: handler}, "0 endpoints, want between 1 and 256"},
		{"two of one rank", SubscriberConfig{Handler: handler, Endpoints: []Endpoint{{Rank: 1}, {Rank: 1}}}, "two endpoints have rank 1"},
		{"a negative mark", SubscriberConfig{Handler: handler, Endpoints: []Endpoint{{}}, ReceiveHWM: -1}, "must not be negative"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := NewSubscriber(test.cfg); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}
