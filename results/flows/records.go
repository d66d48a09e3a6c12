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
	// Background is of a coflow that only loads the network: no average counts it.
	Background bool `json:",omitempty"`
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
	// Background tells that it only loads the network: no average counts it.
	Background bool `json:",omitempty"`
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
	Requested time.Duration // when it was placed: at once, but for what Waited says
	Waited    time.Duration `json:",omitempty"` // to be placed, before Requested
	End       time.Duration // last acknowledgement back at the client
}

// Asked is when the block was asked for: before it waited to be placed.
func (b BlockRecord) Asked() time.Duration { return b.Requested - b.Waited }

// WriteTime is the block write time, from when it was placed.
func (b BlockRecord) WriteTime() time.Duration { return b.End - b.Requested }

// WriteRecord is a write request: all blocks of one writer, which it writes one after
// the other.
type WriteRecord struct {
	Writer    workloads.WriterID
	Job       workloads.JobID // 0 for none
	Client    string
	Blocks    int
	Size      units.Bytes
	Requested time.Duration // when the first block was asked for
	End       time.Duration // of the last block
}

// RequestTime is the time of the whole request, with all waits to be placed.
func (w WriteRecord) RequestTime() time.Duration { return w.End - w.Requested }

// JobRecord is one job.
type JobRecord struct {
	Job     workloads.JobID
	Bin     int                 // of the workload's bins, from 1; 0 for none
	Coflow  *workloads.CoflowID // nil for none
	Blocks  int
	Size    units.Bytes   // of the blocks, once each
	Arrival time.Duration // of its coflow; without one, when its first block was asked for
	End     time.Duration // of its last block; without any, of its coflow
}

// JobTime is the job completion time.
func (j JobRecord) JobTime() time.Duration { return j.End - j.Arrival }

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
	// Writes and Jobs are those of which all has a record and nothing failed, in order of
	// ID. Which blocks belong together the wire does not show: metrics.Asked joins them.
	Writes []WriteRecord `json:",omitempty"`
	Jobs   []JobRecord   `json:",omitempty"`
	// Failed are in order of time. A coflow with a failed flow has no record, and a
	// failed flow or block has none either; a block that lost a replica has one.
	Failed []Failure
	// Problems are the reasons why something that was marked has no record, or
	// why a record is doubtful.
	Problems []string
}
