package loopback_test

import (
	"net"
	"testing"

	"github.com/inferencecache/inferencecache/hack/loopback"
)

func TestHost_CanBeListenedOnAndReached(t *testing.T) {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback.Host(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
