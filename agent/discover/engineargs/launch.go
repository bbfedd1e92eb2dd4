// Package engineargs reads from a container's image, command and environment how an inference engine
// is started: which models it serves, where, and where it publishes its KV-cache events. It is pure:
// it runs nothing, opens no file and asks nobody.
//
// A container's words go through $(VAR) as the kubelet does it, a shell script if the command is
// one, and the engine's own rules for flags and configuration files. What cannot be known (a value
// from a Secret, the output of a command) stays unknown and is reported where it matters.
package engineargs

// Kind is an inference engine.
type Kind string

// Engines that are known.
const (
	VLLM   Kind = "vllm"
	SGLang Kind = "sglang"
)

// Kinds lists the engines that are known.
func Kinds() []Kind { return []Kind{VLLM, SGLang} }

// Container is what is read of a container.
type Container struct {
	Image         string
	Command, Args []string
	// Env is in the order of the container: a value may refer to those before it.
	Env []Env
	// EnvFrom says that further variables come from ConfigMaps or Secrets.
	EnvFrom bool
	// Owner is what the owner of the container says; it overrides what the command says.
	Owner Owner
}

// Env is one environment variable. Source says where a value that cannot be read comes from, and is
// empty for one that can.
type Env struct{ Name, Value, Source string }

// Owner is what somebody who knows the engine says of it. Empty fields say nothing.
type Owner struct {
	Kind   Kind
	Models []string // served names
	Port   string   // of the HTTP server
	// EventsEndpoint, ReplayEndpoint and Topic are as in --kv-events-config; the first switches
	// events on.
	EventsEndpoint, ReplayEndpoint, Topic string
	Ranks, FirstRank                      string
	// Config is the text of the file that --config names.
	Config string
}

// Launch is how an engine is started.
type Launch struct {
	Kind Kind
	// Models are the names under which the base model is served, the one in answers first.
	Models []string
	// Host and Port are those of the HTTP server; HTTPS says that it speaks TLS.
	Host  string
	Port  int
	HTTPS bool
	// Events and Replay are ZMQ addresses of rank 0 as configured, with a wildcard for the host;
	// Events is empty if the engine publishes nothing that can be followed, and Problems says why.
	Events, Replay, Topic string
	// FirstRank and Ranks are the data-parallel ranks in this container.
	FirstRank, Ranks int
	// TensorParallel is the number of GPUs that share a rank.
	TensorParallel int
	// BlockSize is the tokens in a block, 0 if the command leaves it to the engine.
	BlockSize int
	// LoRA says that adapters can be loaded; Adapters are those of the command line, in their order.
	LoRA     bool
	Adapters []string
	// Offload says what becomes known of a tier beside GPU memory.
	Offload Offload
	// Role is RolePrefill or RoleDecode in disaggregated serving, else empty.
	Role string
	// Metrics says that the engine serves a metrics page.
	Metrics bool
	// Problems are in the order in which they were found.
	Problems []Problem
}

// Offload says how copies outside GPU memory become known.
type Offload string

// Values of Offload.
const (
	OffloadNone     Offload = ""         // there are none, as far as can be seen
	OffloadObserved Offload = "observed" // the engine announces stores and removals
	OffloadInferred Offload = "inferred" // it does not announce removals
)

// Roles in disaggregated serving.
const (
	RolePrefill = "prefill"
	RoleDecode  = "decode"
)

// Reason classifies a problem.
type Reason string

// Reasons of problems.
const (
	KVEventsDisabled      Reason = "KVEventsDisabled"      // the engine publishes no events
	PrefixCachingDisabled Reason = "PrefixCachingDisabled" // the engine keeps no prefixes
	KVEventsUnreachable   Reason = "KVEventsUnreachable"   // events do not leave the pod
	EngineUnreadable      Reason = "EngineUnreadable"      // how the engine is started cannot be read
	EngineUnsupported     Reason = "EngineUnsupported"     // the engine runs in a way that cannot be followed
	ReplayDisabled        Reason = "ReplayDisabled"        // the engine can be followed, but not after a loss
	MetricsUnreachable    Reason = "MetricsUnreachable"    // the engine can be followed, but its load is unknown
)

// Problem is something about an engine that its owner should mend.
type Problem struct {
	Reason Reason
	// Text says what is wrong and what to do, naming the flag.
	Text string
}

// Minor says that the engine can be followed in spite of the problem.
func (p Problem) Minor() bool { return p.Reason == ReplayDisabled || p.Reason == MetricsUnreachable }

// Followable says whether nothing stands in the way of following the engine.
func (l *Launch) Followable() bool {
	for _, p := range l.Problems {
		if !p.Minor() {
			return false
		}
	}
	return true
}
