package flows

import (
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

// Times in records count from the start of the run they belong to: the first
// mark of the run in a capture, the engine's zero in a simulation. Differences
// are what matter.

// FlowRecord is one flow as its receiver's interface saw it.
type FlowRecord struct {
	Coflow   workloads.CoflowID
	Flow     workloads.FlowID
	Src, Dst string // host names
	Size     units.Bytes
	Arrival  time.Duration // of its coflow
	Start    time.Duration // first payload byte leaves the sender
	End      time.Duration // last payload byte received
	Packets  int           // with payload, at the sender
	Resent   int           // of them, those that carry bytes sent before
	Wire     units.Bytes   // at the sender, headers included
	// Of packets only:
	FirstByte   time.Duration `json:",omitempty"` // first payload byte received
	ResentBytes units.Bytes   `json:",omitempty"`
	RTTMin      time.Duration `json:",omitempty"` // payload to acknowledgement at the sender; 0 for unknown
	RTTMedian   time.Duration `json:",omitempty"`
}

// FCT is the flow completion time, counted from the arrival of its coflow.
func (f FlowRecord) FCT() time.Duration { return f.End - f.Arrival }

// CoflowRecord is one coflow.
type CoflowRecord struct {
	Coflow  workloads.CoflowID
	Width   int // flows
	Size    units.Bytes
	Arrival time.Duration
	End     time.Duration // of its last flow
}

// CCT is the coflow completion time.
func (c CoflowRecord) CCT() time.Duration { return c.End - c.Arrival }

// BlockRecord is one block write as its client saw it.
type BlockRecord struct {
	Block     workloads.BlockID
	Client    string
	Hosts     []string // that hold it in the end, in pipeline order
	Lost      []string // that were dropped from its pipelines, in that order
	Pipelines int      // one more than the times it broke
	Size      units.Bytes
	Requested time.Duration
	End       time.Duration // last acknowledgement back at the client
}

// WriteTime is the block write time, from the request.
func (b BlockRecord) WriteTime() time.Duration { return b.End - b.Requested }

// What a Failure is of.
const (
	FailedFlow    = "flow"
	FailedBlock   = "block"
	FailedReplica = "replica"
)

// Failure is a transfer that a fault ended, or a host that the pipeline of a block
// went on without. It is marked on the wire, which tells it from one that just did
// not end.
type Failure struct {
	Kind   string
	Coflow workloads.CoflowID // of a flow
	Flow   workloads.FlowID   // of a flow
	Block  workloads.BlockID  // of a block and a replica
	// Host is whose interface showed the mark; of a replica, the host that was lost.
	Host string
	At   time.Duration
}

// Records is all that one arm and repeat measured. Flows, Coflows and Blocks are in
// order of ID.
type Records struct {
	Flows   []FlowRecord
	Coflows []CoflowRecord
	Blocks  []BlockRecord
	// Failed are in order of time. A coflow with a failed flow has no record, and a
	// failed flow or block has none either; a block that lost a replica has one.
	Failed []Failure
	// Problems are the reasons why something that was marked has no record, or
	// why a record is doubtful.
	Problems []string
}
