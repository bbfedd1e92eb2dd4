package e2e

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
)

// serve stands for a Service: it listens on the Service's address and passes each connection on to one of
// the backends that answers.
func serve(t *testing.T, address string, backends ...string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			open.Go(func() { pass(t.Context(), client, backends) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		open.Wait()
	})
}

// pass joins a connection with one to the first backend that answers, until either or ctx ends.
func pass(ctx context.Context, client net.Conn, backends []string) {
	defer client.Close()
	defer context.AfterFunc(ctx, func() { _ = client.Close() })()
	for _, backend := range backends {
		server, err := net.Dial("tcp", backend)
		if err != nil {
			continue
		}
		defer server.Close()
		var sending sync.WaitGroup
		sending.Go(func() {
			_, _ = io.Copy(server, client)
			_ = server.Close() // ends the other direction
		})
		_, _ = io.Copy(client, server)
		_ = client.Close()
		sending.Wait()
		return
	}
}
