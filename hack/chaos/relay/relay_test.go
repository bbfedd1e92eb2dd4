package relay

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	zmq "github.com/pebbe/zmq4"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// echo serves connections that answer every byte with itself.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

func plain(t *testing.T) *Relay {
	t.Helper()
	r, err := Plain()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	r.Target(echo(t))
	return r
}

func dial(t *testing.T, r *Relay) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// say sends a word and returns what comes back within a time.
func say(t *testing.T, c net.Conn, word string, within time.Duration) (string, error) {
	t.Helper()
	if _, err := c.Write([]byte(word)); err != nil {
		return "", err
	}
	return hear(t, c, len(word), within)
}

func hear(t *testing.T, c net.Conn, n int, within time.Duration) (string, error) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, n)
	got, err := io.ReadFull(c, buf)
	return string(buf[:got]), err
}

func TestDataPassesBothWays(t *testing.T) {
	if got, err := say(t, dial(t, plain(t)), "hello", patience); got != "hello" || err != nil {
		t.Errorf("heard %q, %v", got, err)
	}
}

func TestAStallKeepsDataUntilItEnds(t *testing.T) {
	r := plain(t)
	c := dial(t, r)
	r.Stall(true)
	if got, err := say(t, c, "hello", 50*time.Millisecond); !os.IsTimeout(err) {
		t.Errorf("heard %q, %v while stalled", got, err)
	}
	r.Stall(false)
	if got, err := hear(t, c, 5, patience); got != "hello" || err != nil {
		t.Errorf("heard %q, %v afterwards", got, err)
	}
}

func TestACutEndsConnectionsAndLetsNewOnesIn(t *testing.T) {
	r := plain(t)
	c := dial(t, r)
	if _, err := say(t, c, "hello", patience); err != nil {
		t.Fatal(err)
	}
	r.Cut()
	if got, err := hear(t, c, 1, patience); err == nil || os.IsTimeout(err) {
		t.Errorf("heard %q, %v after the cut", got, err)
	}
	if got, err := say(t, dial(t, r), "again", patience); got != "again" || err != nil {
		t.Errorf("heard %q, %v on a new connection", got, err)
	}
}

func TestARefusedConnectionIsClosed(t *testing.T) {
	r := plain(t)
	r.Refuse(true)
	if got, err := hear(t, dial(t, r), 1, patience); err == nil || os.IsTimeout(err) {
		t.Errorf("heard %q, %v", got, err)
	}
}

func TestDroppedMessagesAreMissingAndNothingElseIs(t *testing.T) {
	relays, err := Range(2)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range relays {
		defer func() { _ = r.Close() }()
	}
	r := relays[1]
	pub, sub := socket(t, zmq.XPUB), socket(t, zmq.SUB)
	if err := pub.Bind("tcp://127.0.0.1:*"); err != nil {
		t.Fatal(err)
	}
	at, err := pub.GetLastEndpoint()
	if err != nil {
		t.Fatal(err)
	}
	r.Target(strings.TrimPrefix(at, "tcp://"))
	if err := sub.SetSubscribe(""); err != nil {
		t.Fatal(err)
	}
	if err := sub.Connect("tcp://" + r.Addr()); err != nil {
		t.Fatal(err)
	}
	if _, err := pub.RecvMessage(0); err != nil { // the subscription has arrived
		t.Fatal(err)
	}
	publish := func(from, to int) {
		for i := from; i < to; i++ {
			if _, err := pub.SendMessage("topic", []byte{byte(i)}, make([]byte, 100*i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.Drop(4)
	publish(0, 6)
	var got []byte
	for range 2 {
		m, err := sub.RecvMessageBytes(0)
		if err != nil {
			t.Fatal(err)
		}
		if i := int(m[1][0]); len(m) != 3 || len(m[2]) != 100*i {
			t.Errorf("message %d has %d frames", i, len(m))
		}
		got = append(got, m[1][0])
	}
	if !slices.Equal(got, []byte{4, 5}) || r.Dropped() != 4 {
		t.Errorf("received %v, %d dropped", got, r.Dropped())
	}
}

func socket(t *testing.T, kind zmq.Type) *zmq.Socket {
	t.Helper()
	s, err := zmq.NewSocket(kind)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetRcvtimeo(patience); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestFilter_AgainstWholeMessages cuts a stream of messages and commands at random places.
func TestFilter_AgainstWholeMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stream := bytes.Repeat([]byte{1}, greeting)
		want := bytes.Clone(stream)
		drop := rapid.SliceOfN(rapid.Bool(), 1, 8).Draw(t, "drop")
		for _, d := range drop {
			if rapid.Bool().Draw(t, "command") {
				c := frame(flagCommand, 3)
				stream, want = append(stream, c...), append(want, c...)
			}
			var m []byte
			frames := rapid.IntRange(1, 3).Draw(t, "frames")
			for i := range frames {
				flags := byte(0)
				if i < frames-1 {
					flags = flagMore
				}
				m = append(m, frame(flags, rapid.SampledFrom([]int{0, 1, 255, 256, 700}).Draw(t, "size"))...)
			}
			stream = append(stream, m...)
			if !d {
				want = append(want, m...)
			}
		}
		var f filter
		var got []byte
		next := 0
		take := func() bool { next++; return drop[next-1] }
		for len(stream) > 0 {
			n := rapid.IntRange(1, len(stream)).Draw(t, "bytes")
			got = append(got, f.pass(stream[:n], take)...)
			stream = stream[n:]
		}
		if !slices.Equal(got, want) || next != len(drop) {
			t.Fatalf("%d bytes of %d, asked %d times for %d messages", len(got), len(want), next, len(drop))
		}
	})
}

func frame(flags byte, size int) []byte {
	f := []byte{flags, byte(size)}
	if size > 255 {
		f = binary.BigEndian.AppendUint64([]byte{flags | flagLong}, uint64(size))
	}
	for i := range size {
		f = append(f, byte(i))
	}
	return f
}
