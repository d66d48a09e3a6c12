package summary

import (
	"testbed/workloads"
)

// FailureCount counts the items of an arm that did not complete.
type FailureCount struct {
	Coflows  int `json:"coflows"` // with at least one failed flow
	Flows    int `json:"flows"`
	Blocks   int `json:"blocks"`
	Replicas int `json:"replicas"`       // of blocks that completed or failed without them
	Jobs     int `json:"jobs,omitempty"` // of tasks
	// Items that completed, over all repeats.
	CoflowsCompleted int `json:"coflows_completed"`
	BlocksCompleted  int `json:"blocks_completed"`
	// List is all failures, in order of repeat and time.
	List []FailureRow `json:"list"`
}

// FailureRow is one failure. Kind is that of flows.Failure; the IDs are present for kinds
// that have them.
type FailureRow struct {
	Repeat int                 `json:"repeat"`
	AtUS   float64             `json:"at_us"`
	Kind   string              `json:"kind"`
	Coflow *workloads.CoflowID `json:"coflow,omitempty"` // for a flow
	Flow   *workloads.FlowID   `json:"flow,omitempty"`   // for a flow
	Block  *workloads.BlockID  `json:"block,omitempty"`  // for a block and a replica
	Job    *workloads.JobID    `json:"job,omitempty"`    // for a job of tasks
	Host   string              `json:"host,omitempty"`   // the lost host, for a replica
	What   string              `json:"what"`             // description, such as "flow 3 of coflow 1"
	Why    string              `json:"why,omitempty"`
	Fault  string              `json:"fault,omitempty"`
}
