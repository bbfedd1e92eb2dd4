package kubetest

import (
	"fmt"
	"os"
	"sync/atomic"
)

// Each test program uses addresses of its own in 127.0.0.0/8, so that several at a time can use the same
// ports. A port of 127.0.0.1 that is free now may be taken by any connection before it is listened on.

// hosts counts what Host has returned.
var hosts atomic.Uint32

// Host returns an address of loopback that nothing else uses, with every port free. There are 250 of them.
func Host() string { return fmt.Sprintf("%s%d", loopback(192), hosts.Add(1)) }

// PodCIDR returns addresses of loopback for the pods of this process's tests, for StartKwok.
func PodCIDR() string { return loopback(16) + "0/24" }

// serviceCIDR returns addresses of loopback for Services, so that a test can be what is behind a Service:
// the API server calls a webhook at the address of its Service.
func serviceCIDR() string { return loopback(128) + "0/24" }

// loopback returns the first three numbers of 256 addresses of loopback, with a dot. They depend on the
// process: the second number is at least second, and less than 64 more.
func loopback(second int) string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.", second+pid/256%64, pid%256)
}
