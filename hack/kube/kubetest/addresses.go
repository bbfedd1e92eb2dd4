package kubetest

import (
	"fmt"
	"os"
)

// PodCIDR returns addresses of loopback for the pods of this process's tests, for StartKwok: test programs
// that run at the same time use the same ports, so each needs addresses of its own.
func PodCIDR() string { return loopback(16) }

// serviceCIDR returns addresses of loopback for Services, so that a test can be what is behind a Service:
// the API server calls a webhook at the address of its Service.
func serviceCIDR() string { return loopback(128) }

// loopback returns 256 addresses of loopback, which depend on the process: its second number is at least
// first, and less than 64 more.
func loopback(first int) string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.0/24", first+pid/256%64, pid%256)
}
