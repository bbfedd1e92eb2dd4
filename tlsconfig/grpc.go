package tlsconfig

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
)

// Client returns credentials for gRPC connections. serverName is the name that the server's
// certificate must be for; empty means the host that is dialled. Every handshake uses the files of
// its time.
func (s *Source) Client(serverName string) credentials.TransportCredentials {
	return &client{TransportCredentials: credentials.NewTLS(s.client(serverName)), source: s, serverName: serverName}
}

type client struct {
	credentials.TransportCredentials // of the files as they were at the start
	source                           *Source
	serverName                       string
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *client) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(c.source.client(c.serverName)).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (c *client) Clone() credentials.TransportCredentials { return c.source.Client(c.serverName) }
