package stream

import (
	"errors"
	"io"
	"testing"

	"go.uber.org/goleak"
)

func TestReceiveEndsWith(t *testing.T) {
	errHandle, errRecv := errors.New("handle"), errors.New("recv")
	closed := make(chan struct{})
	close(closed)
	for name, c := range map[string]struct {
		recvErr, handleErr error
		stop, replaced     chan struct{}
		want               error
	}{
		"the end of the peer's messages":  {recvErr: io.EOF, want: io.EOF},
		"an error of receiving":           {recvErr: errRecv, want: errRecv},
		"an error of handling":            {handleErr: errHandle, want: errHandle},
		"a stop, though the peer is mute": {stop: closed, want: ErrStopped},
		"being replaced":                  {replaced: closed, want: ErrReplaced},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			mute := make(chan struct{})
			defer close(mute) // as the end of a handler unblocks the stream
			n := 0
			recv := func() (int, error) {
				if n++; n <= 3 && c.stop == nil && c.replaced == nil {
					return n, nil
				}
				if c.recvErr == nil {
					<-mute
				}
				return 0, c.recvErr
			}
			var got []int
			err := Receive(recv, c.stop, c.replaced, func(m int) error {
				got = append(got, m)
				return c.handleErr
			})
			if !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if c.recvErr != nil && len(got) != 3 {
				t.Errorf("handled %v", got)
			}
		})
	}
}
