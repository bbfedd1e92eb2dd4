package relay

import "encoding/binary"

// Layout of ZMTP 3: a greeting, then frames of one byte of flags, a length of 1 or 8 bytes, and a body.
const (
	greeting    = 64
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
	maxHead     = 9
)

// filter takes whole messages out of one direction of a ZMTP connection. Commands, such as heartbeats and
// the handshake, always pass.
type filter struct {
	seen   int           // bytes of the greeting
	head   [maxHead]byte // of the frame that begins
	have   int           // bytes of head
	body   uint64        // bytes of the frame still to come
	inside bool          // a message has begun and its last frame has not
	taking bool          // that message is being taken out
	out    []byte
}

// pass returns what is left of the next bytes of the stream. take is asked at the start of each message. The
// result is good until the next call.
func (f *filter) pass(in []byte, take func() bool) []byte {
	f.out = f.out[:0]
	if n := min(greeting-f.seen, len(in)); n > 0 {
		f.out, in, f.seen = append(f.out, in[:n]...), in[n:], f.seen+n
	}
	for len(in) > 0 {
		if f.body > 0 {
			n := int(min(f.body, uint64(len(in))))
			if !f.taking {
				f.out = append(f.out, in[:n]...)
			}
			in, f.body = in[n:], f.body-uint64(n)
		} else {
			f.head[f.have] = in[0]
			f.have, in = f.have+1, in[1:]
			f.begin(take)
		}
		if f.body == 0 && f.have == 0 && !f.inside {
			f.taking = false
		}
	}
	return f.out
}

// begin starts a frame once its head is complete.
func (f *filter) begin(take func() bool) {
	flags := f.head[0]
	switch {
	case flags&flagLong == 0 && f.have == 2:
		f.body = uint64(f.head[1])
	case f.have == maxHead:
		f.body = binary.BigEndian.Uint64(f.head[1:])
	default:
		return
	}
	if flags&flagCommand == 0 {
		if !f.inside {
			f.taking = take()
		}
		f.inside = flags&flagMore != 0
	}
	if !f.taking {
		f.out = append(f.out, f.head[:f.have]...)
	}
	f.have = 0
}
