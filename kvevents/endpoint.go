package kvevents

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// MaxRanks bounds the data-parallel ranks of one engine: each costs three ZMQ sockets.
const MaxRanks = 256

// Endpoint is where one data-parallel rank of an engine publishes.
type Endpoint struct {
	Events string // ZMQ address of the PUB socket
	Replay string // ZMQ address of the replay socket, empty if there is none
	// Topic is what the first frame of a message must begin with; empty accepts every topic.
	Topic string
	Rank  int
}

// ParseEndpoints returns the endpoints of all ranks: as engines do, rank r listens on port + r. The
// addresses are tcp://HOST:PORT, or ipc://PATH with one rank; replay may be empty. Errors name the
// argument: events, replay or ranks.
func ParseEndpoints(events, replay, topic string, ranks int) ([]Endpoint, error) {
	if ranks < 1 || ranks > MaxRanks {
		return nil, fmt.Errorf("ranks: %d is not between 1 and %d", ranks, MaxRanks)
	}
	ev, err := parseAddress(events, ranks)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	re := address{}
	if replay != "" {
		if re, err = parseAddress(replay, ranks); err != nil {
			return nil, fmt.Errorf("replay: %w", err)
		}
		if ev.overlaps(re, ranks) {
			return nil, fmt.Errorf("replay: %q is also an address of events for %d ranks; put the two ports at least %d apart", replay, ranks, ranks)
		}
	}
	all := make([]Endpoint, ranks)
	for r := range all {
		all[r] = Endpoint{Events: ev.rank(r), Replay: re.rank(r), Topic: topic, Rank: r}
	}
	return all, nil
}

// address is a parsed ZMQ address: a TCP host and port, or a path.
type address struct {
	host string
	port int
	path string
}

func (a address) rank(r int) string {
	switch {
	case a.path != "":
		return "ipc://" + a.path
	case a.host != "":
		return "tcp://" + net.JoinHostPort(a.host, strconv.Itoa(a.port+r))
	default:
		return ""
	}
}

// overlaps says whether some rank of a has the address of some rank of b.
func (a address) overlaps(b address, ranks int) bool {
	if a.path != "" || b.path != "" {
		return a.path == b.path
	}
	distance := max(a.port-b.port, b.port-a.port)
	return a.host == b.host && distance < ranks
}

func parseAddress(s string, ranks int) (address, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	switch {
	case ok && scheme == "tcp":
		return parseTCP(s, ranks)
	case ok && scheme == "ipc":
		if rest == "" {
			return address{}, fmt.Errorf("%q has no path", s)
		}
		if ranks > 1 {
			return address{}, fmt.Errorf("%q serves one rank, not %d; use tcp://HOST:PORT", s, ranks)
		}
		return address{path: rest}, nil
	default:
		return address{}, fmt.Errorf("%q is no address; want tcp://HOST:PORT", s)
	}
}

func parseTCP(s string, ranks int) (address, error) {
	host, port, err := splitTCP(s)
	if err != nil {
		return address{}, fmt.Errorf("%q is no address (%w); want tcp://HOST:PORT", s, err)
	}
	switch host {
	case "", "*", "0.0.0.0", "::":
		return address{}, fmt.Errorf("%q names no host to connect to; give the engine's own address", s)
	}
	n, err := strconv.Atoi(port)
	if last := 65536 - ranks; err != nil || n < 1 || n > last {
		return address{}, fmt.Errorf("%q: port %q is not a number between 1 and %d", s, port, last)
	}
	return address{host: host, port: n}, nil
}

func splitTCP(s string) (host, port string, err error) {
	rest := strings.TrimPrefix(s, "tcp://")
	if strings.ContainsAny(rest, "/?#@ ") {
		return "", "", errors.New("something besides host and port")
	}
	host, port, err = net.SplitHostPort(rest)
	if address := (*net.AddrError)(nil); errors.As(err, &address) {
		err = errors.New(address.Err)
	}
	return host, port, err
}

// isIPv6 says whether an endpoint names an IPv6 address literally.
func isIPv6(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && strings.Contains(u.Hostname(), ":")
}
