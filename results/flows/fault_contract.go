package flows

import (
	"time"

	"testbed/workloads"
)

// Failure is something that a fault ended, as thin as it compiles: it is replaced
// as a whole.
type Failure struct {
	Kind   string // "flow", "block" or "replica"
	Coflow workloads.CoflowID
	Flow   workloads.FlowID
	Block  workloads.BlockID
	Host   string // of a replica
	At     time.Duration
}
