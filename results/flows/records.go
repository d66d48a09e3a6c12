package flows

import (
	"iter"
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
	Arrival  time.Duration // of its coflow; of a flow that joined an open one, when it joined
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
	Task  *TaskTransfer `json:",omitempty"` // the task that it serves; nil for other flows
}

// TaskTransfer states which attempt of a task a flow serves.
type TaskTransfer struct {
	Job                  workloads.JobID
	Stage, Task, Attempt int // the receiver
	// FromStage, FromTask and FromAttempt are the attempt whose output it carries, the first of
	// Outputs. Outputs is 0 if it carries an input block.
	FromStage, FromTask, FromAttempt int
	Outputs                          int
}

// FCT returns the flow completion time, counted from Arrival.
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
	Attempt   AttemptKey    `json:",omitzero"` // the attempt of a task that writes it; its zero value for none
}

// AttemptKey identifies an attempt of a task of a job, all from 0 except Job.
type AttemptKey struct {
	Job                  workloads.JobID
	Stage, Task, Attempt int
}

// Key returns what identifies the attempt.
func (a *AttemptRecord) Key() AttemptKey { return AttemptKey{a.Job, a.Stage, a.Task, a.Attempt} }

// StoppedWrite is the record of a block write that was stopped because the attempt of a task that wrote it had ended.
type StoppedWrite struct {
	Block          workloads.BlockID
	Client         string
	Requested, End time.Duration // from the placement to the stop
	Sent           units.Bytes   // payload that left hosts for other hosts: at most the size for each replica on another host
	Attempt        AttemptKey    `json:",omitzero"`
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

	// The following are those of a job of tasks, whose Arrival is its submission. Its Coflow and
	// Blocks are not known.
	User    string      `json:",omitempty"`
	Profile string      `json:",omitempty"`
	Tasks   int         `json:",omitempty"`
	Input   units.Bytes `json:",omitempty"` // of the stages that read blocks
	// Lone is the time that the job takes alone on the cluster; 0 if it is unknown.
	Lone time.Duration `json:",omitempty"`
}

// Kinds, localities and outcomes of an AttemptRecord.
const (
	MapTask    = "map"
	ReduceTask = "reduce"

	NodeLocal = "node"     // the host itself stored the block
	RackLocal = "rack"     // another host of its rack
	OffRack   = "off-rack" // a host of another rack

	Committed = "committed" // its output is that of its task
	Killed    = "killed"    // the scheduler took its slot, or another attempt won
	Failed    = "failed"    // it failed, or its host was lost
	Copied    = "copied"    // another attempt had committed before, and its output is a copy
)

// Outcomes returns the outcomes of an AttemptRecord, in printing order.
func Outcomes() []string { return []string{Committed, Copied, Killed, Failed} }

// AttemptRecord is the record of one attempt of a task.
type AttemptRecord struct {
	Job                  workloads.JobID
	Stage, Task, Attempt int // from 0
	Kind                 string
	Host                 string
	// Slot is the number of its slot among those of its kind on its host, from 0: the lowest one
	// that was free at Start.
	Slot     int
	Locality string        // of its input block; "" if its stage reads no blocks
	Input    units.Bytes   // that it read or fetched
	Start    time.Duration // when it got its slot
	// InputEnd is when it had all its input, Compute when it began to compute (a task that reads
	// a block: at Start), Computed when it had processed its input; 0 if it did not get there.
	InputEnd, Compute, Computed time.Duration
	End                         time.Duration
	Outcome                     string
	Why                         string // reason why it was killed or failed; "" for unknown
}

// JobTime returns the job completion time.
func (j JobRecord) JobTime() time.Duration { return j.End - j.Arrival }

// Kinds of a Failure.
const (
	FailedFlow    = "flow"
	FailedBlock   = "block"
	FailedReplica = "replica"
	FailedJob     = "job" // of tasks
)

// Failure is a transfer that a fault ended, or a host that a block's pipeline lost and
// continued without. A mark on the wire distinguishes a failed transfer from one that
// merely did not end.
type Failure struct {
	Kind   string
	Coflow workloads.CoflowID // of a flow
	Flow   workloads.FlowID   // of a flow
	Block  workloads.BlockID  // of a block and a replica
	Job    workloads.JobID    `json:",omitempty"` // of a job of tasks
	// Host is the host that sent the mark or, for a replica, the lost host.
	Host string
	At   time.Duration
	Why  string `json:",omitempty"` // such as "h1-02 is lost"; "" for unknown
}

// Records are the results of one repeat of an arm. Flows, Coflows and Blocks are sorted
// by ID.
type Records struct {
	Flows   []FlowRecord
	Coflows []CoflowRecord
	Blocks  []BlockRecord
	// Summed are sums of transfers of tasks that are not in Flows: one for each task's stage, by whether
	// it carries an input block and whether it crosses racks. Size is that of all, and Arrival, Start
	// and End span all; the other fields are those of the first to end. None on packets.
	Summed []FlowRecord `json:",omitempty"`
	// Stopped are transfers of tasks that were stopped or failed before their end, sorted by ID. Size is the payload that
	// left the sender, and End the time of the stop. Captures alone show them.
	Stopped []FlowRecord `json:",omitempty"`
	// StoppedWrites are block writes of tasks that were stopped before their end, in order of block. Captures alone show them.
	StoppedWrites []StoppedWrite `json:",omitempty"`
	// Writes and Jobs are those whose parts all have a record and did not fail, sorted by
	// ID. The wire does not show which blocks belong together: metrics.WorkloadMeta joins them.
	Writes []WriteRecord `json:",omitempty"`
	Jobs   []JobRecord   `json:",omitempty"`
	// Attempts are the attempts of tasks that have ended, in order of job, stage, task and attempt.
	Attempts []AttemptRecord `json:",omitempty"`
	// Failed is in order of time. A failed flow, its coflow and a failed block have no
	// record; a block that only lost a replica has one.
	Failed []Failure
	// Problems are the reasons why a marked coflow or block has no record, or why a
	// record is doubtful.
	Problems []string
}

// Transfers yields the flows and the sums of flows. The records may be modified.
func (r *Records) Transfers() iter.Seq[*FlowRecord] {
	return each(r.Flows, r.Summed)
}

// Carried yields the same, and the flows that were stopped.
func (r *Records) Carried() iter.Seq[*FlowRecord] { return each(r.Flows, r.Summed, r.Stopped) }

func each(lists ...[]FlowRecord) iter.Seq[*FlowRecord] {
	return func(yield func(*FlowRecord) bool) {
		for _, list := range lists {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}
