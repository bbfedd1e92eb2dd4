// Package status is what an agent says of itself at GET /status.
package status

import "time"

// Report is the whole answer.
type Report struct {
	Agent       string       `json:"agent"`
	Started     time.Time    `json:"started"`
	Engines     []Engine     `json:"engines"`
	Aggregators []Aggregator `json:"aggregators"`
	// Discovery is what was found in the cluster; absent if nobody looks there.
	Discovery *Discovery `json:"discovery,omitempty"`
}

// Engine is one engine that is followed.
type Engine struct {
	Name   string `json:"name"`
	Model  string `json:"model"`
	Tenant string `json:"tenant"`
	Events string `json:"events"`
	Ranks  []Rank `json:"ranks"`
	// Aliases are further names of the model.
	Aliases []string `json:"aliases,omitempty"`
	// Adapters are the LoRA adapters that the engine lists as loaded, if it is asked.
	Adapters []string `json:"adapters,omitempty"`
	// Gaps, Replays and Restarts are totals over the ranks since the agent started.
	Gaps     uint64 `json:"gaps"`
	Missed   uint64 `json:"missed"`
	Replays  uint64 `json:"replays"`
	Unfilled uint64 `json:"replaysFailed"`
	Restarts uint64 `json:"restarts"`
	// Malformed counts events that could not be read.
	Malformed uint64 `json:"malformed"`
}

// Rank is one data-parallel rank.
type Rank struct {
	Rank      int    `json:"rank"`
	Connected bool   `json:"connected"`
	Certainty string `json:"certainty"` // exact, partial or uncertain
	// Epoch counts the restarts seen; Seq is the message applied last, absent before the first.
	Epoch uint64  `json:"epoch"`
	Seq   *uint64 `json:"seq,omitempty"`
	// LastEvent is when a message was applied last; zero before the first.
	LastEvent time.Time `json:"lastEvent,omitzero"`
	// LagSeconds is how long that message took from the engine's clock into the table.
	LagSeconds float64 `json:"lagSeconds"`
	// Gaps, Replays and Restarts are totals since the agent started.
	Gaps     uint64 `json:"gaps"`
	Replays  uint64 `json:"replays"`
	Restarts uint64 `json:"restarts"`
	BlocksT1 int    `json:"blocksT1"`
	BlocksT2 int    `json:"blocksT2"`
	// Tier2 is how much the events have told of the offload tier: nothing, stores_only, stores_and_removals, or
	// ignored.
	Tier2       string         `json:"tier2"`
	Orphans     int            `json:"orphans"`
	Undescribed int            `json:"undescribed"`
	Excluded    map[string]int `json:"excluded,omitempty"` // by reason
}

// Aggregator is one aggregator that is kept told.
type Aggregator struct {
	Address   string `json:"address"`
	Connected bool   `json:"connected"`
	// InStep says that the whole table has been confirmed on the present stream.
	InStep    bool   `json:"inStep"`
	Deltas    uint64 `json:"deltas"`
	FullSyncs uint64 `json:"fullSyncs"`
	Resumes   uint64 `json:"resumes"`
	Repairs   uint64 `json:"repairs"`
	// LagSeconds is how long the change acknowledged last took from the agent's table to the index.
	LagSeconds float64           `json:"lagSeconds"`
	Refused    map[string]uint64 `json:"refused,omitempty"` // by reason
}
