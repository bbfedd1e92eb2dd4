// Package loopback finds addresses of this machine that nothing else uses.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Host returns an address of the loopback network 127.0.0.0/8, chosen at random. A server that stops there can come
// back on its port: connections of other programs begin at 127.0.0.1, and other servers have other addresses. Where
// the system answers at no other, it is 127.0.0.1.
func Host() string {
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "127.0.0.1"
	}
	_ = l.Close() // nothing was sent
	return host
}
