package kvevents

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is an engine, the network and a subscriber at their simplest: everything that the sockets can
// do to messages, without the sockets.
type world struct {
	t   *rapid.T
	now time.Time

	process int               // number of the engine process
	log     map[uint64]string // what the process published, by number
	next    uint64
	buffer  int // messages that a replay can reach back
	burnt   bool

	connected bool
	wire      []numbered // on their way to the event socket
	replies   []numbered // on their way to the replay socket
	marker    bool       // an end marker follows the replies

	rec     recovery
	seq     Sequence
	got     []string // handed on since the last reset
	gotFrom uint64
	prompt  bool // replies come at once
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, now: time.Unix(1, 0), buffer: rapid.IntRange(1, 20).Draw(t, "buffer")}
	w.rec = recovery{do: w, seq: &w.seq, can: true}
	w.boot()
	return w
}

func (w *world) boot() {
	w.process++
	w.log, w.next, w.burnt = map[uint64]string{}, 0, false
}

func (w *world) payload(seq uint64) string { return fmt.Sprintf("%d/%d", w.process, seq) }

// ask serves a replay: from the oldest message kept, with replies lost in the middle of a long one.
func (w *world) ask(from uint64) {
	w.replies, w.marker = nil, false
	for seq := uint64(0); seq < w.next; seq++ {
		if p, ok := w.log[seq]; ok {
			w.replies = append(w.replies, numbered{seq: seq, payload: []byte(p), replayed: true})
		}
	}
	w.replies = w.replies[max(0, len(w.replies)-w.buffer):]
	for len(w.replies) > 0 && w.replies[0].seq < from {
		w.replies = w.replies[1:]
	}
	w.marker = true
	if len(w.replies) > 4 && rapid.IntRange(0, 2).Draw(w.t, "replies are lost") == 0 {
		cut := rapid.IntRange(3, len(w.replies)-1).Draw(w.t, "lost reply")
		w.replies = append(w.replies[:cut], w.replies[cut+1:]...)
		w.marker = rapid.Bool().Draw(w.t, "the marker arrives")
	}
}

func (w *world) hand(m numbered, step Step) {
	if step.Duplicate {
		return
	}
	if step.Restart || step.Gap > 0 {
		w.reset()
	}
	if len(w.got) == 0 {
		w.gotFrom = m.seq
	}
	w.got = append(w.got, string(m.payload))
}

func (w *world) restarted() { w.reset() }

// gaveUp is right only while the engine keeps its replies back.
func (w *world) gaveUp() {
	if w.prompt {
		w.t.Fatal("gave up although the engine answers")
	}
}

func (w *world) reset() { w.got, w.gotFrom = nil, 0 }

func (w *world) disconnect() {
	if w.connected {
		w.connected = false
		w.rec.disconnected()
	}
}

func (w *world) connect() {
	if !w.connected {
		w.connected = true
		w.rec.connected(w.now)
	}
}

func (w *world) publish() {
	p := w.payload(w.next)
	w.log[w.next] = p
	if w.connected && rapid.IntRange(0, 9).Draw(w.t, "the message is lost") != 0 {
		w.wire = append(w.wire, numbered{seq: w.next, payload: []byte(p)})
	}
	w.next++
}

func (w *world) deliver() {
	if len(w.wire) > 0 {
		m := w.wire[0]
		w.wire = w.wire[1:]
		w.rec.live(m, w.now)
	} else {
		w.rec.drained()
	}
}

func (w *world) deliverReply() {
	switch {
	case len(w.replies) > 0:
		m := w.replies[0]
		w.replies = w.replies[1:]
		w.rec.reply(m, w.now)
	case w.marker:
		w.marker = false
		w.rec.end(w.now)
	}
}

func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	w.rec.tick(w.now)
}

// settle lets everything arrive and time pass until nothing moves any more.
func (w *world) settle() {
	w.connect()
	for range 40 {
		w.deliverReply()
	}
	w.pass(restAfter)
	w.prompt = true
	for range 200 {
		for len(w.wire) > 0 {
			w.deliver()
		}
		w.deliver()
		for range 40 {
			w.deliverReply()
		}
		w.pass(replyTimeout)
	}
	w.pass(idleCheck)
	for range 40 {
		w.deliverReply()
	}
	w.pass(replyTimeout)
}

// TestRecoveryEndsWithWhatTheEnginePublished loses messages, replies, markers, connections and
// processes at random. Once things are quiet, what was handed on since the last reset is exactly the
// newest part of the present process's stream, and all of it if the engine could replay all.
func TestRecoveryEndsWithWhatTheEnginePublished(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.connect()
		t.Repeat(map[string]func(*rapid.T){
			"publish":      func(*rapid.T) { w.publish() },
			"publish more": func(*rapid.T) { w.publish(); w.publish(); w.publish() },
			"deliver":      func(*rapid.T) { w.deliver() },
			"reply":        func(*rapid.T) { w.deliverReply(); w.deliverReply() },
			"time passes":  func(t *rapid.T) { w.pass(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond) },
			"burn a number": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
					w.next++
					w.burnt = true
				}
			},
			"lose the connection": func(*rapid.T) { w.disconnect() },
			"connect":             func(*rapid.T) { w.connect() },
			"restart": func(t *rapid.T) {
				if rapid.IntRange(0, 2).Draw(t, "really") == 0 {
					w.disconnect()
					w.boot()
				}
			},
		})
		w.settle()
		w.check()
	})
}

func (w *world) check() {
	want := []string{}
	for seq := w.gotFrom; seq < w.next; seq++ {
		if p, ok := w.log[seq]; ok {
			want = append(want, p)
		}
	}
	if len(w.log) == 0 {
		want = want[:0]
	}
	if fmt.Sprint(want) != fmt.Sprint(w.got) {
		w.t.Fatalf("handed on %v from number %d, the process published %v", w.got, w.gotFrom, want)
	}
	_, first := w.log[0]
	if first && !w.burnt && w.next <= uint64(w.buffer) && w.gotFrom != 0 {
		w.t.Fatalf("handed on from number %d although the engine could replay from 0", w.gotFrom)
	}
	if w.rec.active || len(w.rec.held) > 0 {
		w.t.Fatalf("not at rest: active %v, %d held", w.rec.active, len(w.rec.held))
	}
}

// tape records what a recovery asks of its surroundings.
type tape struct{ handed []string }

func (*tape) ask(uint64) {}
func (*tape) gaveUp()    {}

func (e *tape) restarted() { e.handed = append(e.handed, "restart") }

func (e *tape) hand(m numbered, step Step) {
	text := fmt.Sprintf("%d %s", m.seq, m.payload)
	if step.Restart {
		text = "restart " + text
	}
	if step.Duplicate {
		text = "duplicate " + text
	}
	e.handed = append(e.handed, text)
}

func live(seq uint64, payload string) numbered { return numbered{seq: seq, payload: []byte(payload)} }

// TestProcessBehindASilentReplaySocket reconnects to a publisher that does not replay. While nothing
// shows which process it is, numbers that went back are those of another one, not stale ones.
func TestProcessBehindASilentReplaySocket(t *testing.T) {
	for name, c := range map[string]struct {
		queued, during, after []numbered
		want                  []string
	}{
		"messages queued at the connection": {[]numbered{live(0, "x")}, []numbered{live(1, "y")}, nil, []string{"restart 0 x", "1 y"}},
		"the old process's last words":      {[]numbered{live(3, "d"), live(0, "x")}, nil, nil, []string{"3 d", "restart 0 x"}},
		"messages that wait for the replay": {nil, []numbered{live(0, "x"), live(1, "y")}, nil, []string{"restart 0 x", "1 y"}},
		"messages that come later":          {nil, nil, []numbered{live(0, "x"), live(1, "y")}, []string{"restart 0 x", "1 y"}},
		"the number handed on last":         {nil, nil, []numbered{live(2, "x"), live(3, "y")}, []string{"restart 2 x", "3 y"}},
		"numbers that follow":               {nil, []numbered{live(3, "d")}, []numbered{live(4, "e")}, []string{"3 d", "4 e"}},
	} {
		t.Run(name, func(t *testing.T) {
			e, now := &tape{}, time.Unix(1, 0)
			r := recovery{do: e, seq: &Sequence{}, can: true}
			pass := func(d time.Duration) { now = now.Add(d); r.tick(now) }
			r.connected(now)
			r.drained()
			r.end(now)
			for seq, payload := range []string{"a", "b", "c"} {
				r.live(live(uint64(seq), payload), now)
			}
			r.disconnected()
			e.handed = nil
			r.connected(now)
			for _, m := range c.queued {
				r.live(m, now)
			}
			r.drained()
			for _, m := range c.during {
				r.live(m, now)
			}
			for range maxTries {
				pass(replyTimeout)
			}
			for _, m := range c.after {
				r.live(m, now)
			}
			if fmt.Sprint(e.handed) != fmt.Sprint(c.want) {
				t.Errorf("handed on %q, want %q", e.handed, c.want)
			}
		})
	}
}

// TestSameNumberOfAnotherProcess sends the number handed on last once more, over the same connection.
func TestSameNumberOfAnotherProcess(t *testing.T) {
	for name, c := range map[string]struct {
		can     bool
		payload string
		want    string
	}{
		"the same message is a duplicate":                  {true, "a", "[duplicate 0 a]"},
		"another message is of another process":            {true, "x", "[restart 0 x]"},
		"without replay the same message is a duplicate":   {false, "a", "[duplicate 0 a]"},
		"without replay another message shows the restart": {false, "x", "[restart 0 x]"},
	} {
		t.Run(name, func(t *testing.T) {
			e, now := &tape{}, time.Unix(1, 0)
			r := recovery{do: e, seq: &Sequence{}, can: c.can}
			r.connected(now)
			r.drained()
			r.end(now)
			r.live(live(0, "a"), now)
			e.handed = nil
			r.live(live(0, c.payload), now)
			if c.can && c.payload != "a" { // the replay of the new process
				r.reply(live(0, c.payload), now)
				r.end(now)
			}
			if got := fmt.Sprint(e.handed); got != c.want {
				t.Errorf("handed on %s, want %s", got, c.want)
			}
		})
	}
}
