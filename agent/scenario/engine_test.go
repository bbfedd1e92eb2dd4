package scenario

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	zmq "github.com/pebbe/zmq4"

	"github.com/inferencecache/inferencecache/agent/config"
	"github.com/inferencecache/inferencecache/hack/loopback"
)

// engine is a scripted engine: what it decides is the script's, what it sends is real.
type engine struct {
	cfg     config.Engine
	wire    wire
	topic   string
	replies int // frames of a replay's reply, without the delimiter
	buffer  int // messages kept for replay; 0 is no bound
	away    bool
	ranks   []*publisher
	page    *page // nil without metrics
}

// publisher is the sockets of one rank. Only the loop's goroutine uses it.
type publisher struct {
	engine         *engine
	number         int
	events, replay int // ports
	xpub, router   *zmq.Socket

	next      uint64
	kept      []kept
	processes []process // the last one is the present

	replaced   bool // the process since the sockets were open last, which had published
	subscribed bool
	delivered  int // messages sent to the agent that runs now
	asked      []uint64
	sinceOpen  int // replays asked for since the sockets opened or the agent started

	loseMarker bool
	lose       []uint64 // replies to lose once
	breakAt    uint64   // the number behind which a replay breaks off, once; 0 for none
	mute       bool
}

// kept is a message that can be replayed.
type kept struct {
	seq     uint64
	payload []byte
}

// newEngine reads a declaration.
func newEngine(l *loop, name string, options []string) (*engine, error) {
	e := &engine{
		cfg: config.Engine{
			Name: name, Model: "m", Tenant: "t", HashScheme: "vllm", Ranks: 1, Tier2: config.Tier2Observed, LoRANames: map[int64]string{},
		},
		replies: 3, topic: "kv-events",
	}
	withReplay := true
	for _, word := range options {
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "ranks":
			e.cfg.Ranks, err = strconv.Atoi(value)
		case "form":
			if value != "map" {
				e.wire.length, err = strconv.Atoi(value)
			}
		case "hashes":
			e.wire.bytes = value == "bytes"
		case "replies":
			e.replies = map[string]int{"two": 2, "three": 3}[value]
		case "replay":
			withReplay = value != "no"
		case "buffer":
			e.buffer, err = strconv.Atoi(value)
		case "topic":
			e.cfg.Topic = value
		case "metrics":
			e.page = newPage()
		case "tier2":
			e.cfg.Tier2 = config.Tier2(value)
		case "lora":
			id, name, _ := strings.Cut(value, ":")
			var n int64
			n, err = strconv.ParseInt(id, 10, 64)
			e.cfg.LoRANames[n] = name
		case "scheme":
			e.cfg.HashScheme = value
		case "full-reports":
			e.cfg.FullReports = true
		case "away":
			e.away = true
		default:
			err = errors.New("no such option")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", word, err)
		}
	}
	if e.page != nil {
		e.page.ranks = make([]pageRank, e.cfg.Ranks)
		e.cfg.Metrics = e.page.server.URL
	}
	return e, l.findPorts(e, withReplay)
}

// findPorts binds ports in a row for the ranks' events, and others for their replays.
func (l *loop) findPorts(e *engine, withReplay bool) (err error) {
	for range 100 {
		base := [2]int{randomPort(), randomPort()}
		if max(base[0]-base[1], base[1]-base[0]) <= e.cfg.Ranks {
			continue
		}
		e.ranks = nil
		for r := range e.cfg.Ranks {
			p := &publisher{engine: e, number: r, events: base[0] + r, processes: []process{{}}}
			if withReplay {
				p.replay = base[1] + r
			}
			e.ranks = append(e.ranks, p)
		}
		if err = l.openAll(e); err == nil {
			e.cfg.Events = l.address(base[0])
			if withReplay {
				e.cfg.Replay = l.address(base[1])
			}
			return nil
		}
	}
	return fmt.Errorf("find ports: %w", err)
}

func (l *loop) openAll(e *engine) (err error) {
	l.do(func() {
		for _, p := range e.ranks {
			err = errors.Join(err, p.open(l, 0))
		}
		if err == nil && !e.away {
			return
		}
		for _, p := range e.ranks {
			p.close(l)
		}
	})
	return err
}

// address is one that nobody takes while an engine is down: the host is the script's own.
func (l *loop) address(port int) string { return fmt.Sprintf("tcp://%s:%d", l.host, port) }

// randomPort is below the ports that the system gives away by itself.
func randomPort() int { return 15_000 + rand.IntN(15_000) }

// open binds the sockets, and tries for a while: those that were closed before may still have the
// ports. XPUB tells of the subscriber, and otherwise sends as PUB does.
func (p *publisher) open(l *loop, tries time.Duration) (err error) {
	p.sinceOpen, p.subscribed = 0, false
	if p.xpub, err = l.bind(zmq.XPUB, p.events, tries); err != nil {
		return err
	}
	l.watch(p.xpub, p.takeSubscription)
	if p.replay == 0 {
		return nil
	}
	if p.router, err = l.bind(zmq.ROUTER, p.replay, tries); err != nil {
		return err
	}
	l.watch(p.router, p.serveReplay)
	return nil
}

func (p *publisher) close(l *loop) {
	for _, s := range []*zmq.Socket{p.xpub, p.router} {
		if s != nil {
			l.unwatch(s)
			_ = s.Close()
		}
	}
	p.xpub, p.router, p.subscribed, p.delivered = nil, nil, false, 0
}

// restart is another process: nothing of the one before is left.
func (p *publisher) restart() {
	p.replaced = p.replaced || p.next > 0
	p.next, p.kept = 0, nil
	p.processes = append(p.processes, process{})
}

func (p *publisher) takeSubscription() error {
	change, err := p.xpub.RecvBytes(zmq.DONTWAIT)
	if err == nil && len(change) > 0 {
		p.subscribed = change[0] == 1
	}
	return err
}

// how says what becomes of a message.
type how struct {
	seq     uint64
	hasSeq  bool
	lost    bool
	burnt   bool
	payload []byte // nil to encode the events
}

func (p *publisher) publish(h how, events []event) (err error) {
	if h.hasSeq {
		if h.seq < p.next {
			return fmt.Errorf("seq %d has been used, the next is %d", h.seq, p.next)
		}
		p.next = h.seq
	}
	seq := p.next
	p.next++
	for _, e := range events {
		p.processes[len(p.processes)-1].note(e)
	}
	if h.burnt {
		return nil
	}
	if h.payload == nil {
		if h.payload, err = p.engine.wire.batch(p.number, events); err != nil {
			return err
		}
	}
	p.kept = append(p.kept, kept{seq, h.payload})
	p.trim()
	if h.lost {
		return nil
	}
	return p.send([]byte(p.engine.topic), binary.BigEndian.AppendUint64(nil, seq), h.payload)
}

func (p *publisher) trim() {
	if n := p.engine.buffer; n > 0 && len(p.kept) > n {
		p.kept = p.kept[len(p.kept)-n:]
	}
}

// again sends a kept message live once more.
func (p *publisher) again(seq uint64) error {
	for _, k := range p.kept {
		if k.seq == seq {
			return p.send([]byte(p.engine.topic), binary.BigEndian.AppendUint64(nil, seq), k.payload)
		}
	}
	return fmt.Errorf("message %d is not kept", seq)
}

// send sends frames to whoever has subscribed.
func (p *publisher) send(frames ...[]byte) error {
	if !p.subscribed || p.xpub == nil {
		return nil
	}
	p.delivered++
	_, err := p.xpub.SendMessage(frames)
	return err
}

// serveReplay answers one request as engines do: what is not exactly identity, delimiter and number
// is ignored.
func (p *publisher) serveReplay() error {
	request, err := p.router.RecvMessageBytes(zmq.DONTWAIT)
	if err != nil {
		return err
	}
	if len(request) != 3 || len(request[1]) != 0 || len(request[2]) != 8 {
		return nil
	}
	from := binary.BigEndian.Uint64(request[2])
	if from+1 < p.next { // else it only asks whether this is the same process
		p.asked = append(p.asked, from)
	}
	defer func() { p.sinceOpen++ }()
	if p.mute {
		return nil
	}
	for _, k := range p.kept {
		if k.seq < from {
			continue
		}
		if i := slices.Index(p.lose, k.seq); i >= 0 {
			p.lose = slices.Delete(p.lose, i, i+1)
			continue
		}
		if err := p.reply(request[0], p.engine.topic, k.seq, k.payload); err != nil {
			return err
		}
		if p.breakAt != 0 && k.seq == p.breakAt {
			p.breakAt = 0
			return nil
		}
	}
	if p.loseMarker {
		return nil
	}
	return p.reply(request[0], "", math.MaxUint64, nil)
}

func (p *publisher) reply(to []byte, topic string, seq uint64, payload []byte) error {
	frames := [][]byte{to, {}, []byte(topic), binary.BigEndian.AppendUint64(nil, seq), payload}
	if p.engine.replies == 2 {
		frames = slices.Delete(frames, 2, 3)
	}
	_, err := p.router.SendMessage(frames)
	return err
}

// page is an engine's metrics page.
type page struct {
	server *httptest.Server

	mu      sync.Mutex
	served  int // requests
	started int
	broken  bool
	ranks   []pageRank
}

type pageRank struct {
	asleep          bool
	blocks, running int
}

func newPage() *page {
	p := &page{started: 100}
	p.server = httptest.NewServer(p)
	return p
}

// ServeHTTP implements http.Handler. Series come in the order of families, as the format demands.
func (p *page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.served++
	if p.broken {
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	}
	fmt.Fprintf(w, "process_start_time_seconds %d\n", p.started)
	p.family(w, func(rank int, r pageRank) string {
		return fmt.Sprintf("vllm:num_requests_running{engine=\"%d\"} %d\n", rank, r.running)
	})
	p.family(w, func(rank int, _ pageRank) string {
		return fmt.Sprintf("vllm:num_requests_waiting{engine=\"%d\"} 0\n", rank)
	})
	p.family(w, func(rank int, r pageRank) string {
		awake := 1
		if r.asleep {
			awake = 0
		}
		return fmt.Sprintf("vllm:engine_sleep_state{engine=\"%d\",sleep_state=\"awake\"} %d\n", rank, awake)
	})
	p.family(w, func(rank int, r pageRank) string {
		if r.blocks == 0 {
			return ""
		}
		return fmt.Sprintf("vllm:cache_config_info{engine=\"%d\",num_gpu_blocks=\"%d\"} 1\n", rank, r.blocks)
	})
}

func (p *page) family(w io.Writer, line func(rank int, r pageRank) string) {
	for rank, r := range p.ranks {
		_, _ = io.WriteString(w, line(rank, r))
	}
}

// set changes how an engine behaves.
func (e *engine) set(p *publisher, word string) (err error) {
	key, value, _ := strings.Cut(word, "=")
	switch key {
	case "marker":
		p.loseMarker = value == "lost"
	case "drop":
		p.lose, err = parseList(value)
	case "break":
		p.breakAt, err = strconv.ParseUint(value, 10, 64)
	case "mute", "answer":
		p.mute = key == "mute"
	case "buffer":
		e.buffer, err = strconv.Atoi(value)
		p.trim()
	default:
		return e.page.set(p.number, key, value)
	}
	return err
}

// reads returns how often the page was asked for.
func (p *page) reads() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.served
}

func (p *page) set(rank int, key, value string) (err error) {
	if p == nil {
		return errors.New("no such setting, or the engine has no metrics")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch key {
	case "asleep", "awake":
		p.ranks[rank].asleep = key == "asleep"
	case "blocks":
		p.ranks[rank].blocks, err = strconv.Atoi(value)
	case "running":
		p.ranks[rank].running, err = strconv.Atoi(value)
	case "broken", "mended":
		p.broken = key == "broken"
	case "started":
		p.started, err = strconv.Atoi(value)
	default:
		err = errors.New("no such setting")
	}
	return err
}

// loop owns the sockets of all engines of a script.
type loop struct {
	t       *testing.T
	host    string
	context *zmq.Context
	wake    *zmq.Socket // used by the script alone
	woken   *zmq.Socket
	jobs    chan func()
	poller  *zmq.Poller
	serve   map[*zmq.Socket]func() error
	ended   chan struct{}
	stop    bool
}

func newLoop(t *testing.T) *loop {
	t.Helper()
	l := &loop{t: t, host: loopback.Host(), jobs: make(chan func(), 1), poller: zmq.NewPoller(), serve: map[*zmq.Socket]func() error{}, ended: make(chan struct{})}
	var err error
	if l.context, err = zmq.NewContext(); err != nil {
		t.Fatal(err)
	}
	for _, end := range []**zmq.Socket{&l.woken, &l.wake} {
		if *end, err = l.context.NewSocket(zmq.PAIR); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(l.woken.Bind("inproc://wake"), l.wake.Connect("inproc://wake")); err != nil {
		t.Fatal(err)
	}
	l.poller.Add(l.woken, zmq.POLLIN)
	go l.run()
	t.Cleanup(l.close)
	return l
}

func (l *loop) close() {
	l.do(func() {
		for s := range l.serve {
			_ = s.Close()
		}
		_ = l.woken.Close()
		l.stop = true
	})
	<-l.ended
	if err := errors.Join(l.wake.Close(), l.context.Term()); err != nil {
		l.t.Errorf("close engines: %v", err)
	}
}

// do runs f on the loop's goroutine and waits for it.
func (l *loop) do(f func()) {
	done := make(chan struct{})
	l.jobs <- func() { f(); close(done) }
	if _, err := l.wake.SendBytes(nil, 0); err != nil {
		l.t.Errorf("wake the engines: %v", err)
	}
	<-done
}

func (l *loop) run() {
	defer close(l.ended)
	for !l.stop {
		polled, err := l.poller.Poll(-1)
		if err != nil {
			l.t.Errorf("poll engine sockets: %v", err)
		}
		for _, p := range polled {
			if p.Socket == l.woken {
				_, _ = l.woken.RecvBytes(0)
				(<-l.jobs)()
				break // sockets may have been closed
			}
			if err := l.serve[p.Socket](); err != nil {
				l.t.Errorf("serve an engine's socket: %v", err)
			}
		}
	}
}

// bind opens a socket. Nothing is lost at its own high-water mark.
func (l *loop) bind(kind zmq.Type, port int, tries time.Duration) (*zmq.Socket, error) {
	s, err := l.context.NewSocket(kind)
	if err != nil {
		return nil, err
	}
	err = errors.Join(s.SetLinger(0), s.SetSndhwm(0), s.SetRcvhwm(0))
	for deadline := time.Now().Add(tries); err == nil; time.Sleep(5 * time.Millisecond) {
		if err = s.Bind(l.address(port)); err == nil {
			return s, nil
		}
		if time.Now().Before(deadline) {
			err = nil
		}
	}
	return nil, errors.Join(err, s.Close())
}

func (l *loop) watch(s *zmq.Socket, serve func() error) {
	l.poller.Add(s, zmq.POLLIN)
	l.serve[s] = serve
}

func (l *loop) unwatch(s *zmq.Socket) {
	if _, ok := l.serve[s]; ok {
		delete(l.serve, s)
		_ = l.poller.RemoveBySocket(s)
	}
}
