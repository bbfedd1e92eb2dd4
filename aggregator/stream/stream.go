// Package stream lets a gRPC handler end a stream whose peer is silent.
package stream

import "errors"

// Reasons why a receiver ends before its peer is done.
var (
	ErrStopped  = errors.New("stopped")
	ErrReplaced = errors.New("replaced")
)

// Receive hands each message of a stream to handle, in order, until recv fails (io.EOF when the peer
// is done), handle fails, or stop or replaced is closed, and returns that error. Either channel may
// be nil. A blocked recv of a gRPC stream ends only when its handler returns, so recv runs on a
// goroutine of its own, which ends when the handler has returned. One message is received while the
// one before is handled.
func Receive[T any](recv func() (T, error), stop, replaced <-chan struct{}, handle func(T) error) error {
	type result struct {
		message T
		err     error
	}
	results := make(chan result)
	done := make(chan struct{})
	defer close(done)
	go func() { // ends once the handler has returned
		for {
			m, err := recv()
			select {
			case results <- result{m, err}:
			case <-done:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		select {
		case <-stop:
			return ErrStopped
		case <-replaced:
			return ErrReplaced
		case r := <-results:
			if r.err != nil {
				return r.err
			}
			if err := handle(r.message); err != nil {
				return err
			}
		}
	}
}
