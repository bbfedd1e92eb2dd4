package kvevents

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseEndpoints(t *testing.T) {
	got, err := ParseEndpoints("tcp://10.0.0.7:5557", "tcp://10.0.0.7:6557", "kv-events", 2)
	want := []Endpoint{
		{Events: "tcp://10.0.0.7:5557", Replay: "tcp://10.0.0.7:6557", Topic: "kv-events", Rank: 0},
		{Events: "tcp://10.0.0.7:5558", Replay: "tcp://10.0.0.7:6558", Topic: "kv-events", Rank: 1},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, endpoints differ (-want +got):\n%s", err, diff)
	}
}

func TestParseEndpointsTakesOtherAddresses(t *testing.T) {
	for _, events := range []string{"tcp://[::1]:5557", "tcp://engine-0.engines.default.svc:1", "ipc:///run/engine/events", "tcp://h:65535"} {
		got, err := ParseEndpoints(events, "", "", 1)
		if err != nil || len(got) != 1 || got[0] != (Endpoint{Events: events}) {
			t.Errorf("endpoints of %q are %+v, error %v", events, got, err)
		}
	}
	if !isIPv6("tcp://[::1]:5557") || isIPv6("tcp://127.0.0.1:5557") || isIPv6("tcp://host:5557") || isIPv6("ipc:///a:b:c") {
		t.Error("isIPv6 does not tell addresses apart")
	}
}

func TestParseEndpointsNamesWhatIsWrong(t *testing.T) {
	tests := []struct {
		name           string
		events, replay string
		ranks          int
		want           string
	}{
		{"no address", "", "", 1, `events: "" is no address; want tcp://HOST:PORT`},
		{"another scheme", "http://h:1", "", 1, `events: "http://h:1" is no address; want tcp://HOST:PORT`},
		{"no port", "tcp://h", "", 1, `events: "tcp://h" is no address (missing port in address); want tcp://HOST:PORT`},
		{"a port that is no number", "tcp://h:x", "", 1, `port "x" is not a number between 1 and 65535`},
		{"a port that the engine is to choose", "tcp://h:0", "", 1, `port "0" is not a number between 1 and 65535`},
		{"no room for the ranks", "tcp://h:65530", "", 8, `port "65530" is not a number between 1 and 65528`},
		{"ports that the engine is to choose", "tcp://h:0", "", 2, `port "0" is not a number between 1 and 65534`},
		{"a bind address", "tcp://*:5557", "", 1, `events: "tcp://*:5557" names no host to connect to`},
		{"a path behind the port", "tcp://h:1/x", "", 1, "something besides host and port"},
		{"an IPv6 address without brackets", "tcp://::1:5557", "", 1, "too many colons"},
		{"a path for several ranks", "ipc:///run/x", "", 2, `events: "ipc:///run/x" serves one rank, not 2`},
		{"an empty path", "ipc://", "", 1, `events: "ipc://" has no path`},
		{"a bad replay address", "tcp://h:1", "h:2", 1, `replay: "h:2" is no address`},
		{"replay on the port of events", "tcp://h:5557", "tcp://h:5557", 1, "replay: "},
		{"replay on the port of another rank", "tcp://h:5557", "tcp://h:5558", 2, "put the two ports at least 2 apart"},
		{"no ranks", "tcp://h:1", "", 0, "ranks: 0 is not between 1 and 256"},
		{"too many ranks", "tcp://h:1", "", 257, "ranks: 257 is not between 1 and 256"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := ParseEndpoints(test.events, test.replay, "", test.ranks)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("endpoints %v, error %v; want %q", got, err, test.want)
			}
		})
	}
}
