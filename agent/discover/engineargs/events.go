package engineargs

import (
	"fmt"
	"strconv"
	"strings"
)

// eventsFlag holds the same JSON in both engines.
const eventsFlag = "kv-events-config"

// defaultEndpoint is where both engines publish unless told otherwise.
const defaultEndpoint = "tcp://*:5557"

// eventsConfig is what --kv-events-config says.
type eventsConfig struct {
	given                              bool
	enabled                            bool
	publisher, endpoint, replay, topic string
	bind                               *bool // SGLang 0.5.22 and later
}

// events reads --kv-events-config; ok is false if it is there and cannot be read.
func (r *reader) events() (c eventsConfig, ok bool) {
	before := len(r.problems)
	object := r.object(eventsFlag)
	c = eventsConfig{given: object != nil, endpoint: defaultEndpoint}
	for key, field := range map[string]*string{
		"publisher": &c.publisher, "endpoint": &c.endpoint, "replay_endpoint": &c.replay, "topic": &c.topic,
	} {
		switch value := object[key].(type) {
		case nil:
		case string:
			*field = value
		default:
			r.problem(EngineUnreadable, "--%s: %s is %v, which is no text", eventsFlag, key, value)
		}
	}
	c.enabled = truth(object["enable_kv_cache_events"])
	if bind, given := object["bind"]; given {
		yes := truth(bind)
		c.bind = &yes
	}
	return c, len(r.problems) == before
}

// truth reads a boolean as leniently as the engines do.
func truth(value any) bool {
	switch v := value.(type) {
	case bool:
		return v
	case float64:
		return v != 0
	case string:
		on, err := strconv.ParseBool(strings.ToLower(v))
		return err == nil && on || strings.EqualFold(v, "yes") || strings.EqualFold(v, "on")
	default:
		return false
	}
}

// listens says whether an engine that is given this endpoint listens there. Otherwise it connects to it.
// SGLang also takes 0.0.0.0 for a wildcard.
func (c eventsConfig) listens(kind Kind) bool {
	if c.bind != nil {
		return *c.bind
	}
	return strings.Contains(c.endpoint, "*") || strings.Contains(c.endpoint, "::") ||
		kind == SGLang && strings.Contains(c.endpoint, "0.0.0.0")
}

// example is the flag that switches events on.
func example(kind Kind) string {
	enable := ""
	if kind == VLLM {
		enable = `"enable_kv_cache_events":true,`
	}
	return fmt.Sprintf(`--%s '{%s"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:6557","topic":"kv-events"}'`, eventsFlag, enable)
}

// publish takes over the addresses of an engine whose events are on, if somebody outside the pod can reach them.
func (r *reader) publish(l *Launch, c eventsConfig) {
	switch {
	case strings.HasPrefix(c.endpoint, "ipc://") || strings.HasPrefix(c.endpoint, "inproc://"):
		r.problem(KVEventsUnreachable, `--%s: the endpoint %q does not leave the container; use "endpoint":"tcp://*:5557"`, eventsFlag, c.endpoint)
		return
	case !c.listens(l.Kind):
		r.problem(KVEventsUnreachable, `--%s: with the endpoint %q the engine connects there and does not listen; use "endpoint":"tcp://*:5557"`, eventsFlag, c.endpoint)
		return
	}
	port, err := portOf(c.endpoint)
	if err != nil {
		r.problem(KVEventsUnreachable, `--%s: the endpoint %q %v; use "endpoint":"tcp://*:5557"`, eventsFlag, c.endpoint, err)
		return
	}
	if c.topic != "" {
		l.Topic = c.topic
	}
	l.Events = "tcp://*:" + strconv.Itoa(port)
	switch replay, err := portOf(c.replay); {
	case c.replay == "":
		r.problem(ReplayDisabled, `--%s has no "replay_endpoint": events that are missed, or a lost connection, cost all that is known of the engine; add "replay_endpoint":"tcp://*:6557"`, eventsFlag)
	case err != nil:
		r.problem(ReplayDisabled, `--%s: the replay_endpoint %q %v; use "replay_endpoint":"tcp://*:6557"`, eventsFlag, c.replay, err)
	case max(replay-port, port-replay) < l.FirstRank+l.Ranks:
		r.problem(ReplayDisabled, `--%s: the ports of endpoint and replay_endpoint are less than the %d ranks apart, so that sockets collide; use "replay_endpoint":"tcp://*:6557"`,
			eventsFlag, l.FirstRank+l.Ranks)
	default:
		l.Replay = "tcp://*:" + strconv.Itoa(replay)
	}
}

// portOf returns the port of a TCP endpoint.
func portOf(endpoint string) (int, error) {
	rest, ok := strings.CutPrefix(endpoint, "tcp://")
	if !ok {
		return 0, fmt.Errorf("is not tcp://*:PORT")
	}
	port, err := strconv.Atoi(rest[strings.LastIndexByte(rest, ':')+1:])
	switch {
	case err != nil || port < 0 || port > 65535:
		return 0, fmt.Errorf("has no port between 1 and 65535")
	case port == 0:
		return 0, fmt.Errorf("leaves the port to the system, so that nobody knows it")
	default:
		return port, nil
	}
}
