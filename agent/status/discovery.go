package status

import "time"

// Discovery is what was found among the pods of a node.
type Discovery struct {
	Node string `json:"node"`
	// Settled says that the pods have been listed since the agent started.
	Settled bool `json:"settled"`
	// Connected says that the API server tells of changes; Error why it does not, and Since since when
	// either is so.
	Connected bool      `json:"connected"`
	Error     string    `json:"error,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	// Containers are the engine containers, by namespace and name.
	Containers []Container `json:"containers"`
}

// States of a container.
const (
	Followed = "followed" // its events are followed
	Unready  = "unready"  // they are, but the pod is not ready to serve
	Waiting  = "waiting"  // it does not run yet, or not at present
	Problem  = "problem"  // it cannot be followed; Problems say why
)

// Container is a container that runs an engine.
type Container struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	// ID is the engine's name in the rest of the report, while it is followed.
	ID     string   `json:"id"`
	Engine string   `json:"engine"` // vllm or sglang
	Models []string `json:"models,omitempty"`
	Role   string   `json:"role,omitempty"` // prefill or decode in disaggregated serving
	State  string   `json:"state"`
	// Problems are what its owner should mend, also of a container that is followed.
	Problems []ContainerProblem `json:"problems,omitempty"`
}

// ContainerProblem is one thing to mend.
type ContainerProblem struct {
	Reason string `json:"reason"`
	Text   string `json:"text"`
}
