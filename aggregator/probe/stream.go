package probe

import (
	"context"
	"io"

	"google.golang.org/grpc"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// report hands one update to the handler of ReportCacheState, as the end of a stream that stays inside
// the process.
func report(ctx context.Context, server pb.InferenceCacheServer, u *pb.CacheStateUpdate) (*pb.Ack, error) {
	s := &reportStream{ctx: ctx, update: u}
	if err := server.ReportCacheState(s); err != nil {
		return nil, err
	}
	return s.ack, nil
}

// reportStream carries one update in and the Ack out.
type reportStream struct {
	grpc.ServerStream // nil: handlers use the methods below alone
	ctx               context.Context
	update            *pb.CacheStateUpdate // nil once it is received
	ack               *pb.Ack
}

// Context implements grpc.ServerStream.
func (s *reportStream) Context() context.Context { return s.ctx }

// Recv implements grpc.ClientStreamingServer.
func (s *reportStream) Recv() (*pb.CacheStateUpdate, error) {
	if s.update == nil {
		return nil, io.EOF
	}
	u := s.update
	s.update = nil
	return u, nil
}

// SendAndClose implements grpc.ClientStreamingServer.
func (s *reportStream) SendAndClose(ack *pb.Ack) error {
	s.ack = ack
	return nil
}
