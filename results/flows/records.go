package flows

import (
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

// Times in records count from the start of the run: its first mark on packets, the
// engine's time zero in a simulation.

// FlowRecord is the record of one flow.
type FlowRecord struct {
	Coflow   workloads.CoflowID
	Flow     workloads.FlowID
	Src, Dst string // host names
	Size     units.Bytes
	Arrival  time.Duration // of its coflow
	Start    time.Duration // when the first payload byte left the sender
	End      time.Duration // when the last payload byte was received
	Packets  int           // with payload, at the sender
	Resent   int           // packets that carry bytes sent before
	Wire     units.Bytes   // sent on the wire, headers included
	// Background marks a flow of a coflow that only loads the network: averages exclude it.
	Background bool `json:",omitempty"`
	// The following are measured on packets only.
	FirstByte   time.Duration `json:",omitempty"` // when the first payload byte was received
	ResentBytes units.Bytes   `json:",omitempty"`
	RTTMin      time.Duration `json:",omitempty"` // payload to acknowledgement at the sender; 0 for unknown
	RTTMedian   time.Duration `json:",omitempty"`
	// Setup is the time from the flow's permission to send until Start or, if the flow
	// carries a stored block, until its connection is established. The permission is the
	// arrival of its coflow or, if later, the release by the coflow policy, which the
	// header states (wire.Header.Released). If the header does not state it, the SYN counts
	// as the permission under a policy that holds flows back, else the arrival.
	Setup time.Duration `json:",omitempty"`
}

// FCT returns the flow completion time, counted from the arrival of its coflow.
func (f FlowRecord) FCT() time.Duration { return f.End - f.Arrival }

// CoflowRecord is the record of one coflow.
type CoflowRecord struct {
	Coflow  workloads.CoflowID
	Width   int // number of flows
	Size    units.Bytes
	Arrival time.Duration
	End     time.Duration // of its last flow
	// Background marks a coflow that only loads the network: averages exclude it.
	Background bool `json:",omitempty"`
}

// CCT returns the coflow completion time.
func (c CoflowRecord) CCT() time.Duration { return c.End - c.Arrival }

// BlockRecord is the record of one block write, measured at its client.
type BlockRecord struct {
	Block     workloads.BlockID
	Client    string
	Hosts     []string // hosts that store it at the end, in pipeline order
	Lost      []string // hosts dropped from its pipelines, in order of loss
	Pipelines int      // number of pipelines built: 1 if none broke
	Size      units.Bytes
	Requested time.Duration // time of the placement, Waited after the write request
	Waited    time.Duration `json:",omitempty"` // wait for the placement
	End       time.Duration // arrival of the last acknowledgement at the client
}

// WorkloadMeta returns the time of the write request, before the wait for the placement.
func (b BlockRecord) Asked() time.Duration { return b.Requested - b.Waited }

// WriteTime returns the block write time, counted from the placement.
func (b BlockRecord) WriteTime() time.Duration { return b.End - b.Requested }

// WriteRecord is the record of a write request: all blocks of one writer, which it writes
// one after the other.
type WriteRecord struct {
	Writer    workloads.WriterID
	Job       workloads.JobID // 0 for none
	Client    string
	Blocks    int
	Size      units.Bytes
	Requested time.Duration // time of the request for the first block
	End       time.Duration // of the last block
}

// RequestTime returns the duration of the whole request, including all waits for placements.
func (w WriteRecord) RequestTime() time.Duration { return w.End - w.Requested }

// JobRecord is the record of one job.
type JobRecord struct {
	Job     workloads.JobID
	Bin     int                 // number of its bin in the workload, from 1; 0 for none
	Coflow  *workloads.CoflowID // nil for none
	Blocks  int
	Size    units.Bytes   // of the blocks, without replicas
	Arrival time.Duration // of its coflow; without one, the request for its first block
	End     time.Duration // of its last block; without blocks, of its coflow
}

// JobTime returns the job completion time.
func (j JobRecord) JobTime() time.Duration { return j.End - j.Arrival }

// Kinds of a Failure.
const (
	FailedFlow    = "flow"
	FailedBlock   = "block"
	FailedReplica = "replica"
)

// Failure is a transfer that a fault ended, or a host that a block's pipeline lost and
// continued without. A mark on the wire distinguishes a failed transfer from one that
// merely did not end.
type Failure struct {
	Kind   string
	Coflow workloads.CoflowID // of a flow
	Flow   workloads.FlowID   // of a flow
	Block  workloads.BlockID  // of a block and a replica
	// Host is the host that sent the mark or, for a replica, the lost host.
	Host string
	At   time.Duration
}

// Records are the results of one repeat of an arm. Flows, Coflows and Blocks are sorted
// by ID.
type Records struct {
	Flows   []FlowRecord
	Coflows []CoflowRecord
	Blocks  []BlockRecord
	// Writes and Jobs are those whose parts all have a record and did not fail, sorted by
	// ID. The wire does not show which blocks belong together: metrics.WorkloadMeta joins them.
	Writes []WriteRecord `json:",omitempty"`
	Jobs   []JobRecord   `json:",omitempty"`
	// Failed is in order of time. A failed flow, its coflow and a failed block have no
	// record; a block that only lost a replica has one.
	Failed []Failure
	// Problems are the reasons why a marked coflow or block has no record, or why a
	// record is doubtful.
	Problems []string
}
