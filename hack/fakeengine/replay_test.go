package fakeengine

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	zmq "github.com/pebbe/zmq4"
)

// askReplay returns the messages replayed from a start number, without the end marker.
func askReplay(t *testing.T, endpoint string, start []byte) []message {
	t.Helper()
	sock := socket(t, zmq.DEALER)
	must(t, sock.SetRcvhwm(0))
	must(t, sock.Connect(endpoint))
	_, err := sock.SendMessage("", start)
	must(t, err)
	var got []message
	for {
		frames := receive(t, sock, patience)
		if frames == nil {
			t.Fatalf("no end marker after %d messages", len(got))
		}
		payload, seq := frames[len(frames)-1], frames[len(frames)-2]
		if bytes.Equal(seq, bytes.Repeat([]byte{0xff}, 8)) {
			if len(payload) > 0 {
				t.Errorf("the end marker carries %d bytes", len(payload))
			}
			return got
		}
		got = append(got, message{binary.BigEndian.Uint64(seq), payload})
	}
}

// publishing starts an engine and has it publish n batches, numbered from 0.
func publishing(t *testing.T, n int, change func(*Config)) *Engine {
	t.Helper()
	e := start(t, change)
	for i := range n {
		complete(t, e, Request{Prompt: numbers(1000*i, e.cfg.BlockSize), MaxTokens: 1})
	}
	deadline := time.Now().Add(patience)
	last := sequence64(uint64(n - 1))
	for len(askReplay(t, e.Addresses().Replay[0], last)) == 0 { // until the last one is out
		if time.Now().After(deadline) {
			t.Fatal("the last batch is not published")
		}
	}
	return e
}

func TestReplayBeginsWhereAskedOrWhereTheBufferBegins(t *testing.T) {
	e := publishing(t, 10, func(c *Config) { c.BufferSteps = 6 }) // 4 to 9 are kept
	for _, c := range []struct {
		name  string
		start []byte
		want  []uint64
	}{
		{"from the middle", sequence64(7), []uint64{7, 8, 9}},
		{"from before the buffer", sequence64(0), []uint64{4, 5, 6, 7, 8, 9}},
		{"from ahead of the publisher", sequence64(10), nil},
		{"from the number of the end marker", sequence64(endOfReplay), nil},
		{"from a start of two bytes", []byte{0, 8}, []uint64{8, 9}},
		{"from an empty start, which is 0", nil, []uint64{4, 5, 6, 7, 8, 9}},
		{"from a start of nine bytes, ahead of everything", append([]byte{1}, sequence64(0)...), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []uint64
			for _, m := range askReplay(t, e.Addresses().Replay[0], c.start) {
				got = append(got, m.seq)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("replayed %v, want %v", got, c.want)
			}
		})
	}
}

func TestReplayRepliesInBothForms(t *testing.T) {
	end := bytes.Repeat([]byte{0xff}, 8)
	for form, want := range map[string][][][]byte{
		ReplayTwoFrame:   {{{}, sequence64(0), nil}, {{}, end, {}}},
		ReplayThreeFrame: {{{}, []byte("kv@pod"), sequence64(0), nil}, {{}, {}, end, {}}},
	} {
		t.Run(form, func(t *testing.T) {
			e := publishing(t, 1, func(c *Config) { c.ReplayForm, c.Topic = form, "kv@pod" })
			sock := socket(t, zmq.DEALER)
			must(t, sock.Connect(e.Addresses().Replay[0]))
			_, err := sock.SendMessage("", sequence64(0))
			must(t, err)
			for i, frames := range want {
				got := receive(t, sock, patience)
				last := len(frames) - 1
				if i == 0 && len(got) == len(frames) {
					frames[last] = got[last] // the payload; other tests read it
				}
				if !slices.EqualFunc(got, frames, bytes.Equal) {
					t.Errorf("reply %d: frames %q, want %q", i, got, frames)
				}
			}
		})
	}
}

func TestMalformedReplayRequestsGetNoAnswer(t *testing.T) {
	e := publishing(t, 2, nil)
	for name, request := range map[string][]any{
		"no empty frame":   {sequence64(0)},
		"a frame too many": {"", sequence64(0), "more"},
	} {
		t.Run(name, func(t *testing.T) {
			sock := socket(t, zmq.DEALER)
			must(t, sock.Connect(e.Addresses().Replay[0]))
			_, err := sock.SendMessage(request...)
			must(t, err)
			// The good request behind it is answered, and by the order of messages before any answer to
			// the bad one would come late.
			_, err = sock.SendMessage("", sequence64(1))
			must(t, err)
			first, end := receive(t, sock, patience), receive(t, sock, patience)
			if len(first) != 4 || binary.BigEndian.Uint64(first[2]) != 1 || len(end) != 4 {
				t.Errorf("replies %q and %q, want message 1 and the end marker", first, end)
			}
			if more := receive(t, sock, 3*replayPoll); more != nil {
				t.Errorf("one more reply %q", more)
			}
		})
	}
}

func TestSequenceNumbersStartAtZeroInEachEngine(t *testing.T) {
	for range 2 {
		e := publishing(t, 1, nil)
		if got := askReplay(t, e.Addresses().Replay[0], sequence64(0)); len(got) != 1 || got[0].seq != 0 {
			t.Errorf("replayed %+v, want message 0 alone", got)
		}
	}
}
