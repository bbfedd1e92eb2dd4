// Package client lets a gateway ask an aggregator where to send a request. It keeps the two promises
// of the contract on the gateway's side: a lookup takes no longer than its deadline, and whatever goes
// wrong, the answer is one to route by, if only "no hint".
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// DefaultDeadline bounds a lookup where the configuration names no bound. An aggregator answers in well
// under a millisecond; a hint that takes longer is worth less than the request it holds up.
const DefaultDeadline = 20 * time.Millisecond

// maxAnswerBytes bounds one answer. The largest repeats the token ids of a prompt: a million of them
// at up to 5 bytes.
const maxAnswerBytes = 16 << 20

// Config says which aggregator to ask, and how.
type Config struct {
	// Target is a gRPC target, for example "aggregator:9090" or "dns:///aggregator.serving:9090".
	// Calls take turns over the addresses that it resolves to: aggregators are interchangeable.
	Target string
	// Deadline bounds each lookup; default DefaultDeadline. A sooner one of the caller's context wins.
	Deadline time.Duration
	// TLS is how to verify the aggregator; nil is plaintext.
	TLS *tls.Config
	// Observe, if not nil, is called with each answer, from the goroutine that asked; it must not
	// block. It is the place for metrics.
	Observe func(Answer)
	// DialOptions are further options of the connection.
	DialOptions []grpc.DialOption
}

// Client asks an aggregator. All methods may be called from any goroutine.
type Client struct {
	config Config
	conn   *grpc.ClientConn
	routes pb.InferenceCacheClient
}

// New returns a Client, which begins to connect at once and reconnects by itself; an aggregator that
// is away is no error. The caller closes the Client.
func New(config Config) (*Client, error) {
	if config.Target == "" {
		return nil, errors.New("connect to an aggregator: the target is empty, want host:port or another gRPC target")
	}
	if config.Deadline < 0 {
		return nil, fmt.Errorf("connect to an aggregator: the deadline is %s, want more than 0, or 0 for %s", config.Deadline, DefaultDeadline)
	}
	if config.Deadline == 0 {
		config.Deadline = DefaultDeadline
	}
	trust := insecure.NewCredentials()
	if config.TLS != nil {
		trust = credentials.NewTLS(config.TLS)
	}
	options := append([]grpc.DialOption{
		grpc.WithTransportCredentials(trust),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)),
		// A peer that vanished without a word is noticed before many lookups have waited for it.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 2 * time.Second, PermitWithoutStream: true}),
	}, config.DialOptions...)
	conn, err := grpc.NewClient(config.Target, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to an aggregator at %q: %w", config.Target, err)
	}
	conn.Connect()
	return &Client{config: config, conn: conn, routes: pb.NewInferenceCacheClient(conn)}, nil
}

// Close ends the connection. Lookups that are under way answer TIMEOUT.
func (c *Client) Close() error { return c.conn.Close() }

// LookupRoute asks where to send a request. It takes no longer than the deadline and always has an
// answer: if none came, one with the reason TIMEOUT, no scores, and the cause in Err.
func (c *Client) LookupRoute(ctx context.Context, req *pb.LookupRouteRequest) Answer {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.config.Deadline)
	defer cancel()
	resp, err := c.routes.LookupRoute(ctx, req)
	a := Answer{Response: resp, Err: err, Took: time.Since(began)}
	if err != nil {
		a.Response = &pb.LookupRouteResponse{ReasonCode: Timeout}
	}
	if c.config.Observe != nil {
		c.config.Observe(a)
	}
	return a
}
