package uplink

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// session opens one stream and feeds it until it breaks.
func (u *Uplink) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := u.client.Sync(ctx)
	if err != nil {
		return fmt.Errorf("open stream: %w", err)
	}
	responses, recvErr := receive(ctx, s)
	defer func() {
		cancel()
		for range responses { // until the receiving goroutine has ended
		}
	}()
	if err := u.greet(ctx, s, responses, recvErr); err != nil {
		return err
	}
	return u.feed(ctx, s, responses, recvErr)
}

// receive reads the stream on a goroutine of its own. The channel is closed when it ends; the error
// is sent before.
func receive(ctx context.Context, s stream) (<-chan *pb.SyncResponse, <-chan error) {
	responses, failed := make(chan *pb.SyncResponse), make(chan error, 1)
	go func() { // ends with the stream; session waits for it
		defer close(responses)
		for {
			r, err := s.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case responses <- r:
			case <-ctx.Done():
				failed <- ctx.Err()
				return
			}
		}
	}()
	return responses, failed
}

// greet exchanges Hello and Welcome, and decides between resuming and starting over.
func (u *Uplink) greet(ctx context.Context, s stream, responses <-chan *pb.SyncResponse, failed <-chan error) error {
	hello := &pb.Hello{AgentId: u.cfg.AgentID, AgentEpoch: u.cfg.Epoch, AgentVersion: u.cfg.Version}
	if err := s.Send(&pb.SyncRequest{Message: &pb.SyncRequest_Hello{Hello: hello}}); err != nil {
		return fmt.Errorf("send hello: %w", streamError(err, failed))
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(helloTimeout):
		return errors.New("no welcome within " + helloTimeout.String())
	case err := <-failed:
		return fmt.Errorf("await welcome: %w", err)
	case r, ok := <-responses:
		welcome := r.GetWelcome()
		if !ok || welcome == nil {
			return errors.New("await welcome: the first response is not one")
		}
		if other := welcome.AggregatorVersion; other != "" && u.cfg.Version != "" && other != u.cfg.Version {
			u.cfg.Log.Warn("the aggregator is of another version", "aggregator", u.cfg.Target, "version", other, "own", u.cfg.Version)
		}
		u.connected.Store(true)
		return u.resume(s, welcome)
	}
}

// streamError prefers the status that the receiving side saw: a failed Send only says io.EOF.
func streamError(err error, failed <-chan error) error {
	select {
	case cause := <-failed:
		return cause
	case <-time.After(time.Second):
		return err
	}
}

// resume sends again what the aggregator missed, or starts over with the whole table.
func (u *Uplink) resume(s stream, w *pb.Welcome) error {
	oldest := u.seq + 1 - uint64(len(u.unacked))
	if w.BootId == u.bootID && w.AppliedSeq+1 >= oldest && w.AppliedSeq <= u.seq {
		u.acknowledge(w.AppliedSeq)
		for _, d := range u.unacked {
			d.Views = u.declarations()
			if err := s.Send(&pb.SyncRequest{Message: &pb.SyncRequest_Delta{Delta: d.Delta}}); err != nil {
				return fmt.Errorf("send delta again: %w", err)
			}
		}
		u.resumes.Add(1)
		return nil
	}
	why := "the aggregator is a new process"
	if w.BootId == u.bootID {
		why = "the stream cannot be resumed"
	}
	u.cfg.Log.Info("sending the whole table", "aggregator", u.cfg.Target, "why", why)
	if w.BootId != u.bootID {
		clear(u.views) // it knows none, so that those that are gone need not be closed
	}
	for ref := range u.views {
		u.views[ref] = 0
	}
	u.bootID, u.seq, u.unacked, u.complete = w.BootId, w.AppliedSeq, nil, false
	for _, c := range u.cfg.Caches() {
		c.Table.Resend(u.cfg.Number)
	}
	u.fullSyncs.Add(1)
	return nil
}

// declarations lists every view that is reported now.
func (u *Uplink) declarations() []*pb.View {
	var views []*pb.View
	for _, c := range u.cfg.Caches() {
		for _, v := range c.views() {
			if _, ok := u.views[v.Ref]; ok {
				views = append(views, v)
			}
		}
	}
	return views
}

// feed sends deltas as tables change and the window allows.
func (u *Uplink) feed(ctx context.Context, s stream, responses <-chan *pb.SyncResponse, failed <-chan error) error {
	beat := time.NewTicker(u.cfg.Beat)
	defer beat.Stop()
	window := time.NewTimer(0) // what waits from before is sent at once
	defer window.Stop()
	armed, beatDue, declare := true, true, true
	for {
		wake := u.wake
		if armed {
			wake = nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(s.CloseSend(), ctx.Err())
		case err := <-failed:
			return err
		case r := <-responses:
			u.handle(r)
			if !u.stalled {
				continue
			}
		case <-wake:
			armed = true
			if u.changed.IsZero() {
				u.changed = u.cfg.Now()
			}
			window.Reset(u.cfg.Window)
			continue
		case <-window.C:
			armed = false
		case <-beat.C:
			beatDue = true
		}
		if armed && !beatDue && !u.stalled {
			continue
		}
		sent, err := u.flush(s, beatDue, declare)
		if err != nil {
			return streamError(err, failed)
		}
		if sent {
			beatDue, declare = false, false
		}
	}
}
