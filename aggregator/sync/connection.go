package sync

import (
	"maps"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/aggregator/metrics"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// connection is one stream. Only the stream's handler uses it, but for replaced.
type connection struct {
	service  *Service
	stream   grpc.BidiStreamingServer[pb.SyncRequest, pb.SyncResponse]
	session  *session          // nil before Hello
	replaced chan struct{}     // closed by the stream that takes over; the session's lock guards that
	refused  map[string]uint64 // what could not be applied, by reason
	resend   []uint32          // views of the present delta whose digest differs
	words    []uint64          // backs the keys of one run
}

func (c *connection) handle(req *pb.SyncRequest) error {
	switch m := req.GetMessage().(type) {
	case *pb.SyncRequest_Hello:
		return c.hello(m.Hello)
	case *pb.SyncRequest_Delta:
		return c.delta(m.Delta)
	default: // of a later version
		c.refuse(contract.UnknownMessage, 1)
		return nil
	}
}

func (c *connection) hello(h *pb.Hello) error {
	if c.session != nil {
		return status.Error(codes.InvalidArgument, "hello: sent twice on one stream")
	}
	if err := checkAgentID(h.GetAgentId()); err != nil {
		return err
	}
	version := contract.Version(h.GetAgentVersion())
	sess, applied, err := c.service.attach(c, h.GetAgentId(), h.GetAgentEpoch(), version)
	if err != nil {
		return err
	}
	c.session = sess
	c.service.Log.Info("agent connected", "agent", sess.agent, "version", version, "applied_seq", applied)
	if own := c.service.Version; own != "" && version != "" && own != version {
		c.service.Log.Warn("agent is of another version", "agent", sess.agent, "version", version, "own", own)
	}
	return c.stream.Send(&pb.SyncResponse{Message: &pb.SyncResponse_Welcome{Welcome: &pb.Welcome{
		BootId: c.service.BootID, AppliedSeq: applied, AggregatorVersion: c.service.Version,
	}}})
}

func (c *connection) delta(d *pb.Delta) error {
	if c.session == nil {
		return status.Error(codes.FailedPrecondition, "delta: the first message of a stream must be hello")
	}
	c.resend = nil
	if err := c.take(d); err != nil {
		return err
	}
	c.service.Metrics.Deltas.Inc()
	return c.stream.Send(&pb.SyncResponse{Message: &pb.SyncResponse_Ack{Ack: &pb.DeltaAck{
		BootId: c.service.BootID, Seq: d.GetSeq(), Refused: maps.Clone(c.refused), Resend: c.resend,
	}}})
}

// take applies a delta if it is the one that comes next.
func (c *connection) take(d *pb.Delta) error {
	sess := c.session
	sess.mu.Lock()
	defer sess.mu.Unlock()
	if sess.conn != c {
		return errReplaced
	}
	if want := sess.applied + 1; d.GetSeq() != want {
		return status.Errorf(codes.FailedPrecondition, "delta: seq is %d, want %d; open a new stream to resume", d.GetSeq(), want)
	}
	c.apply(sess, d)
	sess.applied = d.GetSeq()
	c.service.hear(sess)
	if d.GetComplete() && !sess.complete {
		sess.complete = true
		c.service.Log.Info("agent has sent its whole table", "agent", sess.agent, "caches", len(sess.refs))
	}
	return nil
}

// refuse counts changes that could not be applied.
func (c *connection) refuse(reason string, n int) {
	if n <= 0 {
		return
	}
	c.refused[reason] += uint64(n)
	c.service.Metrics.Dropped(metrics.SourceSync, reason, n)
}
